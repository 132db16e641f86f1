//! Which parts of a file lie in one piece: what a reader looks at before the map.
//!
//! The map of a file has eight bytes for each block. Who reads at random finds the entry in no near cache, because all that he has read meanwhile went through it, and waits for it before he can ask for the block itself. Files that were
//! filled in large pieces lie in large pieces, and of those it is enough to know one number for every [`RUN_BLOCKS`]: 2 KiB for 64 MiB, which stay near (docs/DIRECT.md, *A number for a run*).
//!
//! Invariant: where this names a block, the map names the same. The map says more, and is what is true: a run that is not in one piece, or of which anything is unknown, is not here.

use lease::Place;
use pmem::BlockNumber;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::FromZeros;

/// Blocks of a run. More are seldom in one piece, and a run of which one block was overwritten is none; with fewer there is more to be kept near.
pub(crate) const RUN_BLOCKS: u64 = 64;

/// For each run the number of its first block, or 0, which is no block of a file. Made when there is something to be kept: small files never have one.
#[derive(Debug, Default)]
pub(crate) struct Runs(OnceLock<Box<[AtomicU64]>>);

impl Runs {
    /// Where block `index` of the file is, if it is in a run.
    #[inline(always)]
    pub(crate) fn block(&self, index: u64) -> Option<BlockNumber> {
        let first = self.run(index)?.load(Relaxed);
        (first != 0).then(|| BlockNumber::new(first) + index % RUN_BLOCKS)
    }

    /// The map says something else of block `index` from now on.
    #[inline]
    pub(crate) fn forget(&self, index: u64) {
        if let Some(run) = self.run(index) {
            run.store(0, Relaxed);
        }
    }

    /// Looks at the map for the run whose first block is `first`, of a map with so many entries.
    pub(crate) fn learn(
        &self,
        first: u64,
        capacity_blocks: u64,
        place: impl Fn(u64) -> Option<Place>,
    ) {
        let Some(Place::At(start)) = place(first) else {
            return;
        };
        let is_in_place = |number: u64| place(first + number) == Some(Place::At(start + number));
        if !(1..RUN_BLOCKS).all(is_in_place) {
            return;
        }
        let runs = self.0.get_or_init(|| none(capacity_blocks / RUN_BLOCKS));
        if let Some(run) = runs.get((first / RUN_BLOCKS) as usize) {
            run.store(start.get(), Relaxed);
        }
    }

    #[inline(always)]
    fn run(&self, index: u64) -> Option<&AtomicU64> {
        self.0.get()?.get((index / RUN_BLOCKS) as usize)
    }
}

/// So many, of which nothing is known. What is never looked at takes no memory.
fn none(runs: u64) -> Box<[AtomicU64]> {
    <[AtomicU64]>::new_box_zeroed_with_elems(runs as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{RUN_BLOCKS, Runs};
    use lease::Place;
    use pmem::BlockNumber;
    use proptest::prelude::*;

    const RUNS: u64 = 4;
    const BLOCKS: u64 = RUNS * RUN_BLOCKS;

    /// What happens to a map and to what is kept of it.
    #[derive(Clone, Debug)]
    enum Step {
        /// A block comes to another place, or the place becomes unknown.
        Put(u64, Option<Place>),
        /// Blocks in a row, from the first of these on, come to places in a row, from the second on.
        PutRow(u64, u64),
        /// The run of this block is looked at.
        Learn(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let place = prop_oneof![
            Just(None),
            Just(Some(Place::Hole)),
            (1..500_u64).prop_map(|block| Some(Place::At(BlockNumber::new(block)))),
            (1..500_u64).prop_map(|block| Some(Place::Unwritten(BlockNumber::new(block)))),
        ];
        prop_oneof![
            1 => (0..BLOCKS, place).prop_map(|(index, place)| Step::Put(index, place)),
            2 => (0..BLOCKS, 1..500_u64).prop_map(|(first, to)| Step::PutRow(first, to)),
            3 => (0..BLOCKS).prop_map(Step::Learn),
        ]
    }

    proptest! {
        #[test]
        fn a_run_says_what_the_map_says(steps in prop::collection::vec(step(), 1..60)) {
            let mut map = vec![None; BLOCKS as usize];
            let runs = Runs::default();
            for step in steps {
                match step {
                    Step::Put(index, place) => {
                        map[index as usize] = place;
                        runs.forget(index);
                    }
                    Step::PutRow(first, to) => {
                        let end = BLOCKS.min(first + 3 * RUN_BLOCKS / 2);
                        for index in first..end {
                            let block = BlockNumber::new(to + index - first);
                            map[index as usize] = Some(Place::At(block));
                            runs.forget(index);
                        }
                    }
                    Step::Learn(index) => {
                        let first = index - index % RUN_BLOCKS;
                        runs.learn(first, BLOCKS, |index| map[index as usize]);
                        let start = match map[first as usize] {
                            Some(Place::At(block)) => Some(block),
                            _ => None,
                        };
                        let in_a_row = start.filter(|start| (0..RUN_BLOCKS).all(|number| {
                            map[(first + number) as usize] == Some(Place::At(*start + number))
                        }));
                        prop_assert_eq!(runs.block(first), in_a_row);
                    }
                }
                for index in 0..BLOCKS {
                    if let Some(block) = runs.block(index) {
                        prop_assert_eq!(map[index as usize], Some(Place::At(block)), "{}", index);
                    }
                }
                prop_assert_eq!(runs.block(BLOCKS), None, "behind the end");
            }
        }
    }
}
