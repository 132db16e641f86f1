//! What an allocator can be asked, and what it is told of writes that it did not see.

use crate::{Allocator, BLOCKS_PER_2M, BlockNumber, DomainId, SegmentNumber, SegmentUsage};

impl Allocator {
    /// Whether the block is allocated; `false` for blocks outside the segments.
    #[must_use]
    pub fn is_allocated(&self, block: BlockNumber) -> bool {
        self.geometry()
            .locate(block)
            .is_some_and(|(segment, offset)| {
                let (index, local) = self.split(segment.0);
                self.lock(index)
                    .tree(local)
                    .first_unlike(offset, 1, false)
                    .is_some()
            })
    }

    /// Free blocks, those of the reserve included. Exact if nobody allocates or frees meanwhile.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.published_counts().sum()
    }

    /// Blocks in use in the segments of a domain. Exact if nobody allocates or frees meanwhile.
    #[must_use]
    pub fn blocks_in_use(&self, domain: DomainId) -> u64 {
        let usage = self.usage();
        let own = usage
            .iter()
            .filter(|segment| segment.domain == Some(domain));
        let used = |segment: &SegmentUsage| self.shared().shape.blocks - segment.free_blocks;
        own.map(|segment| u64::from(used(segment))).sum()
    }

    /// Blocks that only overwriting may use.
    #[must_use]
    pub fn reserve_blocks(&self) -> u64 {
        self.shared().options.reserve_blocks
    }

    /// Who owns the block's segment; `None` if it is free or no segment holds the block.
    #[must_use]
    pub fn domain_of(&self, block: BlockNumber) -> Option<DomainId> {
        let (segment, _) = self.geometry().locate(block)?;
        let (index, local) = self.split(segment.0);
        self.lock(index).owner(local)
    }

    /// Who owns the segment; `None` if it is free or does not exist.
    #[must_use]
    pub fn owner_of(&self, segment: SegmentNumber) -> Option<DomainId> {
        (segment.0 < self.geometry().segments).then(|| {
            let (index, local) = self.split(segment.0);
            self.lock(index).owner(local)
        })?
    }

    /// Owner, room and wear of every segment, in order.
    #[must_use]
    pub fn usage(&self) -> Vec<SegmentUsage> {
        let mut groups = self.lock_all();
        (0..self.geometry().segments)
            .map(|segment| {
                let (index, local) = self.split(segment);
                let group = &mut groups[index];
                SegmentUsage {
                    domain: group.owner(local),
                    free_blocks: self.shared().shape.blocks - group.tree(local).used(),
                    wear: group.segments[local as usize].blocks_written(),
                }
            })
            .collect()
    }

    /// Blocks written in each segment since mkfs, allocated or [charged](Self::charge), in order; to be given back to [`crate::Rebuild`].
    #[must_use]
    pub fn wear(&self) -> Vec<u64> {
        self.usage().iter().map(|segment| segment.wear).collect()
    }

    /// The bitmap of all segments in order, 1 = allocated, `max(1, blocks per segment / 64)` words a segment.
    #[must_use]
    pub fn save(&self) -> Vec<u64> {
        let mut groups = self.lock_all();
        let words = self.shared().shape.words as usize;
        let mut image = Vec::with_capacity(words * self.geometry().segments as usize);
        for segment in 0..self.geometry().segments {
            let (index, local) = self.split(segment);
            let first = local as usize * words;
            let bits = groups[index].words[first..first + words].iter_mut();
            image.extend(bits.map(|word| *word.get_mut() & !self.shared().shape.padding()));
        }
        image
    }

    /// Free blocks in 2 MiB units that are free as a whole: what huge pages can still be made of. 0 if segments are smaller than that.
    /// O(leaves).
    #[must_use]
    pub fn free_in_huge_runs(&self) -> u64 {
        let shape = self.shared().shape;
        if shape.leaf_blocks < BLOCKS_PER_2M {
            return 0;
        }
        let mut groups = self.lock_all();
        let clean_leaves = groups.iter_mut().flat_map(|group| {
            (0..group.segments.len() as u32)
                .map(|local| u64::from(group.tree(local).clean_leaves()))
                .collect::<Vec<_>>()
        });
        clean_leaves.sum::<u64>() * u64::from(shape.leaf_blocks)
    }

    /// Books writes to a block in place, which the allocator cannot see: the segment is that much more worn, and what moves there next
    /// knows. Blocks outside the segments are nobody's business here.
    pub fn charge(&self, block: BlockNumber, blocks_written: u64) {
        let Some((segment, _)) = self.geometry().locate(block) else {
            return;
        };
        let (index, local) = self.split(segment.0);
        self.lock(index).charge(local, blocks_written);
    }

    /// [`charge`](Self::charge)s each of these blocks with one write. Neighbours in time are often not those in the pool: writes to a segment are added up before its lock
    /// is taken.
    pub fn charge_each(&self, blocks: impl IntoIterator<Item = BlockNumber>) {
        let mut written = vec![0_u32; self.geometry().segments as usize];
        for block in blocks {
            if let Some((segment, _)) = self.geometry().locate(block) {
                written[segment.0 as usize] += 1;
            }
        }
        for (segment, &blocks) in (0..).zip(&written) {
            if blocks > 0 {
                let (index, local) = self.split(segment);
                self.lock(index).charge(local, u64::from(blocks));
            }
        }
    }
}
