//! Free space of a device: one bit a block, and for each chunk of 128 MiB the longest free run in
//! it.
//!
//! Disks and networks are fast with long runs and know no wear, so this allocator looks for a run
//! that is long enough, from where the last one ended; without one it takes the longest there are.
//! Memory is bounded whatever the fragmentation: 32 MiB for a tebibyte. (Rejected: a tree of free
//! runs, which needs 16 to 60 bytes a run, 4 GiB in the worst case.)

use crate::block::{DeviceBlock, Run};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks of a chunk.
const CHUNK_BLOCKS: u64 = 32_768;
const WORD_BLOCKS: u64 = u64::BITS as u64;

/// Blocks of one allocation.
pub type Runs = SmallVec<[Run; 2]>;

/// A block has an owner already, or lies behind the end.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("device block {0} belongs to two owners, or lies behind the end of the device")]
pub struct AlreadyUsed(pub DeviceBlock);

/// A block that is given back has no owner.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("device block {0} was freed twice, or lies behind the end of the device")]
pub struct NotUsed(pub DeviceBlock);

/// The bits of a device, while threads find out which of its blocks are in use.
#[derive(Debug)]
pub struct Rebuild {
    blocks: u64,
    /// A one is a block in use.
    words: Vec<AtomicU64>,
}

impl Rebuild {
    /// A device of which nothing is in use.
    pub fn new(blocks: u64) -> Rebuild {
        let words = (0..blocks.div_ceil(WORD_BLOCKS)).map(|_| AtomicU64::new(0));
        Rebuild {
            blocks,
            words: words.collect(),
        }
    }

    /// A block is in use.
    ///
    /// # Errors
    ///
    /// [`AlreadyUsed`].
    pub fn mark(&self, block: DeviceBlock) -> Result<(), AlreadyUsed> {
        let index = block.get();
        if index >= self.blocks {
            return Err(AlreadyUsed(block));
        }
        let bit = 1 << (index % WORD_BLOCKS);
        let word = &self.words[(index / WORD_BLOCKS) as usize];
        match word.fetch_or(bit, Ordering::Relaxed) & bit {
            0 => Ok(()),
            _ => Err(AlreadyUsed(block)),
        }
    }

    /// Takes over the words of [`Space::save`]. `false` if they are not of this device.
    pub fn mark_words(&mut self, words: &[u64]) -> bool {
        let behind = self.blocks % WORD_BLOCKS;
        let is_sound = words.len() == self.words.len()
            && (behind == 0 || words.last().is_none_or(|last| last >> behind == 0));
        if is_sound {
            for (mine, &word) in self.words.iter_mut().zip(words) {
                *mine.get_mut() |= word;
            }
        }
        is_sound
    }

    /// The allocator.
    pub fn finish(self) -> Space {
        let words: Vec<u64> = self.words.into_iter().map(AtomicU64::into_inner).collect();
        let used: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        let chunks = self.blocks.div_ceil(CHUNK_BLOCKS) as usize;
        let mut bits = Bits {
            blocks: self.blocks,
            words,
            longest: vec![0; chunks],
            free: self.blocks - used,
            next: 0,
        };
        (0..chunks).for_each(|chunk| bits.measure(chunk));
        Space {
            bits: Mutex::new(bits),
        }
    }
}

/// The free space of a device.
#[derive(Debug)]
pub struct Space {
    bits: Mutex<Bits>,
}

#[derive(Debug)]
struct Bits {
    blocks: u64,
    words: Vec<u64>,
    /// By chunk: blocks of its longest free run.
    longest: Vec<u32>,
    free: u64,
    /// Where the last allocation ended.
    next: u64,
}

impl Space {
    /// Takes `blocks` blocks, in one run if there is one, else in few. `None` if there are not so
    /// many.
    pub fn allocate(&self, blocks: u32) -> Option<Runs> {
        let mut bits = self.bits.lock();
        if u64::from(blocks) > bits.free {
            return None;
        }
        let mut runs = Runs::new();
        let mut missing = blocks;
        while missing > 0 {
            let run = bits.take(missing);
            missing -= run.blocks;
            runs.push(run);
        }
        Some(runs)
    }

