//! Contradictions whose checksums are right: what only a bug, or somebody with intent, leaves behind.

use super::OPTIONS;
use super::tree::{self, Snapshot};
use perdure_fs::check::{FaultKind, Repaired, check};
use perdure_fs::directory::write_fresh_block;
use perdure_fs::format::inode::INODE_BYTES;
use perdure_fs::format::{Pointer, Position, RawInode};
use perdure_fs::{FileSystem, FileType, InodeNumber, NewInode};
use pmem::{BLOCK_BYTES, Offset, Region};
use txn::layout::{ROOT_AREA_AT, STATE_BLOCK};
use txn::places::{HalfName, HalfPlace};
use zerocopy::IntoBytes;

/// A pool that is damaged by hand.
pub(super) struct Pool(pub(super) Region);

impl Pool {
    pub(super) fn of(files: &FileSystem) -> Pool {
        files.checkpoint();
        Pool(Region::from_image(files.store().region().image()))
    }

    pub(super) fn put(&self, at: Offset, bytes: &[u8]) {
        self.0.store(at, bytes).leave_to_checkpoint();
    }

    /// The only block of a map without nodes.
    fn block(&self, number: InodeNumber, raw: &RawInode) -> Offset {
        let position = Position {
            inode: number,
            level: raw.height,
            index: 0,
        };
        let mut pointer = Pointer::read(raw.root, position)
            .expect("sound")
            .expect("a block");
        for level in (0..raw.height).rev() {
            let position = Position {
                inode: number,
                level,
                index: 0,
            };
            pointer = Pointer::read(
                self.0.load_u64(pointer.memory().expect("memory").offset()),
                position,
            )
            .expect("sound")
            .expect("a block");
        }
        pointer.memory().expect("memory").offset()
    }

    pub(super) fn offset(&self, number: InodeNumber) -> Offset {
        let table: RawInode = self.0.load(STATE_BLOCK.offset() + ROOT_AREA_AT);
        let index = number.get() / 16;
        let position = Position {
            inode: InodeNumber::TABLE,
            level: 1,
            index: 0,
        };
        let block = match table.height {
            0 => self.block(InodeNumber::TABLE, &table),
            _ => {
                let node = Pointer::read(table.root, position)
                    .expect("sound")
                    .expect("a node")
                    .memory()
                    .expect("memory")
                    .offset();
                let position = Position {
                    inode: InodeNumber::TABLE,
                    level: 0,
                    index,
                };
                Pointer::read(self.0.load_u64(node + index * 8), position)
                    .expect("sound")
                    .expect("a block")
                    .memory()
                    .expect("memory")
                    .offset()
            }
        };
        block + number.get() % 16 * INODE_BYTES as u64
    }

    pub(super) fn inode(&self, number: InodeNumber) -> RawInode {
        self.0.load(self.offset(number))
    }

    fn change(&self, number: InodeNumber, change: impl FnOnce(&mut RawInode)) {
        let mut raw = self.inode(number);
        change(&mut raw);
        raw.checksum = raw.expected_checksum(number);
        self.put(self.offset(number), raw.as_bytes());
    }

    /// Leaves one name in the first block of a directory.
    fn name(&self, directory: InodeNumber, name: &[u8], target: InodeNumber, file_type: FileType) {
        let mut block = [0; BLOCK_BYTES];
        write_fresh_block(directory, 0, name, target, file_type, &mut block);
        self.put(self.block(directory, &self.inode(directory)), &block);
    }

    /// Checks, repairs, mounts.
    pub(super) fn repair(self, kinds: &[FaultKind]) -> (Repaired, Snapshot) {
        let image = self.0.image();
        let report = check(&self.0, &OPTIONS);
        for kind in kinds {
            assert!(
                report.faults.iter().any(|fault| fault.kind == *kind),
                "{kind:?} missing in {report:#?}"
            );
        }
        let (region, repaired) = tree::repaired(&image);
        assert!(repaired.left.is_clean(), "{:#?}", repaired.left);
        let files = tree::mount(region).expect("mount");
        (repaired, Snapshot::of(&files))
    }
}

