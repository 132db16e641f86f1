//! Files of which blocks lie on a device, also on one that fails.

use device::faulty::{Fault, Faulty};
use device::{Device, DeviceError, ReadRequest, Run, Token, WriteRequest};
use perdure_fs::check::{CheckOptions, check};
use perdure_fs::{
    AllocateOptions, FileSystem, FsError, MountOptions, NewInode, Node, ReadCacheMode,
    SetAttributes, mkfs_region,
};
use pmem::{BLOCK_BYTES, Region};
use proptest::prelude::*;
use std::sync::{Arc, Condvar, Mutex};
use txn::{Data, FormatOptions, Mode, PmemStore};

const BLOCK: u64 = BLOCK_BYTES as u64;
const DEVICE_BLOCKS: u32 = 600;
const ALL: std::ops::Range<u64> = 0..u64::MAX;

fn new_region(device_blocks: u32) -> Arc<Region> {
    let options = FormatOptions {
        size_bytes: 8 << 20,
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

fn pattern(seed: u64, length: usize) -> Vec<u8> {
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
    // Memory fills up; what lies on the device cannot be brought in then, but is still read.
    let filler = make(&files, "filler", &[]);
    while files.append(&filler, &[1; BLOCK_BYTES]).is_ok() {}
    assert_eq!(files.bring_in(&large, ALL), Err(FsError::NoSpace));
    assert_eq!(content(&files, &large), Ok(pattern(4, 700 * BLOCK_BYTES)));
}

/// What somebody may do to a file.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Append(usize),
    Truncate(usize),
    Allocate(usize, usize, bool, bool),
    Sink(u64, u64),
    Raise(u64, u64),
    Remount,
}

const SIZE: usize = 14 * BLOCK_BYTES;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![1..600_usize, 1..3 * BLOCK_BYTES, Just(BLOCK_BYTES)];
    let at = prop_oneof![0..SIZE, (0..14_usize).prop_map(|block| block * BLOCK_BYTES)];
    let step = prop_oneof![
        3 => (at.clone(), length.clone()).prop_map(|(at, length)| Step::Write(at, length)),
        1 => length.clone().prop_map(Step::Append),
        1 => at.clone().prop_map(Step::Truncate),
        1 => (at, length, any::<bool>(), any::<bool>())
            .prop_map(|(at, length, punch, zero)| Step::Allocate(at, length, punch, zero && !punch)),
        3 => (0..14_u64, 1..14_u64).prop_map(|(first, count)| Step::Sink(first, first + count)),
        1 => (0..14_u64, 1..14_u64).prop_map(|(first, count)| Step::Raise(first, first + count)),
        1 => Just(Step::Remount),
    ];
    proptest::collection::vec(step, 1..30)
}

/// Does a step to the model.
fn apply(model: &mut Vec<u8>, step: &Step, bytes: &[u8]) {
    match *step {
        Step::Write(at, length) => {
            model.resize(model.len().max(at + length), 0);
            model[at..at + length].copy_from_slice(bytes);
        }
        Step::Append(_) => model.extend_from_slice(bytes),
        Step::Truncate(size) => model.resize(size, 0),
        Step::Allocate(at, length, punch, zero) => {
            if !punch {
                model.resize(model.len().max(at + length), 0);
            }
            let end = (at + length).min(model.len());
            if (punch || zero) && at < end {
                model[at..end].fill(0);
            }
        }
        Step::Sink(..) | Step::Raise(..) | Step::Remount => {}
    }
}

/// Does a step to a file.
fn operate(files: &FileSystem, node: &Node, step: &Step, bytes: &[u8]) -> Result<(), FsError> {
    match *step {
        Step::Write(at, _) => files.write(node, at as u64, bytes).map(drop),
        Step::Append(_) => files.append(node, bytes).map(drop),
        Step::Truncate(size) => {
            let change = SetAttributes {
                size_bytes: Some(size as u64),
                ..SetAttributes::default()
            };
            files.set_attributes(node, &change).map(drop)
        }
        Step::Allocate(at, length, punch_hole, zero_range) => {
            let options = AllocateOptions {
                keep_size: punch_hole,
                punch_hole,
                zero_range,
            };
            files.allocate(node, at as u64, length as u64, options)
        }
        Step::Sink(first, end) => files.move_to_device(node, first..end).map(drop),
        Step::Raise(first, end) => files.bring_in(node, first..end),
        Step::Remount => Ok(()),
    }
}

