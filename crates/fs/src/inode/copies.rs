//! DRAM copies of hot blocks of files: where `readcache` meets files.
//!
//! A copy is true as long as nobody changes the file's content, and who does that has its inode locked. So:
//!
//! * C1 Whoever changes content says so to the guard of the lock, and the guard ends the copies before the view says that the change is over. No
//!   pointers are left meanwhile, because who leaves one asks the view after he has claimed an entry for it, and the guard looks for claims
//!   after the view has said that the file is changing.
//! * C2 A reader believes a copy only if the view is what it was when he began, as he does with the medium.
//!
//! Copies are nothing that a power cut could leave behind: nothing here writes to the store.

use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pmem::{BLOCK_BYTES, BlockNumber};
use readcache::{FileCache, FileStatistics, Memory, Page, ReadCache, Statistics};
use txn::{ReadSpeed, Store};

use crate::format::BLOCK;
use crate::inode::node::{InodeState, Node};
use crate::locks::view::Snapshot;
use crate::mounted::file_system::{Core, FileSystem};
use crate::values::types::{ReadCacheMode, ReadCacheOptions};

/// Copies pay if the medium takes this many times as long as DRAM.
const SLOWER_BY: f64 = 1.3;
/// Part of the available memory that copies take unless told otherwise.
const BUDGET_PART: u64 = 4;
/// The budget where the machine does not say what is available.
const BUDGET_BYTES_BLIND: u64 = 256 << 20;

/// What became of the wish for copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCacheState {
    /// Bytes of copies at most; `None` if there are none.
    pub budget_bytes: Option<u64>,
    /// How fast the medium was, if that was asked.
    pub speed: Option<ReadSpeed>,
    /// Whether there should be copies and could not; a warning said why.
    pub has_failed: bool,
}

impl std::fmt::Display for ReadCacheState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.budget_bytes {
            Some(bytes) => write!(formatter, "read cache of {} MiB", bytes >> 20)?,
            None if self.has_failed => formatter.write_str("no read cache, it could not begin")?,
            None => formatter.write_str("no read cache")?,
        }
        if let Some(speed) = self.speed {
            write!(
                formatter,
                " (a block in {:.0} ns, DRAM {:.0})",
                speed.medium_ns, speed.dram_ns
            )?;
        }
        Ok(())
    }
}

/// The cache of a mount, if it has one.
#[derive(Debug)]
pub(crate) struct Copies {
    pub(crate) cache: Option<ReadCache>,
    state: ReadCacheState,
}

impl Copies {
    /// Begins as the options say. A cache that cannot begin is left out: nothing depends on it.
    pub(crate) fn begin(store: &impl Store, options: &ReadCacheOptions) -> Copies {
        let mut state = ReadCacheState {
            budget_bytes: None,
            speed: None,
            has_failed: false,
        };
        let is_wanted = match options.mode {
            ReadCacheMode::Off => false,
            ReadCacheMode::On => true,
            ReadCacheMode::Auto => {
                state.speed = store.read_speed();
                let pays = |speed: ReadSpeed| speed.medium_ns > SLOWER_BY * speed.dram_ns;
                state.speed.is_none_or(pays)
            }
        };
        if !is_wanted {
            return Copies { cache: None, state };
        }
        let mut settings = readcache::Options::new(match options.budget_bytes {
            0 => Memory::now().map_or(BUDGET_BYTES_BLIND, |memory| {
                memory.available_bytes / BUDGET_PART
            }),
            bytes => bytes,
        });
        if options.threshold > 0 {
            settings.threshold = options.threshold;
        }
        if options.window_ms > 0 {
            settings.window = Duration::from_millis(options.window_ms.into());
        }
        let cache = ReadCache::begin(settings, store.reader());
        let cache = cache.inspect_err(|error| {
            tracing::warn!(%error, "files are read from the medium only");
        });
        let cache = cache.ok();
        state.budget_bytes = cache.as_ref().map(ReadCache::budget_bytes);
        state.has_failed = cache.is_none();
        Copies { cache, state }
    }
}

impl Node {
    /// The file's copies, if there were any.
    #[inline]
    pub(crate) fn copies(&self) -> Option<&Arc<FileCache>> {
        self.0.copies.get()
    }

    /// A copy of the block will be looked for soon: fetches what is needed for that.
    #[inline]
    pub(crate) fn prefetch_copy(&self, block: u64) {
        if let Some(copies) = self.copies() {
            copies.prefetch(block);
        }
    }
}

impl InodeState {
    /// Copies of these bytes will be ended soon: fetches what is needed for the first of them.
    #[inline]
    pub(crate) fn prefetch_copies(&self, range: &Range<u64>) {
        if let Some(copies) = self.copies.get() {
            copies.prefetch_for_write(range.start / BLOCK);
        }
    }

