//! What others have left in a segment, and its present owner must not see.
//!
//! An owner may map his segments, free blocks and blocks that are not written yet included. So none of them may hold what was somebody else's: those are overwritten by zeros, by the leaf, before the first
//! block of the leaf is taken. What is left then is overwritten before the segment is mapped ([`Allocator::clear`]); all of it when a segment changes hands would keep everybody waiting, and be for
//! nothing where no file comes to lie.
//!
//! Invariant: a leaf of an owner's segment that is not listed here holds zeros, and what its owner has written.

use crate::group::{Group, Shared};
use crate::{Allocator, Extent, SegmentNumber};
use pmem::deliberate::{self, Bug};

/// Leaves of a segment that may hold what is somebody else's.
#[derive(Debug, Clone)]
pub(crate) struct Residue {
    /// One bit for each.
    leaves: Box<[u64]>,
    count: u32,
}

impl Residue {
    fn of_all(leaves: u32) -> Self {
        let mut bits = vec![u64::MAX; leaves.div_ceil(64) as usize];
        if !leaves.is_multiple_of(64)
            && let Some(last) = bits.last_mut()
        {
            *last = (1 << (leaves % 64)) - 1;
        }
        Self {
            leaves: bits.into(),
            count: leaves,
        }
    }

    fn has(&self, leaf: u32) -> bool {
        self.leaves[(leaf / 64) as usize] & (1 << (leaf % 64)) != 0
    }

    fn first(&self) -> Option<u32> {
        let word = self.leaves.iter().position(|&word| word != 0)?;
        Some(word as u32 * 64 + self.leaves[word].trailing_zeros())
    }

    fn remove(&mut self, leaf: u32) {
        self.leaves[(leaf / 64) as usize] &= !(1 << (leaf % 64));
        self.count -= 1;
    }
}

impl Group {
    /// Lists what may be left in a segment that has just got its owner, or whose owner was read from the segment table.
    pub(crate) fn list_residue(&mut self, shared: &Shared, local: u32) {
        let has_some = shared.ledger.has_residue(self.number(shared, local));
        let is_listed = has_some && !deliberate::is(Bug::KeepResidue);
        let leaves = self.shape.leaves;
        self.segments[local as usize].residue =
            is_listed.then(|| Box::new(Residue::of_all(leaves)));
    }

    /// Clears the leaves from which blocks are about to be taken.
    #[inline]
    pub(crate) fn clear_for(&mut self, shared: &Shared, local: u32, offset: u32, blocks: u32) {
        if self.segments[local as usize].residue.is_some() {
            self.clear_leaves(shared, local, offset, blocks);
        }
    }

    #[cold]
    fn clear_leaves(&mut self, shared: &Shared, local: u32, offset: u32, blocks: u32) {
        for leaf in self.shape.leaf_of(offset)..=self.shape.leaf_of(offset + blocks - 1) {
            let residue = &self.segments[local as usize].residue;
            if residue.as_ref().is_some_and(|residue| residue.has(leaf)) {
                self.clear_leaf(shared, local, leaf);
            }
        }
    }

    /// Clears one of the segment's leaves that are listed; `None` if there is none.
    fn clear_next(&mut self, shared: &Shared, local: u32) -> Option<()> {
        let leaf = self.segments[local as usize].residue.as_ref()?.first()?;
        self.clear_leaf(shared, local, leaf);
        Some(())
    }

    /// Overwrites the free blocks of a leaf by zeros. Those in use are the owner's: of a leaf that was read from a bitmap nobody knows which blocks were cleared before.
    fn clear_leaf(&mut self, shared: &Shared, local: u32, leaf: u32) {
        let first = shared.geometry.first_block_of(self.number(shared, local));
        let leaf_blocks = self.shape.leaf_blocks;
        let (mut at, end) = (leaf * leaf_blocks, (leaf + 1) * leaf_blocks);
        let mut written = 0;
        while let Some(start) = self.tree(local).first_zero(at, end) {
            let in_use = self.tree(local).first_unlike(start, end - start, false);
            at = in_use.unwrap_or(end);
            written += shared.ledger.clear(Extent {
                start: first + u64::from(start),
                blocks: at - start,
            });
            if at == end {
                break;
            }
        }
        let segment = &mut self.segments[local as usize];
        segment.cleared += written;
        let Some(residue) = &mut segment.residue else {
            return;
        };
        residue.remove(leaf);
        if residue.count == 0 {
            segment.residue = None;
            shared.ledger.cleared(self.number(shared, local));
            // Its room may be everybody's now.
            self.count_held(shared, local);
        }
    }
}

impl Allocator {
    /// Overwrites what others than its owner have left in a segment, leaf by leaf, until as many `blocks` were looked at or nothing is left; at least one leaf. Whether nothing is left, and how many
    /// blocks were looked at. The caller has the ledger hold the segment, so that it stays its owner's.
    pub fn clear(&self, segment: SegmentNumber, blocks: u64) -> (bool, u64) {
        if segment.0 >= self.geometry().segments {
            return (true, 0);
        }
        let (index, local) = self.split(segment.0);
        let leaf_blocks = u64::from(self.shared().shape.leaf_blocks);
        let mut looked_at = 0;
        loop {
            // Others may use the group between two leaves.
            let mut group = self.lock(index);
            if group.clear_next(self.shared(), local).is_none() {
                return (true, looked_at);
            }
            looked_at += leaf_blocks;
            if looked_at >= blocks {
                return (group.segments[local as usize].residue.is_none(), looked_at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaf_is_listed_once() {
        for leaves in [1, 4, 63, 64, 65, 1024] {
            let mut residue = Residue::of_all(leaves);
            for leaf in (0..leaves).rev().step_by(2) {
                assert!(residue.has(leaf));
                residue.remove(leaf);
                assert!(!residue.has(leaf));
            }
            let mut left = 0;
            while let Some(leaf) = residue.first() {
                residue.remove(leaf);
                left += 1;
            }
            assert_eq!((left, residue.count), (leaves / 2, 0));
        }
    }
}