pub(super) fn file(files: &FileSystem, name: &[u8], content: &[u8]) -> InodeNumber {
    let node = files
        .create(&files.root(), name, &NewInode::file(0o644))
        .expect("create");
    files.write(&node, 0, content).expect("write");
    node.number()
}

#[test]
fn a_block_with_two_owners_stays_with_the_first() {
    let files = tree::empty();
    let (first, second) = (file(&files, b"first", b"1"), file(&files, b"second", b"2"));
    let pool = Pool::of(&files);
    let shared = pool.block(first, &pool.inode(first)).block();
    let position = Position {
        inode: second,
        level: 0,
        index: 0,
    };
    pool.change(second, |raw| {
        raw.root = Pointer::Written(shared).word(position)
    });
    let report = check(&pool.0, &OPTIONS);
    let fault = report
        .faults
        .iter()
        .find(|fault| fault.kind == FaultKind::BlockShared)
        .expect("a fault");
    assert!(
        fault.detail.contains(&format!("inode {first} has")),
        "{fault}"
    );
    let (_, snapshot) = pool.repair(&[FaultKind::BlockShared]);
    assert_eq!(snapshot.0["/first"].content[8..], *b"1");
    assert!(snapshot.0["/second"].content.is_empty(), "a hole");
    assert_eq!(snapshot.0["/second"].attributes.sectors, 0);
}

/// Garbage in place of both words of a journal, and one journal where the other is.
#[test]
fn journals_that_nobody_can_find_get_a_new_place() {
    let files = tree::populated();
    let expected = Snapshot::of(&files);
    let pool = Pool::of(&files);
    for half in [0, 1] {
        let name = HalfName { journal: 0, half };
        pool.put(name.word_at(), &[0xa5; 8]);
    }
    let (repaired, snapshot) = pool.repair(&[FaultKind::JournalPointerDamaged]);
    assert_eq!(snapshot, expected);
    assert_eq!(repaired.passes, 1, "nothing else was wrong");

    let pool = Pool::of(&files);
    let [first, second] = [0, 1].map(|half| HalfName { journal: 0, half });
    let superblock = files.store().superblock();
    let place = HalfPlace::read(pool.0.load_u64(first.word_at()), first, superblock);
    let word = place.expect("sound").word(second);
    pool.put(second.word_at(), &word.to_le_bytes());
    assert_eq!(pool.repair(&[FaultKind::JournalOverlap]).1, expected);
}

/// A file that is said to be another user's, or root's, in a segment that processes of its former owner may map; and what root's own segment holds, which is nobody's affair.
#[test]
fn a_users_segment_with_data_of_others_becomes_a_shared_one() {
    for (owner, said, is_fault) in [(7, 8, true), (7, 0, true), (7, 7, false), (0, 8, false)] {
        let files = tree::empty();
        let new = NewInode {
            uid: owner,
            ..NewInode::file(0o600)
        };
        let node = files.create(&files.root(), b"own", &new).expect("create");
        files.write(&node, 0, b"secret").expect("write");
        let pool = Pool::of(&files);
        pool.change(node.number(), |raw| raw.uid = said);
        let kinds: &[FaultKind] = match is_fault {
            true => &[FaultKind::SegmentForeign],
            false => &[],
        };
        let (repaired, snapshot) = pool.repair(kinds);
        assert_eq!(repaired.found.is_clean(), !is_fault, "{owner}, {said}");
        assert_eq!(snapshot.0["/own"].content[8..], *b"secret");
        assert_eq!(snapshot.0["/own"].attributes.uid, said);
    }
}

