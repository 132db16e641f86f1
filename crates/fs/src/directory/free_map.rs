//! The free ranges of one block: 512 bits, one for every 8 bytes.
//!
//! A maximal run of clear bits is a free range, so the ranges are sorted by offset and merged with their neighbours by
//! construction, which is what the published free list takes pains to maintain.

use super::UNITS_PER_BLOCK;

const WORD_BITS: usize = u64::BITS as usize;

/// Which units of a block belong to dentries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FreeMap {
    used: [u64; UNITS_PER_BLOCK / WORD_BITS],
}

/// A maximal free range within a block, in units.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FreeRange {
    pub(super) start: usize,
    pub(super) length: usize,
}

impl FreeMap {
    pub(super) const EMPTY: Self = Self {
        used: [0; UNITS_PER_BLOCK / WORD_BITS],
    };

    pub(super) fn mark_used(&mut self, start: usize, length: usize) {
        self.for_masks(start, length, |word, mask| {
            debug_assert_eq!(*word & mask, 0, "a dentry would overlap another");
            *word |= mask;
        });
    }

    /// Frees a dentry's units and returns the free range that it is now part of.
    pub(super) fn release(&mut self, start: usize, length: usize) -> FreeRange {
        self.for_masks(start, length, |word, mask| {
            debug_assert_eq!(*word & mask, mask, "a dentry would be removed twice");
            *word &= !mask;
        });
        let merged_start = self.behind_last_used(start);
        let merged_end = self.first_used(start + length);
        FreeRange {
            start: merged_start,
            length: merged_end - merged_start,
        }
    }

    /// The first range of at least this length.
    pub(super) fn first_fit(&self, length: usize) -> Option<FreeRange> {
        self.ranges().find(|range| range.length >= length)
    }

    /// The length of the longest range, or that of any one with at least `enough`.
    pub(super) fn longest(&self, enough: usize) -> usize {
        let mut longest = 0;
        for range in self.ranges() {
            longest = range.length.max(longest);
            if longest >= enough {
                break;
            }
        }
        longest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == [0; UNITS_PER_BLOCK / WORD_BITS]
    }

    pub(super) fn free_units(&self) -> usize {
        self.used
            .iter()
            .map(|word| word.count_zeros() as usize)
            .sum()
    }

    /// All free ranges in order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = FreeRange> + '_ {
        let mut position = 0;
        std::iter::from_fn(move || {
            let start = self.first_free(position);
            if start == UNITS_PER_BLOCK {
                return None;
            }
            position = self.first_used(start);
            Some(FreeRange {
                start,
                length: position - start,
            })
        })
    }

    /// The first used unit at or behind `from`, or the number of units.
    fn first_used(&self, from: usize) -> usize {
        self.first_set(from, 0)
    }

    fn first_free(&self, from: usize) -> usize {
        self.first_set(from, u64::MAX)
    }

    /// The first unit at or behind `from` whose bit differs from those of `flip`.
    fn first_set(&self, from: usize, flip: u64) -> usize {
        if from >= UNITS_PER_BLOCK {
            return UNITS_PER_BLOCK;
        }
        let mut index = from / WORD_BITS;
        let mut word = (self.used[index] ^ flip) & (u64::MAX << (from % WORD_BITS));
        while word == 0 {
            index += 1;
            if index == self.used.len() {
                return UNITS_PER_BLOCK;
            }
            word = self.used[index] ^ flip;
        }
        index * WORD_BITS + word.trailing_zeros() as usize
    }

    /// One behind the last used unit below `before`, or 0.
    fn behind_last_used(&self, before: usize) -> usize {
        let mut index = before / WORD_BITS;
        let mut word = match self.used.get(index) {
            Some(word) => word & !(u64::MAX << (before % WORD_BITS)),
            None => 0,
        };
        while word == 0 {
            if index == 0 {
                return 0;
            }
            index -= 1;
            word = self.used[index];
        }
        (index + 1) * WORD_BITS - word.leading_zeros() as usize
    }

    fn for_masks(&mut self, start: usize, length: usize, mut apply: impl FnMut(&mut u64, u64)) {
        let end = start + length;
        let mut position = start;
        while position < end {
            let low = position % WORD_BITS;
            let bits = (WORD_BITS - low).min(end - position);
            let mask = (u64::MAX >> (WORD_BITS - bits)) << low;
            apply(&mut self.used[position / WORD_BITS], mask);
            position += bits;
        }
    }
}
