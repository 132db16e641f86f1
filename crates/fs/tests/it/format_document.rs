//! `docs/FORMAT.md` says what the code does: its tables and examples are printed from the code and compared.

#[macro_use]
mod tables;

use device::DeviceBlock;
use home::{HOME_MAGIC, HOME_VERSION, HomeHeader};
use lease::{NO_SLOT, Record, Salt};
use perdure_fs::directory::{self, UNIT_BYTES, record_bytes, write_fresh_block};
use perdure_fs::format::inode::{INLINE_BYTES, INODE_BYTES, INODES_PER_BLOCK};
use perdure_fs::format::lease::{FLAG_LEASE, RING_BLOCKS_MAX, RawLease, SPARE_BLOCKS_MAX};
use perdure_fs::format::map::{FANOUT, FILE_BYTES_MAX, HEIGHT_MAX};
use perdure_fs::format::xattr::{self, AttributeHeader};
use perdure_fs::format::{
    LINKS_MAX, NAME_BYTES_MAX, Pointer, Position, RawInode, SYMLINK_BYTES_MAX,
};
use perdure_fs::{FileType, InodeNumber};
use pmem::{BLOCK_BYTES, BlockNumber, LINE_BYTES, Offset};
use std::fmt::Write;
use tables::{code, dump, layout, pairs};
use txn::Superblock;
use txn::checksum::{SEALED_MAX, Seal, crc32c, mix64, seal};
use txn::domain::Domain;
use txn::layout::{
    CHECKPOINT_AT, CLEAN_AT, FLAG_DEVICE, FLAG_LOG, FLAG_VOLATILE, FORMAT_VERSION,
    FORMAT_VERSION_WITH_DEVICE, HOME_MOUNTS_AT, JOURNALS_AT, JOURNALS_MAX, MAGIC, ROOT_AREA_AT,
    SAVED_AT, SAVED_EXTENTS_MAX, SEGMENT_ENTRY_BYTES, SEGMENT_TABLE_BLOCK, SEGMENTS_MAX,
    STATE_BLOCK, SavedHeader, SegmentEntry, header_blocks,
};
use txn::record::{DataCheck, HEADER_BYTES, RecordBuilder};
use zerocopy::IntoBytes;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");

fn limits() -> String {
    let row = |name: &str, value: String| (name.to_string(), value);
    pairs(
        ("what", "value"),
        &[
            row("magic", format!("`{}`", MAGIC.escape_ascii())),
            row("format version", version()),
            row("block", format!("{BLOCK_BYTES} bytes")),
            row("line", format!("{LINE_BYTES} bytes")),
            row("segments of a pool", format!("1 to {SEGMENTS_MAX}")),
            row("journals of a pool", format!("1 to {JOURNALS_MAX}")),
            row(
                "inode",
                format!("{INODE_BYTES} bytes, {INODES_PER_BLOCK} in a block"),
            ),
            row("largest inode number", InodeNumber::MAX.to_string()),
            row("pointers in a node of a block map", FANOUT.to_string()),
            row("height of a block map", format!("0 to {HEIGHT_MAX}")),
            row("largest file", format!("{FILE_BYTES_MAX} bytes")),
            row("links to an inode", format!("up to {LINKS_MAX}")),
            row(
                "name",
                format!("1 to {NAME_BYTES_MAX} bytes, neither `/` nor NUL, neither `.` nor `..`"),
            ),
            row(
                "directory",
                format!("up to {} blocks", directory::BLOCKS_MAX),
            ),
            row(
                "target of a symbolic link",
                format!("1 to {SYMLINK_BYTES_MAX} bytes, up to {INLINE_BYTES} in the inode"),
            ),
            row(
                "name of an extended attribute",
                format!("1 to {} bytes", xattr::NAME_BYTES_MAX),
            ),
            row(
                "value of an extended attribute",
                format!("0 to {} bytes", xattr::VALUE_BYTES_MAX),
            ),
        ],
    )
}