fn bytes_of(step: &Step, index: usize) -> Vec<u8> {
    match *step {
        Step::Write(_, length) | Step::Append(length) => pattern(index as u64 + 5, length),
        _ => Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
    ))]

    /// The file is what a model says, whatever moves and whenever, and whatever the device does wrong: a step happens, or fails
    /// with `EIO` and changes nothing; what was refused goes when it is tried again.
    #[test]
    fn a_file_is_what_was_written(
        steps in steps(),
        has_copies in any::<bool>(),
        faults in proptest::collection::vec((0..8_usize, 0..12_u64), 0..6),
    ) {
        let device = Arc::new(Faulty::new(DEVICE_BLOCKS.into()));
        let region = new_region(DEVICE_BLOCKS);
        let reopen = || open(&region, Some(Arc::clone(&device) as _), has_copies);
        let mut files = reopen();
        let mut node = make(&files, "a", &[]);
        let mut model = Vec::new();
        // Not those that lose data without a word: a copy that the pool no longer has cannot come back.
        for &(fault, after) in &faults {
            let fault = Fault::ALL[fault];
            if ![Fault::Torn, Fault::Lost, Fault::Misdirected].contains(&fault) {
                device.arm(fault, after);
            }
        }
        for (index, step) in steps.iter().enumerate() {
            let bytes = bytes_of(step, index);
            let mut attempts = 0;
            while let Err(error) = operate(&files, &node, step, &bytes) {
                prop_assert!(matches!(error, FsError::Device(_)), "{step:?}: {error}");
                prop_assert_eq!(error.errno(), libc_eio());
                attempts += 1;
                prop_assert!(attempts <= faults.len(), "{step:?}: {error}");
            }
            apply(&mut model, step, &bytes);
            if let Step::Remount = step {
                drop(node);
                files.unmount();
                files = reopen();
                node = files.lookup(&files.root(), b"a").expect("there");
            }
            let mut attempts = 0;
            let found = loop {
                match content(&files, &node) {
                    Ok(found) => break found,
                    Err(error) => prop_assert!(matches!(error, FsError::Device(_)), "{error}"),
                }
                attempts += 1;
                prop_assert!(attempts <= faults.len());
            };
            prop_assert!(found == model, "after step {index}, {step:?}");
        }
        device.disarm();
        files.bring_in(&node, ALL).expect("room");
        prop_assert_eq!(free_on_device(&files), u64::from(DEVICE_BLOCKS));
        drop(node);
        files.unmount();
        assert_sound(&region);
    }
}

fn libc_eio() -> i32 {
    std::io::Error::from_raw_os_error(5)
        .raw_os_error()
        .expect("a number")
}

#[test]
fn silent_faults_are_errors_and_never_other_bytes() {
    for fault in [Fault::Torn, Fault::Lost, Fault::Misdirected] {
        let (_region, device, files) = pool();
        let expected = pattern(6, 6 * BLOCK_BYTES);
        let node = make(&files, "a", &expected);
        device.arm(fault, 0);
        assert_eq!(files.move_to_device(&node, 0..3), Ok(3), "nobody says so");
        files.move_to_device(&node, 3..6).expect("good");
        let error = content(&files, &node).expect_err("other bytes");
        let FsError::Device(failure) = &error else {
            panic!("{fault:?}: {error}");
        };
        assert_eq!(failure.error, DeviceError::OtherBytes, "{fault:?}");
        // What is not concerned is read, and the file can be written and removed.
        let mut good = vec![0; 2 * BLOCK_BYTES];
        files.read(&node, 4 * BLOCK, &mut good).expect("good");
        assert_eq!(good[..], expected[4 * BLOCK_BYTES..]);
        files
            .write(&node, 0, &expected[..4 * BLOCK_BYTES])
            .expect("whole blocks need no old byte");
        assert_eq!(content(&files, &node), Ok(expected), "{fault:?}");
        drop(node);
        files.unlink(&files.root(), b"a").expect("there");
        assert_eq!(free_on_device(&files), u64::from(DEVICE_BLOCKS));
    }
}

