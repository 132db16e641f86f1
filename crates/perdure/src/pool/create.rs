//! Options of a new pool.

use super::home::NewHome;
use super::{holds_pool, process_owner, remove_pool};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use txn::FormatOptions;

/// How [`Pool::create`](crate::Pool::create) lays out a new pool.
///
/// ```
/// # fn main() -> Result<(), perdure::Error> {
/// # let place = tempfile::tempdir_in("/dev/shm").unwrap();
/// # let path = place.path().join("pool");
/// use perdure::{CreateOptions, Pool};
/// let pool = Pool::create(&path, &CreateOptions::new().size_bytes(64 << 20).volatile(true))?;
/// pool.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub(super) format: FormatOptions,
    overwrite: bool,
    pub(super) owner: Option<(u32, u32)>,
    memory_bytes: u64,
    home: Option<PathBuf>,
    home_bytes: Option<u64>,
}

impl CreateOptions {
    /// A pool of 1 GiB with segments of 16 MiB and one journal for each core, on persistent memory
    /// only.
    #[must_use]
    pub fn new() -> CreateOptions {
        CreateOptions {
            format: FormatOptions::default(),
            overwrite: false,
            owner: None,
            memory_bytes: u64::MAX,
            home: None,
            home_bytes: None,
        }
    }

    /// Size of the pool in bytes, metadata included; rounded down to whole segments.
    #[must_use]
    pub fn size_bytes(mut self, bytes: u64) -> CreateOptions {
        self.format.size_bytes = bytes;
        self
    }

    /// Size of a segment in bytes: a power of two of at least 64 KiB. Segments are the unit in
    /// which space is given to owners. 0, the default, is the least from 2 MiB on that gives 2,048
    /// of them or fewer.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> CreateOptions {
        self.format.segment_bytes = bytes;
        self
    }

    /// Number of journals, the limit of operations that can commit at the same moment; 0 is one for
    /// each core.
    #[must_use]
    pub fn journals(mut self, count: u32) -> CreateOptions {
        self.format.journals = count;
        self
    }

    /// Size of a journal in bytes.
    #[must_use]
    pub fn journal_bytes(mut self, bytes: u64) -> CreateOptions {
        self.format.journal_bytes = bytes;
        self
    }

    /// Accept memory that does not survive a power cut (shared memory, page cache). Recorded in the
    /// pool. Without it, a pool on an ordinary disk has a log that makes it durable, and one on
    /// tmpfs is refused.
    #[must_use]
    pub fn volatile(mut self, accept: bool) -> CreateOptions {
        self.format.volatile = accept;
        self
    }

    /// Size in bytes of the log of a pool on an ordinary disk; 0, the default, is an eighth of the
    /// pool, from 64 MiB to 1 GiB.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> CreateOptions {
        self.format.log_bytes = bytes;
        self
    }

    /// A disk below the pool, for data that its memory has no room for: a block device, a file,
    /// which is made if it is not there, or the directory for one. The pool's directory gets a link
    /// to it.
    #[must_use]
    pub fn home(mut self, path: impl Into<PathBuf>) -> CreateOptions {
        self.home = Some(path.into());
        self
    }

    /// Bytes that the pool uses of its home: needed for a new file, else all of it by default. The
    /// file gets its space at once.
    #[must_use]
    pub fn home_bytes(mut self, bytes: u64) -> CreateOptions {
        self.home_bytes = Some(bytes);
        self
    }

    /// Most memory that the pool needs while it is open: one with a log, or a volatile one. A
    /// larger pool with a log keeps the rest in a home in its own directory; any other larger one
    /// is refused.
    #[must_use]
    pub fn memory_bytes(mut self, most: u64) -> CreateOptions {
        self.memory_bytes = most;
        self
    }

    /// Replace a pool that is already there. Everything in it is lost.
    #[must_use]
    pub fn overwrite(mut self, replace: bool) -> CreateOptions {
        self.overwrite = replace;
        self
    }

    /// User and group that own the root directory; without it, those of the process.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> CreateOptions {
        self.owner = Some((uid, gid));
        self
    }

    /// Writes an empty pool without opening it.
    ///
    /// # Errors
    /// [`Error::PoolExists`] without [`overwrite`](Self::overwrite), [`Error::Create`] for all that
    /// is wrong with the sizes, the place or the medium.
    pub fn format(&self, path: impl AsRef<Path>) -> Result<()> {
        self.format_with_progress(path, &mut |_, _| ())
    }

    /// The same; `progress` is told bytes written and bytes in all, while a log is written.
    ///
    /// # Errors
    /// As [`format`](Self::format).
    pub fn format_with_progress(
        &self,
        path: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let pool = path.as_ref();
        let failed = |source| Error::Create {
            pool: pool.to_owned(),
            source,
        };
        // Wrong sizes are found before an old pool is touched.
        let mut format = self.format;
        format.log = !format.volatile && txn::pool::needs_log(pool);
        let home = self.new_home(pool, &mut format)?;
        let fits = format.check_memory(pool, self.memory_bytes);
        fits.map_err(failed)?;
        if holds_pool(pool) {
            if !self.overwrite {
                let pool = pool.to_owned();
                return Err(Error::PoolExists { pool });
            }
            remove_pool(pool)?;
        }
        let owner = self.owner.unwrap_or_else(process_owner);
        fs::mkfs_with_progress(pool, &format, owner, progress).map_err(failed)?;
        let Some(home) = home else {
            return Ok(());
        };
        let made = home.make(pool, self.overwrite);
        if made.is_err() {
            // Without its home it is no pool that anybody asked for.
            let _ = remove_pool(pool);
        }
        made
    }

    /// The pool's future home. The pool's format changes by it.
    fn new_home(&self, pool: &Path, format: &mut FormatOptions) -> Result<Option<NewHome>> {
        let beyond = format.size_bytes.saturating_sub(self.memory_bytes);
        let home = match &self.home {
            Some(path) => NewHome::at(pool, path, self.home_bytes),
            None if format.log && beyond > 0 => {
                format.size_bytes = self.memory_bytes;
                NewHome::inside(pool, self.home_bytes.unwrap_or(beyond))
            }
            None => return Ok(None),
        }?;
        format.device_blocks = home.blocks;
        Ok(Some(home))
    }
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions::new()
    }
}
