//! The flexible bitmap segment tree of one segment (SanGuo, section III.B).
//!
//! Leaves are bitmaps (1 = allocated). Every node counts the blocks in use below it, which is the paper's free count seen from the other
//! side: zeroed memory is then a tree of free blocks, and a segment that was never used costs neither time nor resident memory.
//! A second count, of leaves with at least one block in use, tells in O(log n) steps where whole free leaves (2 MiB) are left and
//! where the already broken ones have room.

use crate::random::Random;
use std::sync::atomic::AtomicU64;

const USED_BITS: u32 = 20;
const USED_MASK: u32 = (1 << USED_BITS) - 1;
const ONE_TOUCHED: u32 = 1 << USED_BITS;

/// Blocks in use below a node.
#[inline]
pub(crate) fn used_of(node: u32) -> u32 {
    node & USED_MASK
}

/// The dimensions that all trees of a pool share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Blocks of a segment.
    pub(crate) blocks: u32,
    /// Blocks of a leaf: 512 (2 MiB), or less in segments below that.
    pub(crate) leaf_blocks: u32,
    leaf_shift: u32,
    /// Leaves of a segment, a power of two.
    pub(crate) leaves: u32,
    /// Bitmap words of a segment.
    pub(crate) words: u32,
}

impl Shape {
    pub(crate) fn new(blocks: u32) -> Self {
        let leaf_blocks = if blocks >= 512 { 512 } else { (blocks / 4).max(64).min(blocks) };
        Self { blocks, leaf_blocks, leaf_shift: leaf_blocks.trailing_zeros(), leaves: blocks / leaf_blocks, words: blocks.div_ceil(64) }
    }

    /// The leaf that holds a block.
    #[inline]
    fn leaf_of(&self, offset: u32) -> u32 {
        offset >> self.leaf_shift
    }

    /// Tree nodes of a segment, as a heap: the root is node 1, leaf `i` is node `leaves + i`, node 0 is unused.
    pub(crate) fn nodes(&self) -> u32 {
        2 * self.leaves
    }

    /// Bits of a word that stand for no block (segments below 64 blocks).
    pub(crate) fn padding(&self) -> u64 {
        if self.blocks < 64 { u64::MAX << self.blocks } else { 0 }
    }
}

/// One segment's tree, borrowed from its group.
pub(crate) struct Tree<'a> {
    pub(crate) shape: Shape,
    pub(crate) nodes: &'a mut [u32],
    pub(crate) words: &'a mut [AtomicU64],
}

/// Which leaves a search for a run may enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Only those with a block in use: whole free leaves are kept for those who need them.
    Touched,
    All,
}

/// What a search for a run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// The run starts at this offset.
    At(u32),
    /// None is long enough; this is the longest.
    Longest { start: u32, blocks: u32 },
}

impl Run {
    pub(crate) fn start(self) -> Option<u32> {
        match self {
            Self::At(start) => Some(start),
            Self::Longest { .. } => None,
        }
    }
}

