//! A small pool with a read cache that copies whatever is read.

use std::time::{Duration, Instant};

use fs::{FileSystem, MountOptions, NewInode, Node, ReadCacheMode, ReadCacheOptions};
use perdure_fs as fs;
use pmem::Region;
use txn::{FormatOptions, Mode, PmemStore};

pub(crate) const BLOCK_BYTES: usize = 4096;

/// A pool of so many MiB in private memory, with room for so many copies.
pub(crate) fn mounted(mebibytes: u64, pages: u64) -> FileSystem {
    let options = FormatOptions {
        size_bytes: mebibytes << 20,
        ..FormatOptions::default()
    };
    let region = fs::mkfs_region(Region::anonymous(mebibytes << 20), &options, (0, 0));
    let store = PmemStore::open_region(region.expect("mkfs"), Mode::ReadWrite).expect("open");
    let options = MountOptions {
        read_cache: ReadCacheOptions {
            mode: ReadCacheMode::On,
            budget_bytes: pages * BLOCK_BYTES as u64,
            threshold: 1,
            window_ms: 0,
        },
        ..MountOptions::default()
    };
    FileSystem::mount(store, options).expect("mount")
}

pub(crate) fn file(files: &FileSystem, name: &str) -> Node {
    let new = NewInode::file(0o644);
    files
        .create(&files.root(), name.as_bytes(), &new)
        .expect("create")
}

/// Waits until this is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Reads a block until it comes from DRAM.
pub(crate) fn make_hot(files: &FileSystem, node: &Node, block: u64) {
    let mut bytes = [0; BLOCK_BYTES];
    wait_until("the block is copied", || {
        let hits = || files.read_cache_statistics().expect("a cache").hits;
        let before = hits();
        let at = block * BLOCK_BYTES as u64;
        files.read(node, at, &mut bytes).expect("read");
        hits() > before
    });
}