    /// Gives blocks back.
    ///
    /// # Errors
    ///
    /// [`NotUsed`] names the first block of the run that is free already; nothing of the run was
    /// freed then.
    pub fn free(&self, run: Run) -> Result<(), NotUsed> {
        let mut bits = self.bits.lock();
        let is_used = |block: &DeviceBlock| block.get() < bits.blocks && !bits.is_free(block.get());
        if let Some(block) = run.iter().find(|block| !is_used(block)) {
            return Err(NotUsed(block));
        }
        for index in run.indexes() {
            bits.words[(index / WORD_BLOCKS) as usize] &= !(1 << (index % WORD_BLOCKS));
        }
        bits.free += u64::from(run.blocks);
        let chunks = run.start.get() / CHUNK_BLOCKS..=(run.indexes().end - 1) / CHUNK_BLOCKS;
        chunks.for_each(|chunk| bits.measure(chunk as usize));
        Ok(())
    }

    /// Blocks without an owner.
    pub fn free_blocks(&self) -> u64 {
        self.bits.lock().free
    }

    /// Whether the block has an owner.
    pub fn is_used(&self, block: DeviceBlock) -> bool {
        let bits = self.bits.lock();
        block.get() < bits.blocks && !bits.is_free(block.get())
    }

    /// One bit a block, for [`Rebuild::mark_words`].
    pub fn save(&self) -> Vec<u64> {
        self.bits.lock().words.clone()
    }
}

impl Bits {
    fn is_free(&self, index: u64) -> bool {
        self.words[(index / WORD_BLOCKS) as usize] & (1 << (index % WORD_BLOCKS)) == 0
    }

    /// Takes a run of `wanted` blocks, or the longest of the first chunk that has the longest.
    /// There is a free block.
    fn take(&mut self, wanted: u32) -> Run {
        let chunks = self.longest.len();
        let first = (self.next / CHUNK_BLOCKS) as usize % chunks;
        let in_order = || (0..chunks).map(|step| (first + step) % chunks);
        let fits = in_order().find(|&chunk| self.longest[chunk] >= wanted);
        let longest = || in_order().rev().max_by_key(|&chunk| self.longest[chunk]);
        let chunk = fits.or_else(longest).unwrap_or(first);
        let blocks = wanted.min(self.longest[chunk]);
        let start = self.find(chunk, blocks);
        let run = Run {
            start: DeviceBlock::new(start),
            blocks,
        };
        for index in run.indexes() {
            self.words[(index / WORD_BLOCKS) as usize] |= 1 << (index % WORD_BLOCKS);
        }
        self.free -= u64::from(blocks);
        self.next = run.indexes().end % self.blocks;
        self.measure(chunk);
        run
    }

    /// The first place in a chunk with `blocks` free blocks in a row, from where the last
    /// allocation ended if there is one.
    fn find(&self, chunk: usize, blocks: u32) -> u64 {
        let begin = chunk as u64 * CHUNK_BLOCKS;
        let from_there = (self.next / CHUNK_BLOCKS == chunk as u64).then_some(self.next);
        let mut places = from_there.into_iter().chain([begin]);
        let place = places.find_map(|from| {
            let mut found = None;
            self.visit_free(chunk, from, |start, length| {
                found = (length >= u64::from(blocks)).then_some(start);
                found.is_none()
            });
            found
        });
        place.expect("the chunk has a run of this length")
    }

    /// Visits the free runs of a chunk from block `from` on, until `visit` returns `false`.
    fn visit_free(&self, chunk: usize, from: u64, mut visit: impl FnMut(u64, u64) -> bool) {
        let end = ((chunk as u64 + 1) * CHUNK_BLOCKS).min(self.blocks);
        let mut at = from;
        while at < end {
            let start = self.next_that(at, end, true);
            at = self.next_that(start, end, false);
            if start < end && !visit(start, at - start) {
                return;
            }
        }
    }

