//! The cache of a mount.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use pmem::{BLOCK_BYTES, BlockNumber};

use crate::background::Background;
use crate::file::FileCache;
use crate::frames::Frames;
use crate::hotness::Hotness;
use crate::memory::Memory;
use crate::shared::Shared;
use crate::statistics::{Event, FileStatistics, Statistics};

/// Copies a block out of the store. Called by the background thread, for blocks that readers found there; what it gives for a block that
/// belongs to somebody else by then is thrown away.
pub type Source = Box<dyn Fn(BlockNumber, &mut [u8; BLOCK_BYTES]) + Send>;

/// How a cache behaves.
pub struct Options {
    /// Most bytes of DRAM for copies.
    pub budget_bytes: u64,
    /// A block is copied when it is read for this time within `window`: 1 to 63.
    pub threshold: u32,
    /// How long reads are remembered, at least; twice as long at most.
    pub window: Duration,
    /// How much memory there is left.
    pub memory: Box<dyn Fn() -> Option<Memory> + Send>,
}

impl Options {
    /// This budget, and everything else as most loads want it.
    pub fn new(budget_bytes: u64) -> Options {
        Options {
            budget_bytes,
            threshold: 2,
            window: Duration::from_secs(10),
            memory: Box::new(Memory::now),
        }
    }
}

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
#[error(
    "the read cache cannot begin: {source}; mount with --read-cache off, or with a smaller size"
)]
pub struct BeginError {
    #[from]
    source: io::Error,
}

/// Copies of hot blocks in DRAM, for all files of a mount. Dropping it ends its thread.
pub struct ReadCache {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for ReadCache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "a read cache of {} pages",
            self.shared.frames.count()
        )
    }
}

impl ReadCache {
    /// A cache without copies, and its thread.
    ///
    /// # Errors
    /// No addresses for the budget, or no thread.
    pub fn begin(options: Options, source: Source) -> Result<ReadCache, BeginError> {
        let frames = Frames::new(options.budget_bytes)?;
        let hotness = Hotness::new(frames.count(), options.threshold);
        let shared = Arc::new(Shared::new(frames, hotness));
        let background =
            Background::new(Arc::clone(&shared), source, options.memory, options.window);
        let thread = std::thread::Builder::new()
            .name("perdure-cache".to_owned())
            .spawn(move || background.run())?;
        let _ = shared.thread.set(thread.thread().clone());
        Ok(ReadCache {
            shared,
            thread: Some(thread),
        })
    }

    /// Most bytes of copies: as was asked for, in whole pages, at most 256 GiB.
    pub fn budget_bytes(&self) -> u64 {
        u64::from(self.shared.frames.count()) * BLOCK_BYTES as u64
    }

    /// A read of `block` of file `tag` is about to go to the medium: what [`missed`](Self::missed) needs is fetched meanwhile.
    #[inline]
    pub fn will_miss(&self, tag: u64, block: u64) {
        self.shared.hotness.prefetch(tag, block);
    }

    /// A block was read from the medium, at `home`. If it is hot, an entry points to it from now on, and its copy is made in the background.
    ///
    /// `file` is where the owner keeps the file's copies; it is made with the first hot block. `is_current` says whether `home` still is where the
    /// block lies. It is asked after a sequentially consistent fence; a writer who makes the answer no has such a fence between that and his
    /// [`FileCache::invalidate`].
    #[inline]
    pub fn missed(
        &self,
        file: &OnceLock<Arc<FileCache>>,
        tag: u64,
        block: u64,
        home: BlockNumber,
        is_current: impl FnOnce() -> bool,
    ) {
        if self.count_miss(file, tag, block) {
            self.point(file, tag, block, home, is_current);
        }
    }

    /// Whether the block is hot now.
    #[inline]
    fn count_miss(&self, file: &OnceLock<Arc<FileCache>>, tag: u64, block: u64) -> bool {
        match file.get() {
            Some(file) => file.count_miss(),
            None => self.shared.meter.miss_of_no_file(),
        }
        // Its thread tells the time.
        self.shared.wake_if_asleep();
        self.shared.hotness.count(tag, block)
    }

    #[inline(never)]
    fn point(
        &self,
        file: &OnceLock<Arc<FileCache>>,
        tag: u64,
        block: u64,
        home: BlockNumber,
        is_current: impl FnOnce() -> bool,
    ) {
        let file = self.file(file, tag);
        file.point(block, home, is_current);
    }

    /// The same for a store so slow that its bytes are not fetched twice: `bytes` is the block, and becomes the copy at once if the block is hot.
    pub fn fetched(
        &self,
        file: &OnceLock<Arc<FileCache>>,
        tag: u64,
        block: u64,
        bytes: &[u8; BLOCK_BYTES],
        is_current: impl FnOnce() -> bool,
    ) {
        if self.count_miss(file, tag, block) {
            self.file(file, tag).insert(block, bytes, is_current);
        }
    }

    /// The file's copies, made with the first hot block.
    fn file<'f>(&self, file: &'f OnceLock<Arc<FileCache>>, tag: u64) -> &'f Arc<FileCache> {
        file.get_or_init(|| self.shared.add_file(tag))
    }

    /// What the cache did and what it holds.
    pub fn statistics(&self) -> Statistics {
        let shared = &self.shared;
        let page = |count: u32| u64::from(count) * BLOCK_BYTES as u64;
        let files = shared.files();
        Statistics {
            hits: shared.meter.of_all(Event::Hit),
            misses: shared.meter.of_all(Event::Miss),
            fills: shared.meter.of_all(Event::Fill),
            invalidations: shared.meter.of_all(Event::Invalidation),
            evictions: shared.meter.evictions.load(Ordering::Relaxed),
            bytes: page(shared.frames.in_use()),
            limit_bytes: page(shared.frames.limit()),
            budget_bytes: page(shared.frames.count()),
            table_bytes: files
                .iter()
                .map(|file| file.current_table().bytes() as u64)
                .sum(),
            files: files.len() as u64,
        }
    }

    /// The same for each file with copies, those with most hits first.
    pub fn files(&self) -> Vec<FileStatistics> {
        let mut files: Vec<FileStatistics> = self
            .shared
            .files()
            .iter()
            .map(|file| file.statistics())
            .collect();
        files.sort_by_key(|file| std::cmp::Reverse((file.hits, file.bytes)));
        files
    }
}

impl Drop for ReadCache {
    fn drop(&mut self) {
        self.shared.must_end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of that thread was printed when it happened and concerns nobody else: without it nothing is copied.
            let _ = thread.join();
        }
    }
}
