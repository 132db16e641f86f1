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

/// Waits until the clock of the file system has moved. A busy machine lets it stand still for more
/// than its 4 ms.
pub(crate) fn await_tick() {
    use rustix::time::{ClockId, clock_gettime};
    let now = || {
        let time = clock_gettime(ClockId::RealtimeCoarse);
        (time.tv_sec, time.tv_nsec)
    };
    let before = now();
    while now() == before {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
