//! Counts: exact, and no hit writes a line that another thread's hit writes.
//!
//! Each thread counts in a shard of its own, and for the file that it read last apart; when it comes to another file, that count goes to the file it
//! belongs to. Who asks adds everything up.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Threads with a shard of their own at one time; further ones share the last.
const SHARDS: usize = 64;

/// What the cache did since it began, and what it holds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Statistics {
    /// Reads of a block, or of a part of one, from DRAM.
    pub hits: u64,
    /// Reads of a block, or of a part of one, from the medium.
    pub misses: u64,
    /// Blocks copied to DRAM.
    pub fills: u64,
    /// Copies, and pointers that were to become some, that a write made worthless.
    pub invalidations: u64,
    /// Copies given up for others, or for memory.
    pub evictions: u64,
    /// Bytes of DRAM that hold copies.
    pub bytes: u64,
    /// Bytes of DRAM that may hold copies now; less than the budget while the machine is short of memory.
    pub limit_bytes: u64,
    /// Bytes of DRAM that may hold copies.
    pub budget_bytes: u64,
    /// Bytes of tables beside them.
    pub table_bytes: u64,
    /// Files with copies.
    pub files: u64,
}

impl Statistics {
    /// Hits among all reads; `None` before the first.
    pub fn hit_ratio(&self) -> Option<f64> {
        let reads = self.hits + self.misses;
        (reads > 0).then(|| self.hits as f64 / reads as f64)
    }
}

/// The same for one file, since it has copies.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FileStatistics {
    /// What the file was called when the cache got to know it: the number of its inode.
    pub file: u64,
    /// Reads of a block, or of a part of one, from DRAM.
    pub hits: u64,
    /// Reads of a block, or of a part of one, from the medium since it has copies.
    pub misses: u64,
    /// Blocks copied to DRAM.
    pub fills: u64,
    /// Copies, and pointers that were to become some, that a write made worthless.
    pub invalidations: u64,
    /// Bytes of DRAM that hold copies.
    pub bytes: u64,
    /// Bytes of its table.
    pub table_bytes: u64,
}

/// Counts of one file.
#[derive(Debug)]
pub(crate) struct FileCounts {
    /// No other file has or had it.
    identity: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    pub(crate) fills: AtomicU64,
    pub(crate) invalidations: AtomicU64,
}

impl FileCounts {
    pub(crate) fn new() -> Arc<FileCounts> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(FileCounts {
            identity: NEXT.fetch_add(1, Ordering::Relaxed),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            fills: AtomicU64::new(0),
            invalidations: AtomicU64::new(0),
        })
    }
}

/// Counts of one thread. Only that thread writes to them, unless it is one too many.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    hits: AtomicU64,
    misses: AtomicU64,
    /// The file that the thread reads, and its hits and misses that the file does not know of.
    file: AtomicU64,
    file_hits: AtomicU64,
    file_misses: AtomicU64,
    last: Mutex<Option<Arc<FileCounts>>>,
}

/// Counts of a whole cache.
pub(crate) struct Meter {
    shards: Box<[Shard]>,
    pub(crate) fills: AtomicU64,
    pub(crate) invalidations: AtomicU64,
    pub(crate) evictions: AtomicU64,
}

/// Numbers that threads have while they live.
static NUMBERS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// This thread's place among the shards, given back when it ends.
struct Number(usize);

impl Number {
    fn new() -> Number {
        let reused = NUMBERS.lock().pop();
        let number = reused.unwrap_or_else(|| NEXT_NUMBER.fetch_add(1, Ordering::Relaxed) as usize);
        Number(number)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock().push(self.0);
    }
}

thread_local! {
    static NUMBER: Number = Number::new();
    /// Number of the thread's shard and identity of the file that it read last: what a hit needs, without a destructor.
    static PLACE: Cell<(usize, u64)> = const { Cell::new((usize::MAX, 0)) };
}

