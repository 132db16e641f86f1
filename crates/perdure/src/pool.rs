//! Creating, opening and closing pools.

mod create;
mod home;

pub use create::CreateOptions;

use crate::dir::Dir;
use crate::error::{Cause, Error, Result};
use fs::{
    AccessTime, FileSystem, MountOptions, Node, ReadCacheFile, ReadCacheMode, ReadCacheOptions,
    ReadCacheState, ReadCacheStatistics, SpaceStatistics, TierMode, TierOptions, TierStatus,
};
use parking_lot::Mutex;
use pmem::DurabilityClass;
use std::ops::Deref;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use txn::pool::is_pool;
use txn::{Damage, DiskLogStatus, Durability, LogOptions, Logger, Mode, OpenError, PoolState};
use txn::{PmemStore, PoolDirectory};

/// How [`PoolOptions::open`] opens a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    read_only: bool,
    volatile: bool,
    owner: Option<(u32, u32)>,
    umask: u32,
    pub(crate) log: LogOptions,
    mount: MountOptions,
    home: Option<PathBuf>,
}

impl PoolOptions {
    /// Reading and writing; new files belong to the process' effective user and group; umask 0o022; hot blocks are copied to DRAM if the
    /// medium is slower.
    #[must_use]
    pub fn new() -> PoolOptions {
        PoolOptions {
            read_only: false,
            volatile: false,
            owner: None,
            umask: 0o022,
            log: Durability::Call.into(),
            mount: MountOptions {
                read_cache: ReadCacheOptions {
                    mode: ReadCacheMode::Auto,
                    ..ReadCacheOptions::default()
                },
                tier: TierOptions {
                    mode: TierMode::Threads,
                    ..TierOptions::default()
                },
                ..MountOptions::default()
            },
            home: None,
        }
    }

    /// Where the disk below the pool is, if not where the pool's directory says.
    #[must_use]
    pub fn home(mut self, path: impl Into<PathBuf>) -> PoolOptions {
        self.home = Some(path.into());
        self
    }

    /// How data moves between memory and the disk below the pool.
    #[must_use]
    pub fn tier(mut self, options: TierOptions) -> PoolOptions {
        self.mount.tier = options;
        self
    }

    /// Open through a private mapping: nothing is ever written, not even the recovery of a crashed pool.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> PoolOptions {
        self.read_only = read_only;
        self
    }

    /// Accept memory that does not survive a power cut even if the pool was created for persistent memory (a copy of
    /// a pool, for example).
    #[must_use]
    pub fn volatile(mut self, accept: bool) -> PoolOptions {
        self.volatile = accept;
        self
    }

    /// When calls are durable, of a pool on an ordinary disk (class `log`); in others they are when
    /// they return. The default is [`Durability::Call`], a disk's write for each call or for those
    /// of several threads together; with [`Durability::Fsync`] calls are as fast as memory, survive
    /// in order, and [`Pool::sync`] waits.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> PoolOptions {
        self.log.durability = durability;
        self
    }

    /// User and group of the files that are created; without it, those of the process.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> PoolOptions {
        self.owner = Some((uid, gid));
        self
    }

    /// Mode bits that new files and directories never get. The umask of the process is not consulted, because it
    /// cannot be read without changing it for all threads.
    #[must_use]
    pub fn umask(mut self, mask: u32) -> PoolOptions {
        self.umask = mask & 0o777;
        self
    }

    /// Threads that rebuild the free space after a crash; 0 is one for each core.
    #[must_use]
    pub fn threads(mut self, count: usize) -> PoolOptions {
        self.mount.threads = count;
        self
    }

    /// When reading a file updates its time of last access.
    #[must_use]
    pub fn access_time(mut self, policy: AccessTime) -> PoolOptions {
        self.mount.access_time = policy;
        self
    }

    /// Copies of hot blocks in DRAM: whether, how many bytes at most, and when a block is hot. A copy is never older than the file: a write
    /// ends the copies of its blocks before it returns. It is memory of this process, and is given back while the machine is short of it.
    ///
    /// The default is [`ReadCacheMode::Auto`]: opening measures the medium, in less than a millisecond, and there are copies if it is slower to read
    /// than DRAM. [`ReadCacheMode::Off`] spares a pool that is opened for a moment the measuring and a thread.
    ///
    /// ```
    /// # fn main() -> Result<(), perdure::Error> {
    /// # let place = tempfile::tempdir_in("/dev/shm").unwrap();
    /// # let path = place.path().join("pool");
    /// # perdure::CreateOptions::new().size_bytes(64 << 20).volatile(true).format(&path)?;
    /// use perdure::{PoolOptions, ReadCacheMode, ReadCacheOptions};
    /// let cache = ReadCacheOptions {
    ///     mode: ReadCacheMode::On,
    ///     budget_bytes: 256 << 20,
    ///     ..ReadCacheOptions::default()
    /// };
    /// let pool = PoolOptions::new().read_cache(cache).open(&path)?;
    /// assert_eq!(pool.read_cache().budget_bytes, Some(256 << 20));
    /// pool.close()
    /// # }
    /// ```
    #[must_use]
    pub fn read_cache(mut self, options: ReadCacheOptions) -> PoolOptions {
        self.mount.read_cache = options;
        self
    }

    /// Opens a pool also if records of acknowledged changes are damaged, without these changes
    /// ([`Pool::losses`]). The default refuses damaged journals, and files with damaged writes.
    #[must_use]
    pub fn force_recovery(mut self, force: bool) -> PoolOptions {
        self.mount.force_recovery = force;
        self
    }

    /// Opens the pool, after recovering it if it was not closed.
    ///
    /// # Errors
    /// [`Error::Open`]: no pool, another version, damage, another process has it open, or memory that is not
    /// persistent and was not asked for.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let path = path.as_ref();
        let failed = |source| Error::Open {
            pool: path.to_owned(),
            source,
        };
        let mode = if self.read_only {
            Mode::ReadOnly
        } else {
            Mode::ReadWrite
        };
        let damage = match self.mount.force_recovery {
            true => Damage::Drop,
            false => Damage::Refuse,
        };
        let store = PmemStore::open_with(path, mode, self.volatile, damage, self.log);
        let store = store.map_err(failed)?;
        let store = ::home::attach(store, path, self.home.as_deref(), self.mount.force_recovery);
        let store = store.map_err(|source| Error::Home {
            pool: path.to_owned(),
            source,
        })?;
        let mut mount = self.mount;
        mount.read_only = self.read_only;
        let filesystem = FileSystem::mount(store, mount).map_err(failed)?;
        let root = filesystem.root();
        let (uid, gid) = self.owner.unwrap_or_else(process_owner);
        let shared = Shared {
            root: root.clone(),
            filesystem,
            path: path.to_owned(),
            uid,
            gid,
            umask: self.umask,
            leases: Mutex::default(),
        };
        Ok(Pool {
            root: Dir::new(root, Lease::of(&Arc::new(shared))),
        })
    }
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions::new()
    }
}

