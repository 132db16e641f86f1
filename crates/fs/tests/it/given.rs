//! Segments that processes were given, and whose pages somebody may still have.

use lease::Place;
use perdure_fs::{AllocateOptions, FileSystem, MountOptions, NewInode, Node, mkfs};
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::{DomainId, SegmentNumber};
use std::fs::File;
use std::io::{PipeReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use txn::{Domain, FormatOptions, Metadata, Mode, PmemStore, PoolState, Segments, pool};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Whose processes get segments.
const USER: u32 = 1000;
/// What a pipe holds.
const KEPT_BLOCKS: usize = 16;

fn new_pool(folder: &Path, size_bytes: u64, segment_bytes: u64) -> PathBuf {
    let path = folder.join("pool");
    let options = FormatOptions {
        size_bytes,
        segment_bytes,
        journals: 2,
        journal_bytes: 64 << 10,
        volatile: true,
        ..FormatOptions::default()
    };
    mkfs(&path, &options, (0, 0)).expect("mkfs");
    path
}

fn open(path: &Path) -> FileSystem {
    let store = PmemStore::open(path, Mode::ReadWrite, true).expect("open");
    FileSystem::mount(store, MountOptions::default()).expect("mount")
}

fn create(files: &FileSystem, name: &str, user: u32) -> Node {
    let new = NewInode {
        uid: user,
        ..NewInode::file(0o600)
    };
    files
        .create(&files.root(), name.as_bytes(), &new)
        .expect("create")
}

/// Appends as long as there is room. How many blocks it was.
fn fill(files: &FileSystem, node: &Node, byte: u8) -> u64 {
    let mut blocks = 0;
    while files.append(node, &[byte; BLOCK_BYTES]).is_ok() {
        blocks += 1;
    }
    blocks
}

/// Where the blocks of a file are.
fn blocks_of(files: &FileSystem, node: &Node) -> Vec<BlockNumber> {
    let mut blocks = Vec::new();
    let visit = |_, place| match place {
        Some(Place::At(block)) => blocks.push(block),
        other => panic!("{other:?}"),
    };
    let attributes = files.attributes(node).expect("attributes");
    let count = attributes.size_bytes / BLOCK;
    files.places(node, 0, count, visit).expect("places");
    blocks
}

/// A process of [`USER`] gets the segment of a block.
fn give(files: &FileSystem, block: BlockNumber) -> SegmentNumber {
    let store = files.store();
    let segment = store.allocator().geometry().segment_of(block);
    let segment = segment.expect("in a segment");
    let owner = store.hand_out(segment);
    assert!(matches!(owner, Some(Domain::Owner { uid: USER, .. })));
    while !store.prepare(segment, u64::MAX).0 {}
    segment
}

/// Puts the pages of blocks that lie in a row into a pipe, not what is in them.
fn keep(files: &FileSystem, pool: &Path, blocks: &[BlockNumber]) -> PipeReader {
    let (kept, into) = std::io::pipe().expect("a pipe");
    let segment = files.store().allocator().geometry().segment_of(blocks[0]);
    let name = pool::segment_file(segment.expect("in a segment").0);
    let file = File::open(pool.join(name)).expect("a segment");
    let geometry = files.store().geometry();
    let block = blocks[0].get() - geometry.first_block().get();
    let mut at = block % geometry.segment_blocks * BLOCK;
    let bytes = blocks.len() * BLOCK_BYTES;
    let sent = rustix::fs::sendfile(&into, &file, Some(&mut at), bytes);
    assert_eq!(sent, Ok(bytes));
    kept
}

#[test]
fn who_keeps_pages_does_not_see_what_the_next_owner_writes() {
    for is_mounted_again in [false, true] {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = new_pool(folder.path(), 32 << 20, 4 << 20);
        let mut files = open(&path);
        let node = create(&files, "kept", USER);
        let content = [b'x'; KEPT_BLOCKS * BLOCK_BYTES];
        files.write(&node, 0, &content).expect("write");
        let blocks = blocks_of(&files, &node);
        assert!(blocks.is_sorted_by(|one, next| next.get() == one.get() + 1));
        let segment = give(&files, blocks[0]);
        let mut kept = keep(&files, &path, &blocks);
        assert!(files.store().take_in(segment), "nobody has it");
        drop(node);
        if is_mounted_again {
            files.unmount();
            files = open(&path);
        }
        // Its owner uses all of the segment, which he has had, and gives it up.
        fill(&files, &create(&files, "filler", USER), b'f');
        for name in ["kept", "filler"] {
            files
                .unlink(&files.root(), name.as_bytes())
                .expect("unlink");
        }
        files.checkpoint();
        let others = create(&files, "others", 2000);
        fill(&files, &others, b'o');
        // Some blocks of the reserve stay free, and these can be among them.
        let theirs = blocks_of(&files, &others);
        assert!(blocks.iter().any(|block| theirs.contains(block)));
        // The segment is theirs, or became a mixed one with the last room of the pool.
        let owner = files.store().allocator().domain_of(blocks[0]);
        let other = files.store().domain_number(Domain::of_file(0o600, 2000, 0));
        assert!(owner == Some(other) || owner == Some(DomainId::MIXED));
        let mut seen = [0; KEPT_BLOCKS * BLOCK_BYTES];
        kept.read_exact(&mut seen).expect("read");
        assert!(seen == content, "{is_mounted_again}");
    }
}

/// How many segments were given to processes, as their files say.
fn noted_as_given(files: &FileSystem, pool: &Path) -> usize {
    let segments = 0..files.store().geometry().segments;
    let is_noted = |&segment: &u32| {
        let metadata = std::fs::metadata(pool.join(pool::segment_file(segment)));
        metadata.expect("a segment").permissions().mode() & 0o1000 != 0
    };
    segments.filter(is_noted).count()
}

#[test]
fn segments_that_nobody_gets_serve_everybody() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let path = new_pool(folder.path(), 64 << 20, 4 << 20);
    let mut files = open(&path);
    for user in 2000..2008 {
        let node = create(&files, &format!("of {user}"), user);
        files.write(&node, 0, &[1; BLOCK_BYTES]).expect("write");
    }
    // Asked for, and not handed out.
    let segments = files.store().geometry().segments;
    let owned = (0..segments).map(SegmentNumber).filter(|&segment| {
        let owner = files.store().hand_out(segment);
        assert!(owner.is_none() || files.store().take_in(segment));
        owner.is_some()
    });
    assert!(owned.count() > 4);
    for is_mounted_again in [false, true] {
        if is_mounted_again {
            files.unmount();
            files = open(&path);
        }
        assert_eq!(noted_as_given(&files, &path), 0);
        let available = files.statistics().available_blocks;
        let node = create(&files, "filler", 5000);
        let blocks = fill(&files, &node, b'f');
        assert!(blocks > available / 10 * 9, "{blocks} of {available}");
        let own = files
            .lookup(&files.root(), b"of 2000")
            .expect("it is there");
        files
            .write(&own, 0, &[2; BLOCK_BYTES])
            .expect("overwritten");
        drop((node, own));
        files.unlink(&files.root(), b"filler").expect("unlink");
        files.checkpoint();
    }
}