#[test]
fn without_its_device_a_pool_has_what_is_in_memory() {
    let (region, device, files) = pool();
    let cold = make(&files, "cold", &pattern(7, 2 * BLOCK_BYTES));
    let hot = make(&files, "hot", &pattern(8, 2 * BLOCK_BYTES));
    files.move_to_device(&cold, ALL).expect("good");
    drop((cold, hot));
    files.unmount();
    let files = open(&region, None, false);
    let node = |name: &str| files.lookup(&files.root(), name.as_bytes()).expect("there");
    let error = content(&files, &node("cold")).expect_err("the device is missing");
    assert!(matches!(&error, FsError::Device(fault) if fault.error == DeviceError::Missing));
    assert_eq!(
        content(&files, &node("hot")),
        Ok(pattern(8, 2 * BLOCK_BYTES))
    );
    make(&files, "new", &[1; 5000]);
    assert_eq!(
        files
            .attributes(&node("cold"))
            .expect("metadata")
            .size_bytes,
        2 * BLOCK
    );
    files.unmount();
    // It comes back while the pool is mounted.
    let files = open(&region, Some(Arc::clone(&device) as _), false);
    let cold = files.lookup(&files.root(), b"cold").expect("there");
    device.set_gone(true);
    assert!(content(&files, &cold).is_err());
    device.set_gone(false);
    assert_eq!(content(&files, &cold), Ok(pattern(7, 2 * BLOCK_BYTES)));
}

/// A device whose reads wait until somebody opens the gate.
#[derive(Debug)]
struct Gated {
    inner: Faulty,
    state: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: bool,
    waiting: u32,
}

impl Gated {
    fn close(&self) {
        self.state.lock().expect("no panic").is_closed = true;
    }

    fn open(&self) {
        self.state.lock().expect("no panic").is_closed = false;
        self.changed.notify_all();
    }

    fn await_waiting(&self, count: u32) {
        let state = self.state.lock().expect("no panic");
        let missing = |state: &mut Gate| state.waiting < count;
        drop(self.changed.wait_while(state, missing).expect("no panic"));
    }
}

impl Device for Gated {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn read(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        let mut state = self.state.lock().expect("no panic");
        state.waiting += 1;
        self.changed.notify_all();
        state = self
            .changed
            .wait_while(state, |state| state.is_closed)
            .expect("no panic");
        state.waiting -= 1;
        drop(state);
        self.inner.read(requests)
    }

    fn write(&self, requests: &[WriteRequest<'_>]) -> Result<Token, DeviceError> {
        self.inner.write(requests)
    }

    fn wait(&self, token: Token) -> Result<(), DeviceError> {
        self.inner.wait(token)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn trim(&self, runs: &[Run]) {
        self.inner.trim(runs);
    }
}

fn gated(device_blocks: u32, has_copies: bool) -> (Arc<Gated>, FileSystem) {
    let device = Arc::new(Gated {
        inner: Faulty::new(device_blocks.into()),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let region = new_region(device_blocks);
    let files = open(&region, Some(Arc::clone(&device) as _), has_copies);
    (device, files)
}

/// What a reader finds whose block is freed, and wanted by others, while he waits for the device.
fn read_while_freed(is_broken: bool) -> Result<Vec<u8>, FsError> {
    let (device, files) = gated(6, false);
    let node = make(&files, "a", &pattern(9, 3 * BLOCK_BYTES));
    let other = make(&files, "b", &pattern(10, 3 * BLOCK_BYTES));
    files.move_to_device(&node, 1..2).expect("good");
    device.close();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| content(&files, &node));
        device.await_waiting(1);
        // The reader has no lock.
        files.write(&node, 0, &[1; 100]).expect("room");
        files.write(&node, BLOCK, &[2; BLOCK_BYTES]).expect("room");
        files.move_to_device(&node, ALL).expect("good");
        files.checkpoint();
        // Of six blocks three are the file's, and one is read: these two are the last ones.
        files.move_to_device(&other, 0..2).expect("good");
        let wants_more = scope.spawn(|| files.move_to_device(&other, 2..3));
        files.attributes(&node).expect("stat");
        if is_broken {
            let room = wants_more.join().expect("no panic");
            assert_eq!(room, Ok(1), "it does not wait");
            device.open();
            return reader.join().expect("no panic");
        }
        assert!(!wants_more.is_finished(), "it waits for the reader");
        device.open();
        let found = reader.join().expect("no panic");
        let room = wants_more.join().expect("no panic");
        assert_eq!(room, Ok(1), "there is room now");
        found
    })
}

#[test]
fn a_slow_read_holds_up_nobody_and_sees_one_moment() {
    assert_eq!(read_while_freed(false), Ok(pattern(9, 3 * BLOCK_BYTES)));
}

#[test]
fn a_write_that_needs_old_bytes_waits_without_the_lock() {
    let (device, files) = gated(DEVICE_BLOCKS, false);
    let node = make(&files, "a", &pattern(9, 3 * BLOCK_BYTES));
    files.move_to_device(&node, ALL).expect("good");
    device.close();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| files.write(&node, 2 * BLOCK + 5, &[3; 10]));
        device.await_waiting(1);
        files.write(&node, BLOCK, &[4; BLOCK_BYTES]).expect("room");
        files
            .append(&node, &[5; 10])
            .expect("the end is a block of its own");
        device.open();
        assert_eq!(writer.join().expect("no panic"), Ok(10));
    });
    let found = content(&files, &node).expect("good");
    assert_eq!(found[2 * BLOCK_BYTES + 5..][..10], [3; 10]);
    assert_eq!(found[3 * BLOCK_BYTES..], [5; 10]);
    assert_eq!(found[BLOCK_BYTES..2 * BLOCK_BYTES], [4; BLOCK_BYTES]);
}

