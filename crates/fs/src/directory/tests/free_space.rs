//! The free ranges alone, against a plain list.

use proptest::prelude::*;

use crate::directory::free_map::FreeMap;
use crate::directory::free_space::{BlockSpace, FreeSpace};

impl FreeSpace {
    /// Every recorded maximum and count is what the maps say.
    pub(in crate::directory) fn assert_consistent(&self) {
        let longest: Vec<usize> = (0..self.blocks())
            .map(|block| self.map(block).longest(512))
            .collect();
        for units in [1, 3, 4, 10, 34] {
            for from in 0..=self.blocks() {
                let expected = (from..self.blocks()).find(|&block| longest[block] >= units);
                assert_eq!(
                    self.first_block_with(units, from),
                    expected,
                    "{units} units from block {from}"
                );
            }
        }
        let free: usize = (0..self.blocks())
            .map(|block| self.map(block).free_units())
            .sum();
        assert_eq!(self.free_units(), free as u64);
    }
}

/// A block whose longest free range has `free` units.
fn block_with(free: usize) -> BlockSpace {
    let mut map = FreeMap::EMPTY;
    map.mark_used(0, 512 - free);
    BlockSpace::new(map)
}

#[test]
fn levels_come_and_go() {
    let mut space = FreeSpace::default();
    for block in 0..64 * 64 + 3 {
        space.push(&block_with(block % 3));
    }
    assert_eq!(space.first_block_with(3, 0), None);
    for block in [0, 63, 64, 4095, 4096, 4098] {
        let mut copy = space.block(block);
        copy.release(0, 20);
        space.replace(block, &copy);
        assert_eq!(space.first_block_with(20, 0), Some(block));
        assert_eq!(space.first_block_with(3, block), Some(block));
        assert_eq!(space.first_block_with(3, block + 1), None);
        let mut copy = space.block(block);
        copy.take(20).unwrap();
        space.replace(block, &copy);
        assert_eq!(space.first_block_with(3, 0), None);
    }
    space.truncate(65);
    space.push(&block_with(34));
    space.assert_consistent();
    space.truncate(64);
    space.assert_consistent();
    space.truncate(0);
    assert_eq!(
        (
            space.blocks(),
            space.free_units(),
            space.first_block_with(1, 0)
        ),
        (0, 0, None)
    );
    space.push(&block_with(34));
    space.assert_consistent();
}

proptest! {
    #[test]
    fn map_agrees_with_a_list_of_units(steps in prop::collection::vec((0..512usize, 1..60usize), 1..80)) {
        let mut map = FreeMap::EMPTY;
        let mut units = [false; 512];
        for (start, length) in steps {
            let length = length.min(512 - start);
            let stretch = &mut units[start..start + length];
            if stretch.iter().all(|&used| !used) {
                stretch.fill(true);
                map.mark_used(start, length);
            } else if stretch.iter().all(|&used| used) {
                stretch.fill(false);
                let range = map.release(start, length);
                prop_assert!(range.start <= start && range.start + range.length >= start + length);
                prop_assert!(units[range.start..range.start + range.length].iter().all(|&used| !used));
                prop_assert!(range.start == 0 || units[range.start - 1]);
                prop_assert!(range.start + range.length == 512 || units[range.start + range.length]);
            }
            let covered: usize = map.ranges().map(|range| range.length).sum();
            prop_assert_eq!(covered, units.iter().filter(|&&used| !used).count());
            prop_assert_eq!(covered, map.free_units());
            prop_assert!(map.ranges().all(|range| units[range.start..range.start + range.length].iter().all(|&used| !used)));
            prop_assert_eq!(map.longest(512), units.split(|&used| used).map(<[bool]>::len).max().unwrap());
            for length in [1, 3, 34] {
                prop_assert_eq!(map.first_fit(length), map.ranges().find(|range| range.length >= length));
            }
        }
    }
}
