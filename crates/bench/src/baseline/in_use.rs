//! Free space as PMFS knows it: one list of the block ranges in use.
//!
//! The list is sorted by block number and doubly linked; its nodes lie where they happened to be allocated, as those of a kernel's
//! slab cache do. Allocation walks from the head to the first gap that fits, freeing walks from the head to the range that holds
//! the block: the cost of either is the number of ranges passed (section II-B of the paper).

use pmem::BlockNumber;

/// Place of a node in the arena.
type Index = u32;

/// No node.
const NONE: Index = Index::MAX;

/// A range of blocks in use, both ends included. Between a range and the next one there is a gap.
#[derive(Copy, Clone, Debug)]
struct Range {
    low: u64,
    high: u64,
    previous: Index,
    next: Index,
}

/// A place in the list that one truncation keeps while it frees several blocks under one lock.
#[derive(Copy, Clone, Debug)]
pub(super) struct StartHint(Index);

impl StartHint {
    /// Begin at the head.
    pub(super) fn head() -> StartHint {
        StartHint(NONE)
    }
}

/// A block was freed that is not in use: a bug, or a damaged block map.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct NotInUse(pub(super) BlockNumber);

/// The list of ranges in use.
#[derive(Debug)]
pub(super) struct InUseList {
    nodes: Vec<Range>,
    spare: Vec<Index>,
    head: Index,
    ranges: u64,
    free_blocks: u64,
    end: u64,
}

impl InUseList {
    /// A list for blocks `0 .. end` in which the first `used` are in use.
    pub(super) fn new(used: u64, end: u64) -> InUseList {
        let mut list = InUseList {
            nodes: Vec::new(),
            spare: Vec::new(),
            head: NONE,
            ranges: 0,
            free_blocks: end - used,
            end,
        };
        list.head = list.insert_behind(NONE, 0, used - 1);
        list
    }

    /// The list of the blocks for which `is_used` says so; block 0 is one of them.
    pub(super) fn rebuild(end: u64, is_used: impl Fn(u64) -> bool) -> InUseList {
        let mut list = InUseList::new(1, end);
        let mut last = list.head;
        for block in (1..end).filter(|&block| is_used(block)) {
            list.free_blocks -= 1;
            if list.node(last).high + 1 == block {
                list.node_mut(last).high = block;
            } else {
                last = list.insert_behind(last, block, block);
            }
        }
        list
    }

    /// Ranges in the list.
    pub(super) fn ranges(&self) -> u64 {
        self.ranges
    }