#[test]
fn counts_parents_and_types_are_put_right() {
    let files = tree::populated();
    let expected = Snapshot::of(&files);
    let number = |path: &str| expected.0[path].attributes.inode;
    let pool = Pool::of(&files);
    pool.change(number("/hard link"), |raw| raw.links = 7);
    pool.change(number("/a/b"), |raw| {
        raw.parent = 1;
        raw.blocks = 99;
    });
    pool.change(number("/a"), |raw| raw.links = 2);
    pool.change(number("/many"), |raw| raw.flags = 5);
    pool.change(number("/short"), |raw| raw.inline[100] = 1);
    let kinds = [
        FaultKind::LinkCount,
        FaultKind::ParentWrong,
        FaultKind::BlockCount,
        FaultKind::InodeFields,
    ];
    assert_eq!(pool.repair(&kinds).1, expected);
}

#[test]
fn names_that_lead_nowhere_are_removed_and_inodes_without_names_are_kept() {
    let files = tree::populated();
    let expected = Snapshot::of(&files);
    let number = |path: &str| expected.0[path].attributes.inode;
    let pool = Pool::of(&files);
    let freed = number("/three-blocks");
    pool.change(freed, |raw| {
        *raw = RawInode {
            generation: raw.generation,
            ..RawInode::ZERO
        }
    });
    // `/a` loses the names b, sparse, reserved; one to a file of another type takes their place.
    pool.name(number("/a"), b"pretender", number("/long"), FileType::Fifo);
    let kinds = [
        FaultKind::NameDangling,
        FaultKind::InodeUnnamed,
        FaultKind::NameType,
    ];
    let (_, snapshot) = pool.repair(&kinds);
    assert!(!snapshot.0.contains_key("/three-blocks"));
    for (old, path) in [
        ("/a/sparse", ""),
        ("/a/reserved", ""),
        ("/a/b", "/c/deep"),
        ("/a/b", "/pipe"),
    ] {
        let new = format!("/lost+found/#{}{path}", number(old));
        let (found, before) = (&snapshot.0[&new], &expected.0[&format!("{old}{path}")]);
        assert_eq!(
            (&found.content, &found.xattrs),
            (&before.content, &before.xattrs),
            "{new}"
        );
        assert_eq!(found.attributes.links, before.attributes.links);
    }
    assert_eq!(snapshot.0["/a/pretender"].attributes.links, 2);
    assert_eq!(
        snapshot.0["/long"].content,
        snapshot.0["/a/pretender"].content
    );
}

#[test]
fn directories_in_a_circle_are_taken_out_of_it() {
    let files = tree::empty();
    let root = files.root();
    let kept = file(&files, b"kept", b"content");
    let outer = files
        .make_directory(&root, b"outer", &NewInode::file(0o755))
        .expect("mkdir");
    let inner = files
        .make_directory(&outer, b"inner", &NewInode::file(0o755))
        .expect("mkdir");
    // So that it has a block for the name that closes the circle.
    files
        .create(&inner, b"placeholder", &NewInode::file(0o644))
        .expect("create");
    let pool = Pool::of(&files);
    pool.name(InodeNumber::ROOT, b"kept", kept, FileType::Regular);
    pool.name(
        inner.number(),
        b"outer",
        outer.number(),
        FileType::Directory,
    );
    pool.change(outer.number(), |raw| raw.parent = inner.number().get());
    let outer_path = format!("/lost+found/#{}", outer.number());
    let (_, snapshot) = pool.repair(&[FaultKind::DirectoryCycle, FaultKind::InodeUnnamed]);
    assert_eq!(
        snapshot.0[&format!("{outer_path}/inner")].attributes.inode,
        inner.number()
    );
    assert_eq!(snapshot.0["/kept"].content[8..], *b"content");
}

