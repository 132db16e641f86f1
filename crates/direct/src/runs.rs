//! Which parts of a file lie in one piece: what a reader looks at before the map.
//!
//! The map of a file has eight bytes for each block. Who reads at random finds the entry in no near cache, because all that he has read meanwhile went through it, and waits for it before he can ask for the block itself. Files that were
//! filled in large pieces lie in large pieces, and of those it is enough to know one number for every [`RUN_BLOCKS`]: 2 KiB for 64 MiB, which stay near (docs/DIRECT.md, *A number for a run*).
//!
//! Invariant: where this names a block, the map names the same. The map says more, and is what is true.

use lease::Place;
use pmem::BlockNumber;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::FromZeros;

/// Blocks of a run. More are seldom in one piece, and a run of which one block was overwritten is none; with fewer there is more to be kept near.
pub(crate) const RUN_BLOCKS: u64 = 64;

/// For each run the number of its first block, or one of the two below, which are no blocks of a file: a pool begins with its header. Small files have none of this.
#[derive(Debug, Default)]
pub(crate) struct Runs(OnceLock<Box<[AtomicU64]>>);

/// The map was not looked at yet.
const NOT_LOOKED_AT: u64 = 0;
/// The run is not in one piece.
const IN_PIECES: u64 = 1;

/// What is known of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Look {
    /// It is there.
    At(BlockNumber),
    /// Look at the map.
    AtMap,
    /// The same, and then [`Runs::learn`] the run.
    AtMapOnce,
}

impl Runs {
    /// Makes room for a map with so many entries, once. It allocates, which [`look`](Self::look) and [`forget`](Self::forget) on the short ways never do.
    #[cold]
    pub(crate) fn make(&self, blocks: u64) {
        self.0.get_or_init(|| none(blocks.div_ceil(RUN_BLOCKS)));
    }

    /// Where block `index` of the file is, if its run is known.
    #[inline(always)]
    pub(crate) fn look(&self, index: u64) -> Look {
        match self.run(index).map(|run| run.load(Relaxed)) {
            Some(NOT_LOOKED_AT) => Look::AtMapOnce,
            Some(IN_PIECES) | None => Look::AtMap,
            Some(first) => Look::At(BlockNumber::new(first) + index % RUN_BLOCKS),
        }
    }

    /// The map says something else of block `index` from now on. Who has written the last block of a run may have written all of it in a row.
    #[inline]
    pub(crate) fn forget(&self, index: u64) {
        if let Some(run) = self.run(index) {
            let is_last = index % RUN_BLOCKS == RUN_BLOCKS - 1;
            run.store(if is_last { NOT_LOOKED_AT } else { IN_PIECES }, Relaxed);
        }
    }

    /// Looks at the map for the run of block `index`, all of whose entries are known.
    #[cold]
    pub(crate) fn learn(&self, index: u64, place: impl Fn(u64) -> Option<Place>) {
        let Some(run) = self.run(index) else {
            return;
        };
        let first = index - index % RUN_BLOCKS;
        let is_row_from = |start: BlockNumber| {
            (1..RUN_BLOCKS).all(|number| place(first + number) == Some(Place::At(start + number)))
        };
        let word = match place(first) {
            Some(Place::At(start)) if is_row_from(start) => start.get(),
            _ => IN_PIECES,
        };
        run.store(word, Relaxed);
    }

    /// Runs that are known to be in one piece.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        let runs = self.0.get().map_or(&[][..], |runs| runs);
        let known = runs.iter().filter(|run| run.load(Relaxed) > IN_PIECES);
        known.count()
    }

    #[inline(always)]
    fn run(&self, index: u64) -> Option<&AtomicU64> {
        self.0.get()?.get((index / RUN_BLOCKS) as usize)
    }
}

/// So many that were not looked at; none if there is no memory for them, which is slower and nothing worse. Of a large table only what is used takes memory.
fn none(runs: u64) -> Box<[AtomicU64]> {
    <[AtomicU64]>::new_box_zeroed_with_elems(runs as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Look, RUN_BLOCKS, Runs};
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
            (2..500_u64).prop_map(|block| Some(Place::At(BlockNumber::new(block)))),
            (2..500_u64).prop_map(|block| Some(Place::Unwritten(BlockNumber::new(block)))),
        ];
        prop_oneof![
            1 => (0..BLOCKS, place).prop_map(|(index, place)| Step::Put(index, place)),
            2 => (0..BLOCKS, 2..500_u64).prop_map(|(first, to)| Step::PutRow(first, to)),
            3 => (0..BLOCKS).prop_map(Step::Learn),
        ]
    }

    #[test]
    fn a_run_of_which_one_block_is_elsewhere_is_none() {
        let start = BlockNumber::new(100);
        let runs = Runs::default();
        runs.make(BLOCKS);
        for stray in 0..RUN_BLOCKS {
            let place = |index| {
                let index = if index == stray {
                    index + BLOCKS
                } else {
                    index
                };
                Some(Place::At(start + index))
            };
            runs.learn(stray, place);
            assert_eq!(runs.look(stray), Look::AtMap, "block {stray} is elsewhere");
        }
        runs.learn(0, |index| Some(Place::At(start + index)));
        assert_eq!(runs.look(7), Look::At(start + 7));
    }

    proptest! {
        #[test]
        fn a_run_says_what_the_map_says(steps in prop::collection::vec(step(), 1..60)) {
            let mut map = vec![None; BLOCKS as usize];
            let runs = Runs::default();
            prop_assert_eq!(runs.look(0), Look::AtMap, "no room yet");
            runs.make(BLOCKS);
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
                        runs.learn(index, |index| map[index as usize]);
                        let start = match map[first as usize] {
                            Some(Place::At(block)) => Some(block),
                            _ => None,
                        };
                        let in_a_row = start.filter(|start| (0..RUN_BLOCKS).all(|number| {
                            map[(first + number) as usize] == Some(Place::At(*start + number))
                        }));
                        let expected = in_a_row.map_or(Look::AtMap, Look::At);
                        prop_assert_eq!(runs.look(first), expected);
                    }
                }
                for index in 0..BLOCKS {
                    if let Look::At(block) = runs.look(index) {
                        prop_assert_eq!(map[index as usize], Some(Place::At(block)), "{}", index);
                    }
                }
                prop_assert_eq!(runs.look(BLOCKS), Look::AtMap, "behind the end");
            }
        }
    }
}