fn superblock() -> String {
    fields!(Superblock {
        magic: format!("`{}`", MAGIC.escape_ascii()),
        version: version(),
        checksum: "CRC32C of these bytes with this field zero",
        uuid: "random identity of the pool (UUID version 4)",
        created_ns: "when mkfs ran, nanoseconds since 1970",
        header_blocks: "blocks of the header, both superblocks included",
        segment_blocks: "blocks of a segment, a power of two",
        journal_blocks: "blocks of one journal, even: two halves",
        segments: "number of segments",
        journals: "number of journals",
        flags: format!(
            "{FLAG_VOLATILE}: made with `--volatile`; {FLAG_LOG}: class `log`; or 0; and {FLAG_DEVICE}: with a device"
        ),
        device_blocks: "blocks of the device that the pool uses; without one zero",
        journal_key: "random secret, part of the salt of journal records",
    })
}

fn home_header() -> String {
    fields!(HomeHeader {
        magic: format!("`{}`", HOME_MAGIC.escape_ascii()),
        version: format!("{HOME_VERSION}"),
        checksum: "CRC32C of these bytes with this field zero",
        pool: "identity of the pool, as in its superblock",
        generation: "mounts for writing together with the memory",
        blocks: "data blocks",
        created_ns: "when it was made, nanoseconds since 1970",
    })
}

fn header() -> String {
    let examples = [(1, 16), (30, 16), (64, 256), (4096, 4096)];
    let rows = examples.map(|(segments, blocks)| {
        (
            format!("{segments} segments of {blocks} blocks"),
            format!("{} blocks", header_blocks(segments, blocks)),
        )
    });
    pairs(("pool", "header"), &rows)
}

fn state_block() -> String {
    let row = |offset: u64, bytes: u64, name: &str, meaning: &str| {
        (offset, bytes, name.to_string(), meaning.to_string())
    };
    let block = STATE_BLOCK.get();
    let inode = INODE_BYTES as u64;
    format!("The state block is block {block}.\n\n")
        + &layout(&[
            row(
                CHECKPOINT_AT,
                8,
                "checkpoint",
                "sealed: records up to this number are retired",
            ),
            row(
                CLEAN_AT,
                8,
                "clean mark",
                "sealed: number of the checkpoint of a clean unmount; 0 = mounted, or crashed",
            ),
            row(
                HOME_MOUNTS_AT,
                8,
                "home mounts",
                "of a pool with a home: how often both were mounted for writing; its header has the same count, or one more",
            ),
            row(
                SAVED_AT,
                size_of::<SavedHeader>() as u64,
                "saved header",
                "where the unmount saved the volatile state; counts only with the clean mark",
            ),
            row(
                JOURNALS_AT,
                16 * u64::from(JOURNALS_MAX),
                "journals",
                "sealed, two words each: the places of the halves of journal 0, 1, …",
            ),
            row(
                ROOT_AREA_AT,
                inode,
                "table inode",
                "the inode of the inode table",
            ),
        ])
}

fn seals() -> String {
    let kinds = [
        Seal::Checkpoint,
        Seal::Clean,
        Seal::Journal,
        Seal::Wear,
        Seal::Segment,
        Seal::Content,
    ];
    let rows = kinds.map(|kind| {
        (
            format!("{}", kind as u64),
            format!("{kind:?}").to_lowercase(),
        )
    });
    let example = |value, kind: Seal, position| {
        let name = format!("{kind:?}").to_lowercase();
        format!(
            "seal({value}, {name}, {position}) = {:#018x}",
            seal(value, kind, position)
        )
    };
    let examples = [
        example(0, Seal::Checkpoint, 0),
        example(1_000_000, Seal::Checkpoint, 0),
        example(1_000_000, Seal::Clean, 0),
        example(16, Seal::Journal, 0),
        example(20, Seal::Journal, 1),
        format!("mix64(1)                         = {:#018x}", mix64(1)),
        format!("largest value                    = {SEALED_MAX:#018x}"),
    ];
    pairs(("seal", "of"), &rows) + "\n" + &code(&examples)
}

