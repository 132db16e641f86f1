//! Data that moves between memory and a device below it.

use crate::on_device::{MEMORY_BYTES, new_region, pattern};
use device::Device;
use device::faulty::{Fault, Faulty};
use perdure_fs::check::{CheckOptions, check};
use perdure_fs::lease::Watcher;
use perdure_fs::{
    FileSystem, FsError, MountOptions, NewInode, Node, TierMode, TierState, TierStatus,
};
use pmem::{BLOCK_BYTES, Region};
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::{Mode, PmemStore};

const BLOCK: u64 = BLOCK_BYTES as u64;
const DEVICE_BLOCKS: u32 = 20_000;
const ALL: std::ops::Range<u64> = 0..u64::MAX;

fn open(region: &Arc<Region>, device: &Arc<Faulty>, mode: TierMode) -> FileSystem {
    let store = PmemStore::open_region(Arc::clone(region), Mode::ReadWrite).expect("a sound pool");
    let device = Arc::clone(device) as Arc<dyn Device>;
    let store = store.with_device(device, "faulty").expect("its device");
    let mut options = MountOptions {
        seed: Some(3),
        ..MountOptions::default()
    };
    options.tier.mode = mode;
    FileSystem::mount(store, options).expect("a sound pool")
}

fn pool(mode: TierMode) -> (Arc<Region>, Arc<Faulty>, FileSystem) {
    let device = Arc::new(Faulty::new(DEVICE_BLOCKS.into()));
    let region = new_region(DEVICE_BLOCKS);
    let files = open(&region, &device, mode);
    (region, device, files)
}

fn sound(files: FileSystem, region: &Arc<Region>) {
    files.unmount();
    let options = CheckOptions {
        threads: 1,
        progress: None,
    };
    let report = check(region, &options);
    assert!(report.is_clean(), "{:?}", report.faults);
}

fn make(files: &FileSystem, name: &str, content: &[u8]) -> Node {
    let new = NewInode::file(0o644);
    let node = files.create(&files.root(), name.as_bytes(), &new);
    let node = node.expect("a new name");
    assert_eq!(files.write(&node, 0, content), Ok(content.len()));
    node
}

fn content(files: &FileSystem, node: &Node) -> Vec<u8> {
    let size = files.attributes(node).expect("a file").size_bytes as usize;
    let mut content = vec![0; size];
    assert_eq!(files.read(node, 0, &mut content), Ok(size));
    content
}

fn status(files: &FileSystem) -> TierStatus {
    files.tier_status().expect("a tier")
}

fn on_device(files: &FileSystem, node: &Node) -> u64 {
    files.blocks_on_device(node, ALL).expect("a file")
}

/// A moment at which everything of today is old.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn blocks_are_copied_by_age_and_evicted_by_need() {
    let (region, _device, files) = pool(TierMode::Steps);
    let bytes = pattern(1, 50 * BLOCK_BYTES + 17);
    let node = make(&files, "a", &bytes);
    assert_eq!(files.tier_step(Instant::now()), 0, "nothing is old");
    assert_eq!(status(&files).clean_bytes, 0);
    assert!(files.tier_step(later()) > 0);
    assert_eq!(status(&files).clean_bytes, 51 * BLOCK);
    assert_eq!(on_device(&files, &node), 0, "copied, and still in memory");
    assert_eq!(files.tier_step(later()), 0);
    // A clean block that changes is dirty, and its copy is free.
    files
        .write(&node, 3 * BLOCK + 9, b"in place")
        .expect("room");
    files
        .write(&node, 7 * BLOCK, &[5; BLOCK_BYTES])
        .expect("room");
    assert!(status(&files).clean_bytes <= 50 * BLOCK);
    let mut bytes = bytes;
    bytes[3 * BLOCK_BYTES + 9..][..8].copy_from_slice(b"in place");
    bytes[7 * BLOCK_BYTES..][..BLOCK_BYTES].fill(5);
    let evicted = files.tier_evict(1000);
    assert_eq!(on_device(&files, &node), evicted);
    assert_eq!(evicted, 49, "all but the two that changed");
    assert_eq!(content(&files, &node), bytes);
    files.tier_flush().expect("a good device");
    files.tier_evict(1000);
    assert_eq!(on_device(&files, &node), 51);
    assert_eq!(content(&files, &node), bytes);
    sound(files, &region);
}

#[test]
fn a_cut_file_leaves_nothing_below() {
    let (region, _device, files) = pool(TierMode::Steps);
    let free = status(&files).home_free_bytes;
    let node = make(&files, "a", &pattern(1, 64 * BLOCK_BYTES));
    files.tier_flush().expect("a good device");
    files.tier_evict(30);
    let set = |size| perdure_fs::SetAttributes {
        size_bytes: Some(size),
        ..Default::default()
    };
    files
        .set_attributes(&node, &set(40 * BLOCK + 5))
        .expect("a cut");
    files
        .set_attributes(&node, &set(50 * BLOCK))
        .expect("longer");
    let mut expected = pattern(1, 64 * BLOCK_BYTES);
    expected[40 * BLOCK_BYTES + 5..].fill(0);
    expected.truncate(50 * BLOCK_BYTES);
    assert_eq!(content(&files, &node), expected);
    files.tier_flush().expect("a good device");
    files.tier_evict(1000);
    assert_eq!(content(&files, &node), expected);
    files.unlink(&files.root(), b"a").expect("there");
    drop(node);
    files.checkpoint();
    files.checkpoint();
    assert_eq!(status(&files).home_free_bytes, free);
    sound(files, &region);
}

