//! Single flipped bits in every structure: each is reported, none harms, repair undoes it exactly.

use super::OPTIONS;
use super::tree::{self, Snapshot};
use perdure_fs::check::{FaultKind, check};
use perdure_fs::directory::{self, Record};
use perdure_fs::format::inode::INODE_BYTES;
use perdure_fs::format::{Pointer, Position, RawInode};
use perdure_fs::{FsError, InodeNumber};
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};
use std::ops::Range;
use std::sync::Arc;
use txn::Superblock;
use txn::layout::{
    CHECKPOINT_AT, CLEAN_AT, JOURNALS_AT, ROOT_AREA_AT, SAVED_AT, STATE_BLOCK, SavedHeader,
    SegmentEntry,
};

/// Flips every bit of the ranges: each must be reported. Every `repaired_each`th is also mounted and repaired: then the tree must
/// be as it was.
fn flip_all(image: &[u8], ranges: &[Range<u64>], repaired_each: usize) {
    let expected =
        Snapshot::of(&tree::mount(Region::from_image(image)).expect("the undamaged image mounts"));
    let region = Region::from_image(image);
    assert!(check(&region, &OPTIONS).is_clean());
    let bytes: Vec<u64> = ranges.iter().cloned().flatten().collect();
    assert!(!bytes.is_empty());
    let mut count = 0;
    for &byte in &bytes {
        for bit in 0..8 {
            flip(&region, byte, bit);
            let report = check(&region, &OPTIONS);
            assert!(
                !report.is_clean(),
                "byte {byte:#x}, bit {bit} is not reported"
            );
            count += 1;
            if count % repaired_each == 0 {
                undo(
                    &region.image(),
                    &expected,
                    &format!("byte {byte:#x}, bit {bit}: {}", report.faults[0]),
                );
            }
            flip(&region, byte, bit);
        }
    }
    assert_eq!(region.image(), image, "a check writes nothing");
}

fn flip(region: &Region, byte: u64, bit: u32) {
    let mut value = [0];
    region.read(Offset::new(byte), &mut value);
    region
        .store(Offset::new(byte), &[value[0] ^ (1 << bit)])
        .leave_to_checkpoint();
}

/// The damaged image mounts or is refused, and is whole after repair.
fn undo(image: &[u8], expected: &Snapshot, place: &str) {
    if let Ok(files) = tree::mount(Region::from_image(image)) {
        // Whatever it says: it must not panic.
        let _ = Snapshot::try_of(&files);
    }
    let (region, repaired) = tree::repaired(image);
    assert!(repaired.left.is_clean(), "{place}: {:#?}", repaired.left);
    assert!(repaired.found.faults_total > 0, "{place}");
    assert!(check(&region, &OPTIONS).is_clean(), "{place}");
    let files = tree::mount(Arc::clone(&region)).expect("a repaired pool mounts");
    assert_eq!(Snapshot::of(&files), *expected, "{place}");
}

fn word(at: u64) -> Range<u64> {
    stretch(at, 8)
}

fn stretch(at: u64, bytes: u64) -> Range<u64> {
    at..at + bytes
}

fn superblock(image: &[u8]) -> Superblock {
    Region::from_image(image).load(Offset::new(0))
}

/// Where inode `number` lies; 0 is the table's own.
fn inode_at(region: &Region, number: u64) -> u64 {
    let own = STATE_BLOCK.offset() + ROOT_AREA_AT;
    if number == 0 {
        return own.get();
    }
    let table: RawInode = region.load(own);
    let mut words = Vec::new();
    pointers(region, InodeNumber::TABLE, &table, &mut words);
    let block = words
        .iter()
        .find(|(_, level, index, _)| *level == 0 && *index == number / 16)
        .expect("a block")
        .3;
    block.offset().get() + number % 16 * INODE_BYTES as u64
}

/// All pointers in nodes of an inode's map: where, level, index, block.
fn pointers(
    region: &Region,
    number: InodeNumber,
    raw: &RawInode,
    found: &mut Vec<(u64, u8, u64, BlockNumber)>,
) {
    let mut pending = vec![(0, raw.root, raw.height, 0)];
    while let Some((at, word, level, index)) = pending.pop() {
        let Ok(Some(pointer)) = Pointer::read(
            word,
            Position {
                inode: number,
                level,
                index,
            },
        ) else {
            continue;
        };
        found.push((at, level, index, pointer.memory().expect("memory")));
        if level > 0 {
            for slot in 0..512 {
                let at = pointer.memory().expect("memory").offset() + slot * 8;
                pending.push((at.get(), region.load_u64(at), level - 1, index * 512 + slot));
            }
        }
    }
}

fn inode(region: &Region, number: u64) -> RawInode {
    region.load(Offset::new(inode_at(region, number)))
}

fn number_of(image: &[u8], path: &str) -> u64 {
    let files = tree::mount(Region::from_image(image)).expect("mount");
    Snapshot::of(&files).0[path].attributes.inode.get()
}