fn segment_entry() -> String {
    assert_eq!(size_of::<SegmentEntry>() as u64, SEGMENT_ENTRY_BYTES);
    let table = fields!(SegmentEntry {
        owner: "`uid << 32 \\| gid` of an owner; without meaning for the other kinds",
        seal: "0 = free; else kind (8 bits), class (8 bits), check (48 bits)",
        wear: "sealed: blocks written in this segment since mkfs, as of the last clean unmount; 0 = never saved",
        content: "sealed: 1 = nobody has written in this segment since it was all zeros, 2 + uid = only this user has; 0 = anybody may have",
    });
    let domains = [
        ("metadata", Domain::Metadata),
        ("mixed", Domain::Mixed),
        (
            "owner, user 1000, group 100, `rw-r--r--`",
            Domain::of_file(0o644, 1000, 100),
        ),
    ];
    let rows = domains.map(|(name, domain)| {
        let (owner, seal) = domain.words(7);
        (
            name.to_string(),
            format!(
                "{} | {:#06o} | `{owner:#018x}` | `{seal:#018x}`",
                seal as u8,
                seal as u16 >> 8
            ),
        )
    });
    let mut examples = String::from(
        "| domain | kind | class | owner word | seal in segment 7 |\n| --- | ---: | ---: | --- | --- |\n",
    );
    for (name, rest) in rows {
        writeln!(examples, "| {name} | {rest} |").expect("a string grows");
    }
    format!(
        "The table starts at block {}.\n\n{table}\n{examples}",
        SEGMENT_TABLE_BLOCK.get()
    )
}

fn saved_header() -> String {
    format!("At most {SAVED_EXTENTS_MAX} extents.\n\n")
        + &fields!(SavedHeader {
            length: "bytes of the saved state",
            blob_checksum: "CRC32C of the saved state",
            extent_count: "extents used",
            extents: "first block and number of blocks, 8 bytes each",
            checksum: "CRC32C of this header with this field zero",
            reserved: "zero",
        })
}

fn record() -> String {
    let row = |offset: u64, bytes: u64, name: &str, meaning: &str| {
        (offset, bytes, name.to_string(), meaning.to_string())
    };
    let head = layout(&[
        row(
            0,
            8,
            "sequence number",
            "from 1, one counter for all journals",
        ),
        row(
            8,
            4,
            "length",
            "bytes of header and entries, without padding",
        ),
        row(
            12,
            4,
            "check",
            "`byteswap(crc32c(head)) ^ crc32c(all behind the head) ^ salt`, see below",
        ),
        row(
            HEADER_BYTES as u64,
            0,
            "entries",
            "one after the other; the first may be a data check",
        ),
    ]);
    let mut builder = RecordBuilder::new();
    builder.store_word(Offset::new(0x1_2340), 0x1122_3344_5566_7788);
    builder.store(Offset::new(0x2_0003), b"five!");
    builder.zero(Offset::new(0x3_0000), 100);
    builder.close(&txn::Homes::default());
    let bytes = builder.finish(77, 0).to_vec();
    let text = "\nRecord 77: the word `0x1122334455667788` at 0x12340, `five!` at 0x20003, 100 zeros at 0x30000; salt 0.\n\n";
    head + text + &code(&dump(&bytes)) + &record_with_data_check()
}

fn record_with_data_check() -> String {
    let data = b"123456789";
    let mut builder = RecordBuilder::new();
    builder.check_data(DataCheck {
        at: Offset::new(0x4_0000),
        length: data.len(),
        checksum: crc32c(data),
    });
    builder.store_word(Offset::new(0x1_2340), 0x1122_3344_5566_7788);
    builder.close(&txn::Homes::default());
    let text = "\nRecord 78: the data `123456789` at 0x40000, the word `0x1122334455667788` at 0x12340; salt 0.\n\n";
    text.to_string() + &code(&dump(builder.finish(78, 0)))
}

fn inode() -> String {
    fields!(RawInode {
        mode: "`st_mode`: type and permissions; 0 = free",
        links: "number of names; for a directory 2 + the directories in it; 0 = unlinked, freed by the next mount",
        uid: "owner",
        gid: "group",
        generation: "grows each time the number is used again",
        flags: format!("{FLAG_LEASE}: a [lease](#leases); else zero"),
        size: "bytes of content; of a directory a multiple of the block",
        blocks: "blocks owned: data, nodes of the block map, attributes",
        modified: "last change of content, nanoseconds since 1970",
        changed: "last change of the inode",
        checksum: "see below",
        height: "levels of the block map above the data blocks",
        reserved: "zero",
        root: "pointer to the root of the block map, at (number, `height`, 0)",
        accessed: "last access",
        created: "creation",
        parent: "a directory's parent (the root's is itself); else zero",
        attributes: format!(
            "pointer to the extended attributes, at (number, {}, 0)",
            Position::ATTRIBUTES
        ),
        device: "device number of a device",
        reserved_words: "zero",
        inline: "target of a short symbolic link; CRC32C of a long one; words of a lease; else zero",
    })
}