#[test]
fn a_pool_takes_more_than_its_memory_holds() {
    for mode in [TierMode::Steps, TierMode::Threads] {
        let (region, device, files) = pool(mode);
        let piece = 64 * BLOCK_BYTES;
        let nodes: Vec<Node> = (0..120)
            .map(|number| make(&files, &format!("f{number}"), &pattern(number, piece)))
            .collect();
        for (number, node) in nodes.iter().enumerate() {
            assert_eq!(
                content(&files, node),
                pattern(number as u64, piece),
                "{number}"
            );
        }
        drop(nodes);
        files.unmount();
        let files = open(&region, &device, mode);
        for number in 0..120 {
            let node = files.lookup(&files.root(), format!("f{number}").as_bytes());
            let node = node.expect("a file of before");
            assert_eq!(content(&files, &node), pattern(number, piece), "{number}");
        }
        sound(files, &region);
    }
}

#[test]
fn a_block_that_is_read_again_comes_back_and_a_scan_does_not() {
    let (region, _device, files) = pool(TierMode::Steps);
    let node = make(&files, "a", &pattern(1, 300 * BLOCK_BYTES));
    files.tier_flush().expect("a good device");
    assert_eq!(files.tier_evict(1000), 300);
    assert_eq!(content(&files, &node), pattern(1, 300 * BLOCK_BYTES));
    while files.tier_step(Instant::now()) > 0 {}
    assert_eq!(on_device(&files, &node), 300, "a scan brings nothing in");
    let mut block = [0; BLOCK_BYTES];
    for _ in 0..2 {
        files
            .read(&node, 5 * BLOCK, &mut block)
            .expect("a good device");
        while files.tier_step(Instant::now()) > 0 {}
    }
    assert_eq!(on_device(&files, &node), 299);
    assert_eq!(status(&files).clean_bytes, BLOCK, "it is clean");
    // The next sweep leaves it, and the one behind that does not.
    let before = status(&files).evicted_bytes;
    files.tier_evict(1);
    assert_eq!(status(&files).evicted_bytes, before + BLOCK);
    assert_eq!(content(&files, &node), pattern(1, 300 * BLOCK_BYTES));
    sound(files, &region);
}

#[test]
fn a_hot_set_survives_a_stream_of_writes() {
    let (region, _device, files) = pool(TierMode::Steps);
    let hot = make(&files, "hot", &pattern(9, 100 * BLOCK_BYTES));
    for round in 0..100 {
        assert_eq!(content(&files, &hot), pattern(9, 100 * BLOCK_BYTES));
        let cold = make(
            &files,
            &format!("cold{round}"),
            &pattern(round, 80 * BLOCK_BYTES),
        );
        drop(cold);
        while files.tier_step(Instant::now()) > 0 {}
    }
    let lost = on_device(&files, &hot);
    assert!(lost <= 10, "{lost} of 100 hot blocks were evicted");
    sound(files, &region);
}

#[test]
fn a_device_that_fails_loses_nothing_and_is_tried_again() {
    let (region, device, files) = pool(TierMode::Steps);
    let node = make(&files, "a", &pattern(1, 40 * BLOCK_BYTES));
    for fault in [Fault::Write, Fault::Wait, Fault::Flush] {
        device.arm(fault, 0);
        assert!(
            matches!(files.tier_flush(), Err(FsError::Device(_))),
            "{fault:?}"
        );
        assert_eq!(status(&files).clean_bytes, 0, "{fault:?}");
        assert_eq!(status(&files).state, TierState::Failing);
        assert_eq!(files.tier_evict(1000), 0, "nothing is clean");
    }
    files.tier_flush().expect("a good device");
    assert_eq!(status(&files).state, TierState::Ok);
    assert_eq!(files.tier_evict(1000), 40);
    assert_eq!(content(&files, &node), pattern(1, 40 * BLOCK_BYTES));
    sound(files, &region);
}

#[test]
fn a_full_device_ends_in_no_space_and_not_in_a_wait() {
    let device = Arc::new(Faulty::new(100));
    let region = new_region(100);
    let files = open(&region, &device, TierMode::Threads);
    let new = NewInode::file(0o644);
    let node = files.create(&files.root(), b"a", &new).expect("a new name");
    let begun = Instant::now();
    let written = (0..4000).find(|&index| {
        let wrote = files.write(&node, index * BLOCK, &pattern(index, BLOCK_BYTES));
        wrote != Ok(BLOCK_BYTES)
    });
    let written = written.expect("memory and device are smaller than this");
    assert!(written > 1000, "{written}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    for index in 0..written {
        let mut block = [0; BLOCK_BYTES];
        assert_eq!(
            files.read(&node, index * BLOCK, &mut block),
            Ok(BLOCK_BYTES)
        );
        assert!(block.as_slice() == pattern(index, BLOCK_BYTES), "{index}");
    }
    sound(files, &region);
}

