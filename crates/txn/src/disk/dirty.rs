//! The blocks that batches changed and the image does not have.

use pmem::{BLOCK_BYTES, Offset};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const BITS: u64 = u64::BITS as u64;

/// A bit for each block of the region.
#[derive(Debug)]
pub(crate) struct DirtyBlocks {
    words: Vec<AtomicU64>,
}

impl DirtyBlocks {
    pub(crate) fn new(region_bytes: u64) -> DirtyBlocks {
        let blocks = region_bytes.div_ceil(BLOCK_BYTES as u64);
        let words = (0..blocks.div_ceil(BITS)).map(|_| AtomicU64::new(0));
        DirtyBlocks {
            words: words.collect(),
        }
    }

    /// The blocks of a range of bytes are dirty.
    pub(crate) fn mark(&self, at: Offset, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let first = at.get() / BLOCK_BYTES as u64;
        let last = (at.get() + bytes - 1) / BLOCK_BYTES as u64;
        for block in first..=last {
            let word = &self.words[(block / BITS) as usize];
            let bit = 1 << (block % BITS);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Whether the block of a byte is dirty.
    pub(crate) fn has(&self, at: Offset) -> bool {
        self.has_block(at.get() / BLOCK_BYTES as u64)
    }

    /// Whether a block is dirty.
    pub(crate) fn has_block(&self, block: u64) -> bool {
        let word = self.words[(block / BITS) as usize].load(Ordering::Relaxed);
        word & 1 << (block % BITS) != 0
    }

    /// Takes all dirty blocks, as runs in ascending order.
    pub(crate) fn take(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Relaxed);
            while bits != 0 {
                let block = index as u64 * BITS + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                match runs.last_mut() {
                    Some(run) if run.end == block => run.end += 1,
                    _ => runs.push(block..block + 1),
                }
            }
        }
        runs
    }

    /// How many blocks are dirty.
    pub(crate) fn count(&self) -> u64 {
        let ones = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        self.words.iter().map(ones).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_that_were_marked() {
        let dirty = DirtyBlocks::new(1 << 20);
        dirty.mark(Offset::new(4096 * 63 + 10), 4096);
        dirty.mark(Offset::new(4096 * 65), 1);
        dirty.mark(Offset::new(4096 * 70), 8192);
        dirty.mark(Offset::new(0), 0);
        assert_eq!(dirty.count(), 5);
        assert_eq!(dirty.take(), [63..66, 70..72]);
        assert_eq!(dirty.take(), []);
    }
}