    /// Blocks that are not in use.
    pub(super) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// The ranges, first and last block of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let range = self.nodes.get(at as usize)?;
            at = range.next;
            Some((range.low, range.high))
        })
    }

    /// Takes `blocks` blocks (a power of two), aligned to their number, from the first gap in which they fit.
    pub(super) fn allocate(&mut self, blocks: u64) -> Option<BlockNumber> {
        debug_assert!(blocks.is_power_of_two());
        let mut at = self.head;
        loop {
            let Range { high, next, .. } = *self.node(at);
            let gap_end = self.low_or_end(next);
            let low = (high + 1).next_multiple_of(blocks);
            if low + blocks <= gap_end {
                self.fill(at, next, low, low + blocks - 1, gap_end);
                self.free_blocks -= blocks;
                return Some(BlockNumber::new(low));
            }
            if next == NONE {
                return None;
            }
            at = next;
        }
    }

    /// Puts `low ..= high` into the gap between `at` and `next`, merging where it touches.
    fn fill(&mut self, at: Index, next: Index, low: u64, high: u64, gap_end: u64) {
        let touches_left = low == self.node(at).high + 1;
        let touches_right = next != NONE && high + 1 == gap_end;
        match (touches_left, touches_right) {
            (true, true) => {
                self.node_mut(at).high = self.node(next).high;
                self.remove(next);
            }
            (true, false) => self.node_mut(at).high = high,
            (false, true) => self.node_mut(next).low = low,
            (false, false) => {
                self.insert_behind(at, low, high);
            }
        }
    }

    /// Frees one block, found from the head on.
    pub(super) fn free(&mut self, block: BlockNumber) -> Result<(), NotInUse> {
        self.free_from(block, &mut StartHint::head())
    }

    /// Frees one block, found from the place of the hint on if it lies behind it; moves the hint.
    ///
    /// A hint is good for as long as the list is locked.
    pub(super) fn free_from(
        &mut self,
        block: BlockNumber,
        hint: &mut StartHint,
    ) -> Result<(), NotInUse> {
        let number = block.get();
        let mut at = match self.nodes.get(hint.0 as usize) {
            Some(range) if number >= range.low => hint.0,
            _ => self.head,
        };
        while at != NONE && number > self.node(at).high {
            at = self.node(at).next;
        }
        if at == NONE || number < self.node(at).low {
            return Err(NotInUse(block));
        }
        *hint = StartHint(self.cut_out(at, number));
        self.free_blocks += 1;
        Ok(())
    }

    /// Takes a block out of the range that holds it; returns where the search for the next one begins.
    fn cut_out(&mut self, at: Index, number: u64) -> Index {
        let Range {
            low, high, next, ..
        } = *self.node(at);
        match (number == low, number == high) {
            (true, true) => {
                self.remove(at);
                next
            }
            (true, false) => {
                self.node_mut(at).low += 1;
                at
            }
            (false, true) => {
                self.node_mut(at).high -= 1;
                next
            }
            (false, false) => {
                self.node_mut(at).high = number - 1;
                self.insert_behind(at, number + 1, high)
            }
        }
    }

    #[inline]
    fn node(&self, at: Index) -> &Range {
        &self.nodes[at as usize]
    }

    #[inline]
    fn node_mut(&mut self, at: Index) -> &mut Range {
        &mut self.nodes[at as usize]
    }

    fn low_or_end(&self, at: Index) -> u64 {
        self.nodes
            .get(at as usize)
            .map_or(self.end, |range| range.low)
    }

    fn insert_behind(&mut self, previous: Index, low: u64, high: u64) -> Index {
        let next = match self.nodes.get(previous as usize) {
            Some(range) => range.next,
            None => self.head,
        };
        let range = Range {
            low,
            high,
            previous,
            next,
        };
        let at = match self.spare.pop() {
            Some(at) => {
                *self.node_mut(at) = range;
                at
            }
            None => {
                self.nodes.push(range);
                (self.nodes.len() - 1) as Index
            }
        };
        self.link(previous, at, next);
        self.ranges += 1;
        at
    }

    /// Tells both neighbours of `at`.
    fn link(&mut self, previous: Index, at: Index, next: Index) {
        match self.nodes.get_mut(previous as usize) {
            Some(range) => range.next = at,
            None => self.head = at,
        }
        if let Some(range) = self.nodes.get_mut(next as usize) {
            range.previous = at;
        }
    }

    fn remove(&mut self, at: Index) {
        let Range { previous, next, .. } = *self.node(at);
        match self.nodes.get_mut(previous as usize) {
            Some(range) => range.next = next,
            None => self.head = next,
        }
        if let Some(range) = self.nodes.get_mut(next as usize) {
            range.previous = previous;
        }
        self.spare.push(at);
        self.ranges -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ranges(list: &InUseList) -> Vec<(u64, u64)> {
        list.iter().collect()
    }

    fn block(number: u64) -> BlockNumber {
        BlockNumber::new(number)
    }

    #[test]
    fn allocation_takes_the_first_gap_that_fits() {
        let mut list = InUseList::new(3, 64);
        for expected in 3..20 {
            assert_eq!(list.allocate(1), Some(block(expected)));
        }
        for freed in [5, 9, 10, 11, 16, 17, 18, 19] {
            list.free(block(freed)).expect("in use");
        }
        assert_eq!(ranges(&list), [(0, 4), (6, 8), (12, 15)]);
        assert_eq!(
            list.allocate(4),
            Some(block(16)),
            "the gaps before are too small or not aligned"
        );
        assert_eq!(
            list.allocate(1),
            Some(block(5)),
            "the lowest free block, freed long ago or just now"
        );
        assert_eq!(
            list.allocate(2),
            Some(block(10)),
            "9 is free too, and not aligned"
        );
        assert_eq!(ranges(&list), [(0, 8), (10, 19)]);
        assert_eq!(
            list.allocate(1),
            Some(block(9)),
            "fills the gap: two ranges become one"
        );
        assert_eq!(ranges(&list), [(0, 19)]);
        assert_eq!(list.allocate(32), Some(block(32)));
        assert_eq!(list.allocate(16), None);
        assert_eq!(list.free_blocks(), 12);
    }

    #[test]
    fn what_is_free_cannot_be_freed() {
        let mut list = InUseList::new(4, 16);
        assert_eq!(list.free(block(4)), Err(NotInUse(block(4))));
        list.free(block(2)).expect("in use");
        assert_eq!(list.free(block(2)), Err(NotInUse(block(2))));
        assert_eq!(list.free_blocks(), 13);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Allocate {
            bits: u32,
        },
        /// Some of the blocks in use, in order or not, with one hint.
        Free {
            picks: Vec<prop::sample::Index>,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Allocate { bits: 0 }),
            1 => (0..4u32).prop_map(|bits| Step::Allocate { bits }),
            2 => proptest::collection::vec(any::<prop::sample::Index>(), 1..9).prop_map(|picks| Step::Free { picks }),
        ]
    }

    proptest! {
        /// The list against a plain set: first fit exactly, nothing lost, nothing twice, never two ranges that touch.
        #[test]
        fn the_list_is_a_set(steps in proptest::collection::vec(step(), 1..120)) {
            let mut list = InUseList::new(1, 96);
            let mut model = BTreeSet::from([0]);
            for step in steps {
                match step {
                    Step::Allocate { bits } => {
                        let blocks = 1 << bits;
                        let fit = (0..=96 - blocks).step_by(blocks as usize)
                            .find(|&low| low > 0 && (low..low + blocks).all(|number| !model.contains(&number)));
                        prop_assert_eq!(list.allocate(blocks), fit.map(block));
                        if let Some(low) = fit {
                            model.extend(low..low + blocks);
                        }
                    }
                    Step::Free { picks } => {
                        let mut hint = StartHint::head();
                        for pick in picks {
                            let inside: Vec<u64> = model.range(1..).copied().collect();
                            let Some(&number) = inside.get(pick.index(inside.len().max(1))) else { break };
                            prop_assert_eq!(list.free_from(block(number), &mut hint), Ok(()));
                            prop_assert_eq!(list.free_from(block(number), &mut StartHint::head()), Err(NotInUse(block(number))));
                            model.remove(&number);
                        }
                    }
                }
                let listed: Vec<(u64, u64)> = ranges(&list);
                prop_assert!(listed.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{:?}", listed);
                prop_assert_eq!(listed.len() as u64, list.ranges());
                let blocks: Vec<u64> = listed.iter().flat_map(|&(low, high)| low..=high).collect();
                prop_assert_eq!(blocks, model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(list.free_blocks(), 96 - model.len() as u64);
                let back = InUseList::rebuild(96, |number| model.contains(&number));
                prop_assert_eq!(ranges(&back), listed);
                prop_assert_eq!(back.free_blocks(), list.free_blocks());
            }
        }
    }
}
