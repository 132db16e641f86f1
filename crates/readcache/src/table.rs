//! A table of entries: buckets of four, found by the file's block.
//!
//! Four neighbours of a file share a bucket, sixteen groups of neighbours a window of sixteen buckets, beginning anywhere in it. So who reads one block after the
//! other walks through the table, and the processor fetches ahead of him; a table that he jumps about in costs a third of such a read. Windows are spread by the
//! golden ratio, which keeps consecutive numbers apart. A block can also be in a second bucket, found by another hash, where reads look
//! only if the first is full. So a table holds half of its size of any dense range of blocks, and a quarter of its size of nearly any
//! other set.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::entry::{ENTRY_WORDS, Entry};
use crate::word::Word;

/// Entries of a bucket.
const WAYS: usize = 4;
/// Entries where a block can be.
pub(crate) const CANDIDATES: usize = 2 * WAYS;
const BUCKET_WORDS: usize = WAYS * ENTRY_WORDS;
/// Buckets of a window, as a power of two.
const WINDOW_BITS: u32 = 4;
/// Sizes of tables: 4 entries, twice as many each time, up to 64 M.
pub(crate) const LEVELS: usize = 25;

/// Two cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Bucket([AtomicU64; BUCKET_WORDS]);

/// A table of 4 × 2^level entries, all invalid at first.
pub(crate) struct Table {
    buckets: Box<[Bucket]>,
    level: u32,
    /// Whether an entry of a second bucket may stand for a block.
    has_spilled: AtomicBool,
}

impl Table {
    pub(crate) fn new(level: usize) -> Table {
        Table {
            buckets: (0..1_usize << level).map(|_| Bucket::default()).collect(),
            level: level as u32,
            has_spilled: AtomicBool::new(false),
        }
    }

    pub(crate) fn entries(&self) -> usize {
        WAYS << self.level
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Bucket>() << self.level
    }

    #[inline]
    fn bucket(&self, index: usize) -> &[AtomicU64; BUCKET_WORDS] {
        &self.buckets[index].0
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
        let bucket = self.bucket(self.home_of(block));
        pmem::prefetch(&bucket[0]);
        pmem::prefetch(&bucket[BUCKET_WORDS / 2]);
    }

    #[inline]
    fn entries_from(&self, bucket: usize, block: u64) -> [Entry<'_, AtomicU64>; WAYS] {
        let (entries, _) = self.bucket(bucket).as_chunks::<ENTRY_WORDS>();
        let first = block as usize % WAYS;
        std::array::from_fn(|way| Entry(&entries[(first + way) % WAYS]))
    }

    /// The entry whose frame holds `block`, with its word.
    #[inline]
    pub(crate) fn find(&self, block: u64) -> Option<(Entry<'_, AtomicU64>, Word)> {
        for entry in self.entries_from(self.home_of(block), block) {
            let word = entry.word();
            if word.is_readable() && entry.block() == block {
                return Some((entry, word));
            }
        }
        if self.has_spilled.load(Ordering::Relaxed) {
            self.find_second(block)
        } else {
            None
        }
    }

    #[inline(never)]
    fn find_second(&self, block: u64) -> Option<(Entry<'_, AtomicU64>, Word)> {
        let entries = self.entries_from(self.second_home_of(block), block);
        let words = entries.into_iter().map(|entry| (entry, entry.word()));
        let mut found = words.filter(|(entry, word)| word.is_readable() && entry.block() == block);
        found.next()
    }

    /// All entries where `block` can be, the likeliest first. In the smallest table each of them twice.
    #[inline]
    pub(crate) fn candidates(&self, block: u64) -> [Entry<'_, AtomicU64>; CANDIDATES] {
        let own = self.entries_from(self.home_of(block), block);
        let second = self.entries_from(self.second_home_of(block), block);
        std::array::from_fn(|way| {
            if way < WAYS {
                own[way]
            } else {
                second[way - WAYS]
            }
        })
    }

    /// Claims an entry for a block.
    pub(crate) fn claim(&self, block: u64, home: u64) -> Option<(Entry<'_, AtomicU64>, Word)> {
        let mut entries = self.candidates(block).into_iter().enumerate();
        entries.find_map(|(way, entry)| {
            if way == WAYS {
                // Said before the claim, as the claim is made before the question whether it is current (E2).
                self.has_spilled.store(true, Ordering::Relaxed);
            }
            Some((entry, entry.claim(block, home)?))
        })
    }

    /// The entries where `block` is, if it is anywhere: as [`candidates`](Self::candidates), without the second bucket as long as nothing is in any of them.
    #[inline]
    pub(crate) fn places(&self, block: u64) -> impl Iterator<Item = Entry<'_, AtomicU64>> {
        let own = self.entries_from(self.home_of(block), block);
        let has_spilled = self.has_spilled.load(Ordering::Relaxed);
        let second = has_spilled.then(|| self.entries_from(self.second_home_of(block), block));
        own.into_iter().chain(second.into_iter().flatten())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'_, AtomicU64>> {
        (0..1_usize << self.level).flat_map(|index| {
            let (entries, _) = self.bucket(index).as_chunks::<ENTRY_WORDS>();
            entries.iter().map(Entry)
        })
    }

    /// The entry with this number.
    pub(crate) fn entry(&self, index: u32) -> Entry<'_, AtomicU64> {
        let (entries, _) = self
            .bucket(index as usize / WAYS)
            .as_chunks::<ENTRY_WORDS>();
        Entry(&entries[index as usize % WAYS])
    }

    /// The number of one of this table's entries.
    pub(crate) fn index_of(&self, entry: Entry<'_, AtomicU64>) -> u32 {
        let first = self.bucket(0).as_ptr().addr();
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
            let mut entries = table.candidates(*block).into_iter();
            entries.any(|entry| entry.claim(*block, 0).is_some())
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
        let table = Table::new(6);
        let mut blocks = Vec::new();
        for block in (0..100_000).step_by(WAYS) {
            if table.home_of(block) == table.home_of(0) {
                blocks.push(block);
            }
        }
        let fill = |block: u64| {
            let (entry, claimed) = table.claim(block, 0).expect("room");
            let prepared = entry.prepare(claimed).expect("nobody else is here");
            let copying = entry.begin_copy(prepared, Some(Frame(block as u32)));
            assert!(entry.publish(copying.expect("nobody else is here"), 1));
            entry
        };
        let first = fill(blocks[0]);
        for &block in &blocks[1..=WAYS] {
            fill(block);
        }
        assert!(table.has_spilled.load(Ordering::Relaxed));
        assert!(first.invalidate(blocks[0]));
        for &block in &blocks[1..=WAYS] {
            let (entry, _) = table.find(block).expect("it has a copy");
            assert_eq!(entry.block(), block);
            assert_eq!(
                table
                    .places(block)
                    .filter(|entry| entry.block() == block)
                    .count(),
                1
            );
        }
    }

    #[test]
    fn entries_have_numbers() {
        for level in [0, 1, 3, 10] {
            let table = Table::new(level);
            assert_eq!(table.iter().count(), table.entries());
            for (index, entry) in table.iter().enumerate() {
                assert_eq!(table.index_of(entry), index as u32);
                assert!(std::ptr::eq(entry.0, table.entry(index as u32).0));
            }
            for block in [0, 1, 7, 1 << 35, (1 << 36) - 1] {
                let mut seen: Vec<u32> = table
                    .candidates(block)
                    .into_iter()
                    .map(|entry| table.index_of(entry))
                    .collect();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), table.entries().min(CANDIDATES));
            }
        }
    }
}
