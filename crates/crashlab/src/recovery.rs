//! The demands on any image that a power cut left: it opens, mounts, adds up, and can be used.

use crate::clock;
use crate::mapped::Mapped;
use crate::snapshot::{Fingerprint, Summary};
use device::Device;
use device::faulty::Faulty;
use fs::check::CheckOptions;
use fs::format::RawInode;
use fs::{
    AccessTime, Clock, FileSystem, FsError, MountOptions, NewInode, ReadCacheMode,
    ReadCacheOptions, TierMode, TierOptions,
};
use pmem::Region;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use txn::{Metadata, Mode, PmemStore};

/// A name that no workload uses.
const PROBE: &[u8] = b"probe after the crash";

thread_local! {
    static ROAM_AFTER: Cell<u32> = const { Cell::new(0) };
    static HAS_READ_CACHE: Cell<bool> = const { Cell::new(false) };
    static DEVICE: RefCell<Option<Arc<Faulty>>> = const { RefCell::new(None) };
}

/// Sets the device of this thread's later mounts: a mount that will be changed uses it, one that is
/// only validated uses a copy.
pub fn use_device(device: Option<Arc<Faulty>>) {
    DEVICE.set(device);
}

/// The device that this thread's mounts have.
pub fn device() -> Option<Arc<Faulty>> {
    DEVICE.with_borrow(Clone::clone)
}

/// Does something with another device for this thread's mounts.
pub fn with_device<R>(device: Option<Arc<Faulty>>, action: impl FnOnce() -> R) -> R {
    let before = DEVICE.replace(device);
    let result = action();
    DEVICE.set(before);
    result
}

/// Changes in place after which a block moves, in whatever this thread mounts from here on; 0 = as users have it.
pub fn roam_after(changes: u32) {
    ROAM_AFTER.set(changes);
}

/// Whether this thread's [`mount_to_change`] copies to DRAM whatever is read from here on.
pub fn has_read_cache(has: bool) {
    HAS_READ_CACHE.set(has);
}

/// Opens and mounts, in a way that repeats: one thread, a fixed seed, a clock that steps.
///
/// # Errors
///
/// The error of opening or mounting.
pub fn mount(region: &Arc<Region>) -> Result<FileSystem, String> {
    mount_with(region, copy_of_device(), ReadCacheOptions::default(), false)
}

fn copy_of_device() -> Option<Arc<Faulty>> {
    device().map(|device| Arc::new(device.snapshot()))
}

/// The same, without direct writes whose records are damaged.
///
/// # Errors
///
/// As [`mount`].
pub fn mount_forced(region: &Arc<Region>) -> Result<FileSystem, String> {
    mount_with(region, copy_of_device(), ReadCacheOptions::default(), true)
}

/// The same for the file system whose power will be cut. It may have copies in DRAM, which must not change what a power cut leaves, nor what
/// is read before.
///
/// # Errors
///
/// The error of opening or mounting.
pub fn mount_to_change(region: &Arc<Region>) -> Result<FileSystem, String> {
    let mut read_cache = ReadCacheOptions::default();
    if HAS_READ_CACHE.get() {
        read_cache.mode = ReadCacheMode::On;
        read_cache.budget_bytes = 64 << 10;
        read_cache.threshold = 1;
    }
    mount_with(region, device(), read_cache, false)
}

fn mount_with(
    region: &Arc<Region>,
    device: Option<Arc<Faulty>>,
    read_cache: ReadCacheOptions,
    force_recovery: bool,
) -> Result<FileSystem, String> {
    let store = PmemStore::open_region(Arc::clone(region), Mode::ReadWrite)
        .map_err(|error| format!("open: {error}"))?;
    let store = match device {
        Some(device) => store.with_device(device as Arc<dyn Device>, "faulty"),
        None => Ok(store),
    };
    let store = store.map_err(|error| format!("device: {error}"))?;
    mount_store(store, read_cache, force_recovery)
}

