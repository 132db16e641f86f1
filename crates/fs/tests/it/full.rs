//! A pool that is full, or nearly: what frees as much as it takes goes on, for everybody.

use crate::common::{new_region, open};
use lease::Place;
use perdure_fs::check::{CheckOptions, check};
use perdure_fs::{
    AllocateOptions, Appended, FileSystem, FsError, NewInode, Node, SetAttributes, XattrMode,
};
use pmem::{BLOCK_BYTES, BlockNumber};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use txn::{Data, Metadata, Mode, PoolState, Segments};

const BLOCK: u64 = BLOCK_BYTES as u64;
const USER: u32 = 1000;

fn new_pool(size_bytes: u64, segment_bytes: u64, journals: u32) -> FileSystem {
    let region = new_region(size_bytes, segment_bytes, journals);
    open(region, Mode::ReadWrite).expect("mount")
}

/// A file of `user` with `blocks` blocks.
fn make(files: &FileSystem, name: &str, user: u32, blocks: usize) -> Node {
    let new = NewInode {
        uid: user,
        ..NewInode::file(0o600)
    };
    let node = files
        .create(&files.root(), name.as_bytes(), &new)
        .expect("create");
    files
        .write(&node, 0, &vec![1; blocks * BLOCK_BYTES])
        .expect("write");
    node
}

fn fill(files: &FileSystem, user: u32) -> Node {
    let filler = make(files, "filler", user, 1);
    while files.append(&filler, &[9; BLOCK_BYTES]).is_ok() {}
    filler
}

/// Where the first `count` blocks of a file are.
fn blocks_of(files: &FileSystem, node: &Node, count: u64) -> Vec<BlockNumber> {
    let mut blocks = Vec::new();
    let visit = |_, place| {
        if let Some(Place::At(block)) = place {
            blocks.push(block);
        }
    };
    files.places(node, 0, count, visit).expect("places");
    blocks
}

#[test]
fn threads_that_overwrite_in_a_full_pool_always_find_room() {
    let files = new_pool(8 << 20, 256 << 10, 4);
    let nodes: Vec<Node> = (0..4)
        .map(|number| make(&files, &format!("f{number}"), USER, 16))
        .collect();
    let _filler = fill(&files, USER);
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                for number in 0.. {
                    let (at, byte) = (number % 16 * BLOCK, number as u8);
                    files
                        .write(node, at, &[byte; BLOCK_BYTES])
                        .expect("it frees as much as it takes");
                    written.fetch_add(1, Ordering::Relaxed);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_secs(2));
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(written.into_inner() >= 1000);
}

