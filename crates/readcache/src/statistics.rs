//! Counts: exact, and no hit writes a line that another thread's hit writes.
//!
//! Each thread counts in a shard of its own, and for the file that it read last apart; when it comes to another file, that count goes to the file it
//! belongs to. Who asks adds everything up.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::threads::{self, THREADS};

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

/// What is counted, for the cache and for each file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum Event {
    Hit,
    Miss,
    Fill,
    Invalidation,
}

const EVENTS: usize = 4;

/// Counts of one file.
#[derive(Debug)]
pub(crate) struct FileCounts {
    /// No other file has or had it.
    identity: u64,
    /// What threads have counted that are with other files now.
    counts: [AtomicU64; EVENTS],
}

impl FileCounts {
    pub(crate) fn new() -> Arc<FileCounts> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(FileCounts {
            identity: NEXT.fetch_add(1, Ordering::Relaxed),
            counts: Default::default(),
        })
    }
}

/// Counts of one thread. Only that thread writes to them, unless it is one too many.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    counts: [AtomicU64; EVENTS],
    /// The file that the thread is with, and what it has counted that the file does not know of.
    file: AtomicU64,
    of_file: [AtomicU64; EVENTS],
    last: Mutex<Option<Arc<FileCounts>>>,
}

/// Counts of a whole cache.
pub(crate) struct Meter {
    shards: Box<[Shard]>,
    pub(crate) evictions: AtomicU64,
}

thread_local! {
    /// The file that this thread has counted for last.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// Adds to a count; `is_own` if only this thread writes to it.
#[inline]
fn add(count: &AtomicU64, number: u64, is_own: bool) {
    if is_own {
        count.store(count.load(Ordering::Relaxed) + number, Ordering::Relaxed);
    } else {
        count.fetch_add(number, Ordering::Relaxed);
    }
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter {
            shards: (0..=THREADS).map(|_| Shard::default()).collect(),
            evictions: AtomicU64::new(0),
        }
    }

    /// The calling thread's shard, and whether it is its own.
    #[inline]
    fn shard(&self) -> (&Shard, bool) {
        let number = threads::number();
        (&self.shards[number], number < THREADS)
    }

    /// Counts what happened to a file so many times: in the thread's shard if it has one of its own.
    #[inline]
    pub(crate) fn count(&self, event: Event, number: u64, file: &Arc<FileCounts>) {
        let (shard, is_own) = self.shard_for(file);
        add(&shard.counts[event as usize], number, is_own);
        let of_file = if is_own { &shard.of_file } else { &file.counts };
        add(&of_file[event as usize], number, is_own);
    }

    /// Counts a read from the medium, of a file without copies.
    #[inline]
    pub(crate) fn miss_of_no_file(&self) {
        let (shard, is_own) = self.shard();
        add(&shard.counts[Event::Miss as usize], 1, is_own);
    }

    /// This thread's shard, set to this file, and whether it is its own.
    #[inline]
    fn shard_for(&self, file: &Arc<FileCounts>) -> (&Shard, bool) {
        if LAST.get() == file.identity {
            self.shard()
        } else {
            self.turn_to(file)
        }
    }

    /// The thread reads another file than before, perhaps of another cache.
    #[cold]
    #[inline(never)]
    fn turn_to(&self, file: &Arc<FileCounts>) -> (&Shard, bool) {
        LAST.set(file.identity);
        let (shard, is_own) = self.shard();
        if is_own {
            let mut last = shard.last.lock();
            if let Some(before) = &*last {
                for (count, pending) in before.counts.iter().zip(&shard.of_file) {
                    count.fetch_add(pending.swap(0, Ordering::Relaxed), Ordering::Relaxed);
                }
            }
            shard.file.store(file.identity, Ordering::Relaxed);
            *last = Some(Arc::clone(file));
        }
        (shard, is_own)
    }

    pub(crate) fn of_all(&self, event: Event) -> u64 {
        let counts = self
            .shards
            .iter()
            .map(|shard| &shard.counts[event as usize]);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn of_file(&self, event: Event, file: &FileCounts) -> u64 {
        let is_its = |shard: &&Shard| shard.file.load(Ordering::Relaxed) == file.identity;
        let shards = self.shards.iter().filter(is_its);
        let pending = shards.map(|shard| &shard.of_file[event as usize]);
        let counts = pending.chain([&file.counts[event as usize]]);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hits and misses.
    fn of_file(cache: &Meter, file: &FileCounts) -> (u64, u64) {
        let of = |event| cache.of_file(event, file);
        (of(Event::Hit), of(Event::Miss))
    }

    fn of_all(cache: &Meter) -> (u64, u64) {
        (cache.of_all(Event::Hit), cache.of_all(Event::Miss))
    }

    #[test]
    fn hits_are_counted_by_cache_file_and_thread() {
        let (cache, other) = (Meter::new(), Meter::new());
        let (first, second, third) = (FileCounts::new(), FileCounts::new(), FileCounts::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..1000 {
                        cache.count(Event::Hit, 1, &first);
                        if round % 3 == 0 {
                            cache.count(Event::Hit, 2, &second);
                            cache.count(Event::Miss, 1, &second);
                            cache.miss_of_no_file();
                        }
                        if round % 5 == 0 {
                            other.count(Event::Hit, 1, &third);
                        }
                    }
                });
            }
        });
        assert_eq!(of_file(&cache, &first), (4000, 0));
        assert_eq!(of_file(&cache, &second), (4 * 334 * 2, 4 * 334));
        assert_eq!(of_file(&other, &third), (4 * 200, 0));
        assert_eq!(of_all(&cache), (4000 + 4 * 668, 4 * 668));
        assert_eq!(of_all(&other), (800, 0));
    }

    #[test]
    fn more_threads_than_shards_lose_nothing() {
        let cache = Meter::new();
        let file = FileCounts::new();
        let barrier = std::sync::Barrier::new(THREADS + 8);
        std::thread::scope(|scope| {
            for _ in 0..THREADS + 8 {
                scope.spawn(|| {
                    barrier.wait();
                    (0..100).for_each(|_| cache.count(Event::Hit, 1, &file));
                    cache.count(Event::Miss, 1, &file);
                    barrier.wait();
                });
            }
        });
        let threads = THREADS as u64 + 8;
        assert_eq!(of_all(&cache), (100 * threads, threads));
        assert_eq!(of_file(&cache, &file), (100 * threads, threads));
    }
}