impl Tree<'_> {
    #[inline]
    fn word(&mut self, index: u32) -> &mut u64 {
        self.words[index as usize].get_mut()
    }

    #[inline]
    pub(crate) fn used(&self) -> u32 {
        self.nodes[1] & USED_MASK
    }

    #[inline]
    pub(crate) fn leaf_used(&self, leaf: u32) -> u32 {
        self.nodes[(self.shape.leaves + leaf) as usize] & USED_MASK
    }

    /// Leaves without a block in use.
    pub(crate) fn clean_leaves(&self) -> u32 {
        self.shape.leaves - (self.nodes[1] >> USED_BITS)
    }

    /// Free blocks in leaves that are in use.
    pub(crate) fn free_in_touched(&self) -> u32 {
        (self.nodes[1] >> USED_BITS) * self.shape.leaf_blocks - self.used()
    }

    /// The bits of word `index` within `start..end`.
    #[inline]
    fn mask(index: u32, start: u32, end: u32) -> u64 {
        let low = start.max(index * 64) - index * 64;
        let high = end.min(index * 64 + 64) - index * 64;
        (u64::MAX << low) & (u64::MAX >> (64 - high))
    }

    /// The first block in `start..start + blocks` whose state is not `allocated`.
    pub(crate) fn first_unlike(&mut self, start: u32, blocks: u32, allocated: bool) -> Option<u32> {
        let end = start + blocks;
        (start / 64..end.div_ceil(64)).find_map(|index| {
            let word = *self.word(index);
            let unlike = (if allocated { !word } else { word }) & Self::mask(index, start, end);
            (unlike != 0).then(|| index * 64 + unlike.trailing_zeros())
        })
    }

    /// Marks free blocks allocated. O(blocks / 64 + leaves touched × log leaves).
    #[inline]
    pub(crate) fn take(&mut self, start: u32, blocks: u32) {
        debug_assert_eq!(self.first_unlike(start, blocks, false), None, "taken twice");
        if blocks == 1 {
            *self.word(start / 64) |= 1 << (start % 64);
            return self.count_in(self.shape.leaf_of(start), 1);
        }
        let end = start + blocks;
        for index in start / 64..end.div_ceil(64) {
            *self.word(index) |= Self::mask(index, start, end);
        }
        self.for_each_leaf(start, end, Self::count_in);
    }

    /// Marks allocated blocks free. O(blocks / 64 + leaves touched × log leaves).
    #[inline]
    pub(crate) fn give(&mut self, start: u32, blocks: u32) {
        debug_assert_eq!(self.first_unlike(start, blocks, true), None, "given twice");
        if blocks == 1 {
            *self.word(start / 64) &= !(1 << (start % 64));
            return self.count_out(self.shape.leaf_of(start), 1);
        }
        let end = start + blocks;
        for index in start / 64..end.div_ceil(64) {
            *self.word(index) &= !Self::mask(index, start, end);
        }
        self.for_each_leaf(start, end, Self::count_out);
    }

    /// Calls `count` with each leaf that `start..end` touches and the number of its blocks.
    fn for_each_leaf(&mut self, start: u32, end: u32, count: impl Fn(&mut Self, u32, u32)) {
        let leaf_blocks = self.shape.leaf_blocks;
        let mut at = start;
        while at < end {
            let leaf = self.shape.leaf_of(at);
            let stop = end.min((leaf + 1) * leaf_blocks);
            count(self, leaf, stop - at);
            at = stop;
        }
    }

    /// Adds `blocks` in use to the counts from a leaf to the root.
    #[inline]
    fn count_in(&mut self, leaf: u32, blocks: u32) {
        let mut node = (self.shape.leaves + leaf) as usize;
        let change = blocks + if self.nodes[node] == 0 { ONE_TOUCHED } else { 0 };
        while node > 0 {
            self.nodes[node] += change;
            node /= 2;
        }
    }

    /// Takes `blocks` in use off the counts from a leaf to the root.
    #[inline]
    fn count_out(&mut self, leaf: u32, blocks: u32) {
        let mut node = (self.shape.leaves + leaf) as usize;
        let change = blocks + if self.nodes[node] & USED_MASK == blocks { ONE_TOUCHED } else { 0 };
        while node > 0 {
            self.nodes[node] -= change;
            node /= 2;
        }
    }

    /// An upper bound of the free run around a range that was just freed: exact up to a leaf's length on either side.
    #[inline]
    pub(crate) fn run_around(&mut self, start: u32, blocks: u32) -> u32 {
        let (bit, end) = (start % 64, start % 64 + blocks);
        if bit > 0 && end < 64 {
            let word = *self.word(start / 64);
            let (below, above) = (word << (64 - bit), word >> end);
            if below != 0 && above != 0 {
                return below.leading_zeros() + blocks + above.trailing_zeros();
            }
        }
        self.run_around_words(start, blocks)
    }

    /// The same, for runs that may reach beyond one word.
    fn run_around_words(&mut self, start: u32, blocks: u32) -> u32 {
        let (mut low, mut high) = (start, start + blocks);
        while low > 0 && start - low < self.shape.leaf_blocks {
            let in_word = (low - 1) % 64 + 1;
            let zeros = (*self.word((low - 1) / 64) << (64 - in_word)).leading_zeros().min(in_word);
            low -= zeros;
            if zeros < in_word {
                break;
            }
        }
        while high < self.shape.blocks && high - start - blocks < self.shape.leaf_blocks {
            let in_word = 64 - high % 64;
            let zeros = (*self.word(high / 64) >> (high % 64)).trailing_zeros().min(in_word);
            high += zeros;
            if zeros < in_word {
                break;
            }
        }
        let stopped = (low > 0 && start - low >= self.shape.leaf_blocks)
            || (high < self.shape.blocks && high - start - blocks >= self.shape.leaf_blocks);
        if stopped { self.shape.blocks - self.used() } else { high.min(self.shape.blocks) - low }
    }

    #[inline]
    fn count(&mut self, start: u32, end: u32, leaf_change: impl Fn(&mut u32, u32) -> u32, apply: impl Fn(&mut u32, u32)) {
        let leaf_blocks = self.shape.leaf_blocks;
        let mut at = start;
        while at < end {
            let leaf = self.shape.leaf_of(at);
            let stop = end.min((leaf + 1) * leaf_blocks);
            let mut node = self.shape.leaves + leaf;
            let change = leaf_change(&mut self.nodes[node as usize], stop - at);
            while node > 1 {
                node /= 2;
                apply(&mut self.nodes[node as usize], change);
            }
            at = stop;
        }
    }

    /// Counts every node anew from the bitmap.
    pub(crate) fn recount(&mut self) {
        let words_per_leaf = self.shape.words / self.shape.leaves;
        let padding = self.shape.padding().count_ones();
        for leaf in 0..self.shape.leaves {
            let first = leaf * words_per_leaf;
            let used: u32 = (first..first + words_per_leaf).map(|index| self.word(index).count_ones()).sum::<u32>() - padding;
            self.nodes[(self.shape.leaves + leaf) as usize] = used + if used > 0 { ONE_TOUCHED } else { 0 };
        }
        for node in (1..self.shape.leaves as usize).rev() {
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1];
        }
    }

    /// Algorithm 1, procedure FindFreeBlock: at every node a fair coin among the children that have free blocks, then a random zero
    /// bit of the leaf. The segment must not be full.
    pub(crate) fn random_block(&mut self, random: &mut Random) -> u32 {
        let leaf = self.walk(random, |node, capacity| (node & USED_MASK) < capacity);
        self.random_zero(leaf, random)
    }

    /// A random leaf without a block in use; there must be one.
    pub(crate) fn random_clean_leaf(&self, random: &mut Random) -> u32 {
        let leaf_blocks = self.shape.leaf_blocks;
        self.walk(random, |node, capacity| (node >> USED_BITS) * leaf_blocks < capacity)
    }

    /// A random leaf that is in use and has room; there must be one.
    pub(crate) fn random_touched_leaf(&self, random: &mut Random) -> u32 {
        let leaf_blocks = self.shape.leaf_blocks;
        self.walk(random, |node, _| (node >> USED_BITS) * leaf_blocks > node & USED_MASK)
    }

    /// From the root to a leaf, by a coin at every node where both children are `eligible` (counts, blocks below).
    #[inline]
    fn walk(&self, random: &mut Random, eligible: impl Fn(u32, u32) -> bool) -> u32 {
        let mut coins = random.next();
        let (mut node, mut capacity) = (1, self.shape.blocks);
        while node < self.shape.leaves {
            capacity /= 2;
            let preferred = 2 * node + (coins & 1) as u32;
            coins >>= 1;
            node = if eligible(self.nodes[preferred as usize], capacity) { preferred } else { preferred ^ 1 };
        }
        debug_assert!(eligible(self.nodes[node as usize], capacity));
        node - self.shape.leaves
    }

    /// A random zero bit: probing is uniform among the zeros; a leaf that is nearly full is counted through instead.
    fn random_zero(&mut self, leaf: u32, random: &mut Random) -> u32 {
        let first = leaf * self.shape.leaf_blocks;
        for _ in 0..4 {
            let offset = first + random.below(self.shape.leaf_blocks);
            if *self.word(offset / 64) & (1 << (offset % 64)) == 0 {
                return offset;
            }
        }
        let mut rank = random.below(self.shape.leaf_blocks - self.leaf_used(leaf));
        let mut index = first / 64;
        loop {
            let mut zeros = !*self.word(index);
            if rank < zeros.count_ones() {
                for _ in 0..rank {
                    zeros &= zeros - 1;
                }
                return index * 64 + zeros.trailing_zeros();
            }
            rank -= zeros.count_ones();
            index += 1;
        }
    }

    /// The first free block in `start..end`.
    #[inline]
    pub(crate) fn first_zero(&mut self, start: u32, end: u32) -> Option<u32> {
        let mut index = start / 64;
        let mut zeros = !*self.word(index) & (u64::MAX << (start % 64));
        while zeros == 0 {
            index += 1;
            if index * 64 >= end {
                return None;
            }
            zeros = !*self.word(index);
        }
        Some(index * 64 + zeros.trailing_zeros()).filter(|&offset| offset < end)
    }

    /// The first free run of `blocks` that starts at a multiple of `align` at or after the leaf-aligned offset `from`, running on from the
    /// segment's start when the end is reached. Full and empty leaves are passed in one step.
    pub(crate) fn find_run(&mut self, from: u32, blocks: u32, align: u32, leaves: Leaves) -> Run {
        let end = self.shape.blocks;
        let behind = self.find_run_within(from, end, blocks, align, leaves);
        if from == 0 || matches!(behind, Run::At(_)) {
            return behind;
        }
        // A run may cross `from`: the second half of the search starts over at 0 and sees the whole segment.
        self.find_run_within(0, end, blocks, align, leaves)
    }

    fn find_run_within(&mut self, from: u32, end: u32, blocks: u32, align: u32, leaves: Leaves) -> Run {
        let leaf_blocks = self.shape.leaf_blocks;
        let mut scan = RunScan { start: from, blocks, align, longest: (from, 0) };
        let mut at = from;
        while at < end {
            if at & (leaf_blocks - 1) == 0 {
                let used = self.leaf_used(self.shape.leaf_of(at));
                if used == leaf_blocks || (used == 0 && leaves == Leaves::Touched) || (used > 0 && align >= leaf_blocks) {
                    scan.stop(at, at + leaf_blocks);
                    at += leaf_blocks;
                    continue;
                }
                if used == 0 {
                    at += leaf_blocks;
                    if let Some(start) = scan.fits(at) {
                        return Run::At(start);
                    }
                    continue;
                }
            }
            let word = *self.word(at / 64);
            if let Some(start) = scan.word(at, word) {
                return Run::At(start);
            }
            at += 64;
        }
        scan.stop(end, end);
        Run::Longest { start: scan.longest.0, blocks: scan.longest.1 }
    }
}