#[test]
fn superblocks() {
    let image = tree::crashed();
    let second = superblock(&image).geometry().second_superblock().get();
    let length = size_of::<Superblock>() as u64;
    flip_all(&image, &[0..length, second..second + length], 50);
    // Reserved bytes behind them, too.
    flip_all(
        &image,
        &[length..length + 16, second + 4080..second + 4096],
        50,
    );
}

#[test]
fn state_block() {
    let state = STATE_BLOCK.offset().get();
    let mut ranges = vec![
        word(state + CHECKPOINT_AT),
        word(state + JOURNALS_AT),
        word(state + JOURNALS_AT + 8),
    ];
    ranges.extend([
        state + 8..state + 16,
        state + JOURNALS_AT + 16..state + JOURNALS_AT + 32,
    ]);
    let crashed = tree::crashed();
    flip_all(&crashed, &ranges, 7);
    flip_all(&crashed, &[word(state + CLEAN_AT)], 7);
    // After a clean unmount the saved state counts as well.
    let clean = tree::unmounted(tree::populated());
    let header: SavedHeader = Region::from_image(&clean).load(STATE_BLOCK.offset() + SAVED_AT);
    ranges.push(word(state + CLEAN_AT));
    ranges.push(state + SAVED_AT..state + SAVED_AT + size_of::<SavedHeader>() as u64);
    let blob = BlockNumber::new(header.extents[0][0]).offset().get();
    ranges.push(blob..blob + header.length.min(4096));
    flip_all(&clean, &ranges, 97);
}

#[test]
fn segment_table() {
    let image = tree::crashed();
    let superblock = superblock(&image);
    let region = Region::from_image(&image);
    let (mut covered, mut free_owner_words) = (Vec::new(), Vec::new());
    for segment in 0..superblock.segments {
        let at = superblock.geometry().segment_entry(segment);
        let entry: SegmentEntry = region.load(at);
        // The owner word counts for segments of an owner only.
        let is_owned = matches!(entry.domain(segment), Ok(Some(txn::Domain::Owner { .. })));
        let owner = if is_owned {
            &mut covered
        } else {
            &mut free_owner_words
        };
        owner.push(word(at.get()));
        covered.push(at.get() + 8..at.get() + 32);
    }
    flip_all(&image, &covered, 41);
    let owned = superblock.segments as usize - free_owner_words.len();
    assert!(owned > 0, "some segment belongs to an owner");
    // Harmless, and the only such bits of the header: owner words of segments without an owner.
    for byte in free_owner_words.into_iter().flatten() {
        flip(&region, byte, 3);
        assert!(check(&region, &OPTIONS).is_clean());
        flip(&region, byte, 3);
    }
}

#[test]
fn inodes() {
    let image = tree::crashed();
    let region = Region::from_image(&image);
    // The table, the root, a directory, a regular file, a short link, one that was freed, one that was never used.
    let mut numbers = vec![0, 1];
    numbers.extend(["/a", "/a/sparse", "/short"].map(|path| number_of(&image, path)));
    let is_freed = |number: &u64| {
        inode(&region, *number).is_free() && inode(&region, *number) != RawInode::ZERO
    };
    numbers.push((2..60).find(is_freed).expect("a freed inode"));
    numbers.push(
        (2..64)
            .find(|number| inode(&region, *number) == RawInode::ZERO)
            .expect("an unused inode"),
    );
    for number in numbers {
        let at = inode_at(&region, number);
        flip_all(&image, &[stretch(at, INODE_BYTES as u64)], 101);
    }
}

#[test]
fn targets_of_long_links() {
    let image = tree::crashed();
    let region = Region::from_image(&image);
    let number = number_of(&image, "/long");
    let raw = inode(&region, number);
    let mut found = Vec::new();
    pointers(&region, InodeNumber::new(number), &raw, &mut found);
    let target = found[0].3.offset().get();
    let inode = inode_at(&region, number);
    flip_all(
        &image,
        &[
            stretch(target, raw.size),
            stretch(inode, INODE_BYTES as u64),
        ],
        101,
    );
    flip(&region, target + 7, 2);
    let files = tree::mount(region).expect("mount");
    let link = files.lookup(&files.root(), b"long").expect("lookup");
    assert!(matches!(files.read_link(&link), Err(FsError::Corrupt(_))));
}

#[test]
fn pointers_in_map_nodes() {
    let image = tree::crashed();
    let region = Region::from_image(&image);
    let mut words = Vec::new();
    for number in [
        0,
        number_of(&image, "/a/sparse"),
        number_of(&image, "/three-blocks"),
        number_of(&image, "/many"),
    ] {
        let (raw, number) = (inode(&region, number), InodeNumber::new(number));
        let mut found = Vec::new();
        pointers(&region, number, &raw, &mut found);
        assert!(
            found.iter().any(|(at, ..)| *at != 0),
            "inode {number} has nodes"
        );
        words.extend(
            found
                .into_iter()
                .filter(|(at, ..)| *at != 0)
                .map(|(at, ..)| word(at)),
        );
    }
    flip_all(&image, &words, 3);
    // A hole is a pointer too.
    let sparse = inode(&region, number_of(&image, "/a/sparse"));
    assert_eq!(sparse.height, 2);
    let hole = words.last().expect("a pointer").end;
    flip_all(&image, &[word(hole)], 3);
}

