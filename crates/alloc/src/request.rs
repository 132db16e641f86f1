//! What callers ask for, and how they are refused.

use crate::{BlockNumber, DomainId, Extent, SegmentNumber, Unit};
use thiserror::Error;

/// How blocks are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Algorithm 1 as published: chance alone decides, at every step.
    Published,
    /// Chance steered by recorded wear between segments, and by the wish for long free runs within them.
    #[default]
    Steered,
    /// The lowest free block of the lowest segment of the home group: the comparison for contiguity and for wear.
    FirstFit,
}

/// Settings of an allocator; nothing of them is on the medium.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// How blocks are placed.
    pub policy: Policy,
    /// Seed of all chance: the same seed and the same calls from one thread place every block alike.
    pub seed: u64,
    /// Blocks that only [`Purpose::Overwrite`] may use.
    pub reserve_blocks: u64,
}

/// Whether a request may dig into the reserve, and where else than in the domain's own segments it is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Purpose {
    /// New data: leaves the reserve alone.
    #[default]
    Ordinary,
    /// What a process is going to map, and may tell others to be its own: as ordinary, but never from a segment that several owners share, which nobody clears.
    Direct,
    /// Copy-on-write of what exists already, journals, whatever frees more than it takes: a full pool can still overwrite and unlink.
    Overwrite,
}

/// When blocks will be freed, if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lifetime {
    /// Nobody knows.
    #[default]
    Unknown,
    /// Soon, and together with what is allocated before and after with the same hint: halves of journals. They get leaves of
    /// their own, which are free as a whole again soon, and do not count as written: who has them knows what he wrote, and
    /// [charges](crate::Allocator::charge) it.
    Brief,
}

/// A request for space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Whose blocks these will be.
    pub domain: DomainId,
    /// How many 4 KiB blocks, whatever the unit; rounded up to whole units.
    pub blocks: u32,
    /// Alignment and granularity.
    pub unit: Unit,
    /// Whether the reserve may be used.
    pub purpose: Purpose,
    /// The allocation group to try first, modulo the number of groups: threads with different homes don't meet on a lock.
    pub home: usize,
}

/// A request that could not be met; nothing was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "no space for {requested} blocks: {free} blocks are free, {reserved} of them kept for overwriting and removing; \
     remove files or make a larger pool"
)]
pub struct OutOfSpace {
    /// Blocks asked for.
    pub requested: u32,
    /// Blocks free at that time, in units that may have been too small for the request.
    pub free: u64,
    /// Blocks of these that the request was not allowed to use.
    pub reserved: u64,
}

/// A free that was refused; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FreeError {
    /// The block is free already: two owners thought that they had it.
    #[error("block {block} was freed twice: it is not allocated; run fsck")]
    NotAllocated {
        /// The first such block.
        block: BlockNumber,
    },
    /// A block outside the pool's segments.
    #[error(
        "cannot free {blocks} blocks at {block}: they don't lie within the pool's segments; run fsck"
    )]
    OutOfRange {
        /// The extent's first block.
        block: BlockNumber,
        /// Its length.
        blocks: u32,
    },
}

/// A block that cannot be marked while free space is rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MarkError {
    /// Somebody else's mark is on the block. Blocks of the same extent before and after it may have been marked.
    #[error("block {block} has two owners; run fsck")]
    AlreadyMarked {
        /// The first such block.
        block: BlockNumber,
    },
    /// A block outside the pool's segments; nothing of the extent was marked.
    #[error("{blocks} blocks at {block} don't lie within the pool's segments; run fsck")]
    OutOfRange {
        /// The extent's first block.
        block: BlockNumber,
        /// Its length.
        blocks: u32,
    },
    /// A block in use within a segment that belongs to no domain.
    #[error("block {block} is in use, but its segment {} belongs to no domain; run fsck", segment.0)]
    Unassigned {
        /// The block.
        block: BlockNumber,
        /// Its segment.
        segment: SegmentNumber,
    },
    /// The saved image is not of this pool.
    #[error(
        "the saved free-space image has {found} words, the pool needs {expected}; discard it and rebuild"
    )]
    ImageSize {
        /// Words of the image.
        found: usize,
        /// Words of the pool's bitmap.
        expected: usize,
    },
}

/// Told when a segment changes hands.
///
/// Both calls run under the lock of the segment's allocation group: they must make the change durable before they return, and must not call
/// the allocator.
pub trait SegmentLedger: Send + Sync {
    /// The segment now belongs to `domain`. No block of it is handed out before this returns. Comes also for a segment with blocks in use,
    /// when the last room of the pool is an owner's segment and it becomes [`DomainId::MIXED`].
    fn assign(&self, segment: SegmentNumber, domain: DomainId);
    /// The segment holds nothing and belongs to nobody.
    fn release(&self, segment: SegmentNumber);
    /// Whether the segment has to stay with its owner: he has it mapped. Asked under the lock of the segment's group.
    fn is_held(&self, _segment: SegmentNumber) -> bool {
        false
    }
    /// Whether blocks of others may come to lie between those that the segment's owner has in it. Asked under the lock of the segment's group.
    fn may_be_shared(&self, _segment: SegmentNumber) -> bool {
        true
    }
    /// Returns whether a domain may take a fresh segment for the sake of wear alone.
    fn may_move(&self, _domain: DomainId) -> bool {
        true
    }
    /// Whether somebody else than the segment's present owner may have left something in it that he must not see. Asked behind [`assign`](Self::assign), and for each segment with an owner when the
    /// allocator is made; under the lock of the segment's group, as what follows.
    fn has_residue(&self, _segment: SegmentNumber) -> bool {
        false
    }
    /// Overwrites free blocks by zeros, durably. How many of them had to be.
    fn clear(&self, _extent: Extent) -> u32 {
        0
    }
    /// All of the segment that was not its owner's has been cleared.
    fn cleared(&self, _segment: SegmentNumber) {}
}

/// A ledger that keeps no record: for benches and tests, and for pools that don't outlive the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLedger;

impl SegmentLedger for NoLedger {
    fn assign(&self, _segment: SegmentNumber, _domain: DomainId) {}
    fn release(&self, _segment: SegmentNumber) {}
}

/// The state of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentUsage {
    /// Who it belongs to; `None` if it is free.
    pub domain: Option<DomainId>,
    /// Free blocks.
    pub free_blocks: u32,
    /// Blocks written in it since mkfs: allocated, or charged because they were written in place.
    pub wear: u64,
}
