//! A table of entries: buckets of four, found by the file's block.
//!
//! Four neighbours of a file share a bucket, sixteen groups of neighbours a window of sixteen buckets, beginning anywhere in it. So who reads one block after the
//! other walks through the table, and the processor fetches ahead of him; a table that he jumps about in costs a third of such a read. Windows are spread by the
//! golden ratio, which keeps consecutive numbers apart. A block can also be in a second bucket, found by another hash, where reads look
//! only if the first is full. So a table holds half of its size of any dense range of blocks, and a quarter of its size of nearly any
//! other set.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::entry::{ENTRY_WORDS, Entry};
use crate::word::{State, Word};

/// Entries of a bucket.
const WAYS: usize = 4;
/// Buckets of a window, as a power of two.
const WINDOW_BITS: u32 = 4;
/// Sizes of tables: 4 entries, twice as many each time, up to 64 M.
pub(crate) const LEVELS: usize = 25;

/// A cache line.
#[derive(Default)]
#[repr(align(64))]
struct Bucket([[AtomicU64; ENTRY_WORDS]; WAYS]);

/// A table of 4 × 2^level entries, all invalid at first.
pub(crate) struct Table {
    buckets: Box<[Bucket]>,
    level: u32,
    /// A bit for each bucket: whether a block that belongs there may be in its second bucket.
    has_spilled: Box<[AtomicU64]>,
}

impl Table {
    pub(crate) fn new(level: usize) -> Table {
        Table {
            buckets: (0..1_usize << level).map(|_| Bucket::default()).collect(),
            level: level as u32,
            has_spilled: (0..(1_usize << level).div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    pub(crate) fn entries(&self) -> usize {
        WAYS << self.level
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Bucket>() << self.level
    }

    /// The block's own bucket.
    #[inline]
    fn home_of(&self, block: u64) -> usize {
        let group = block / WAYS as u64;
        let window = (group >> WINDOW_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.bucket_of(window, group.wrapping_add(window >> 8))
    }

    /// The block's other bucket; in a table of one bucket the same.
    #[inline]
    fn second_home_of(&self, block: u64) -> usize {
        let group = block / WAYS as u64;
        let hash = group.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = (hash ^ hash >> 32).wrapping_mul(0x94d0_49bb_1331_11eb);
        let second = self.bucket_of(hash, hash >> 8);
        let is_first = second == self.home_of(block) && self.level > 0;
        second ^ usize::from(is_first)
    }

    /// The bucket in the window that `hash` leads to, at this place in it.
    #[inline]
    fn bucket_of(&self, hash: u64, place: u64) -> usize {
        let window_bits = self.level.min(WINDOW_BITS);
        // Two steps, because a shift by 64 is none.
        let window = hash >> 1 >> (63 - (self.level - window_bits));
        (window << window_bits | place & ((1 << window_bits) - 1)) as usize
    }

    /// The block will be looked for soon: fetches its bucket.
    #[inline]
    pub(crate) fn prefetch(&self, block: u64) {
        pmem::prefetch(&self.buckets[self.home_of(block)]);
    }

    /// The same, to change what is there.
    #[inline]
    pub(crate) fn prefetch_for_write(&self, block: u64) {
        pmem::prefetch_for_write(&self.buckets[self.home_of(block)]);
    }

    /// A bucket's entries, that of the block's number first.
    #[inline]
    fn entries_from(
        &self,
        bucket: usize,
        block: u64,
    ) -> impl Iterator<Item = Entry<'_, AtomicU64>> {
        let entries = &self.buckets[bucket].0;
        (0..WAYS).map(move |way| Entry(&entries[(block as usize + way) % WAYS]))
    }

    /// The entry whose frame holds `block`, with its word.
    #[inline]
    pub(crate) fn find(&self, block: u64) -> Option<(Entry<'_, AtomicU64>, Word)> {
        let home = self.home_of(block);
        for entry in self.entries_from(home, block) {
            let word = entry.word();
            // The block first: that is foreseen, because who was here before mostly was the same.
            if entry.block() == block && word.is_readable() {
                return Some((entry, word));
            }
        }
        if self.has_spilled(home) {
            self.find_second(block)
        } else {
            None
        }
    }

    /// Whether a block whose own bucket this is may be in its second one.
    #[inline]
    fn has_spilled(&self, bucket: usize) -> bool {
        self.has_spilled[bucket / 64].load(Ordering::Relaxed) >> (bucket % 64) & 1 == 1
    }

    #[inline(never)]
    fn find_second(&self, block: u64) -> Option<(Entry<'_, AtomicU64>, Word)> {
        let entries = self.entries_from(self.second_home_of(block), block);
        let words = entries.map(|entry| (entry, entry.word()));
        let mut found = words.filter(|(entry, word)| word.is_readable() && entry.block() == block);
        found.next()
    }

    /// All entries where `block` can be, the likeliest first. In the smallest table each of them twice.
    #[inline]
    pub(crate) fn candidates(&self, block: u64) -> impl Iterator<Item = Entry<'_, AtomicU64>> {
        let own = self.entries_from(self.home_of(block), block);
        own.chain(self.entries_from(self.second_home_of(block), block))
    }

    /// Claims an entry for a block.
    pub(crate) fn claim(&self, block: u64) -> Option<(Entry<'_, AtomicU64>, Word)> {
        let mut entries = self.candidates(block).enumerate();
        entries.find_map(|(way, entry)| {
            if way == WAYS {
                // Said before the claim, as the claim is made before the question whether it is current (E2).
                let bucket = self.home_of(block);
                self.has_spilled[bucket / 64].fetch_or(1 << (bucket % 64), Ordering::Relaxed);
            }
            Some((entry, entry.claim(block)?))
        })
    }

    /// The entries where `block` is, if it is anywhere: as [`candidates`](Self::candidates), without the second bucket as long as nothing is in any of them.
    #[inline]
    pub(crate) fn places(&self, block: u64) -> impl Iterator<Item = Entry<'_, AtomicU64>> {
        let home = self.home_of(block);
        let has_spilled = self.has_spilled(home);
        let second = has_spilled.then(|| self.second_home_of(block));
        let own = self.entries_from(home, block);
        own.chain(
            second
                .into_iter()
                .flat_map(move |bucket| self.entries_from(bucket, block)),
        )
    }

    /// Ends all lives for the block. How many.
    #[inline]
    pub(crate) fn invalidate(&self, block: u64) -> u64 {
        let home = self.home_of(block);
        let mut ended = 0;
        for entry in self.entries_from(home, block) {
            ended += u64::from(entry.invalidate(block));
        }
        if self.has_spilled(home) {
            ended += self.invalidate_second(block);
        }
        ended
    }

    #[cold]
    #[inline(never)]
    fn invalidate_second(&self, block: u64) -> u64 {
        let entries = self.entries_from(self.second_home_of(block), block);
        entries
            .map(|entry| u64::from(entry.invalidate(block)))
            .sum()
    }

    /// Whether some entry stands for the block, in whatever state.
    pub(crate) fn stands_for(&self, block: u64) -> bool {
        let is_it =
            |entry: Entry<'_, _>| entry.word().state() != State::Invalid && entry.block() == block;
        self.places(block).any(is_it)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'_, AtomicU64>> {
        self.buckets
            .iter()
            .flat_map(|bucket| bucket.0.iter().map(Entry))
    }

    /// The entry with this number.
    pub(crate) fn entry(&self, index: u32) -> Option<Entry<'_, AtomicU64>> {
        let bucket = self.buckets.get(index as usize / WAYS)?;
        Some(Entry(&bucket.0[index as usize % WAYS]))
    }

