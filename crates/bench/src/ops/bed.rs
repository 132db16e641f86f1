//! The test bed of most rows: a pool with a large file in it, and raw memory of the same size beside it.

use super::{OpsOptions, data, mount, names, threads};
use crate::collector::Collector;
use crate::error::BenchError;
use crate::measure::Pinned;
use crate::memory::{prepare, raw_region, require_room};
use perdure::{
    CreateOptions, DurabilityClass, File, OpenOptions, Pool, PoolOptions, ReadCacheMode,
    ReadCacheOptions,
};
use pmem::{BLOCK_BYTES, MapError, Region};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use txn::FormatError;

/// Rows that need the bed.
pub(super) const ROWS: [&str; 10] = [
    "overwrite_4k",
    "append_4k",
    "overwrite_64b",
    "read_4k",
    "create_unlink",
    "open_close",
    "threads_overwrite",
    "threads_create",
    "fuse_read_4k",
    "fuse_write_4k",
];

/// Name of the large file.
pub(super) const FILE: &str = "large";
const POOL_BYTES_MIN: u64 = 64 << 20;
const FILL_BYTES: usize = 1 << 20;

/// A pool and what it is compared with.
pub(super) struct Bed {
    pub(super) pool: Pool,
    pub(super) file: File,
    pub(super) file_bytes: u64,
    /// As large as the file.
    pub(super) raw: Region,
}

/// Bytes of the large file: half of the pool.
pub(super) fn file_bytes(options: &OpsOptions) -> u64 {
    options.pool_bytes / 2 / FILL_BYTES as u64 * FILL_BYTES as u64
}

/// Refuses sizes that cannot work before anything is made.
pub(super) fn check(options: &OpsOptions) -> Result<(), BenchError> {
    let pool_bytes = options.pool_bytes;
    if pool_bytes < POOL_BYTES_MIN {
        return Err(BenchError::TooSmall {
            pool_bytes,
            least_bytes: POOL_BYTES_MIN,
        });
    }
    require_room(&options.directory, pool_bytes + file_bytes(options))
}

/// A directory for an experiment, removed with all that is in it when dropped.
pub(crate) fn work_directory(directory: &Path) -> Result<TempDir, BenchError> {
    let made = tempfile::Builder::new()
        .prefix("perdure-bench-")
        .tempdir_in(directory);
    made.map_err(BenchError::io("make a directory in", directory))
}

/// Makes a pool, persistent if the place is.
pub(crate) fn create_pool(path: &Path, size_bytes: u64) -> Result<Pool, BenchError> {
    let options = CreateOptions::new().size_bytes(size_bytes);
    match create_uncached(path, &options, false) {
        Err(perdure::Error::Create {
            source: FormatError::Map(MapError::NotPersistent { .. }),
            ..
        }) => Ok(create_uncached(path, &options.volatile(true), true)?),
        other => Ok(other?),
    }
}

/// Without copies in DRAM: what is measured is the medium, and figures of different machines and days are compared.
fn create_uncached(path: &Path, options: &CreateOptions, volatile: bool) -> perdure::Result<Pool> {
    options.format(path)?;
    let uncached = ReadCacheOptions {
        mode: ReadCacheMode::Off,
        ..ReadCacheOptions::default()
    };
    let open = PoolOptions::new().volatile(volatile).read_cache(uncached);
    open.open(path)
}

/// A directory on tmpfs: the given one if it is there, else `/dev/shm`.
pub(crate) fn on_tmpfs(directory: &Path) -> PathBuf {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let is_tmpfs =
        rustix::fs::statfs(directory).is_ok_and(|place| place.f_type as u64 == TMPFS_MAGIC);
    if is_tmpfs {
        directory.to_owned()
    } else {
        PathBuf::from("/dev/shm")
    }
}

/// Measures all rows that need the bed.
pub(super) fn measure(collector: &mut Collector, options: &OpsOptions) -> Result<(), BenchError> {
    let place = work_directory(&options.directory)?;
    let pool_path = place.path().join("pool");
    collector.tell("pool");
    let bed = Bed::make(&pool_path, options, &mut collector.hash)?;
    {
        let _pin = Pinned::anywhere();
        data::measure(collector, options, &bed);
        names::measure(collector, options, &bed.pool);
    }
    threads::measure(collector, options, &bed.pool);
    let Bed {
        pool, file, raw, ..
    } = bed;
    drop((raw, file));
    collector.group(&mount::ROWS, |collector| {
        pool.close()?;
        mount::measure(collector, options, place.path(), &pool_path)
    });
    Ok(())
}

impl Bed {
    fn make(path: &Path, options: &OpsOptions, hash: &mut u64) -> Result<Bed, BenchError> {
        let pool = create_pool(path, options.pool_bytes)?;
        let file_bytes = file_bytes(options);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .open(&pool, FILE)?;
        fill(&file, file_bytes)?;
        let raw = raw_region(&options.directory, file_bytes, pool.class())?;
        for region in [&raw, pool.filesystem().store().region()] {
            *hash = hash.wrapping_add(prepare(region, &options.media));
        }
        debug_assert_ne!(pool.class(), DurabilityClass::Log);
        Ok(Bed {
            pool,
            file,
            file_bytes,
            raw,
        })
    }

    /// Blocks of the file, and of the raw memory.
    pub(super) fn blocks(&self) -> u64 {
        self.file_bytes / BLOCK_BYTES as u64
    }

    /// Lines of the file, and of the raw memory.
    pub(super) fn lines(&self) -> u64 {
        self.file_bytes / pmem::LINE_BYTES as u64
    }
}

/// Writes a file from its start.
pub(crate) fn fill(file: &File, bytes: u64) -> Result<(), BenchError> {
    let content = vec![0x5a; FILL_BYTES];
    for offset in (0..bytes).step_by(FILL_BYTES) {
        file.write_at(&content, offset)?;
    }
    Ok(())
}
