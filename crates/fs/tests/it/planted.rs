//! Bytes that a process stores behind the end of its user's file never become content of a file.

use crate::common::{new_region, open};
use lease::Place;
use perdure_fs::check::{CheckOptions, FaultKind, check};
use perdure_fs::{AllocateOptions, FileSystem, NewInode, Node, SetAttributes};
use pmem::deliberate::{self, Bug};
use pmem::{BlockNumber, Offset, Region};
use txn::Mode;

const BLOCK: u64 = 4096;
/// Where the file ends, in its second block.
const SIZE: u64 = BLOCK + 1000;
const USER: u32 = 1;

/// A way to make a file longer.
type Growth = fn(&FileSystem, &Node);

const GROWTHS: [(&str, Growth); 8] = [
    ("truncate in the block", |files, node| {
        resize(files, node, SIZE + 900)
    }),
    ("truncate far", |files, node| {
        resize(files, node, 20 * BLOCK)
    }),
    ("a small write behind a gap", |files, node| {
        write(files, node, SIZE + 500, 3)
    }),
    ("a large write behind a gap", |files, node| {
        write(files, node, SIZE + 500, 2500)
    }),
    ("a write to the next block", |files, node| {
        write(files, node, 2 * BLOCK, 100)
    }),
    ("a write to a block far away", |files, node| {
        write(files, node, 9 * BLOCK, 100)
    }),
    ("append, then truncate", |files, node| {
        files.append(node, &[b'w'; 10]).expect("append");
        resize(files, node, 3 * BLOCK);
    }),
    ("reserve", |files, node| {
        let options = AllocateOptions::default();
        files.allocate(node, 0, 3 * BLOCK, options).expect("room");
    }),
];

fn resize(files: &FileSystem, node: &Node, size: u64) {
    let change = SetAttributes {
        size_bytes: Some(size),
        ..SetAttributes::default()
    };
    files.set_attributes(node, &change).expect("another size");
}

fn write(files: &FileSystem, node: &Node, at: u64, bytes: usize) {
    files.write(node, at, &vec![b'w'; bytes]).expect("write");
}

fn give(files: &FileSystem, node: &Node, user: u32) {
    let change = SetAttributes {
        uid: Some(user),
        ..SetAttributes::default()
    };
    files.set_attributes(node, &change).expect("another owner");
}

fn last_block(files: &FileSystem, node: &Node) -> BlockNumber {
    let mut found = None;
    let visit = |_, place| {
        if let Some(Place::At(block)) = place {
            found = Some(block);
        }
    };
    files.places(node, SIZE / BLOCK, 1, visit).expect("places");
    found.expect("it is written")
}

/// Makes a file of a user, with bytes behind its end that a process of the user has stored.
fn planted() -> (FileSystem, Node) {
    let region = new_region(16 << 20, 256 << 10, 2);
    let files = open(region, Mode::ReadWrite).expect("mount");
    let new = NewInode {
        uid: USER,
        ..NewInode::file(0o600)
    };
    let node = files.create(&files.root(), b"file", &new).expect("create");
    files
        .write(&node, 0, &[b'c'; SIZE as usize])
        .expect("write");
    // No record may change what is stored from here on.
    files.checkpoint();
    let at = last_block(&files, &node).offset() + SIZE % BLOCK;
    store(&files, at, &[b'x'; (BLOCK - SIZE % BLOCK) as usize]);
    (files, node)
}

/// Stores bytes as a process does that has the segment mapped.
fn store(files: &FileSystem, at: Offset, bytes: &[u8]) {
    let region = files.store().region();
    region.fence(region.write_streaming(at, bytes));
}

fn shows_planted_bytes(files: &FileSystem, node: &Node) -> bool {
    let size = files.attributes(node).expect("attributes").size_bytes;
    let mut content = vec![0; size as usize];
    files.read(node, 0, &mut content).expect("read");
    assert!(content.iter().filter(|&&byte| byte == b'c').count() == SIZE as usize);
    content.contains(&b'x')
}

fn faults(files: &FileSystem) -> Vec<FaultKind> {
    files.checkpoint();
    let image = Region::from_image(files.store().region().image());
    let options = CheckOptions {
        threads: 1,
        progress: None,
    };
    let report = check(&image, &options);
    report.faults.iter().map(|fault| fault.kind).collect()
}

#[test]
fn they_do_not_show_when_the_file_grows() {
    for (way, grow) in GROWTHS {
        let (files, node) = planted();
        grow(&files, &node);
        assert!(!shows_planted_bytes(&files, &node), "{way}");
        assert_eq!(faults(&files), [], "{way}");
    }
}

#[test]
fn they_do_not_come_with_a_file_that_is_given_away() {
    for owner in [0, 2] {
        for (way, grow) in GROWTHS {
            let (files, node) = planted();
            give(&files, &node, owner);
            let at = last_block(&files, &node).offset() + SIZE % BLOCK;
            let mut tail = [1; (BLOCK - SIZE % BLOCK) as usize];
            files.store().region().read(at, &mut tail);
            assert!(tail.iter().all(|&byte| byte == 0), "to {owner}");
            grow(&files, &node);
            assert!(!shows_planted_bytes(&files, &node), "to {owner}, {way}");
            assert_eq!(faults(&files), [], "to {owner}, {way}");
        }
    }
}

#[test]
fn they_are_a_fault_only_where_no_process_could_have_stored_them() {
    let (files, node) = planted();
    assert_eq!(
        faults(&files),
        [],
        "a user must not be able to make a pool faulty"
    );
    give(&files, &node, 2);
    let at = last_block(&files, &node).offset() + SIZE % BLOCK;
    store(&files, at, b"x");
    assert_eq!(faults(&files), [FaultKind::TailNotZero]);
}

#[test]
fn a_file_system_that_trusts_them_is_noticed() {
    deliberate::set(Some(Bug::TrustTail));
    for (way, grow) in GROWTHS {
        let (files, node) = planted();
        grow(&files, &node);
        assert!(shows_planted_bytes(&files, &node), "{way}");
        let (files, node) = planted();
        give(&files, &node, 2);
        grow(&files, &node);
        assert!(shows_planted_bytes(&files, &node), "given away, {way}");
    }
    deliberate::set(None);
}