fn lease() -> String {
    fields!(RawLease {
        target: "inode that is leased",
        next: "number of the first record that is not folded",
        target_generation: "generation of the inode that is leased",
        ring_blocks: format!("blocks of the ring, a power of two up to {RING_BLOCKS_MAX}"),
        spare_blocks: format!(
            "spare blocks, up to {SPARE_BLOCKS_MAX}, those that are gone included"
        ),
        ended: "1: the lease has ended, its records do not count any more",
        reserved: "zero",
    })
}

fn lease_record() -> String {
    let record = Record {
        sequence: 77,
        index: 2,
        size: 12_000,
        modified: 1_700_000_000_000_000_000,
        slot: 5,
        continues: 0,
        data_at: 0,
        data_bytes: 3808,
        data_checksum: crc32c(&[0x55; 3808]),
        checksum: 0,
        reserved: 0,
    };
    let table = fields!(Record {
        sequence: "number, from 1 on",
        index: "block of the file",
        size: "bytes of the file afterwards",
        modified: "when, nanoseconds since 1970",
        slot: format!(
            "spare block, or {NO_SLOT:#x}: the file's last block was written behind its end"
        ),
        continues: "1: the next record belongs to the same write; else 0",
        data_at: "first byte of the data in its block",
        data_bytes: "bytes of the data, if they share the record's fence; else 0",
        data_checksum: "their CRC32C",
        checksum: "CRC32C of the record with this field zero and the salt in the last one",
        reserved: "zero",
    });
    let text = "\nRecord 77: block 2 of the file and spare block 5, of which the file has 3,808 bytes of `U`; salt 7.\n\n";
    table + text + &code(&dump(record.sealed(Salt(7)).as_bytes()))
}

fn file_types() -> String {
    let kinds = [
        FileType::Fifo,
        FileType::CharacterDevice,
        FileType::Directory,
        FileType::BlockDevice,
        FileType::Regular,
        FileType::Symlink,
        FileType::Socket,
    ];
    let rows = kinds.map(|kind| {
        (
            format!("{} | `{:#o}`", kind as u8, kind.mode_bits()),
            format!("{kind:?}"),
        )
    });
    let mut table =
        String::from("| value | type bits of the mode | type |\n| ---: | ---: | --- |\n");
    for (numbers, name) in rows {
        writeln!(table, "| {numbers} | {name} |").expect("a string grows");
    }
    table
}

/// The versions that pools have.
fn version() -> String {
    format!("{FORMAT_VERSION}, or {FORMAT_VERSION_WITH_DEVICE} with a device")
}

fn pointer() -> String {
    let example = |pointer: Pointer, inode, level, index| {
        let position = Position {
            inode: InodeNumber::new(inode),
            level,
            index,
        };
        let name = match pointer {
            Pointer::Written(block) => format!("block {block}, written"),
            Pointer::Unwritten(block) => format!("block {block}, unwritten"),
            Pointer::Device(block) => format!("block {block} of the device"),
        };
        format!(
            "{name}, at ({inode}, {level}, {index}): {:#018x}",
            pointer.word(position)
        )
    };
    let block = BlockNumber::new(100);
    let last = BlockNumber::new((1 << 40) - 1);
    code(&[
        example(Pointer::Written(block), 5, 0, 0),
        example(Pointer::Written(block), 5, 0, 1),
        example(Pointer::Written(block), 5, 1, 0),
        example(Pointer::Written(block), 6, 0, 0),
        example(Pointer::Unwritten(block), 5, 0, 0),
        example(Pointer::Device(DeviceBlock::new(100)), 5, 0, 0),
        example(
            Pointer::Written(last),
            u64::from(u32::MAX),
            Position::ATTRIBUTES,
            32,
        ),
    ])
}

