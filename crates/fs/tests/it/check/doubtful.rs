//! Inodes with a wrong checksum that a repair keeps, and the inode table without its own inode.

use super::OPTIONS;
use super::crafted::{Pool, file};
use super::tree::{self, Snapshot};
use perdure_fs::check::{Fault, FaultKind, check};
use perdure_fs::format::inode::INODE_BYTES;
use perdure_fs::format::{Pointer, Position, RawInode};
use perdure_fs::{FileSystem, FileType, InodeNumber, NewInode};
use txn::layout::{ROOT_AREA_AT, STATE_BLOCK};
use zerocopy::IntoBytes;

impl Pool {
    /// Changes an inode, whose checksum does not match afterwards.
    fn spoil(&self, number: InodeNumber, change: impl FnOnce(&mut RawInode)) {
        let mut raw = self.inode(number);
        change(&mut raw);
        self.put(self.offset(number), raw.as_bytes());
        assert!(!raw.is_intact(number));
    }

    fn fault(&self, number: InodeNumber, kind: FaultKind) -> Option<Fault> {
        let report = check(&self.0, &OPTIONS);
        let place = perdure_fs::check::Place::Inode(number);
        let mut faults = report.faults.into_iter();
        faults.find(|fault| (fault.place, fault.kind) == (place, kind))
    }
}

fn of_user(files: &FileSystem, name: &[u8], uid: u32, content: &[u8]) -> InodeNumber {
    let new = NewInode {
        uid,
        gid: uid,
        ..NewInode::file(0o644)
    };
    let node = files.create(&files.root(), name, &new).expect("create");
    if !content.is_empty() {
        files.write(&node, 0, content).expect("write");
    }
    node.number()
}

#[test]
fn the_size_ends_with_the_blocks_and_set_id_bits_go() {
    let files = tree::empty();
    let folder = files
        .make_directory(&files.root(), b"folder", &NewInode::file(0o755))
        .expect("mkdir");
    let node = files
        .create(&folder, b"three bytes", &NewInode::file(0o644))
        .expect("create");
    files.write(&node, 0, b"abc").expect("write");
    let number = node.number();
    drop((node, folder));
    let pool = Pool::of(&files);
    pool.spoil(number, |raw| {
        raw.size = 9_895_604_649_984;
        raw.mode |= 0o6111;
    });
    let fault = pool
        .fault(number, FaultKind::InodeChecksum)
        .expect("it is damaged");
    assert_eq!(fault.path.as_deref(), Some("/folder/three bytes"));
    let (_, snapshot) = pool.repair(&[FaultKind::InodeChecksum]);
    let attributes = &snapshot.0["/folder/three bytes"].attributes;
    assert_eq!(attributes.size_bytes, 4096);
    assert_eq!(attributes.mode & 0o7000, 0);
}

#[test]
fn an_owner_that_nobody_knows_goes_to_lost_and_found() {
    let files = tree::empty();
    let root = files.root();
    let directory = files
        .make_directory(&root, b"home", &NewInode::file(0o755))
        .expect("mkdir");
    let inside = files
        .create(&directory, b"inside", &NewInode::file(0o644))
        .expect("create");
    files.write(&inside, 0, b"kept").expect("write");
    let number = directory.number();
    drop((directory, inside));
    let pool = Pool::of(&files);
    // Two bits, so that no single one sets it right.
    pool.spoil(number, |raw| {
        (raw.uid, raw.modified) = (38, raw.modified ^ 1)
    });
    let fault = pool
        .fault(number, FaultKind::InodeOwner)
        .expect("nobody else is user 38");
    assert_eq!(fault.path.as_deref(), Some("/home"));
    assert!(fault.detail.contains("user 38"), "{fault}");
    let (_, snapshot) = pool.repair(&[FaultKind::InodeOwner]);
    let moved = &snapshot.0[&format!("/lost+found/#{number}")].attributes;
    assert_eq!((moved.uid, moved.gid, moved.mode & 0o777), (0, 0, 0o700));
    let inside = &snapshot.0[&format!("/lost+found/#{number}/inside")];
    assert_eq!(inside.content[8..], *b"kept");
    assert!(!snapshot.0.contains_key("/home"));
}