#[test]
fn directory_records() {
    let image = tree::crashed();
    let region = Region::from_image(&image);
    let mut covered = Vec::new();
    for path in ["/a", "/many"] {
        let number = InodeNumber::new(number_of(&image, path));
        let mut found = Vec::new();
        pointers(&region, number, &inode(&region, number.get()), &mut found);
        for (_, _, index, block) in found.into_iter().filter(|(_, level, ..)| *level == 0) {
            let mut bytes = [0; BLOCK_BYTES];
            region.read(block.offset(), &mut bytes);
            for record in directory::records(&bytes, index, number) {
                // A free range's header is covered; the bytes behind it are nobody's, flips in them are harmless.
                let (offset, length) = match record.expect("a sound record") {
                    Record::Entry(entry) => {
                        (entry.offset, directory::record_bytes(entry.name.len()))
                    }
                    Record::Free { offset, .. } => (offset, 8),
                };
                let at = block.offset().get() + offset.byte_in_block() as u64;
                covered.push(at..at + length as u64);
            }
        }
    }
    // Long names are alike: two of them bit by bit, of the rest the first bytes.
    let ranges: Vec<_> = covered
        .iter()
        .enumerate()
        .map(|(index, range)| {
            let end = if index < 8 {
                range.end
            } else {
                range.end.min(range.start + 24)
            };
            range.start..end
        })
        .collect();
    flip_all(&image, &ranges, 61);
}

#[test]
fn extended_attributes() {
    let image = tree::crashed();
    let region = Region::from_image(&image);
    let root = |path: &str| {
        let number = number_of(&image, path);
        let raw = inode(&region, number);
        let position = Position {
            inode: InodeNumber::new(number),
            level: Position::ATTRIBUTES,
            index: 0,
        };
        let pointer = Pointer::read(raw.attributes, position)
            .expect("sound")
            .expect("attributes");
        (number, pointer.memory().expect("memory"))
    };
    let (_, small) = root("/a/b/c/deep");
    let small = small.offset().get();
    let (number, large) = root("/a");
    let at = large.offset().get();
    let mut ranges = vec![small..small + 16 + 8 + 10 + 5, at..at + 16 + 2 * 8];
    for index in 1..3 {
        let position = Position {
            inode: InodeNumber::new(number),
            level: Position::ATTRIBUTES,
            index,
        };
        let word = region.load_u64(large.offset() + 8 + index * 8);
        let block = Pointer::read(word, position)
            .expect("sound")
            .expect("a block")
            .memory()
            .expect("memory")
            .offset()
            .get();
        ranges.push(block..block + 100);
    }
    flip_all(&image, &ranges, 31);
}

#[test]
fn the_end_of_a_file() {
    let image = tree::crashed();
    let region = Region::from_image(&image);
    // A file of root: processes of other users may store behind the ends of theirs.
    let number = number_of(&image, "/hard link");
    let mut found = Vec::new();
    pointers(
        &region,
        InodeNumber::new(number),
        &inode(&region, number),
        &mut found,
    );
    let last = found
        .iter()
        .find(|(_, level, index, _)| (*level, *index) == (0, 0))
        .expect("its only block")
        .3;
    let used = 19;
    let at = last.offset().get();
    flip_all(
        &image,
        &[at + used..at + used + 8, at + 4088..at + 4096],
        16,
    );
}

#[test]
fn a_derived_checkpoint_is_the_right_one() {
    let files = tree::populated();
    let root = files.root();
    let at = STATE_BLOCK.offset() + CHECKPOINT_AT;
    for round in 0..60u32 {
        let name = format!("round {round}").into_bytes();
        let node = files
            .create(&root, &name, &perdure_fs::NewInode::file(0o600))
            .expect("create");
        files.write(&node, 0, &[round as u8; 700]).expect("write");
        drop(node);
        files.unlink(&root, &name).expect("unlink");
        let mut image = files.store().region().image();
        image[at.get() as usize..][..8].fill(0x5a);
        let expected = files.store().sequences().1;
        let (_, repaired) = tree::repaired(&image);
        let fault = repaired
            .found
            .faults
            .iter()
            .find(|fault| fault.kind == FaultKind::CheckpointDamaged)
            .expect("a fault");
        assert_eq!(
            fault.detail,
            format!("should be {expected}"),
            "round {round}"
        );
        assert_eq!(repaired.found.faults_total, 1, "{:#?}", repaired.found);
        assert!(repaired.left.is_clean());
    }
}