/// What is read behind a write that came while somebody fetched the block for the read cache.
fn read_behind_a_late_fetch() -> Vec<u8> {
    let (device, files) = gated(DEVICE_BLOCKS, true);
    let node = make(&files, "a", &[1; BLOCK_BYTES]);
    files.move_to_device(&node, ALL).expect("good");
    // The first block of a file that is hot makes its copies.
    content(&files, &node).expect("good");
    let changed = make(&files, "b", &[1; BLOCK_BYTES]);
    files.move_to_device(&changed, ALL).expect("good");
    device.close();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| content(&files, &changed));
        device.await_waiting(1);
        files.write(&changed, 0, &[2; BLOCK_BYTES]).expect("room");
        device.open();
        let found = reader.join().expect("no panic").expect("good");
        assert!([1, 2].contains(&found[0]), "of one moment");
        content(&files, &changed).expect("good")
    })
}

#[test]
fn what_was_fetched_late_is_no_copy() {
    assert_eq!(read_behind_a_late_fetch(), vec![2; BLOCK_BYTES]);
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn these_tests_notice() {
    use pmem::deliberate::{self, Bug};
    deliberate::set(Some(Bug::FreeBeforeReaders));
    assert_ne!(read_while_freed(true), Ok(pattern(9, 3 * BLOCK_BYTES)));
    deliberate::set(Some(Bug::StaleFill));
    assert_ne!(read_behind_a_late_fetch(), vec![2; BLOCK_BYTES]);
    deliberate::set(None);
}

/// Keeps the lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Lines {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let mut lines = self.0.lock().expect("no panic");
        lines
            .last_mut()
            .expect("a line")
            .push_str(&format!("{field}={value:?} "));
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut lines = self.clone();
        lines.0.lock().expect("no panic").push(String::new());
        event.record(&mut lines);
    }

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

#[test]
fn each_error_has_a_line_that_names_file_block_and_device() {
    let (_region, device, files) = pool();
    let node = make(&files, "a", &pattern(11, 4 * BLOCK_BYTES));
    files.move_to_device(&node, 0..2).expect("good");
    let lines = Lines::default();
    let attempts: [&dyn Fn() -> Result<(), FsError>; 4] = [
        &|| content(&files, &node).map(drop),
        &|| files.write(&node, BLOCK + 5, b"small").map(drop),
        &|| files.bring_in(&node, ALL),
        &|| files.move_to_device(&node, 3..4).map(drop),
    ];
    device.set_gone(true);
    for attempt in attempts {
        let error = tracing::subscriber::with_default(lines.clone(), attempt);
        let error = error.expect_err("the device is gone");
        assert!(matches!(error, FsError::Device(_)), "{error}");
        let line = lines.0.lock().expect("no panic").pop().expect("a line");
        let inode = format!("inode={} ", node.number());
        for part in [
            inode.as_str(),
            "file_block=",
            "device=faulty ",
            "device_block=",
            "error=",
        ] {
            assert!(line.contains(part), "{part} is missing: {line}");
        }
        assert!(lines.0.lock().expect("no panic").is_empty(), "one line");
    }
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