#[test]
fn segments_all_of_whose_pages_are_new_serve_everybody() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let path = new_pool(folder.path(), 64 << 20, 4 << 20);
    let files = open(&path);
    let node = create(&files, "big", USER);
    fill(&files, &node, b'f');
    let store = files.store();
    let own = store.domain_number(Domain::of_file(0o600, USER, 0));
    let segments = (0..store.geometry().segments).map(SegmentNumber);
    for segment in segments.filter(|&segment| store.allocator().owner_of(segment) == Some(own)) {
        assert!(store.hand_out(segment).is_some());
        while !store.prepare(segment, u64::MAX).0 {}
        assert!(store.take_in(segment), "nobody has it");
    }
    assert!(noted_as_given(&files, &path) > 10);
    drop(node);
    files.unlink(&files.root(), b"big").expect("unlink");
    files.checkpoint();
    // Somebody else fills the pool, and keeps little of each segment.
    let node = create(&files, "others", 2000);
    let blocks = fill(&files, &node, b'o');
    let holes = AllocateOptions {
        punch_hole: true,
        keep_size: true,
        ..AllocateOptions::default()
    };
    for first in (0..blocks).step_by(256) {
        files
            .allocate(&node, (first + 1) * BLOCK, 255 * BLOCK, holes)
            .expect("punched");
    }
    files.checkpoint();
    assert_eq!(noted_as_given(&files, &path), 0);
    let available = files.statistics().available_blocks;
    let blocks = fill(&files, &create(&files, "third", 3000), b't');
    assert!(blocks > available / 10 * 9, "{blocks} of {available}");
}
