//! What requests go to: a file system on a slow medium, with or without the read cache, or with a page cache over it.

use super::ReadCacheOptions;
use crate::error::BenchError;
use crate::memory::{Page, raw_region, require_room};
use fs::{FileSystem, MountOptions, NewInode, Node, SetAttributes};
use pmem::{BLOCK_BYTES, DurabilityClass, MediaModel, Offset, Region};
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::{FormatOptions, Mode, PmemStore};

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// A file system, as far as this experiment uses one.
pub(super) trait System: Sync {
    /// A file; it can be used by all threads.
    type File: Send + Sync;

    /// Makes an empty file.
    fn create(&self, name: &str) -> Result<Self::File, BenchError>;
    /// Reads up to `into.len()` bytes; fewer at the end of the file.
    fn read(&self, file: &Self::File, offset: u64, into: &mut [u8]) -> Result<usize, BenchError>;
    /// Writes all of `data`, durable at return.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<(), BenchError>;
    /// Writes all of `data` at the end, durable at return.
    fn append(&self, file: &Self::File, data: &[u8]) -> Result<(), BenchError>;
    /// Removes all content.
    fn clear(&self, file: &Self::File) -> Result<(), BenchError>;

    /// Makes a file of so many blocks, each of which begins with its number: whoever reads one can tell whether it is the right one.
    fn fill(&self, name: &str, blocks: u32) -> Result<Self::File, BenchError> {
        let file = self.create(name)?;
        let mut page = Page::filled();
        for block in 0..u64::from(blocks) {
            page.number(block);
            self.write(&file, block * BLOCK, &page.0)?;
        }
        Ok(file)
    }
}

/// A file system on a pool of its own.
pub(super) struct Bed {
    pub(super) files: FileSystem,
}

impl Bed {
    /// Makes a pool, lays the media model over it, and mounts it.
    pub(super) fn new(
        options: &ReadCacheOptions,
        media: &MediaModel,
        cache: fs::ReadCacheOptions,
    ) -> Result<Bed, BenchError> {
        Bed::over(Arc::new(new_pool(options)?), media, cache)
    }

    /// Mounts the pool in a region, under the media model.
    pub(super) fn over(
        region: Arc<Region>,
        media: &MediaModel,
        cache: fs::ReadCacheOptions,
    ) -> Result<Bed, BenchError> {
        let store = PmemStore::open_region(region, Mode::ReadWrite)?;
        // Before mounting, because a mount measures how fast the medium is.
        store.region().set_media(media);
        let mount = MountOptions {
            read_cache: cache,
            ..MountOptions::default()
        };
        Ok(Bed {
            files: FileSystem::mount(store, mount)?,
        })
    }

    /// Reads the file until all of its blocks come from DRAM; once if there is no read cache. Each block is read twice in a row: two blocks whose
    /// counts fall together would never become hot if they were read by turns.
    pub(super) fn warm(&self, file: &Node, blocks: u32) -> Result<(), BenchError> {
        const PATIENCE: Duration = Duration::from_secs(30);
        const PAUSE: Duration = Duration::from_millis(5);
        let begin = Instant::now();
        let mut page = Page::filled();
        loop {
            let before = self.hits_and_misses().1;
            for block in 0..u64::from(blocks) {
                self.read(file, block * BLOCK, &mut page.0)?;
                self.read(file, block * BLOCK, &mut page.0)?;
            }
            let missed = self.hits_and_misses().1 - before;
            // Two reads in a thousand: blocks may have no place in the file's table.
            if missed * 500 <= 2 * u64::from(blocks) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(BenchError::Setup(format!(
                    "{missed} of {} reads still went to the medium after {PATIENCE:?}",
                    2 * blocks
                )));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Makes a file of so many blocks hot and removes it: the memory of its copies stays with the read cache.
    pub(super) fn use_memory(&self, blocks: u32) -> Result<(), BenchError> {
        const NAME: &str = "earlier";
        let file = self.fill(NAME, blocks)?;
        self.warm(&file, blocks)?;
        drop(file);
        self.files.unlink(&self.files.root(), NAME.as_bytes())?;
        Ok(())
    }

    /// Hits and misses since the mount; none without a read cache.
    pub(super) fn hits_and_misses(&self) -> (u64, u64) {
        let statistics = self.files.read_cache_statistics();
        statistics.map_or((0, 0), |found| (found.hits, found.misses))
    }

    /// Ends the file after so many bytes.
    pub(super) fn cut(&self, file: &Node, size_bytes: u64) -> Result<(), BenchError> {
        let change = SetAttributes {
            size_bytes: Some(size_bytes),
            ..SetAttributes::default()
        };
        self.files.set_attributes(file, &change)?;
        Ok(())
    }
}

/// Makes an empty pool.
pub(super) fn new_pool(options: &ReadCacheOptions) -> Result<Region, BenchError> {
    let format = FormatOptions {
        size_bytes: options.pool_bytes,
        ..FormatOptions::default()
    };
    fs::mkfs_region(region(options)?, &format, (0, 0))
        .map_err(|error| BenchError::Setup(error.to_string()))
}

/// Memory for a pool, its pages touched, so that no operation takes a page fault.
fn region(options: &ReadCacheOptions) -> Result<Region, BenchError> {
    let length = options.pool_bytes;
    let Some(directory) = &options.directory else {
        let region = Region::anonymous(length);
        region.fence(region.zero_streaming(Offset::new(0), length));
        return Ok(region);
    };
    require_room(directory, length)?;
    raw_region(directory, length, DurabilityClass::Volatile)
}

impl System for Bed {
    type File = Node;

    fn create(&self, name: &str) -> Result<Node, BenchError> {
        let new = NewInode::file(0o600);
        Ok(self
            .files
            .create(&self.files.root(), name.as_bytes(), &new)?)
    }

    #[inline]
    fn read(&self, file: &Node, offset: u64, into: &mut [u8]) -> Result<usize, BenchError> {
        Ok(self.files.read(file, offset, into)?)
    }

    #[inline]
    fn write(&self, file: &Node, offset: u64, data: &[u8]) -> Result<(), BenchError> {
        let written = self.files.write(file, offset, data)?;
        require_all(written, data.len())
    }

    #[inline]
    fn append(&self, file: &Node, data: &[u8]) -> Result<(), BenchError> {
        self.files.append(file, data)?;
        Ok(())
    }

    fn clear(&self, file: &Node) -> Result<(), BenchError> {
        self.cut(file, 0)
    }
}

/// A pool that is full writes less than it was given.
#[inline]
pub(super) fn require_all(written: usize, wanted: usize) -> Result<(), BenchError> {
    match written == wanted {
        true => Ok(()),
        false => Err(BenchError::FileSystem(fs::FsError::NoSpace)),
    }
}
