//! Taking a lease back succeeds whatever the limits and the room are by then; where it cannot, nobody gets at the file before it has.

use super::process::{
    BLOCK, Process, SIZE, USER, after_power_cut, content, fill, lease, make, new_pool, place,
};
use lease::Place;
use perdure_fs::format::{Pointer, Position};
use perdure_fs::lease::LeaseSize;
use perdure_fs::{FileSystem, FsError, Node, SetAttributes, XattrMode, quota};
use pmem::{BLOCK_BYTES, BlockNumber, Offset};

fn limit(files: &FileSystem, blocks: u64) {
    let text = format!("user {USER} blocks {blocks}");
    files
        .set_xattr(
            &files.root(),
            quota::ATTRIBUTE,
            text.as_bytes(),
            XattrMode::Any,
        )
        .expect("limits");
}

fn used(files: &FileSystem) -> u64 {
    files.quotas()[0].2.blocks
}

/// A pool in which USER has a limit, and a file of his with three blocks.
fn limited() -> (FileSystem, Node) {
    let files = new_pool(8 << 20, 256 << 10);
    limit(&files, 10_000);
    let files = after_power_cut(&files);
    let node = make(&files, "file", USER, 3);
    (files, node)
}

/// What the next mount finds in the file.
fn after_all(files: &FileSystem) -> Vec<u8> {
    let next_mount = after_power_cut(files);
    let there = next_mount.lookup(&next_mount.root(), b"file");
    content(&next_mount, &there.expect("there"))
}

#[test]
fn what_was_acknowledged_counts_whatever_the_limits_are_later() {
    let (files, node) = limited();
    let mut lessee = lease(&files, &node, SIZE, Process::idle());
    for number in 3..8 {
        lessee.write(number * BLOCK, number as u8, 1);
    }
    lessee.write(0, 7, 1);
    limit(&files, 4);
    assert_eq!(after_all(&files).len() as u64, 8 * BLOCK);
    assert!(files.fold_lease(&node).expect("folded").is_some());
    files.end_lease(&node).expect("ended");
    let bytes = content(&files, &node);
    assert_eq!(bytes.len() as u64, 8 * BLOCK);
    assert!((3..8).all(|number| bytes[number * BLOCK_BYTES] == number as u8));
    assert_eq!(bytes[0], 7);
    let grown = files.append(&node, &[9; BLOCK_BYTES]);
    assert!(matches!(grown, Err(FsError::QuotaExceeded(_))), "{grown:?}");
}

#[test]
fn what_is_written_behind_a_lease_is_not_undone_by_the_next_mount() {
    let (files, node) = limited();
    let mut lessee = lease(&files, &node, SIZE, Process::idle());
    lessee.write(0, 2, 1);
    lessee.write(3 * BLOCK, 3, 1);
    limit(&files, 4);
    files.write(&node, 0, &[7; BLOCK_BYTES]).expect("written");
    assert_eq!(after_all(&files)[0], 7);
}

#[test]
fn a_lease_is_forced_from_a_user_at_his_limit() {
    let (files, node) = limited();
    let mut lessee = lease(&files, &node, SIZE, Process::stopped());
    lessee.write(0, 2, 1);
    let busy = lease::FileMap::get(&lessee.map, 0);
    limit(&files, used(&files));
    files.write(&node, 100, b"by the kernel").expect("written");
    assert_ne!(busy, Some(place(&files, &node, 0)), "L4");
    // He goes on, and only then sees that the lease was forced.
    lessee.write(0, 9, 1);
    for bytes in [content(&files, &node), after_all(&files)] {
        assert_eq!((bytes[0], &bytes[100..113]), (2, &b"by the kernel"[..]));
    }
}

#[test]
fn a_holder_gets_at_nothing_of_who_was_given_his_file() {
    let (files, node) = limited();
    let mut lessee = lease(&files, &node, SIZE, Process::stopped());
    limit(&files, used(&files));
    let change = SetAttributes {
        uid: Some(2000),
        ..SetAttributes::default()
    };
    files.set_attributes(&node, &change).expect("given");
    files
        .write(&node, 0, &[7; 3 * BLOCK_BYTES])
        .expect("written");
    lessee.write(0, 9, 1);
    assert_eq!(after_all(&files)[0], 7);
}

#[test]
fn forcing_leases_needs_no_room() {
    let files = new_pool(8 << 20, 256 << 10);
    let size = LeaseSize {
        ring_blocks: 1,
        spare_blocks: 1,
    };
    let leased: Vec<_> = (0..40)
        .map(|number| {
            let node = make(&files, &format!("f{number}"), USER, 1);
            let lessee = lease(&files, &node, size, Process::stopped());
            (node, lessee)
        })
        .collect();
    let filler = fill(&files, 2000);
    for (node, lessee) in &leased {
        let busy = lease::FileMap::get(&lessee.map, 0);
        assert!(content(&files, node) == [1; BLOCK_BYTES]);
        assert_ne!(busy, Some(place(&files, node, 0)));
    }
    // The reserve is there for all.
    files
        .write(&filler, 0, &[8; BLOCK_BYTES])
        .expect("overwritten");
}

/// Where the pointer to block `index` of a file lies, which is at `block`.
fn pointer_at(files: &FileSystem, node: &Node, index: u64, block: BlockNumber) -> Offset {
    let position = Position {
        inode: node.number(),
        level: 0,
        index,
    };
    let word = Pointer::Written(block).word(position);
    let region = files.store().region();
    let mut offsets = (0..region.length()).step_by(8).map(Offset::new);
    let found = offsets.find(|&at| region.load_u64(at) == word);
    found.expect("in the file's map")
}

#[test]
fn as_long_as_a_lease_cannot_be_taken_back_nobody_changes_the_file() {
    let files = new_pool(8 << 20, 256 << 10);
    let node = make(&files, "file", USER, 3);
    let mut lessee = lease(&files, &node, SIZE, Process::idle());
    lessee.write(BLOCK, 2, 1);
    lessee.write(0, 3, 1);
    let Place::At(block) = place(&files, &node, 0) else {
        panic!("it was written");
    };
    let at = pointer_at(&files, &node, 0, block);
    let region = files.store().shared_region();
    let word = region.load_u64(at);
    let store = |word| {
        region.fence(region.store_u64(at, word).flush());
    };
    store(word ^ 1 << 50);
    let write = || files.write(&node, BLOCK, &[7; BLOCK_BYTES]);
    for _ in 0..2 {
        assert!(matches!(write(), Err(FsError::Corrupt(_))));
        assert!(matches!(files.end_lease(&node), Err(FsError::Corrupt(_))));
    }
    store(word);
    assert_eq!(after_all(&files)[..BLOCK_BYTES], [3; BLOCK_BYTES]);
    write().expect("the lease has ended now");
    for bytes in [content(&files, &node), after_all(&files)] {
        let firsts: Vec<u8> = bytes.chunks(BLOCK_BYTES).map(|block| block[0]).collect();
        assert_eq!(firsts, [3, 7, 1]);
    }
}