fn dentry() -> String {
    let name_at = (record_bytes(1) - UNIT_BYTES) as u64;
    let row = |offset: u64, bytes: u64, name: &str, meaning: &str| {
        (offset, bytes, name.to_string(), meaning.to_string())
    };
    let table = layout(&[
        row(
            0,
            2,
            "record length",
            "bytes of the record, a multiple of 8",
        ),
        row(2, 1, "name length", "0 = free range"),
        row(3, 1, "file type", "0 in a free range"),
        row(4, 4, "check", "CRC32C"),
        row(8, 8, "inode number", "dentry only"),
        row(
            name_at,
            0,
            "name",
            "dentry only; then zeros to the next multiple of 8",
        ),
    ]);
    let mut block = [0; BLOCK_BYTES];
    let (directory, inode) = (InodeNumber::ROOT, InodeNumber::new(9));
    write_fresh_block(
        directory,
        0,
        b"perdure",
        inode,
        FileType::Regular,
        &mut block,
    );
    let length = record_bytes(7);
    let text = "\nIn block 0 of directory 1: the regular file `perdure`, inode 9, and the free range behind it.\n\n";
    table + text + &code(&dump(&block[..length + 8]))
}

fn attribute_header() -> String {
    fields!(AttributeHeader {
        checksum: "CRC32C of the blob",
        length: "bytes of the blob",
        blocks: "blocks that hold the blob; 0 = it follows this header",
        reserved: "zero",
    })
}

fn checksums() -> String {
    let mut raw = RawInode {
        mode: 0o100_644,
        links: 1,
        size: 5,
        ..RawInode::ZERO
    };
    raw.checksum = raw.expected_checksum(InodeNumber::new(7));
    code(&[
        format!(
            "crc32c(\"123456789\")                                      = {:#010x}",
            crc32c(b"123456789")
        ),
        format!(
            "inode 7, mode 0100644, links 1, size 5, the rest zero: checksum {:#010x}",
            raw.checksum
        ),
    ])
}

/// Every section that is printed from the code.
fn sections() -> [(&'static str, String); 16] {
    [
        ("limits", limits()),
        ("header", header()),
        ("superblock", superblock()),
        ("state-block", state_block()),
        ("seals", seals()),
        ("home-header", home_header()),
        ("segment-entry", segment_entry()),
        ("saved-header", saved_header()),
        ("record", record()),
        ("inode", inode()),
        ("lease", lease()),
        ("lease-record", lease_record()),
        ("file-types", file_types() + "\n" + &checksums()),
        ("pointer", pointer()),
        ("dentry", dentry()),
        ("attribute-header", attribute_header()),
    ]
}

/// The document with its printed sections replaced.
fn updated(document: &str) -> String {
    let mut text = document.to_string();
    for (name, section) in sections() {
        let (start, end) = (
            format!("<!-- printed: {name} -->\n"),
            format!("<!-- end: {name} -->"),
        );
        let from = text
            .find(&start)
            .unwrap_or_else(|| panic!("docs/FORMAT.md has no `{start}`"))
            + start.len();
        let to = from
            + text[from..]
                .find(&end)
                .unwrap_or_else(|| panic!("docs/FORMAT.md has no `{end}`"));
        text.replace_range(from..to, &format!("\n{section}\n"));
    }
    text
}

#[test]
fn the_document_says_what_the_code_does() {
    let document = std::fs::read_to_string(DOCUMENT).expect("docs/FORMAT.md");
    let expected = updated(&document);
    if std::env::var_os("UPDATE_FORMAT").is_some() {
        std::fs::write(DOCUMENT, expected).expect("docs/FORMAT.md can be written");
        return;
    }
    if document == expected {
        return;
    }
    let old: Vec<&str> = document.lines().collect();
    let new: Vec<&str> = expected.lines().collect();
    for line in old.iter().filter(|line| !new.contains(line)) {
        println!("- {line}");
    }
    for line in new.iter().filter(|line| !old.contains(line)) {
        println!("+ {line}");
    }
    panic!(
        "docs/FORMAT.md differs from the code (see above). If the code is right and the version was raised as the document \
         says: UPDATE_FORMAT=1 cargo test -p perdure-fs --test it format_document"
    );
}
