//! Copies live in a budget, and the hot ones longest.

use std::time::{Duration, Instant};

use fs::{FileSystem, Node, SetAttributes};
use perdure_fs as fs;

use super::pool::{BLOCK_BYTES, file, make_hot, mounted, wait_until};

fn filled(files: &FileSystem, name: &str, blocks: u64) -> Node {
    let node = file(files, name);
    for block in 0..blocks {
        let data = [block as u8; BLOCK_BYTES];
        let at = block * BLOCK_BYTES as u64;
        files.write(&node, at, &data).expect("write");
    }
    node
}

fn read(files: &FileSystem, node: &Node, block: u64) {
    let mut bytes = [0xee; BLOCK_BYTES];
    let at = block * BLOCK_BYTES as u64;
    assert_eq!(files.read(node, at, &mut bytes), Ok(BLOCK_BYTES));
    assert_eq!(bytes, [block as u8; BLOCK_BYTES]);
}

fn fills(files: &FileSystem) -> u64 {
    files.read_cache_statistics().expect("a cache").fills
}

#[test]
fn copies_stay_within_the_budget_and_hot_ones_stay() {
    let files = mounted(32, 64);
    let hot = filled(&files, "hot", 16);
    let cold = filled(&files, "cold", 1024);
    (0..16).for_each(|block| make_hot(&files, &hot, block));
    let mut copied = fills(&files);
    // Threshold 1: each block of the scan is copied, and pushes others out.
    for block in 0..1024 {
        read(&files, &cold, block);
        read(&files, &hot, block % 16);
        if block % 16 == 15 {
            // Otherwise the scan would be over before anything is copied.
            let (begin, before) = (Instant::now(), copied);
            while copied < before + 8 && begin.elapsed() < Duration::from_millis(100) {
                std::thread::sleep(Duration::from_millis(1));
                copied = fills(&files);
            }
        }
    }
    let after = files.read_cache_statistics().expect("a cache");
    assert_eq!(after.budget_bytes, 64 * BLOCK_BYTES as u64);
    assert!(after.bytes <= after.budget_bytes, "{after:?}");
    assert!(after.evictions >= 256, "{after:?}");
    let of_hot = files.read_cache_files();
    let of_hot = of_hot
        .iter()
        .find(|file| file.file == hot.number().get())
        .expect("it has copies");
    assert!(of_hot.hits >= 1000, "{of_hot:?}");
}

#[test]
fn statistics_add_up() {
    let files = mounted(32, 256);
    let node = filled(&files, "file", 64);
    (0..64).for_each(|block| make_hot(&files, &node, block));
    let before = files.read_cache_statistics().expect("a cache");
    (0..64).for_each(|block| read(&files, &node, block));
    let after = files.read_cache_statistics().expect("a cache");
    assert_eq!(
        (after.hits - before.hits, after.misses - before.misses),
        (64, 0)
    );
    assert_eq!(after.bytes, 64 * BLOCK_BYTES as u64);
    let [only] = files.read_cache_files()[..] else {
        panic!("one file has copies");
    };
    assert_eq!((only.file, only.bytes), (node.number().get(), after.bytes));
    assert_eq!((only.hits, only.fills), (after.hits, after.fills));
    files.write(&node, 0, &[9; 3 * BLOCK_BYTES]).expect("write");
    let written = files.read_cache_statistics().expect("a cache");
    assert_eq!(written.invalidations - after.invalidations, 3);
}

#[test]
fn copies_go_with_their_file() {
    let files = mounted(32, 256);
    let node = filled(&files, "file", 64);
    (0..64).for_each(|block| make_hot(&files, &node, block));
    let empty = SetAttributes {
        size_bytes: Some(0),
        ..SetAttributes::default()
    };
    files.set_attributes(&node, &empty).expect("truncate");
    let mut byte = [1];
    assert_eq!(files.read(&node, 0, &mut byte), Ok(0));
    files.unlink(&files.root(), b"file").expect("unlink");
    drop(node);
    let statistics = || files.read_cache_statistics().expect("a cache");
    wait_until("its pages come back", || statistics().bytes == 0);
    assert_eq!(statistics().files, 0);
}

/// Thousands of files pass through the inode cache; those that have copies keep them although nobody has them open.
#[test]
fn idle_files_keep_their_copies() {
    let files = mounted(64, 256);
    let node = filled(&files, "hot", 8);
    (0..8).for_each(|block| make_hot(&files, &node, block));
    drop(node);
    for index in 0..6000 {
        file(&files, &format!("file {index}"));
    }
    let before = files.read_cache_statistics().expect("a cache");
    let node = files.lookup(&files.root(), b"hot").expect("there");
    (0..8).for_each(|block| read(&files, &node, block));
    let after = files.read_cache_statistics().expect("a cache");
    assert_eq!(after.hits - before.hits, 8, "{after:?}");
}

#[test]
fn a_held_page_outlives_its_block() {
    let files = mounted(32, 8);
    let node = filled(&files, "file", 64);
    // A thread that looks after the cache may take a copy away, or have its entry at that moment.
    let mut held = None;
    wait_until("there is a copy", || {
        make_hot(&files, &node, 3);
        held = files.hold(&node, 3 * BLOCK_BYTES as u64 + 10, 100);
        held.is_some()
    });
    let held = held.expect("a copy");
    assert_eq!(held.bytes(), [3; 100]);
    files
        .write(&node, 0, &[9; 64 * BLOCK_BYTES])
        .expect("write");
    for block in 0..64 {
        make_hot(&files, &node, block);
    }
    assert_eq!(held.bytes(), [3; 100], "what was held is what it was");
    let mut bytes = [0; 100];
    files
        .read(&node, 3 * BLOCK_BYTES as u64, &mut bytes)
        .expect("read");
    assert_eq!(bytes, [9; 100]);
    drop(held);
    assert!(
        files
            .hold(&node, 3 * BLOCK_BYTES as u64 + 4000, 100)
            .is_none(),
        "two blocks"
    );
    assert!(files.hold(&node, 1 << 30, 100).is_none(), "beyond the end");
}