#[test]
fn metadata_finds_room_where_data_was() {
    for mode in [TierMode::Steps, TierMode::Threads] {
        let (region, _device, files) = pool(mode);
        // Data first, so that every segment has some.
        let large = make(&files, "large", &pattern(3, 3000 * BLOCK_BYTES));
        for number in 0..4000_u64 {
            make(&files, &format!("{number}"), &pattern(number, 1000));
        }
        for number in 0..4000_u64 {
            let node = files.lookup(&files.root(), number.to_string().as_bytes());
            let node = node.expect("a file");
            assert!(content(&files, &node) == pattern(number, 1000), "{number}");
        }
        assert!(content(&files, &large) == pattern(3, 3000 * BLOCK_BYTES));
        sound(files, &region);
    }
}

struct Reader;

impl Watcher for Reader {
    fn ended(&self) {}
    fn attributes_changed(&self) {}
}

/// How many blocks of a file are evicted that a process has attached.
fn evicted_while_attached() -> u64 {
    let (_region, _device, files) = pool(TierMode::Steps);
    let node = make(&files, "a", &pattern(1, 10 * BLOCK_BYTES));
    let reader = Arc::new(Reader);
    files
        .watch(&node, Arc::clone(&reader) as _)
        .expect("nobody else");
    files.tier_flush().expect("a good device");
    let evicted = files.tier_evict(100);
    files.end_watch(&node, &*reader);
    assert_eq!(evicted + files.tier_evict(100), 10);
    evicted
}

#[test]
fn what_a_process_has_attached_stays_in_memory() {
    assert_eq!(evicted_while_attached(), 0);
}

/// Bytes of the home that a file leaves behind when it is removed.
fn left_behind() -> u64 {
    let (_region, _device, files) = pool(TierMode::Steps);
    let free = status(&files).home_free_bytes;
    make(&files, "a", &pattern(1, 10 * BLOCK_BYTES));
    files.tier_flush().expect("a good device");
    files.unlink(&files.root(), b"a").expect("there");
    files.checkpoint();
    files.checkpoint();
    free - status(&files).home_free_bytes
}

#[test]
fn a_removed_file_leaves_no_twins() {
    assert_eq!(left_behind(), 0);
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn these_tests_notice() {
    use pmem::deliberate::{self, Bug};
    deliberate::set(Some(Bug::EvictAttached));
    assert_ne!(evicted_while_attached(), 0);
    deliberate::set(Some(Bug::KeepTwinOfFreed));
    assert_ne!(left_behind(), 0);
    deliberate::set(None);
}

const THREADS: u64 = 3;
const FILE_BLOCKS: u64 = 900;

/// Writes and reads a file of its own, and knows the content of each block.
fn work(files: &FileSystem, thread: u64) {
    let node = make(files, &thread.to_string(), &[0; BLOCK_BYTES]);
    let mut known = vec![0_u8; FILE_BLOCKS as usize];
    let mut random = thread + 1;
    for round in 0..6_000_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(round | 1);
        let index = (random >> 33) % FILE_BLOCKS;
        let byte = (round % 251) as u8 + 1;
        let mut block = [byte; BLOCK_BYTES];
        if round % 3 == 0 {
            match files.read(&node, index * BLOCK, &mut block) {
                Ok(length) => {
                    let expected = known[index as usize];
                    assert!(
                        block[..length].iter().all(|&found| found == expected),
                        "{index}"
                    );
                }
                Err(FsError::Device(_)) => (),
                Err(error) => panic!("{index}: {error}"),
            }
            continue;
        }
        assert_eq!(files.write(&node, index * BLOCK, &block), Ok(BLOCK_BYTES));
        known[index as usize] = byte;
    }
    for (index, &expected) in known.iter().enumerate() {
        let mut block = [expected; BLOCK_BYTES];
        while files.read(&node, index as u64 * BLOCK, &mut block).is_err() {}
        assert!(
            block.iter().all(|&found| found == expected),
            "{thread}: {index}"
        );
    }
}

#[test]
fn threads_work_while_the_device_fails_now_and_then() {
    let (region, device, files) = pool(TierMode::Threads);
    let files_of_all = &files;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || work(files_of_all, thread)))
            .collect();
        let is_over = || workers.iter().all(|worker| worker.is_finished());
        let faults = [Fault::Read, Fault::Write, Fault::Wait, Fault::Flush];
        for fault in faults.iter().cycle().take_while(|_| !is_over()) {
            // One at a time, and a good copy behind each: a device that fails for long ends in
            // ENOSPC.
            let met = device.counts().faults;
            device.arm(*fault, 3);
            let waits = || device.counts().faults == met && !is_over();
            while waits() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let copied = status(&files).copied_bytes;
            while status(&files).copied_bytes == copied && !is_over() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        device.disarm();
    });
    assert!(
        status(&files).evicted_bytes > MEMORY_BYTES,
        "it was too small"
    );
    sound(files, &region);
}