/// Two threads ask for 1000 blocks each at once, when half of a full pool has just been freed: how many get none.
fn refused_behind_a_removal(files: &FileSystem, keep: &[Node]) -> usize {
    let root = files.root();
    let make = |name: &str| make(files, name, USER, 0);
    let append = |node: &Node| files.append(node, &[1; BLOCK_BYTES]).is_ok();
    // By turns, so that what each of them has is in pieces.
    let (a, b) = (make("a"), make("b"));
    while append(&a) && append(&b) {}
    while append(&a) {}
    drop((a, b));
    files.unlink(&root, b"a").expect("unlink");
    assert!(files.statistics().available_blocks > 4000);
    let barrier = Barrier::new(keep.len());
    let outcomes: Vec<Result<Appended, FsError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = keep
            .iter()
            .map(|node| {
                scope.spawn(|| {
                    barrier.wait();
                    files.append(node, &vec![3; 1000 * BLOCK_BYTES])
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.map(|result| result.expect("no panic")).collect()
    });
    files.unlink(&root, b"b").expect("unlink");
    for node in keep {
        let change = SetAttributes {
            size_bytes: Some(0),
            ..SetAttributes::default()
        };
        files.set_attributes(node, &change).expect("truncate");
    }
    outcomes.iter().filter(|outcome| outcome.is_err()).count()
}

#[test]
fn what_was_just_removed_is_room_for_two_threads() {
    let files = new_pool(64 << 20, 256 << 10, 4);
    let keep = [0, 1].map(|number| make(&files, &format!("keep{number}"), USER, 0));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        assert_eq!(refused_behind_a_removal(&files, &keep), 0);
    }
}

#[test]
fn blocks_that_somebody_sees_when_the_pool_is_unmounted_are_free_for_the_next_mount() {
    let region = Arc::new(new_region(8 << 20, 256 << 10, 2));
    let files = open(Arc::clone(&region), Mode::ReadWrite).expect("mount");
    let own = make(&files, "own", USER, 64);
    let blocks = blocks_of(&files, &own, 64);
    files.checkpoint();
    let before = files.statistics().free_blocks;
    let guard = files.store().seen_blocks().hold(blocks);
    files
        .write(&own, 0, &[2; 64 * BLOCK_BYTES])
        .expect("written");
    drop(own);
    files.unmount();
    drop(guard);
    let report = check(&region, &CheckOptions::default());
    assert!(report.is_clean(), "{report:?}");
    let files = open(region, Mode::ReadWrite).expect("mount");
    assert!(files.store().was_clean());
    files.checkpoint();
    assert_eq!(files.statistics().free_blocks, before);
}

/// User 1000 has one small file, user 2000 all the rest: whether that one can overwrite in the full pool, and make nothing new.
fn overwrites_use_the_reserve(is_held: bool) {
    let files = new_pool(64 << 20, 16 << 20, 1);
    let small = make(&files, "small", USER, 1);
    let block = blocks_of(&files, &small, 1)[0];
    let segment = files.store().allocator().geometry().segment_of(block);
    let segment = segment.expect("in a segment");
    assert!(!is_held || files.store().hand_out(segment).is_some());
    let database = make(&files, "database", 2000, 16);
    let filler = fill(&files, 2000);
    let available = |user| files.statistics_for(user).available_blocks;
    assert_eq!(available(2000), 0, "it is full");
    let segment_blocks = files.store().geometry().segment_blocks;
    let expected = if is_held {
        segment_blocks / 2..segment_blocks
    } else {
        0..1
    };
    assert!(expected.contains(&available(USER)), "{}", available(USER));
    drop(filler);
    for blocks in [16, 1] {
        let data = vec![2; blocks * BLOCK_BYTES];
        files.write(&database, 0, &data).expect("the reserve");
    }
    let link = files.make_symlink(&files.root(), b"link", &[b'x'; 200], 2000, 0);
    assert!(matches!(link.map(drop), Err(FsError::NoSpace)));
    // Who has room of his own uses it.
    let append = files.append(&small, &[1; BLOCK_BYTES]).map(drop);
    assert_eq!(append.is_ok(), is_held, "{append:?}");
    files.store().allocator().verify().expect("sound");
    assert!(!is_held || files.store().take_in(segment));
    files.append(&database, &[1; BLOCK_BYTES]).map(drop).ok();
    files.store().allocator().verify().expect("sound");
    files.unlink(&files.root(), b"filler").expect("removed");
}

#[test]
fn the_reserve_is_not_in_segments_that_somebody_has() {
    overwrites_use_the_reserve(false);
    overwrites_use_the_reserve(true);
}

#[test]
fn who_overwrites_what_is_seen_leaves_the_reserve_to_others() {
    let files = new_pool(8 << 20, 256 << 10, 2);
    let own = make(&files, "own", USER, 64);
    let filler = fill(&files, 2000);
    let blocks = blocks_of(&files, &own, 64);
    let guard = files.store().seen_blocks().hold(blocks);
    let overwrite = |number| files.write(&own, number * BLOCK, &[2; BLOCK_BYTES]);
    for number in 0..64 {
        assert!(matches!(overwrite(number).map(drop), Err(FsError::NoSpace)));
    }
    files
        .write(&filler, 0, &[8; BLOCK_BYTES])
        .expect("the reserve");
    drop(guard);
    files.checkpoint();
    for number in 0..64 {
        overwrite(number).expect("nobody sees them any more");
    }
}

#[test]
fn an_attribute_can_be_removed_and_none_added() {
    let files = new_pool(8 << 20, 256 << 10, 2);
    let node = make(&files, "file", USER, 1);
    let set = |name: &[u8], bytes| files.set_xattr(&node, name, &vec![1; bytes], XattrMode::Any);
    for name in [&b"user.a"[..], b"user.b"] {
        set(name, 3000).expect("room");
    }
    let _filler = fill(&files, USER);
    for name in [&b"user.c"[..], b"user.d"] {
        assert!(matches!(set(name, 4000), Err(FsError::NoSpace)));
    }
    set(b"user.a", 100).expect("less than before");
    files.remove_xattr(&node, b"user.a").expect("removed");
    set(b"user.b", 200).expect("as much as before");
}

#[test]
fn one_file_can_take_what_is_available() {
    for megabytes in [8, 64, 700] {
        let files = new_pool(megabytes << 20, 256 << 10, 2);
        let node = make(&files, "file", USER, 1);
        let blocks = files.statistics_for(USER).available_blocks;
        files
            .allocate(&node, BLOCK, blocks * BLOCK, AllocateOptions::default())
            .unwrap_or_else(|error| panic!("{blocks} of {megabytes} MiB: {error}"));
        let left = files.statistics_for(USER).available_blocks;
        assert!(left < 10 + blocks / 100_000, "{left} of {blocks} left");
    }
}
