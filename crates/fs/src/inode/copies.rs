//! DRAM copies of hot blocks: the cache of a mount, and an inode's place for its file's copies.
//!
//! A copy is true as long as nobody changes the file's content, and who does that has its inode locked. So:
//!
//! * C1 Whoever changes content says so to the guard of the lock, and the guard ends the copies before the view says that the change is over. No
//!   pointers are left meanwhile, because who leaves one asks the view after he has claimed an entry for it, and the guard looks for claims
//!   after the view has said that the file is changing.
//! * C2 A reader believes a copy only if the view is what it was when he began, as he does with the medium.
//!
//! Copies are nothing that a power cut could leave behind: nothing here writes to the store.

use crate::format::BLOCK;
use crate::values::types::{ReadCacheMode, ReadCacheOptions};
use readcache::{FileCache, Memory, ReadCache};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use txn::{ReadSpeed, Store};

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
    pub(crate) state: ReadCacheState,
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

/// Where an inode keeps its file's copies.
pub(crate) type CopiesSlot = OnceLock<Arc<FileCache>>;

/// Copies of these bytes will be ended soon: fetches what is needed for the first of them.
#[inline]
pub(crate) fn prefetch_for_write(slot: &CopiesSlot, range: &Range<u64>) {
    if let Some(copies) = slot.get() {
        copies.prefetch_for_write(range.start / BLOCK);
    }
}

/// Ends the copies of a range of bytes, which is not empty (C1).
pub(crate) fn forget(slot: &CopiesSlot, range: &Range<u64>) {
    // That the file is changing comes before the look for copies.
    pmem::full_fence();
    if let Some(copies) = slot.get() {
        let first = range.start / BLOCK;
        copies.invalidate(first, (range.end - 1) / BLOCK - first + 1);
    }
}
