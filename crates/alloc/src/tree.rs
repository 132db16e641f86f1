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
        let leaf_blocks = if blocks >= 512 {
            512
        } else {
            (blocks / 4).max(64).min(blocks)
        };
        Self {
            blocks,
            leaf_blocks,
            leaf_shift: leaf_blocks.trailing_zeros(),
            leaves: blocks / leaf_blocks,
            words: blocks.div_ceil(64),
        }
    }

    /// The leaf that holds a block.
    #[inline]
    pub(crate) fn leaf_of(&self, offset: u32) -> u32 {
        offset >> self.leaf_shift
    }

    /// Tree nodes of a segment, as a heap: the root is node 1, leaf `i` is node `leaves + i`, node 0 is unused.
    pub(crate) fn nodes(&self) -> u32 {
        2 * self.leaves
    }

    /// Bits of a word that stand for no block (segments below 64 blocks).
    pub(crate) fn padding(&self) -> u64 {
        if self.blocks < 64 {
            u64::MAX << self.blocks
        } else {
            0
        }
    }
}

/// One segment's tree, borrowed from its group.
pub(crate) struct Tree<'a> {
    pub(crate) shape: Shape,
    pub(crate) nodes: &'a mut [u32],
    pub(crate) words: &'a mut [AtomicU64],
}