/// Adds to a count that only this thread writes to.
#[inline]
fn add(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter {
            shards: (0..=SHARDS).map(|_| Shard::default()).collect(),
            fills: AtomicU64::new(0),
            invalidations: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    #[inline]
    fn shard(&self, number: usize) -> (&Shard, bool) {
        (&self.shards[number.min(SHARDS)], number < SHARDS)
    }

    /// Counts a read from DRAM.
    #[inline]
    pub(crate) fn hit(&self, file: &Arc<FileCounts>) {
        self.count(
            file,
            |shard| [&shard.hits, &shard.file_hits],
            |file| &file.hits,
        );
    }

    /// Counts a read from the medium, of a file that has copies of other blocks.
    #[inline]
    pub(crate) fn miss(&self, file: &Arc<FileCounts>) {
        self.count(
            file,
            |shard| [&shard.misses, &shard.file_misses],
            |file| &file.misses,
        );
    }

    /// Counts for the thread, and for the file: in the thread's shard if it has one of its own.
    #[inline(always)]
    fn count(
        &self,
        file: &Arc<FileCounts>,
        of_shard: fn(&Shard) -> [&AtomicU64; 2],
        of_file: fn(&FileCounts) -> &AtomicU64,
    ) {
        let (shard, is_own) = self.shard_for(file);
        let [all, of_this_file] = of_shard(shard);
        if is_own {
            add(all);
            add(of_this_file);
        } else {
            all.fetch_add(1, Ordering::Relaxed);
            of_file(file).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a read from the medium, of a file without copies.
    #[inline]
    pub(crate) fn miss_of_no_file(&self) {
        let (mut number, _) = PLACE.get();
        if number == usize::MAX {
            number = NUMBER.with(|number| number.0);
            PLACE.set((number, 0));
        }
        match self.shard(number) {
            (shard, true) => add(&shard.misses),
            (shard, false) => {
                shard.misses.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// This thread's shard, set to this file, and whether it is its own.
    #[inline]
    fn shard_for(&self, file: &Arc<FileCounts>) -> (&Shard, bool) {
        let (number, last) = PLACE.get();
        if last == file.identity {
            self.shard(number)
        } else {
            self.turn_to(file)
        }
    }

    /// The thread reads another file than before, perhaps of another cache.
    #[cold]
    #[inline(never)]
    fn turn_to(&self, file: &Arc<FileCounts>) -> (&Shard, bool) {
        let number = NUMBER.with(|number| number.0);
        PLACE.set((number, file.identity));
        let (shard, is_own) = self.shard(number);
        if is_own {
            let mut last = shard.last.lock();
            if let Some(before) = &*last {
                let pending = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
                before
                    .hits
                    .fetch_add(pending(&shard.file_hits), Ordering::Relaxed);
                before
                    .misses
                    .fetch_add(pending(&shard.file_misses), Ordering::Relaxed);
            }
            shard.file.store(file.identity, Ordering::Relaxed);
            *last = Some(Arc::clone(file));
        }
        (shard, is_own)
    }

    pub(crate) fn hits(&self) -> u64 {
        let counts = self.shards.iter();
        counts.map(|shard| shard.hits.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn misses(&self) -> u64 {
        let counts = self.shards.iter();
        counts
            .map(|shard| shard.misses.load(Ordering::Relaxed))
            .sum()
    }

    /// Hits and misses of a file.
    pub(crate) fn of_file(&self, file: &FileCounts) -> (u64, u64) {
        let is_its = |shard: &&Shard| shard.file.load(Ordering::Relaxed) == file.identity;
        let pending = |count: fn(&Shard) -> &AtomicU64| -> u64 {
            let shards = self.shards.iter().filter(is_its);
            shards
                .map(|shard| count(shard).load(Ordering::Relaxed))
                .sum()
        };
        (
            file.hits.load(Ordering::Relaxed) + pending(|shard| &shard.file_hits),
            file.misses.load(Ordering::Relaxed) + pending(|shard| &shard.file_misses),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_by_cache_file_and_thread() {
        let (cache, other) = (Meter::new(), Meter::new());
        let (first, second, third) = (FileCounts::new(), FileCounts::new(), FileCounts::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..1000 {
                        cache.hit(&first);
                        if round % 3 == 0 {
                            cache.hit(&second);
                            cache.hit(&second);
                            cache.miss(&second);
                            cache.miss_of_no_file();
                        }
                        if round % 5 == 0 {
                            other.hit(&third);
                        }
                    }
                });
            }
        });
        assert_eq!(cache.of_file(&first), (4000, 0));
        assert_eq!(cache.of_file(&second), (4 * 334 * 2, 4 * 334));
        assert_eq!(other.of_file(&third), (4 * 200, 0));
        assert_eq!((cache.hits(), cache.misses()), (4000 + 4 * 668, 4 * 668));
        assert_eq!((other.hits(), other.misses()), (800, 0));
    }

    #[test]
    fn more_threads_than_shards_lose_nothing() {
        let cache = Meter::new();
        let file = FileCounts::new();
        let barrier = std::sync::Barrier::new(SHARDS + 8);
        std::thread::scope(|scope| {
            for _ in 0..SHARDS + 8 {
                scope.spawn(|| {
                    barrier.wait();
                    (0..100).for_each(|_| cache.hit(&file));
                    cache.miss(&file);
                    barrier.wait();
                });
            }
        });
        let threads = SHARDS as u64 + 8;
        assert_eq!((cache.hits(), cache.misses()), (100 * threads, threads));
        assert_eq!(cache.of_file(&file), (100 * threads, threads));
    }
}