    /// The first block from `at` on that is free, or is used; `end` if there is none before.
    fn next_that(&self, mut at: u64, end: u64, is_free: bool) -> u64 {
        while at < end {
            let word = self.words[(at / WORD_BLOCKS) as usize];
            let wanted = if is_free { !word } else { word };
            let here = wanted >> (at % WORD_BLOCKS);
            if here != 0 {
                return (at + u64::from(here.trailing_zeros())).min(end);
            }
            at = (at / WORD_BLOCKS + 1) * WORD_BLOCKS;
        }
        end
    }

    fn measure(&mut self, chunk: usize) {
        let mut longest = 0;
        self.visit_free(chunk, chunk as u64 * CHUNK_BLOCKS, |_, length| {
            longest = longest.max(length);
            true
        });
        self.longest[chunk] = longest as u32;
    }
}

const _: () = assert!(CHUNK_BLOCKS.is_multiple_of(WORD_BLOCKS));

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn one_run_is_preferred_and_follows_the_last_one() {
        let space = Rebuild::new(100_000).finish();
        let first = space.allocate(100).expect("room");
        let second = space.allocate(40_000).expect("room");
        assert_eq!(first.as_slice(), [run(0, 100)]);
        // No chunk holds so many: the longest runs, in order.
        assert_eq!(second.iter().map(|run| run.blocks).sum::<u32>(), 40_000);
        assert_eq!(second.len(), 2);
        assert_eq!(space.free_blocks(), 59_900);
        space.free(first[0]).expect("it was taken");
        let third = space.allocate(50).expect("room");
        assert_ne!(third[0].start, first[0].start);
    }

    #[test]
    fn a_block_has_one_owner() {
        let mut rebuild = Rebuild::new(70);
        rebuild.mark(DeviceBlock::new(69)).expect("free");
        for index in [69, 70, u64::MAX] {
            let block = DeviceBlock::new(index);
            assert_eq!(rebuild.mark(block), Err(AlreadyUsed(block)));
        }
        assert!(!rebuild.mark_words(&[0]));
        assert!(!rebuild.mark_words(&[0, 1 << 6]));
        assert!(rebuild.mark_words(&[1, 0]));
        let space = rebuild.finish();
        assert_eq!(space.free_blocks(), 68);
        assert_eq!(space.free(run(1, 1)), Err(NotUsed(DeviceBlock::new(1))));
        assert_eq!(space.free(run(69, 2)), Err(NotUsed(DeviceBlock::new(70))));
        space.free(run(0, 1)).expect("used");
        assert!(space.allocate(70).is_none());
    }

    fn run(start: u64, blocks: u32) -> Run {
        Run {
            start: DeviceBlock::new(start),
            blocks,
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_blocks(steps in proptest::collection::vec((any::<bool>(), 1u32..200, any::<prop::sample::Index>()), 1..80)) {
            let blocks = 2 * CHUNK_BLOCKS + 77;
            // All but the ends of the chunks is in use, so that runs meet their borders.
            let rebuild = Rebuild::new(blocks);
            let is_open = |index: u64| (index + 150) % CHUNK_BLOCKS < 300 || index + 77 >= blocks;
            for index in (0..blocks).filter(|&index| !is_open(index)) {
                rebuild.mark(DeviceBlock::new(index)).expect("free");
            }
            let space = rebuild.finish();
            let mut free: BTreeSet<u64> = (0..blocks).filter(|&index| is_open(index)).collect();
            let mut held: Vec<Run> = Vec::new();
            for (is_free, count, which) in steps {
                if is_free && !held.is_empty() {
                    let run = held.swap_remove(which.index(held.len()));
                    space.free(run).expect("it was taken");
                    free.extend(run.indexes());
                } else if let Some(runs) = space.allocate(count) {
                    prop_assert_eq!(runs.iter().map(|run| run.blocks).sum::<u32>(), count);
                    for index in runs.iter().flat_map(|run| run.indexes()) {
                        prop_assert!(free.remove(&index), "block {} was not free", index);
                    }
                    held.extend(runs);
                } else {
                    prop_assert!(free.len() < count as usize);
                }
                prop_assert_eq!(space.free_blocks(), free.len() as u64);
            }
            // The saved words restore the same space.
            let mut again = Rebuild::new(blocks);
            prop_assert!(again.mark_words(&space.save()));
            prop_assert_eq!(again.finish().free_blocks(), free.len() as u64);
        }
    }
}