    /// Ends the copies of a range of bytes, which is not empty (C1).
    pub(crate) fn forget_copies(&self, range: &Range<u64>) {
        // That the file is changing comes before the look for copies.
        pmem::full_fence();
        if let Some(copies) = self.copies.get() {
            let first = range.start / BLOCK;
            copies.invalidate(first, (range.end - 1) / BLOCK - first + 1);
        }
    }
}

/// After so many hits in a row a thread's next read is taken for one.
const HITS_FORESEEN: u32 = 4;

thread_local! {
    /// Hits of this thread since its last miss, up to [`HITS_FORESEEN`].
    static HITS_IN_A_ROW: Cell<u32> = const { Cell::new(0) };
}

/// Whether the next read of this thread, of a file with copies, will find one: a guess that saves time if it comes true.
#[inline]
pub(crate) fn is_hit_foreseen() -> bool {
    HITS_IN_A_ROW.get() == HITS_FORESEEN
}

/// Whether a read of this thread, of a file with copies, has found one.
#[inline]
pub(crate) fn note_outcome(is_hit: bool) {
    let before = HITS_IN_A_ROW.get();
    let now = if is_hit {
        (before + 1).min(HITS_FORESEEN)
    } else {
        0
    };
    if now != before {
        HITS_IN_A_ROW.set(now);
    }
}

/// A read of one file at one moment.
pub(crate) struct Reading<'r, S: Store> {
    pub(crate) core: &'r Core<S>,
    pub(crate) node: &'r Node,
    /// What the reader believes; `None` if he holds the lock.
    pub(crate) snapshot: Option<&'r Snapshot>,
}

impl<S: Store> Reading<'_, S> {
    /// A part of a block from DRAM. `false` if it is not there; `into` holds anything then.
    #[inline]
    pub(crate) fn read_copy(&self, block: u64, in_block: usize, into: &mut [u8]) -> bool {
        self.node
            .copies()
            .is_some_and(|copies| copies.read(block, in_block, into))
    }

    /// A part of a block that lies at `home`, from the medium.
    #[inline]
    pub(crate) fn read_medium(
        &self,
        block: u64,
        home: BlockNumber,
        in_block: usize,
        into: &mut [u8],
    ) {
        let Some(cache) = &self.core.copies.cache else {
            return self.core.store.read_data(home, in_block, into);
        };
        let tag = self.node.number().get();
        cache.will_miss(tag, block);
        self.core.store.read_data(home, in_block, into);
        // Nothing changes while the reader holds the lock.
        let is_current = || {
            let view = self.node.view();
            self.snapshot
                .is_none_or(|snapshot| view.is_current(snapshot))
        };
        cache.missed(&self.node.0.copies, tag, block, home, is_current);
    }
}

/// Bytes of a file that are held where they are.
pub struct Held {
    page: Page,
    bytes: Range<usize>,
}

impl Held {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.page.bytes()[self.bytes.clone()]
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl<S: Store> FileSystem<S> {
    /// What [`read`](Self::read) would read, held in DRAM instead of copied, if it lies in one block that has a copy there. The bytes are the file's at some
    /// moment of the call, and do not change afterwards; hold them for a moment only, because the copy cannot go as long.
    #[inline]
    pub fn hold(&self, node: &Node, offset: u64, length: usize) -> Option<Held> {
        let copies = node.copies()?;
        let snapshot = self.believable(node)?;
        let in_block = (offset % BLOCK) as usize;
        let left = snapshot.size.saturating_sub(offset);
        let length = (length as u64).min(left) as usize;
        if length == 0 || in_block + length > BLOCK_BYTES {
            return None;
        }
        let page = copies.hold(offset / BLOCK)?;
        let bytes = in_block..in_block + length;
        node.view()
            .is_current(&snapshot)
            .then_some(Held { page, bytes })
    }

    /// What became of [`MountOptions::read_cache`](crate::MountOptions::read_cache).
    pub fn read_cache_state(&self) -> ReadCacheState {
        self.core.copies.state
    }

    /// What the read cache did and holds; `None` without one.
    pub fn read_cache_statistics(&self) -> Option<Statistics> {
        self.core.copies.cache.as_ref().map(ReadCache::statistics)
    }

    /// The same for each file with copies, by the number of its inode; those with most hits first.
    pub fn read_cache_files(&self) -> Vec<FileStatistics> {
        let cache = self.core.copies.cache.as_ref();
        cache.map(ReadCache::files).unwrap_or_default()
    }
}

/// Where an inode keeps its file's copies.
pub(crate) type CopiesSlot = OnceLock<Arc<FileCache>>;
