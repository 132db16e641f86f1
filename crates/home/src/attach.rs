//! A pool and its home.

use crate::{FileHome, HomeError};
use device::{Device, DeviceError, ReadRequest, Run, Token, WriteRequest};
use parking_lot::{Mutex, RwLock};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use txn::pool::HOME_FILE;
use txn::{CommitError, LogFailed, OpenError, PmemStore, PoolState};

/// A home that is missing is looked for so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a pool does not get its home.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The home is another one, damaged, or in use.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The home is smaller than the pool needs.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log failed while the mount was counted.
    #[error("cannot count the mount with the home: {0}")]
    Log(LogFailed),
    /// The mount could not be counted.
    #[error("cannot count the mount with the home: {0}")]
    Count(#[from] CommitError),
}

/// The home of a pool, there or not. Requests to one that is missing fail at once, and look for it
/// once a second.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    pool: [u8; 16],
    blocks: u64,
    writes: bool,
    /// As the memory had counted them when the pool was opened.
    mounts: u64,
    found: RwLock<Option<Arc<FileHome>>>,
    looked: Mutex<Instant>,
    /// Whether the home was lost since the last flush, and with it what its cache held: the next
    /// flush fails (D2).
    was_lost: AtomicBool,
}

/// Gives an open pool its home: the file or device at `home`, or else what the pool's directory
/// names. A pool without a home stays as it is. If the home is missing, a warning says so: data in
/// memory can be used, and the home is looked for.
///
/// With `force` a home of another time is taken, too: reading a block that is not the one that the
/// memory knows is an error then.
///
/// With a pool that is open for writing the mount is counted, in the home first.
///
/// # Errors
///
/// [`AttachError`]. A home that is there and is not this pool's, or of another time, is an error.
pub fn attach(
    store: PmemStore,
    pool: &Path,
    home: Option<&Path>,
    force: bool,
) -> Result<PmemStore, AttachError> {
    let superblock = *store.superblock();
    if superblock.device_blocks == 0 {
        return Ok(store);
    }
    let path = home.map_or_else(|| inside(pool), Path::to_owned);
    if home.is_none() {
        require_trust(pool, &path)?;
    }
    let writes = !store.is_read_only();
    let found = match FileHome::open(&path, &superblock.uuid, writes) {
        Err(error) if error.is_missing() => {
            tracing::warn!(%error, "data that is only there cannot be read");
            None
        }
        found => Some(Arc::new(found?)),
    };
    let mounts = store.home_mounts();
    let mut counted = mounts;
    if let Some(found) = &found {
        match found.require_generation(mounts) {
            Err(error) if force => tracing::warn!(%error, "it is taken all the same"),
            other => other?,
        }
        if writes {
            counted = found.count_mount(mounts)?;
            store.count_home_mounts(counted)?;
            if let Some(logger) = store.logger() {
                logger.sync().map_err(AttachError::Log)?;
            }
        }
    }
    let name = path.display().to_string();
    let home = Arc::new(Home {
        path,
        pool: superblock.uuid,
        blocks: u64::from(superblock.device_blocks),
        writes,
        mounts: counted,
        found: RwLock::new(found),
        looked: Mutex::new(Instant::now()),
        was_lost: AtomicBool::new(false),
    });
    Ok(store.with_device(home, &name)?)
}

/// Fails if another user's pool leads this process to anything but a file of that user: opening a
/// device can have effects, and a link can lead to one.
fn require_trust(pool: &Path, path: &Path) -> Result<(), HomeError> {
    let own = rustix::process::geteuid().as_raw();
    let Ok(directory) = std::fs::metadata(pool) else {
        return Ok(());
    };
    if !directory.is_dir() || directory.uid() == own {
        return Ok(());
    }
    let distrusted = |what| {
        Err(HomeError::Distrusted {
            path: path.to_owned(),
            what,
        })
    };
    match std::fs::symlink_metadata(path) {
        // It is missing, which the caller sees.
        Err(_) => Ok(()),
        Ok(home) if home.is_symlink() => distrusted("is a link"),
        Ok(home) if !home.is_file() => distrusted("is no file"),
        Ok(home) if home.uid() != directory.uid() || home.nlink() > 1 => {
            distrusted("has another owner or another name")
        }
        Ok(_) => Ok(()),
    }
}

/// The place of a home in a pool's directory.
pub fn inside(pool: &Path) -> PathBuf {
    pool.join(HOME_FILE)
}

/// Makes a link in a pool's directory that leads to its home.
///
/// # Errors
///
/// The system's.
pub fn link(pool: &Path, home: &Path) -> Result<(), HomeError> {
    let linked = std::os::unix::fs::symlink(home, inside(pool));
    linked.map_err(HomeError::io("link to", home))
}

impl HomeError {
    /// Whether the file or device is not there, or does not answer.
    pub fn is_missing(&self) -> bool {
        use rustix::io::Errno;
        let gone = [Errno::NOENT, Errno::NXIO, Errno::NODEV, Errno::NOMEDIUM];
        let gone = gone.map(|errno| Some(errno.raw_os_error()));
        matches!(self, HomeError::Io { source, .. } if gone.contains(&source.raw_os_error()))
    }
}

impl Home {
    fn home(&self) -> Result<Arc<FileHome>, DeviceError> {
        if let Some(home) = &*self.found.read() {
            return Ok(Arc::clone(home));
        }
        self.look()
    }

    /// Looks for a home that was missing.
    #[cold]
    fn look(&self) -> Result<Arc<FileHome>, DeviceError> {
        let mut looked = self.looked.lock();
        if looked.elapsed() < LOOK_EVERY {
            return Err(DeviceError::Missing);
        }
        *looked = Instant::now();
        let found = FileHome::open(&self.path, &self.pool, self.writes).and_then(|home| {
            home.require_generation(self.mounts)?;
            Ok(Arc::new(home))
        });
        match found {
            Ok(home) => {
                tracing::info!(home = %self.path.display(), "the home is there again");
                *self.found.write() = Some(Arc::clone(&home));
                Ok(home)
            }
            Err(error) => {
                tracing::debug!(%error, "the home is still missing");
                Err(DeviceError::Missing)
            }
        }
    }

    /// Lets a home go that does not answer any more, so that it is looked for.
    fn seen<R>(&self, outcome: Result<R, DeviceError>) -> Result<R, DeviceError> {
        if matches!(outcome, Err(DeviceError::Missing)) {
            *self.found.write() = None;
            self.was_lost.store(true, Ordering::SeqCst);
        }
        outcome
    }
}

impl Device for Home {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        let home = self.home()?;
        self.seen(home.read(requests))
    }

    fn write(&self, requests: &[WriteRequest<'_>]) -> Result<Token, DeviceError> {
        let home = self.home()?;
        self.seen(home.write(requests))
    }

    fn wait(&self, token: Token) -> Result<(), DeviceError> {
        // A home that was lost meanwhile has lost its tokens as well.
        let home = self.home()?;
        self.seen(home.wait(token))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let home = self.home()?;
        let flushed = self.seen(home.flush());
        match self.was_lost.swap(false, Ordering::SeqCst) {
            true => flushed.and(Err(DeviceError::FlushFailed)),
            false => flushed,
        }
    }

    fn trim(&self, runs: &[Run]) {
        if let Ok(home) = self.home() {
            home.trim(runs);
        }
    }
}
