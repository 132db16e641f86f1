//! Segments that a user's processes keep after the files in them are gone count against the quota.

use crate::common::{new_region, open};
use lease::Place;
use perdure_fs::quota::{ATTRIBUTE, Subject};
use perdure_fs::{FileSystem, FsError, NewInode, Node, XattrMode};
use pmem::Region;
use scatter::SegmentNumber;
use std::collections::BTreeSet;
use txn::{Mode, PoolState, Segments};

const BLOCK: u64 = 4096;
const SEGMENT_BYTES: u64 = 256 << 10;
const USER: u32 = 1;
/// The quota: 4 MiB.
const LIMIT_BLOCKS: u64 = 1024;
/// Free blocks of four segments do not count.
const FREE_OF_CHARGE_BLOCKS: u64 = 4 * SEGMENT_BYTES / BLOCK;

fn with_quota() -> FileSystem {
    let region = new_region(64 << 20, SEGMENT_BYTES, 2);
    let files = open(region, Mode::ReadWrite).expect("mount");
    let limits = format!("user {USER} blocks {LIMIT_BLOCKS}");
    files
        .set_xattr(&files.root(), ATTRIBUTE, limits.as_bytes(), XattrMode::Any)
        .expect("limits");
    let image = Region::from_image(files.store().region().image());
    open(image, Mode::ReadWrite).expect("mount again")
}

fn make(files: &FileSystem) -> Node {
    let new = NewInode {
        uid: USER,
        ..NewInode::file(0o600)
    };
    files.create(&files.root(), b"file", &new).expect("create")
}

/// Writes blocks until there are so many or the quota is used up. Returns how many there are.
fn write(files: &FileSystem, node: &Node, blocks: u64) -> u64 {
    for index in 0..blocks {
        match files.write(node, index * BLOCK, &[7; BLOCK as usize]) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, FsError::QuotaExceeded(Subject::User(USER)));
                return index;
            }
        }
    }
    blocks
}

fn remove(files: &FileSystem, node: Node) {
    drop(node);
    files.unlink(&files.root(), b"file").expect("removed");
    files.checkpoint();
}

fn segments_of(files: &FileSystem, node: &Node) -> Vec<SegmentNumber> {
    let (store, mut found) = (files.store(), Vec::new());
    let visit = |_, place| {
        if let Some(Place::At(block)) = place {
            found.extend(store.allocator().geometry().segment_of(block));
        }
    };
    files
        .places(node, 0, 2 * LIMIT_BLOCKS, visit)
        .expect("places");
    found
}

/// Gives the segments of a file to a process, those that it has not got yet.
fn give(files: &FileSystem, node: &Node, given: &mut BTreeSet<u32>) {
    let store = files.store();
    for segment in segments_of(files, node) {
        if given.insert(segment.0) && store.hand_out(segment).is_none() {
            given.remove(&segment.0);
        }
    }
}

#[test]
fn a_user_cannot_keep_more_than_the_quota() {
    let files = with_quota();
    let mut given = BTreeSet::new();
    for _ in 0..40 {
        let node = make(&files);
        write(&files, &node, LIMIT_BLOCKS);
        give(&files, &node, &mut given);
        remove(&files, node);
        files.count_kept();
    }
    let kept_blocks = given.len() as u64 * SEGMENT_BYTES / BLOCK;
    let most = LIMIT_BLOCKS + FREE_OF_CHARGE_BLOCKS + 4 * SEGMENT_BYTES / BLOCK;
    assert!(kept_blocks > LIMIT_BLOCKS / 2, "{kept_blocks} blocks");
    assert!(kept_blocks <= most, "{kept_blocks} blocks, {most} at most");
    let counted = files.count_kept();
    let [kept] = &counted[..] else {
        panic!("{counted:?}");
    };
    assert_eq!((kept.user, kept.segments), (USER, given.len() as u64));
    for &segment in &given {
        files.store().take_in(SegmentNumber(segment));
    }
    assert_eq!(files.count_kept(), []);
    let node = make(&files);
    let all = write(&files, &node, LIMIT_BLOCKS);
    assert!(all > LIMIT_BLOCKS - 10, "{all} blocks");
}

/// Blocks of removed files are free only after the next checkpoint, and count before.
#[test]
fn the_bound_on_kept_segments_does_not_depend_on_checkpoints() {
    let files = with_quota();
    let segment_blocks = SEGMENT_BYTES / BLOCK;
    let mut given = BTreeSet::new();
    for _ in 0..40 {
        let node = make(&files);
        write(&files, &node, LIMIT_BLOCKS);
        for segment in segments_of(&files, &node) {
            let kept = files.count_kept();
            let left = files.segments_left_by_quota(USER, &kept);
            let left = left.expect("the user has a quota");
            if left > 0 && given.insert(segment.0) {
                files.store().hand_out(segment).expect("given");
            }
        }
        drop(node);
        files.unlink(&files.root(), b"file").expect("removed");
    }
    let kept = files.count_kept()[0];
    assert_eq!(kept.segments, given.len() as u64);
    // The last one may go beyond.
    let most = (LIMIT_BLOCKS + FREE_OF_CHARGE_BLOCKS) / segment_blocks + 1;
    assert!(kept.segments <= most, "{kept:?}, {most} segments at most");
    // Nothing but the root directory is left of the user's files: all else is kept.
    let free = kept.segments * segment_blocks - kept.free_blocks;
    assert!(free < 4, "{kept:?}");
}

#[test]
fn what_a_user_keeps_is_the_users_to_write_again() {
    let files = with_quota();
    let mut given = BTreeSet::new();
    let node = make(&files);
    let all = write(&files, &node, LIMIT_BLOCKS);
    give(&files, &node, &mut given);
    remove(&files, node);
    assert!(files.count_kept()[0].charged_blocks > LIMIT_BLOCKS / 2);
    // The blocks come from the segments that are kept, so no second count refuses them.
    let node = make(&files);
    let again = write(&files, &node, LIMIT_BLOCKS);
    assert!(again + 10 > all, "{again} blocks, {all} before");
}