/// An open pool. It is used as its root directory: every method of [`Dir`] works on it, with paths from the root.
///
/// One process at a time has a pool open for writing. Dropping the pool and everything opened through it closes it
/// cleanly; [`close`](Pool::close) does the same and reports errors. A process that dies instead loses nothing: the
/// next open recovers.
///
/// ```
/// # fn main() -> Result<(), perdure::Error> {
/// # let place = tempfile::tempdir_in("/dev/shm").unwrap();
/// # let path = place.path().join("pool");
/// use perdure::{CreateOptions, Pool};
/// let pool = Pool::create(&path, &CreateOptions::new().size_bytes(64 << 20).volatile(true))?;
/// pool.create_dir_all("var/mail")?;
/// pool.write("var/mail/1", b"Dear Ann")?;     // durable here
/// pool.close()?;
///
/// let pool = Pool::open(&path)?;
/// assert_eq!(pool.read("/var/mail/1")?, b"Dear Ann");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pool {
    root: Dir,
}

impl Pool {
    /// Creates an empty pool and opens it.
    ///
    /// # Errors
    /// Those of [`CreateOptions::format`] and [`PoolOptions::open`].
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Pool> {
        options.format(path.as_ref())?;
        let mut open = PoolOptions::new().volatile(options.format.volatile);
        open.owner = options.owner;
        open.open(path)
    }