/// The same for a pool that is open.
///
/// # Errors
///
/// The error of mounting.
pub fn mount_store(
    store: PmemStore,
    read_cache: ReadCacheOptions,
    force_recovery: bool,
) -> Result<FileSystem, String> {
    let options = MountOptions {
        tier: TierOptions {
            mode: TierMode::Steps,
            ..TierOptions::default()
        },
        force_recovery,
        threads: 1,
        access_time: AccessTime::Never,
        seed: Some(7),
        clock: Clock::Custom(clock::tick),
        roam_after: ROAM_AFTER.get(),
        read_cache,
        ..MountOptions::default()
    };
    FileSystem::mount(store, options).map_err(|error| format!("mount: {error}"))
}

/// Recovers an image, in which a process changes what it has `mapped`, and reads everything; then uses the file system and
/// adds up its blocks; then runs `fsck` if `with_check`.
///
/// # Errors
///
/// The fault of the recovered image, in words.
pub fn recover(
    region: &Arc<Region>,
    mapped: &Mapped,
    with_check: bool,
) -> Result<Fingerprint, String> {
    clock::aside(|| {
        let scrambled = mapped.scramble(region);
        let files = mount(region)?;
        scrambled.undo(region);
        let found = Summary::of(&files).map_err(|error| format!("reading: {error}"))?;
        use_it(&files)?;
        add_up(&files, &found)?;
        drop(files);
        if with_check {
            check(region)?;
        }
        Ok(found.fingerprint)
    })
}

/// Demands that `fsck` finds nothing in a pool whose journals are retired.
///
/// # Errors
///
/// The first fault.
pub fn check(region: &Region) -> Result<(), String> {
    let report = fs::check::check(
        region,
        &CheckOptions {
            threads: 1,
            progress: None,
        },
    );
    if report.is_clean() {
        return Ok(());
    }
    let first = report.faults.first();
    let first = first.map_or(String::new(), ToString::to_string);
    Err(format!(
        "fsck finds {} faults; {first}",
        report.faults_total
    ))
}

/// Makes, writes, reads and removes a file.
pub(crate) fn use_it(files: &FileSystem) -> Result<(), String> {
    let root = files.root();
    let attempt = || {
        let node = files.create(&root, PROBE, &NewInode::file(0o600))?;
        let written = files.write(&node, 0, PROBE);
        if written.is_ok() {
            let mut back = [0; PROBE.len()];
            files.read(&node, 0, &mut back)?;
            if back != PROBE {
                return Err(FsError::InvalidArgument(
                    "it reads back otherwise than it was written",
                ));
            }
        }
        drop(node);
        files.unlink(&root, PROBE)?;
        written.map(drop)
    };
    match attempt() {
        Ok(()) | Err(FsError::NoSpace | FsError::NoInodes) => Ok(()),
        Err(error) => Err(format!("using it: {error}")),
    }
}

/// Demands that the allocator's blocks in use are those that inodes and journals own, neither more nor fewer.
///
/// Nothing may be open; `found` is what a walk of the tree added up, since when only the root directory may have grown.
///
/// # Errors
///
/// Both numbers.
pub fn add_up(files: &FileSystem, found: &Summary) -> Result<(), String> {
    files.checkpoint();
    let (store, statistics) = (files.store(), files.statistics());
    let superblock = store.superblock();
    let journals = u64::from(superblock.journals) * superblock.journal_blocks;
    let seals = superblock
        .seals()
        .map_or(0, |seals| u64::from(seals.blocks));
    let table: RawInode = store.load(store.root_area());
    let root = files
        .attributes(&files.root())
        .map_err(|error| format!("root: {error}"))?;
    let owned =
        found.blocks - found.root_blocks + root.sectors / 8 + table.blocks + journals + seals;
    let used = statistics.blocks - statistics.free_blocks;
    if used == owned {
        return Ok(());
    }
    Err(format!(
        "{used} blocks are in use, but inodes, journals and seals own {owned}"
    ))
}

/// Runs `attempt`; a panic is an error too.
///
/// # Errors
///
/// What `attempt` says, or the panic's message.
pub fn caught<R>(attempt: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)) {
        Ok(result) => result,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(format!("panic: {text}"))
        }
    }
}