#[test]
fn a_lost_block_of_the_inode_table_is_found_by_its_content() {
    let files = tree::populated();
    let expected = Snapshot::of(&files);
    let pool = Pool::of(&files);
    let own = STATE_BLOCK.offset() + ROOT_AREA_AT;
    let table: RawInode = pool.0.load(own);
    assert_eq!(table.height, 1);
    let node = Pointer::read(
        table.root,
        Position {
            inode: InodeNumber::TABLE,
            level: 1,
            index: 0,
        },
    );
    let node = node
        .expect("sound")
        .expect("a node")
        .memory()
        .expect("memory")
        .offset();
    // All pointers but the first: zeroed ones and garbage.
    for index in 1..table.size / 4096 {
        pool.put(node + index * 8, &[if index == 1 { 0 } else { 0x99 }; 8]);
    }
    let (_, snapshot) = pool.repair(&[FaultKind::TableHole]);
    assert_eq!(snapshot, expected, "nothing is lost");
}

#[test]
fn a_lost_root_directory_is_made_anew() {
    let files = tree::populated();
    let expected = Snapshot::of(&files);
    let pool = Pool::of(&files);
    pool.put(pool.offset(InodeNumber::ROOT), &[0; INODE_BYTES]);
    let (_, snapshot) = pool.repair(&[FaultKind::RootLost, FaultKind::InodeUnnamed]);
    let path =
        |old: &str, rest: &str| format!("/lost+found/#{}{rest}", expected.0[old].attributes.inode);
    assert_eq!(
        snapshot.0[&path("/a", "/b/c/deep")].content,
        expected.0["/hard link"].content
    );
    assert_eq!(
        snapshot.0[&path("/three-blocks", "")].content,
        expected.0["/three-blocks"].content
    );
}

#[test]
fn a_missing_directory_block_costs_only_its_names() {
    let files = tree::populated();
    let expected = Snapshot::of(&files);
    let pool = Pool::of(&files);
    let many = expected.0["/many"].attributes.inode;
    let raw = pool.inode(many);
    assert_eq!(raw.height, 1);
    let position = Position {
        inode: many,
        level: 1,
        index: 0,
    };
    let node = Pointer::read(raw.root, position)
        .expect("sound")
        .expect("a node")
        .memory()
        .expect("memory")
        .offset();
    pool.put(node, &[0xee; 8]);
    let (_, snapshot) = pool.repair(&[FaultKind::PointerDamaged, FaultKind::DirectoryHole]);
    let contents = |snapshot: &Snapshot, prefix: &str| {
        let mut contents: Vec<Vec<u8>> = snapshot
            .0
            .iter()
            .filter(|(path, _)| path.starts_with(prefix))
            .map(|(_, entry)| entry.content.clone())
            .collect();
        contents.sort();
        contents
    };
    let mut found = contents(&snapshot, "/many/");
    found.extend(contents(&snapshot, "/lost+found/#"));
    found.sort();
    assert_eq!(found, contents(&expected, "/many/"));
}

#[test]
fn old_content_beyond_the_end_is_removed() {
    let files = tree::populated();
    let expected = Snapshot::of(&files);
    let pool = Pool::of(&files);
    let number = expected.0["/three-blocks"].attributes.inode;
    pool.change(number, |raw| raw.size = 5000);
    let (_, snapshot) = pool.repair(&[FaultKind::DataBeyondEnd]);
    assert_eq!(snapshot.0["/three-blocks"].attributes.size_bytes, 5000);
    assert_eq!(
        snapshot.0["/three-blocks"].attributes.sectors,
        8 * 3,
        "two blocks and a node"
    );
}

#[test]
fn an_image_that_ends_anywhere_is_checked_without_a_panic() {
    let files = tree::empty();
    file(&files, b"file", b"content");
    let image = Pool::of(&files).0.image();
    assert!(check(&Region::from_image(&image), &OPTIONS).is_clean());
    for part in 1..32 {
        let end = image.len() * part / 32 / BLOCK_BYTES * BLOCK_BYTES;
        let report = check(&Region::from_image(&image[..end]), &OPTIONS);
        assert!(!report.is_clean(), "cut at {end}");
    }
}