#[test]
fn an_owner_that_others_have_stays() {
    let files = tree::empty();
    of_user(&files, b"witness", 1000, b"");
    let number = of_user(&files, b"doubtful", 1000, b"");
    let pool = Pool::of(&files);
    pool.spoil(number, |raw| raw.modified ^= 0b101);
    assert_eq!(pool.fault(number, FaultKind::InodeOwner), None);
    let (_, snapshot) = pool.repair(&[FaultKind::InodeChecksum]);
    assert_eq!(snapshot.0["/doubtful"].attributes.uid, 1000);
}

#[test]
fn the_segment_of_its_blocks_tells_whose_a_file_is() {
    let files = tree::empty();
    of_user(&files, b"other", 1001, b"of another user");
    let number = of_user(&files, b"own", 1000, b"content");
    let pool = Pool::of(&files);
    pool.spoil(number, |raw| (raw.uid, raw.gid) = (1001, 1001));
    let (_, snapshot) = pool.repair(&[FaultKind::InodeChecksum]);
    let attributes = &snapshot.0["/own"].attributes;
    assert_eq!((attributes.uid, attributes.gid), (1000, 1000));
    assert_eq!(snapshot.0["/own"].content[8..], *b"content");
}

#[test]
fn a_device_in_doubt_is_roots_alone() {
    let files = tree::empty();
    let new = NewInode {
        device: 259,
        ..NewInode::file(FileType::BlockDevice.mode_bits() | 0o666)
    };
    let number = files
        .create(&files.root(), b"disk", &new)
        .expect("mknod")
        .number();
    let pool = Pool::of(&files);
    pool.spoil(number, |raw| raw.device = 0x0800);
    // One bit of a device number is set right; these are several.
    let (_, snapshot) = pool.repair(&[FaultKind::InodeOwner]);
    let moved = &snapshot.0[&format!("/lost+found/#{number}")].attributes;
    assert_eq!((moved.uid, moved.mode & 0o777), (0, 0o600));
}

/// A pool whose table has a map of one node.
fn populated() -> (Pool, Snapshot, RawInode) {
    let files = tree::populated();
    let expected = Snapshot::of(&files);
    let pool = Pool::of(&files);
    let table: RawInode = pool.0.load(STATE_BLOCK.offset() + ROOT_AREA_AT);
    (pool, expected, table)
}

fn assert_restored(pool: Pool, expected: &Snapshot, kinds: &[FaultKind]) {
    let (_, snapshot) = pool.repair(kinds);
    assert_eq!(snapshot.0, expected.0);
}

#[test]
fn a_table_without_its_inode_is_found_by_its_content() {
    for ruin in [
        &[0; INODE_BYTES][..],
        &[0xff; INODE_BYTES],
        &[0x5a; INODE_BYTES],
    ] {
        let (pool, expected, _) = populated();
        pool.put(STATE_BLOCK.offset() + ROOT_AREA_AT, ruin);
        assert_restored(pool, &expected, &[FaultKind::TableInodeLost]);
    }
}

#[test]
fn the_root_pointer_alone_is_enough() {
    let (pool, expected, table) = populated();
    let mut ruined = RawInode {
        root: table.root,
        ..RawInode::ZERO
    };
    ruined.mode = 0o777;
    pool.put(STATE_BLOCK.offset() + ROOT_AREA_AT, ruined.as_bytes());
    assert_restored(pool, &expected, &[FaultKind::TableInodeLost]);
}

#[test]
fn a_small_table_without_nodes_is_found_too() {
    let files = tree::empty();
    let number = file(&files, b"only", b"content");
    let pool = Pool::of(&files);
    let table: RawInode = pool.0.load(STATE_BLOCK.offset() + ROOT_AREA_AT);
    assert_eq!((table.height, number.get() < 16), (0, true));
    pool.put(STATE_BLOCK.offset() + ROOT_AREA_AT, &[0x5a; INODE_BYTES]);
    let (_, snapshot) = pool.repair(&[FaultKind::TableInodeLost]);
    assert_eq!(snapshot.0["/only"].content[8..], *b"content");
}

#[test]
fn a_table_whose_node_is_gone_is_found_block_by_block() {
    let (pool, expected, table) = populated();
    let position = Position {
        inode: InodeNumber::TABLE,
        level: table.height,
        index: 0,
    };
    assert_eq!(table.height, 1);
    let node = Pointer::read(table.root, position)
        .expect("sound")
        .expect("a node");
    pool.put(node.memory().expect("memory").offset(), &[0x5a; 4096]);
    assert_restored(pool, &expected, &[FaultKind::TableHole]);
}