impl Tree<'_> {
    #[inline]
    pub(crate) fn word(&mut self, index: u32) -> &mut u64 {
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

    /// Marks free blocks allocated; returns whether a leaf without a block in use was broken. O(blocks / 64 + leaves touched × log leaves).
    #[inline]
    pub(crate) fn take(&mut self, start: u32, blocks: u32) -> bool {
        debug_assert_eq!(self.first_unlike(start, blocks, false), None, "taken twice");
        if blocks == 1 {
            *self.word(start / 64) |= 1 << (start % 64);
            return self.count_in(self.shape.leaf_of(start), 1);
        }
        let end = start + blocks;
        for index in start / 64..end.div_ceil(64) {
            *self.word(index) |= Self::mask(index, start, end);
        }
        let clean = self.clean_leaves();
        self.for_each_leaf(start, end, |tree, leaf, blocks| {
            tree.count_in(leaf, blocks);
        });
        self.clean_leaves() < clean
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

    /// Adds `blocks` in use to the counts from a leaf to the root; returns whether the leaf had none.
    #[inline]
    fn count_in(&mut self, leaf: u32, blocks: u32) -> bool {
        let mut node = (self.shape.leaves + leaf) as usize;
        let was_clean = self.nodes[node] == 0;
        let change = blocks + if was_clean { ONE_TOUCHED } else { 0 };
        while node > 0 {
            self.nodes[node] += change;
            node /= 2;
        }
        was_clean
    }

    /// Takes `blocks` in use off the counts from a leaf to the root.
    #[inline]
    fn count_out(&mut self, leaf: u32, blocks: u32) {
        let mut node = (self.shape.leaves + leaf) as usize;
        let change = blocks
            + if self.nodes[node] & USED_MASK == blocks {
                ONE_TOUCHED
            } else {
                0
            };
        while node > 0 {
            self.nodes[node] -= change;
            node /= 2;
        }
    }

    /// Counts every node anew from the bitmap.
    pub(crate) fn recount(&mut self) {
        let words_per_leaf = self.shape.words / self.shape.leaves;
        let padding = self.shape.padding().count_ones();
        for leaf in 0..self.shape.leaves {
            let first = leaf * words_per_leaf;
            let used: u32 = (first..first + words_per_leaf)
                .map(|index| self.word(index).count_ones())
                .sum::<u32>()
                - padding;
            self.nodes[(self.shape.leaves + leaf) as usize] =
                used + if used > 0 { ONE_TOUCHED } else { 0 };
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
        self.walk(random, |node, capacity| {
            (node >> USED_BITS) * leaf_blocks < capacity
        })
    }

    /// A random leaf that is in use and has room; there must be one.
    pub(crate) fn random_touched_leaf(&self, random: &mut Random) -> u32 {
        let leaf_blocks = self.shape.leaf_blocks;
        self.walk(random, |node, _| {
            (node >> USED_BITS) * leaf_blocks > node & USED_MASK
        })
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
            node = if eligible(self.nodes[preferred as usize], capacity) {
                preferred
            } else {
                preferred ^ 1
            };
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chi_square(counts: &[u32], expected: &[f64]) -> f64 {
        counts
            .iter()
            .zip(expected)
            .filter(|&(_, &mean)| mean > 0.0)
            .map(|(&count, mean)| (f64::from(count) - mean).powi(2) / mean)
            .sum()
    }

    /// The chance that Algorithm 1 gives each leaf: a fair coin at every node with free blocks on both sides.
    fn leaf_chances(
        tree: &Tree<'_>,
        node: u32,
        capacity: u32,
        chance: f64,
        chances: &mut Vec<f64>,
    ) {
        if node >= tree.shape.leaves {
            chances.push(chance);
            return;
        }
        let free = |child: u32| used_of(tree.nodes[child as usize]) < capacity / 2;
        let (left, right) = (free(2 * node), free(2 * node + 1));
        let share = |mine: bool, other: bool| {
            if !mine {
                0.0
            } else if other {
                chance / 2.0
            } else {
                chance
            }
        };
        leaf_chances(tree, 2 * node, capacity / 2, share(left, right), chances);
        leaf_chances(
            tree,
            2 * node + 1,
            capacity / 2,
            share(right, left),
            chances,
        );
    }

    /// Chi-square of the walk's draws against the published algorithm, in units of its standard deviation.
    fn deviation(prepare: impl Fn(&mut Tree<'_>)) -> f64 {
        let shape = Shape::new(4096);
        let mut nodes = vec![0; shape.nodes() as usize];
        let mut words: Vec<AtomicU64> = (0..shape.words).map(|_| AtomicU64::new(0)).collect();
        let mut tree = Tree {
            shape,
            nodes: &mut nodes,
            words: &mut words,
        };
        prepare(&mut tree);
        let mut chances = Vec::new();
        leaf_chances(&tree, 1, shape.blocks, 1.0, &mut chances);
        const DRAWS: u32 = 400_000;
        let mut expected = vec![0.0; shape.blocks as usize];
        for block in 0..shape.blocks {
            if tree.first_unlike(block, 1, false).is_none() {
                let leaf = shape.leaf_of(block);
                let free = f64::from(shape.leaf_blocks - tree.leaf_used(leaf));
                expected[block as usize] = f64::from(DRAWS) * chances[leaf as usize] / free;
            }
        }
        let mut counts = vec![0; shape.blocks as usize];
        let mut random = Random::new(7, 0);
        for _ in 0..DRAWS {
            counts[tree.random_block(&mut random) as usize] += 1;
        }
        let misses = counts
            .iter()
            .zip(&expected)
            .filter(|&(&count, &mean)| count > 0 && mean == 0.0)
            .count();
        assert_eq!(misses, 0, "the walk returned blocks in use");
        let freedom = expected.iter().filter(|&&mean| mean > 0.0).count() as f64 - 1.0;
        (chi_square(&counts, &expected) - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn every_block_of_a_free_segment_has_the_same_chance() {
        let deviation = deviation(|_| ());
        assert!(deviation.abs() < 4.0, "{deviation} standard deviations");
    }

    #[test]
    fn the_walk_through_a_partly_full_segment_follows_algorithm_1() {
        let deviation = deviation(|tree| {
            tree.take(0, 512);
            tree.take(600, 400);
            (1536..2048)
                .filter(|block| block % 64 != 5)
                .for_each(|block| {
                    tree.take(block, 1);
                });
            tree.take(2048, 1500);
        });
        assert!(deviation.abs() < 4.0, "{deviation} standard deviations");
    }

    /// The same test must reject a walk that prefers low blocks by a tenth.
    #[test]
    fn chi_square_notices_a_skew() {
        let expected = vec![100.0; 1000];
        let counts: Vec<u32> = (0..1000)
            .map(|block| if block < 500 { 105 } else { 95 } + block % 7 * 3 - 9)
            .collect();
        let freedom = 999.0_f64;
        assert!((chi_square(&counts, &expected) - freedom) / (2.0 * freedom).sqrt() < 4.0);
        let skewed: Vec<u32> = counts
            .iter()
            .enumerate()
            .map(|(block, count)| if block < 500 { count + 10 } else { count - 10 })
            .collect();
        assert!((chi_square(&skewed, &expected) - freedom) / (2.0 * freedom).sqrt() > 4.0);
    }
}
