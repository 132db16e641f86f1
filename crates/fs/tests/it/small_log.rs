//! Writes that are large beside the log of their pool.

use crate::common::log::Pool;
use perdure_fs::{FileSystem, NewInode, Node};
use txn::{FormatOptions, PoolState};

const LOG_BYTES: u64 = 1 << 20;
const WRITE_BYTES: usize = 3 << 20;
const WRITERS: u64 = 8;

fn new_pool() -> Option<Pool> {
    Pool::new(&FormatOptions {
        size_bytes: 128 << 20,
        log_bytes: LOG_BYTES,
        ..FormatOptions::default()
    })
}

/// Each word depends on its place and on its writer.
fn content(writer: u64) -> Vec<u8> {
    let words = (0..WRITE_BYTES as u64 / 8).map(|word| (word * 0x9e37_79b9) ^ (writer << 56));
    words.flat_map(u64::to_le_bytes).collect()
}

fn file(files: &FileSystem, writer: u64) -> Node {
    let name = format!("file {writer}");
    let new = NewInode::file(0o644);
    files
        .create(&files.root(), name.as_bytes(), &new)
        .expect("create")
}

fn assert_content(files: &FileSystem, writer: u64) {
    let name = format!("file {writer}");
    let node = files.lookup(&files.root(), name.as_bytes()).expect("found");
    let mut found = vec![0; WRITE_BYTES];
    let bytes = files.read(&node, 0, &mut found).expect("read");
    assert_eq!(bytes, WRITE_BYTES);
    assert!(found == content(writer), "{name} has other bytes");
}

#[test]
fn a_write_may_be_larger_than_the_log() {
    let Some(pool) = new_pool() else { return };
    let files = pool.mount();
    let node = file(&files, 1);
    let written = files.write(&node, 0, &content(1)).expect("written");
    assert_eq!(written, WRITE_BYTES);
    pool.fail_power(files);
    let files = pool.mount();
    assert_content(&files, 1);
    files.unmount();
}

/// Together the data of all records that the log does not have yet is many times the log: without a
/// bound the ring has no room for records that a checkpoint waits for, and the log fails.
#[test]
fn many_large_writes_at_a_time_leave_room_in_the_log() {
    let Some(pool) = new_pool() else { return };
    let files = pool.mount();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let files = &files;
            scope.spawn(move || {
                let (node, content) = (file(files, writer), content(writer));
                for round in 0..3 {
                    let written = files.write(&node, 0, &content).expect("written");
                    assert_eq!(written, WRITE_BYTES, "round {round} of writer {writer}");
                }
            });
        }
    });
    let logger = files.store().logger().expect("a log");
    assert!(logger.failure().is_none());
    pool.fail_power(files);
    let files = pool.mount();
    (0..WRITERS).for_each(|writer| assert_content(&files, writer));
    files.unmount();
}
