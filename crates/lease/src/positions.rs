//! Which blocks of the file were named already, in a table for indexes that a stranger chooses.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// Where each index stands in a list that grows and is kept elsewhere. Nothing is taken out.
pub(crate) struct Positions {
    /// The holder chooses the indexes, but does not know how they are hashed.
    hasher: RandomState,
    /// One more than a position, 0 where there is none. At least half of them stay free, so that one look hardly ever meets another index.
    /// Narrow, so that the table of a usual fold stays in the processor's first cache.
    cells: Vec<u16>,
}

/// Most positions of a table.
pub(crate) const POSITIONS_MAX: usize = u16::MAX as usize;

/// A free cell, where the index belongs that was looked for.
#[derive(Clone, Copy)]
pub(crate) struct Free(usize);

impl Positions {
    /// A table for at most `most` positions.
    pub(crate) fn new(most: usize) -> Positions {
        debug_assert!(most <= POSITIONS_MAX);
        Positions {
            hasher: RandomState::default(),
            cells: vec![0; (2 * most).next_power_of_two()],
        }
    }

    /// The position of `index` in a list whose indexes `is_at` knows, or where it goes.
    #[inline]
    pub(crate) fn find(&self, index: u64, is_at: impl Fn(u16) -> bool) -> Result<u16, Free> {
        let mask = self.cells.len() - 1;
        let mut cell = self.hasher.hash_one(index) as usize & mask;
        loop {
            match self.cells[cell] {
                0 => return Err(Free(cell)),
                taken if is_at(taken - 1) => return Ok(taken - 1),
                _ => cell = (cell + 1) & mask,
            }
        }
    }

    /// The index that was looked for stands at `position` now. Nothing else was put since.
    #[inline]
    pub(crate) fn put(&mut self, Free(cell): Free, position: u16) {
        self.cells[cell] = position + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_indexes_as_it_is_made_for_are_found_again() {
        for most in [1_usize, 2, 3, 300] {
            let mut positions = Positions::new(most);
            let mut indexes: Vec<u64> = Vec::new();
            for number in 0..most as u64 {
                let index = number * number;
                let found = positions.find(index, |at| indexes[at as usize] == index);
                let Err(free) = found else {
                    panic!("index {index} is not there yet");
                };
                positions.put(free, indexes.len() as u16);
                indexes.push(index);
            }
            for (position, index) in (0..).zip(&indexes) {
                let found = positions.find(*index, |at| indexes[at as usize] == *index);
                assert!(found.is_ok_and(|at| at == position));
            }
        }
    }
}
