//! Files with blocks on a device, also on one that fails.

mod faults;
mod gated;
mod model;

use device::Device;
use device::faulty::Faulty;
use perdure_fs::check::{CheckOptions, check};
use perdure_fs::{
    FileSystem, FsError, MountOptions, NewInode, Node, ReadCacheMode, SetAttributes, mkfs_region,
};
use pmem::{BLOCK_BYTES, Region};
use std::sync::Arc;
use txn::{Data, FormatOptions, Mode, PmemStore};

const BLOCK: u64 = BLOCK_BYTES as u64;
pub(crate) const MEMORY_BYTES: u64 = 8 << 20;
const DEVICE_BLOCKS: u32 = 600;
const ALL: std::ops::Range<u64> = 0..u64::MAX;

pub(crate) fn new_region(device_blocks: u32) -> Arc<Region> {
    let options = FormatOptions {
        size_bytes: MEMORY_BYTES,
        segment_bytes: 256 << 10,
        journals: 2,
        journal_bytes: 64 << 10,
        volatile: true,
        device_blocks,
        ..FormatOptions::default()
    };
    let region = Region::anonymous(options.size_bytes);
    Arc::new(mkfs_region(region, &options, (0, 0)).expect("mkfs"))
}

fn open(region: &Arc<Region>, device: Option<Arc<dyn Device>>, has_copies: bool) -> FileSystem {
    let store = PmemStore::open_region(Arc::clone(region), Mode::ReadWrite).expect("a sound pool");
    let store = match device {
        Some(device) => store.with_device(device, "faulty").expect("its device"),
        None => store,
    };
    let mut options = MountOptions::default();
    if has_copies {
        options.read_cache.mode = ReadCacheMode::On;
        options.read_cache.budget_bytes = 1 << 20;
        options.read_cache.threshold = 1;
    }
    FileSystem::mount(store, options).expect("a sound pool")
}

fn pool() -> (Arc<Region>, Arc<Faulty>, FileSystem) {
    let device = Arc::new(Faulty::new(DEVICE_BLOCKS.into()));
    let region = new_region(DEVICE_BLOCKS);
    let files = open(&region, Some(Arc::clone(&device) as _), false);
    (region, device, files)
}

pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let byte = |at: u64| (seed.wrapping_mul(31).wrapping_add(at * 7 + at / 251)) as u8;
    (0..length as u64).map(byte).collect()
}

fn make(files: &FileSystem, name: &str, content: &[u8]) -> Node {
    let new = NewInode::file(0o644);
    let node = files.create(&files.root(), name.as_bytes(), &new);
    let node = node.expect("a new name");
    files.write(&node, 0, content).expect("room");
    node
}

fn content(files: &FileSystem, node: &Node) -> Result<Vec<u8>, FsError> {
    let size = files.attributes(node)?.size_bytes as usize;
    let mut content = vec![0xee; size + 10];
    let length = files.read(node, 0, &mut content)?;
    content.truncate(length);
    Ok(content)
}

fn on_device(files: &FileSystem, node: &Node) -> u64 {
    files.blocks_on_device(node, ALL).expect("a file")
}

fn free_on_device(files: &FileSystem) -> u64 {
    files.checkpoint();
    files
        .store()
        .device()
        .expect("the pool has one")
        .free_blocks()
}

fn assert_sound(region: &Region) {
    let options = CheckOptions {
        threads: 1,
        progress: None,
    };
    let report = check(region, &options);
    assert!(report.is_clean(), "{:?}", report.faults);
}

#[test]
fn content_stays_what_it_is_wherever_it_lies() {
    let (region, _device, files) = pool();
    let expected = pattern(1, 10 * BLOCK_BYTES + 77);
    let node = make(&files, "a", &expected);
    let (before, space) = (files.attributes(&node).expect("stat"), files.statistics());
    assert_eq!(files.move_to_device(&node, ALL), Ok(11));
    assert_eq!(on_device(&files, &node), 11);
    assert_eq!(files.attributes(&node).expect("stat"), before);
    assert_eq!(content(&files, &node), Ok(expected.clone()));
    files.checkpoint();
    let moved = files.statistics();
    assert_eq!(
        (moved.blocks, moved.free_blocks),
        (space.blocks, space.free_blocks)
    );
    // Parts of blocks, and a range over several.
    for (from, length) in [(0, 1), (4095, 2), (5000, 9000), (10 * BLOCK_BYTES, 200)] {
        let mut part = vec![0; length];
        let read = files.read(&node, from as u64, &mut part).expect("good");
        assert_eq!(
            part[..read],
            expected[from..(from + length).min(expected.len())]
        );
    }
    assert_eq!(files.seek_hole(&node, 0), Ok(expected.len() as u64));
    files.bring_in(&node, 2..5).expect("room");
    assert_eq!(on_device(&files, &node), 8);
    assert_eq!(content(&files, &node), Ok(expected.clone()));
    files.bring_in(&node, ALL).expect("room");
    assert_eq!(
        (on_device(&files, &node), free_on_device(&files)),
        (0, u64::from(DEVICE_BLOCKS))
    );
    assert_eq!(content(&files, &node), Ok(expected));
    drop(node);
    files.unmount();
    assert_sound(&region);
}

