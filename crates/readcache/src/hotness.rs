//! Which blocks were read how often lately.
//!
//! The paper counts beside the block index. Ours is on the medium, where counting would wear it out, so the counts are in DRAM: a
//! table of fixed size, some counters for each page of the budget, in sets of four that are found by a hash of file and block. A counter belongs to one block at a time,
//! until another block of its set needs it: first those that were not read lately, then any. So a scan pushes counts out, but never adds to those of others.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counters for each page of the budget.
const COUNTERS_PER_PAGE: usize = 4;
const COUNTERS_MIN: usize = 1 << 10;
/// 64 MiB of them.
const COUNTERS_MAX: usize = 16 << 20;
/// Counters of a set.
const WAYS: usize = 4;

const COUNT_BITS: u32 = 6;
const WINDOW_BITS: u32 = 10;
const TAG_SHIFT: u32 = COUNT_BITS + WINDOW_BITS;
/// Largest threshold.
pub(crate) const THRESHOLD_MAX: u32 = (1 << COUNT_BITS) - 1;

/// Counts of reads by block, within windows of time.
pub(crate) struct Hotness {
    /// Sets of counters; each is tag of the block, number of the window, count.
    sets: Box<[[AtomicU32; WAYS]]>,
    threshold: u32,
    /// Number of the present window.
    window: AtomicU32,
}

impl Hotness {
    /// A block is hot when it is read for the `threshold`-th time within a window, or two that follow each other.
    pub(crate) fn new(pages: u32, threshold: u32) -> Hotness {
        let counters = (pages as usize * COUNTERS_PER_PAGE)
            .clamp(COUNTERS_MIN, COUNTERS_MAX)
            .next_power_of_two();
        Hotness {
            sets: (0..counters / WAYS).map(|_| Default::default()).collect(),
            threshold: threshold.clamp(1, THRESHOLD_MAX),
            window: AtomicU32::new(0),
        }
    }

    /// The present window is the one with this number.
    pub(crate) fn set_window(&self, number: u64) {
        let number = number as u32 & ((1 << WINDOW_BITS) - 1);
        // Readers have the line.
        if self.window.load(Ordering::Relaxed) != number {
            self.window.store(number, Ordering::Relaxed);
        }
    }

    /// Counts a read of `block` of `file` that found no copy. Whether it is hot now: from the read that reaches the threshold on, as long as there is one in each window.
    /// So a block that is written is copied again when it is read next, and copies are worth twice as much where half of all requests are writes.
    ///
    /// Two threads that count at the same moment may count one.
    #[inline]
    pub(crate) fn count(&self, file: u64, block: u64) -> bool {
        if self.threshold == 1 {
            return true;
        }
        let hash = hash(file, block);
        let set = &self.sets[self.index(hash)];
        let tag = (hash as u32) >> TAG_SHIFT << TAG_SHIFT;
        let window = self.window.load(Ordering::Relaxed);
        let counts: [u32; WAYS] = std::array::from_fn(|way| set[way].load(Ordering::Relaxed));
        let age =
            |counter: u32| window.wrapping_sub(counter >> COUNT_BITS) & ((1 << WINDOW_BITS) - 1);
        let is_free = |counter: u32| (age(counter) > 1) | (counter & THRESHOLD_MAX == 0);
        let is_its = |counter: u32| ((counter ^ tag) >> TAG_SHIFT == 0) & !is_free(counter);
        if let Some(way) = first(&counts, is_its) {
            let count = ((counts[way] & THRESHOLD_MAX) + 1).min(self.threshold);
            set[way].store(tag | window << COUNT_BITS | count, Ordering::Relaxed);
            return count == self.threshold;
        }
        let way = first(&counts, is_free).unwrap_or_else(|| {
            // Any, but not always the same: blocks that are read in turn would take it from each other for ever.
            let changing = counts[0] ^ hash as u32;
            changing.count_ones() as usize % WAYS
        });
        set[way].store(tag | window << COUNT_BITS | 1, Ordering::Relaxed);
        false
    }

    /// The block will be counted soon: fetches the line of its counter, while the caller waits for the medium.
    #[inline]
    pub(crate) fn prefetch(&self, file: u64, block: u64) {
        pmem::prefetch(&self.sets[self.index(hash(file, block))]);
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.sets.len() - 1)
    }
}

/// The first counter of which this is true. All are asked, because which one it is can't be foreseen.
#[inline]
fn first(counts: &[u32; WAYS], is_it: impl Fn(u32) -> bool) -> Option<usize> {
    let found = (0..WAYS).fold(0, |found, way| found | u32::from(is_it(counts[way])) << way);
    (found != 0).then(|| found.trailing_zeros() as usize)
}

#[inline]
fn hash(file: u64, block: u64) -> u64 {
    let hash = (file.rotate_left(32) ^ block).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_hot_from_the_threshold_on() {
        let hotness = Hotness::new(100, 3);
        let counts: Vec<bool> = (0..5).map(|_| hotness.count(1, 5)).collect();
        assert_eq!(counts, [false, false, true, true, true]);
        let most = Hotness::new(100, THRESHOLD_MAX + 1);
        let hot = (0..200).position(|_| most.count(1, 5));
        assert_eq!(hot, Some(THRESHOLD_MAX as usize - 1));
        let eager = Hotness::new(100, 0);
        assert!(eager.count(1, 5), "a threshold of one at least");
    }

    #[test]
    fn blocks_and_files_are_told_apart() {
        let hotness = Hotness::new(1 << 12, 2);
        let all = (0..8).flat_map(|file| (0..1000).map(move |block| (file, block)));
        let early = all.filter(|&(file, block)| hotness.count(file, block));
        let early = early.count();
        assert!(
            early <= 2,
            "{early} blocks were hot when they were read once"
        );
    }

    #[test]
    fn blocks_that_are_read_in_turn_become_hot() {
        // As many blocks as half of the pages, so an eighth of the counters.
        let hotness = Hotness::new(1 << 15, 2);
        let hot = |_| {
            (0..1 << 14)
                .filter(|&block| hotness.count(1, block))
                .count()
        };
        let rounds: Vec<usize> = (0..2).map(hot).collect();
        assert!(rounds[1] >= (1 << 14) * 99 / 100, "{rounds:?}");
    }

    #[test]
    fn old_counts_are_forgotten() {
        let hotness = Hotness::new(100, 2);
        assert!(!hotness.count(1, 1));
        hotness.set_window(1);
        assert!(hotness.count(1, 1), "within two windows");
        assert!(hotness.count(1, 1), "and from then on");
        hotness.set_window(3);
        assert!(!hotness.count(1, 1), "too long ago");
        hotness.set_window(3 + 1024);
        assert!(
            hotness.count(1, 1),
            "1,024 windows look like none: a copy too early, no harm"
        );
    }
}