    /// The number of one of this table's entries.
    pub(crate) fn index_of(&self, entry: Entry<'_, AtomicU64>) -> u32 {
        let first = self.buckets.as_ptr().addr();
        ((entry.0.as_ptr().addr() - first) / size_of::<[AtomicU64; ENTRY_WORDS]>()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::Frame;

    /// How many of these blocks find a place.
    fn held(level: usize, blocks: impl Iterator<Item = u64>) -> usize {
        let table = Table::new(level);
        let has_place = |block: &u64| {
            let mut entries = table.candidates(*block);
            entries.any(|entry| entry.claim(*block).is_some())
        };
        blocks.filter(has_place).count()
    }

    #[test]
    fn a_dense_range_fills_a_table_to_a_half() {
        for level in [0, 6, 10, 14] {
            for start in [0, 12, 1 << 20, (1 << 35) - 8] {
                let count = 4 << level >> 1;
                let lost = count - held(level, start..start + count as u64);
                assert!(
                    lost * 16 <= count,
                    "level {level} from {start}: {lost} of {count}"
                );
            }
        }
    }

    #[test]
    fn other_blocks_fill_it_to_a_quarter() {
        for stride in [4, 5, 64, 256, 1 << 18] {
            for level in [6, 10, 12] {
                let count = 4 << level >> 2;
                let found = held(level, (0..count as u64).map(|block| block * stride));
                let lost = count - found;
                assert!(
                    lost * 16 <= count,
                    "stride {stride}, level {level}: {lost} of {count}"
                );
            }
        }
    }

    #[test]
    fn a_block_in_its_second_bucket_is_found_after_its_first_has_room_again() {
        // Of all buckets that are some block's own.
        for first in (0..64 * 64).step_by(64) {
            spill_from_the_bucket_of(first);
        }
    }

    fn spill_from_the_bucket_of(first_block: u64) {
        let table = Table::new(6);
        let own = table.home_of(first_block);
        let blocks = (0..).step_by(WAYS);
        let blocks = blocks.filter(|&block| table.home_of(block) == own);
        let blocks: Vec<u64> = blocks.take(WAYS + 1).collect();
        let fill = |block: u64| {
            let (entry, claimed) = table.claim(block).expect("room");
            let prepared = entry.prepare(claimed).expect("nobody else is here");
            let copying = entry.begin_copy(prepared, Some(Frame(block as u32)));
            assert!(entry.publish(copying.expect("nobody else is here"), 1));
            entry
        };
        let entries: Vec<_> = blocks.iter().map(|&block| fill(block)).collect();
        let spilled = (0..64).filter(|&bucket| table.has_spilled(bucket));
        assert_eq!(Vec::from_iter(spilled), [own]);
        assert!(entries[0].invalidate(blocks[0]));
        for &block in &blocks[1..] {
            let (entry, _) = table.find(block).expect("it has a copy");
            assert_eq!(entry.block(), block);
            let places = table.places(block);
            assert_eq!(places.filter(|entry| entry.block() == block).count(), 1);
            assert_eq!(table.invalidate(block), 1);
            assert!(table.find(block).is_none());
        }
    }

    #[test]
    fn entries_have_numbers() {
        for level in [0, 1, 3, 10] {
            let table = Table::new(level);
            assert_eq!(table.iter().count(), table.entries());
            for (index, entry) in table.iter().enumerate() {
                assert_eq!(table.index_of(entry), index as u32);
                assert!(std::ptr::eq(
                    entry.0,
                    table.entry(index as u32).expect("it is there").0
                ));
            }
            for block in [0, 1, 7, 1 << 35, (1 << 36) - 1] {
                let mut seen: Vec<u32> = table
                    .candidates(block)
                    .map(|entry| table.index_of(entry))
                    .collect();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), table.entries().min(2 * WAYS));
            }
        }
    }
}
