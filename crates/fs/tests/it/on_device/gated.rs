//! Reads that wait for the device while the file changes.

use super::{ALL, BLOCK, DEVICE_BLOCKS, content, make, new_region, open, pattern};
use device::faulty::Faulty;
use device::{Device, DeviceError, ReadRequest, Run, Token, WriteRequest};
use perdure_fs::{FileSystem, FsError};
use pmem::BLOCK_BYTES;
use std::sync::{Arc, Condvar, Mutex};

/// A device whose reads wait until the test opens the gate.
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

/// Returns the content that a reader finds if its block is freed, and wanted by another file, while
/// it waits for the device.
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

/// Returns the content read after a write that came while a reader fetched the block for the read
/// cache.
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