/// The state of a scan for a run: where the current one started, and the longest so far.
struct RunScan {
    start: u32,
    blocks: u32,
    /// A power of two.
    align: u32,
    longest: (u32, u32),
}

impl RunScan {
    #[inline]
    fn aligned_start(&self) -> u32 {
        (self.start + self.align - 1) & !(self.align - 1)
    }

    /// The aligned start of the current run, if it is long enough when it reaches to `end`.
    #[inline]
    fn fits(&self, end: u32) -> Option<u32> {
        let start = self.aligned_start();
        (start + self.blocks <= end).then_some(start)
    }

    /// The current run ends before `end`; the next may start at `next`.
    #[inline]
    fn stop(&mut self, end: u32, next: u32) {
        let start = self.aligned_start();
        let length = end.saturating_sub(start) & !(self.align - 1);
        if length > self.longest.1 {
            self.longest = (start, length);
        }
        self.start = next;
    }

    /// Takes 64 blocks into account; returns where a long enough run starts.
    #[inline]
    fn word(&mut self, at: u32, word: u64) -> Option<u32> {
        let before = word.trailing_zeros();
        if let Some(start) = self.fits(at + before) {
            return Some(start);
        }
        if word == 0 {
            return None;
        }
        let behind = word.leading_zeros();
        // Most words of an aged leaf hold only short runs: one look at the longest, then on to the next word.
        if self.align > 1 || longest_run_of_zeros(word) > self.longest.1.min(self.blocks - 1) {
            return self.word_bit_by_bit(at, word);
        }
        self.stop(at + before, at + 64 - behind);
        None
    }

    #[cold]
    fn word_bit_by_bit(&mut self, at: u32, word: u64) -> Option<u32> {
        let mut bit = 0;
        while bit < 64 {
            let zeros = (word >> bit).trailing_zeros().min(64 - bit);
            bit += zeros;
            if let Some(start) = self.fits(at + bit) {
                return Some(start);
            }
            if bit < 64 {
                let ones = (word >> bit).trailing_ones();
                self.stop(at + bit, at + bit + ones);
                bit += ones;
            }
        }
        None
    }
}

/// Each step shortens every run of zeros by one, so the steps until none is left are the length of the longest.
#[inline]
fn longest_run_of_zeros(word: u64) -> u32 {
    let (mut zeros, mut length) = (!word, 0);
    while zeros != 0 {
        zeros &= zeros << 1;
        length += 1;
    }
    length
}
