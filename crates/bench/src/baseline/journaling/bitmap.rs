//! Which blocks, or inodes, are free.

use device::DeviceBlock;

use super::cache::Block;
use super::layout::BLOCK;

const WORD_BITS: u64 = 64;
const WORD_BYTES: usize = 8;
const BITS_PER_BLOCK: u64 = BLOCK * 8;

/// A bitmap in memory. A set bit is in use.
///
/// A bit that a running transaction frees stays set here until the transaction has committed: its
/// block must not be used before.
#[derive(Debug)]
pub(super) struct Bitmap {
    words: Vec<u64>,
    bits: u64,
    free: u64,
    /// The bitmap's first block on the disk.
    at: u64,
    /// No word before this one has a free bit.
    first_free: usize,
}

impl Bitmap {
    /// Of the bitmap's blocks on the disk.
    pub(super) fn of_blocks<'b>(
        at: u64,
        bits: u64,
        blocks: impl IntoIterator<Item = &'b Block>,
    ) -> Bitmap {
        let word = |bytes: &[u8; WORD_BYTES]| u64::from_le_bytes(*bytes);
        let mut words: Vec<u64> = blocks
            .into_iter()
            .flat_map(|block| block.as_chunks::<WORD_BYTES>().0)
            .map(word)
            .take(bits.div_ceil(WORD_BITS) as usize)
            .collect();
        // Beyond the end nothing is free.
        if !bits.is_multiple_of(WORD_BITS)
            && let Some(last) = words.last_mut()
        {
            *last |= u64::MAX << (bits % WORD_BITS);
        }
        let free = words.iter().map(|word| u64::from(word.count_zeros())).sum();
        Bitmap {
            words,
            bits,
            free,
            at,
            first_free: 0,
        }
    }

    pub(super) fn free(&self) -> u64 {
        self.free
    }

    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    pub(super) fn is_used(&self, index: u64) -> bool {
        self.words[(index / WORD_BITS) as usize] >> (index % WORD_BITS) & 1 == 1
    }

    /// Takes the goal if it is free, or the next free bit after it, or the first.
    pub(super) fn take(&mut self, goal: u64) -> Option<u64> {
        if self.free == 0 {
            return None;
        }
        let goal = if goal < self.bits { goal } else { 0 };
        let first = (goal / WORD_BITS) as usize;
        let below_goal = (1 << (goal % WORD_BITS)) - 1;
        let used = |word: usize, mask: u64| {
            let free = !(self.words[word] | mask);
            (free != 0).then(|| word as u64 * WORD_BITS + u64::from(free.trailing_zeros()))
        };
        let index = used(first, below_goal)
            .or_else(|| (first + 1..self.words.len()).find_map(|word| used(word, 0)))
            .or_else(|| (0..=first).find_map(|word| used(word, 0)))?;
        self.words[(index / WORD_BITS) as usize] |= 1 << (index % WORD_BITS);
        self.free -= 1;
        Some(index)
    }

    /// Takes the first free bit.
    pub(super) fn take_first(&mut self) -> Option<u64> {
        let index = self.take(self.first_free as u64 * WORD_BITS)?;
        self.first_free = (index / WORD_BITS) as usize;
        Some(index)
    }

    /// Makes a bit free.
    pub(super) fn give(&mut self, index: u64) {
        debug_assert!(self.is_used(index));
        self.words[(index / WORD_BITS) as usize] &= !(1 << (index % WORD_BITS));
        self.free += 1;
        self.first_free = self.first_free.min((index / WORD_BITS) as usize);
    }

    /// Where a bit lies on the disk: block, byte, bit.
    pub(super) fn place(&self, index: u64) -> (DeviceBlock, usize, u32) {
        let block = DeviceBlock::new(self.at + index / BITS_PER_BLOCK);
        let bit = index % BITS_PER_BLOCK;
        (block, (bit / 8) as usize, (bit % 8) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_taken_from_the_goal_on() {
        let mut block: Box<Block> = Box::new([0; BLOCK as usize]);
        block[0] = 0b11;
        let mut bitmap = Bitmap::of_blocks(7, 130, [&*block]);
        assert_eq!((bitmap.free(), bitmap.bits()), (128, 130));
        assert_eq!(bitmap.take(0), Some(2));
        assert_eq!(bitmap.take(129), Some(129));
        assert_eq!(bitmap.take(129), Some(3), "from the front again");
        assert_eq!(bitmap.take(64), Some(64));
        assert_eq!(bitmap.take(64), Some(65));
        bitmap.give(64);
        assert_eq!(bitmap.take(10_000), Some(4));
        let rest = std::iter::from_fn(|| bitmap.take(64)).count();
        assert_eq!((rest, bitmap.free()), (123, 0));
        for freed in [70, 3, 129] {
            bitmap.give(freed);
        }
        assert_eq!(
            [3, 70, 129].map(Some),
            [(); 3].map(|()| bitmap.take_first())
        );
        bitmap.give(1);
        assert_eq!([bitmap.take_first(), bitmap.take_first()], [Some(1), None]);
        assert_eq!(bitmap.place(9), (DeviceBlock::new(7), 1, 1));
    }
}