#[test]
fn a_mount_knows_what_is_in_use() {
    let (region, device, files) = pool();
    let expected = pattern(2, 5 * BLOCK_BYTES);
    let node = make(&files, "a", &expected);
    files.move_to_device(&node, 1..4).expect("good");
    files.checkpoint();
    let statistics = files.statistics();
    drop((node, files));
    // A crash: the state is rebuilt. Then a clean unmount: it is restored.
    for is_clean in [false, true] {
        let files = open(&region, Some(Arc::clone(&device) as _), false);
        let node = files.lookup(&files.root(), b"a").expect("there");
        assert_eq!(
            files.statistics().free_blocks,
            statistics.free_blocks,
            "{is_clean}"
        );
        assert_eq!(content(&files, &node).as_ref(), Ok(&expected));
        drop(node);
        files.unmount();
        assert_sound(&region);
    }
    let files = open(&region, Some(Arc::clone(&device) as _), false);
    files.unlink(&files.root(), b"a").expect("there");
    assert_eq!(free_on_device(&files), u64::from(DEVICE_BLOCKS));
}

#[test]
fn another_owner_and_a_replaced_file() {
    let (region, _device, files) = pool();
    let expected = pattern(3, 4 * BLOCK_BYTES);
    let node = make(&files, "a", &expected);
    let owner = |uid| SetAttributes {
        uid: Some(uid),
        ..SetAttributes::default()
    };
    files.set_attributes(&node, &owner(1000)).expect("root may");
    files.write(&node, 0, &expected).expect("room");
    files.move_to_device(&node, 0..2).expect("good");
    files.set_attributes(&node, &owner(1001)).expect("root may");
    assert_eq!(
        (on_device(&files, &node), content(&files, &node)),
        (2, Ok(expected))
    );
    let other = make(&files, "b", &[9; 100]);
    let (root, options) = (files.root(), perdure_fs::RenameOptions::default());
    files
        .rename(&root, b"b", &root, b"a", options)
        .expect("both are there");
    drop((node, other));
    assert_eq!(free_on_device(&files), u64::from(DEVICE_BLOCKS));
    files.unmount();
    assert_sound(&region);
}

#[test]
fn a_full_device_and_a_full_memory_refuse() {
    let (_region, _device, files) = pool();
    let large = make(&files, "large", &pattern(4, 700 * BLOCK_BYTES));
    assert_eq!(files.move_to_device(&large, ALL), Err(FsError::NoSpace));
    assert_eq!(on_device(&files, &large), 512);
    // Memory fills up. Blocks on the device cannot be brought in then, but are still read.
    let filler = make(&files, "filler", &[]);
    while files.append(&filler, &[1; BLOCK_BYTES]).is_ok() {}
    assert_eq!(files.bring_in(&large, ALL), Err(FsError::NoSpace));
    assert_eq!(content(&files, &large), Ok(pattern(4, 700 * BLOCK_BYTES)));
}

#[test]
fn readers_and_movers_at_the_same_time() {
    for has_copies in [false, true] {
        let device = Arc::new(Faulty::new(DEVICE_BLOCKS.into()));
        let files = open(
            &new_region(DEVICE_BLOCKS),
            Some(Arc::clone(&device) as _),
            has_copies,
        );
        let node = make(&files, "a", &[0; 8 * BLOCK_BYTES]);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..=200_u8 {
                    files
                        .write(&node, 0, &[round; 8 * BLOCK_BYTES])
                        .expect("room");
                }
            });
            let mover = scope.spawn(|| {
                for round in 0..300_u64 {
                    files.move_to_device(&node, round % 3..8).expect("good");
                    files.bring_in(&node, round % 5..8).expect("room");
                }
            });
            let mut into = vec![0; 8 * BLOCK_BYTES];
            while !writer.is_finished() || !mover.is_finished() {
                files.read(&node, 0, &mut into).expect("good");
                assert!(into.iter().all(|byte| *byte == into[0]), "of one moment");
            }
        });
        assert_eq!(content(&files, &node), Ok(vec![200; 8 * BLOCK_BYTES]));
    }
}
