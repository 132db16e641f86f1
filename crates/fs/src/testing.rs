//! What tests of modules share.

use crate::{FileSystem, MountOptions, mkfs_region};
use pmem::Region;
use std::sync::Arc;
use txn::{FormatOptions, Mode, PmemStore};

/// A mounted pool in memory, with a root directory and nothing else.
pub(crate) fn empty(size_bytes: u64) -> FileSystem {
    let options = FormatOptions {
        size_bytes,
        ..FormatOptions::tiny()
    };
    let region = mkfs_region(Region::anonymous(size_bytes), &options, (0, 0)).expect("a pool");
    let store = PmemStore::open_region(Arc::new(region), Mode::ReadWrite).expect("a sound pool");
    FileSystem::mount(store, MountOptions::default()).expect("mount")
}
