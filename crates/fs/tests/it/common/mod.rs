//! Pools as several tests want them.

pub(crate) mod log;

use perdure_fs::{FileSystem, MountOptions, mkfs_region};
use pmem::Region;
use std::sync::Arc;
use txn::{FormatOptions, Mode, OpenError, PmemStore};

/// A new pool with this many journals.
pub(crate) fn new_region(size_bytes: u64, segment_bytes: u64, journals: u32) -> Region {
    let options = FormatOptions {
        size_bytes,
        segment_bytes,
        journals,
        journal_bytes: 64 << 10,
        volatile: true,
        ..FormatOptions::default()
    };
    mkfs_region(Region::anonymous(size_bytes), &options, (0, 0)).expect("mkfs")
}

pub(crate) fn open(region: impl Into<Arc<Region>>, mode: Mode) -> Result<FileSystem, OpenError> {
    let store = PmemStore::open_region(region, mode)?;
    FileSystem::mount(store, MountOptions::default())
}