    /// Opens a pool for reading and writing, with the defaults of [`PoolOptions`].
    ///
    /// # Errors
    /// Those of [`PoolOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Pool> {
        PoolOptions::new().open(path)
    }

    /// Options for opening a pool.
    #[must_use]
    pub fn options() -> PoolOptions {
        PoolOptions::new()
    }

    /// The root directory as a handle of its own.
    #[must_use]
    pub fn root(&self) -> Dir {
        self.root.clone()
    }

    /// Where the pool lies: the path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root.shared().path
    }

    /// What a power cut does to this pool.
    #[must_use]
    pub fn class(&self) -> DurabilityClass {
        self.filesystem().store().class()
    }

    /// Returns when all calls that returned before are durable. Waits only in class `log` with
    /// [`Durability::Fsync`].
    ///
    /// # Errors
    /// `EIO` if the disk failed: the pool is read-only until it is opened again.
    pub fn sync(&self) -> Result<()> {
        let synced = self.filesystem().sync();
        synced.map_err(|error| Cause::from(error).on("sync", &self.filesystem().root()))
    }

    /// The state of the log of a pool of class `log`.
    #[must_use]
    pub fn log_status(&self) -> Option<DiskLogStatus> {
        self.filesystem().store().logger().map(Logger::status)
    }

    /// Space and inodes, used and free.
    #[must_use]
    pub fn statistics(&self) -> SpaceStatistics {
        self.filesystem().statistics()
    }

    /// Journal records that were applied when the pool was opened; 0 after a clean close.
    #[must_use]
    pub fn recovered_records(&self) -> u64 {
        self.filesystem().store().recovered_records()
    }

    /// How the disk below the pool is; `None` without one.
    #[must_use]
    pub fn tier(&self) -> Option<TierStatus> {
        self.filesystem().tier_status()
    }

    /// Acknowledged changes that could not be recovered, because their records are damaged: a line
    /// for each place.
    #[must_use]
    pub fn losses(&self) -> Vec<String> {
        self.filesystem().losses()
    }

    /// Whether the pool had been closed cleanly before this open.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        self.filesystem().store().was_clean()
    }

    /// Whether hot blocks are copied to DRAM, in how many bytes at most, and how fast the medium was if that was measured.
    #[must_use]
    pub fn read_cache(&self) -> ReadCacheState {
        self.filesystem().read_cache_state()
    }

    /// What the read cache did since the pool was opened, and what it holds; `None` without one. Hits and misses count blocks, not calls.
    #[must_use]
    pub fn read_cache_statistics(&self) -> Option<ReadCacheStatistics> {
        self.filesystem().read_cache_statistics()
    }

    /// The same for each file that has copies, by the number of its inode; those with most hits first. Takes longer the more copies there are.
    #[must_use]
    pub fn read_cache_files(&self) -> Vec<ReadCacheFile> {
        self.filesystem().read_cache_files()
    }

    /// The file system below, for callers that work with inodes instead of paths.
    #[must_use]
    pub fn filesystem(&self) -> &FileSystem {
        &self.root.shared().filesystem
    }

    /// Closes the pool: saves the free space map and marks the pool clean, so that the next open is quick.
    ///
    /// # Errors
    /// [`Error::StillOpen`] while files or directories are open; the pool then closes with the last of them.
    pub fn close(self) -> Result<()> {
        let (node, lease) = self.root.into_parts();
        drop(node);
        let still_open = Error::StillOpen {
            pool: lease.shared.path.clone(),
            handles: lease.shared.handles() - 1,
        };
        Arc::into_inner(lease)
            .and_then(Lease::into_shared)
            .map(drop)
            .ok_or(still_open)
    }
}

impl Deref for Pool {
    type Target = Dir;

    fn deref(&self) -> &Dir {
        &self.root
    }
}

/// What all handles of one open pool have in common.
pub(crate) struct Shared {
    pub(crate) root: Node,
    pub(crate) filesystem: FileSystem,
    pub(crate) path: PathBuf,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) umask: u32,
    /// All that live, and some that ended.
    leases: Mutex<Vec<Weak<Lease>>>,
}

/// A directory's share in the pool, in which the files opened through it have a part. They count on the directory's own cache line:
/// a count for the whole pool would make all threads that open files wait for each other.
pub(crate) struct Lease {
    // Before `shared`, which unmounts when nobody uses the file system any more.
    pub(crate) filesystem: FileSystem,
    pub(crate) shared: Arc<Shared>,
}

impl Lease {
    /// A further one.
    pub(crate) fn of(shared: &Arc<Shared>) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            filesystem: shared.filesystem.clone(),
            shared: Arc::clone(shared),
        });
        let mut leases = shared.leases.lock();
        if leases.len() == leases.capacity() {
            leases.retain(|lease| lease.strong_count() > 0);
        }
        leases.push(Arc::downgrade(&lease));
        lease
    }

    /// What was leased, if this is the last lease.
    fn into_shared(self) -> Option<Shared> {
        let Lease { filesystem, shared } = self;
        drop(filesystem);
        Arc::into_inner(shared)
    }
}

impl Shared {
    /// Open files and directories.
    fn handles(&self) -> usize {
        self.leases.lock().iter().map(Weak::strong_count).sum()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // After a panic the volatile state is not trusted: the next open rebuilds it, as after a crash.
        if !std::thread::panicking() {
            self.filesystem.clone().unmount();
        }
    }
}

/// Whether there is a pool, of whatever version and state, in this directory or on this device.
fn holds_pool(path: &Path) -> bool {
    let is_device =
        std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device());
    // A device can only be mapped, not read: opening it tells.
    let empty = |error: &OpenError| {
        matches!(
            error,
            OpenError::NotAPool { .. } | OpenError::Missing { .. }
        )
    };
    match is_device {
        true => PmemStore::open(path, Mode::ReadOnly, false)
            .err()
            .is_none_or(|error| !empty(&error)),
        false => is_pool(path),
    }
}

/// Removes a pool's files and its directory, but nothing else: a directory with other files in it is left. A
/// device is left as it is, for mkfs to write over.
fn remove_pool(pool: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::Remove {
        pool: pool.to_owned(),
        source: error,
    };
    // The lock of an opener: a pool that somebody uses is not pulled away under them.
    let in_use = PmemStore::open(pool, Mode::ReadWrite, true);
    if let Err(source @ OpenError::InUse { .. }) = in_use {
        return Err(Error::Open {
            pool: pool.to_owned(),
            source,
        });
    }
    if !pool.is_dir() {
        return Ok(());
    }
    let directory = PoolDirectory::open(pool).map_err(failed)?;
    // Files go before the lock, so no other process can open the pool in between.
    txn::remove(&directory).map_err(failed)
}

fn process_owner() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}
