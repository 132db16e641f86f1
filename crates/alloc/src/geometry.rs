//! Where blocks, segments and allocation groups lie.

use crate::BlockNumber;
use smallvec::SmallVec;

/// Blocks of a 2 MiB unit.
pub const BLOCKS_PER_2M: u32 = 512;
/// The smallest segment: 64 KiB.
pub const MIN_BLOCKS_PER_SEGMENT: u64 = 16;
/// The largest segment: 2 GiB, so that a tree node's two counts fit one 32-bit word.
pub const MAX_BLOCKS_PER_SEGMENT: u64 = 1 << 19;

/// The number of a segment within its pool, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u32);

/// A protection domain. The caller interns owners (uid, gid, mode class) to numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

impl DomainId {
    /// Inodes, directories, block maps, journals: never mapped by a client.
    pub const METADATA: Self = Self(0);
    /// Data of several owners: only the server touches it.
    pub const MIXED: Self = Self(1);

    /// Whether only the server touches the domain's segments, so that they may hold anybody's data.
    #[must_use]
    pub fn is_server_only(self) -> bool {
        self <= Self::MIXED
    }
}

/// A run of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first block.
    pub start: BlockNumber,
    /// How many blocks.
    pub blocks: u32,
}

/// What one request was given. Four extents fit without a heap allocation.
pub type Extents = SmallVec<[Extent; 4]>;

/// Alignment and granularity of a request.
///
/// Alignment counts from the start of the segment, not of the pool: a segment is a file of its own (or a 2 MiB-aligned range of a
/// device), so that a page of a huge mapping of that file never straddles two units. The pool's own mapping is laid out such that segments
/// of at least 2 MiB start at 2 MiB-aligned addresses. A unit larger than a segment cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unit {
    /// Any block.
    #[default]
    Block4K,
    /// Multiples of 512 blocks, 2 MiB-aligned within the segment.
    Huge2M,
}

impl Unit {
    /// Blocks of one unit.
    #[must_use]
    pub fn blocks(self) -> u32 {
        match self {
            Self::Block4K => 1,
            Self::Huge2M => BLOCKS_PER_2M,
        }
    }
}

/// The shape of a pool, fixed at mkfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// The number of segment 0's first block.
    pub first_block: BlockNumber,
    /// Blocks of a segment: a power of two from [`MIN_BLOCKS_PER_SEGMENT`] to [`MAX_BLOCKS_PER_SEGMENT`].
    pub blocks_per_segment: u64,
    /// Segments of the pool, at least one.
    pub segments: u32,
    /// Allocation groups (usually one per core). Segment `s` belongs to group `s mod groups`; more groups than segments are not made.
    pub groups: u32,
}

impl Geometry {
    /// Blocks of all segments.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks_per_segment * u64::from(self.segments)
    }

    /// The segment that holds `block`, or `None` if no segment does.
    #[must_use]
    pub fn segment_of(&self, block: BlockNumber) -> Option<SegmentNumber> {
        self.locate(block).map(|(segment, _)| segment)
    }

    /// The first block of a segment.
    #[must_use]
    pub fn first_block_of(&self, segment: SegmentNumber) -> BlockNumber {
        self.first_block + u64::from(segment.0) * self.blocks_per_segment
    }

    /// Segment and offset in blocks within it.
    #[inline]
    pub(crate) fn locate(&self, block: BlockNumber) -> Option<(SegmentNumber, u32)> {
        let index = block.get().checked_sub(self.first_block.get())?;
        let segment = index >> self.blocks_per_segment.trailing_zeros();
        let offset = index & (self.blocks_per_segment - 1);
        (segment < u64::from(self.segments))
            .then_some((SegmentNumber(segment as u32), offset as u32))
    }

    /// The extent cut at segment borders: (segment, offset, blocks) each. `None` if a part lies outside the pool's segments.
    pub(crate) fn pieces(
        &self,
        extent: Extent,
    ) -> Option<impl Iterator<Item = (SegmentNumber, u32, u32)> + use<>> {
        let last = extent
            .start
            .get()
            .checked_add(u64::from(extent.blocks.max(1)) - 1)?;
        self.locate(extent.start)?;
        self.locate(BlockNumber::new(last))?;
        let geometry = *self;
        let (mut at, mut left) = (extent.start.get(), u64::from(extent.blocks));
        Some(std::iter::from_fn(move || {
            let (segment, offset) = geometry.locate(BlockNumber::new(at)).filter(|_| left > 0)?;
            let blocks = left.min(geometry.blocks_per_segment - u64::from(offset));
            (at, left) = (at + blocks, left - blocks);
            Some((segment, offset, blocks as u32))
        }))
    }

    pub(crate) fn validate(&self) {
        assert!(
            self.blocks_per_segment.is_power_of_two()
                && (MIN_BLOCKS_PER_SEGMENT..=MAX_BLOCKS_PER_SEGMENT)
                    .contains(&self.blocks_per_segment),
            "segments of {} blocks: must be a power of two from {MIN_BLOCKS_PER_SEGMENT} to {MAX_BLOCKS_PER_SEGMENT}",
            self.blocks_per_segment
        );
        assert!(
            self.segments > 0 && self.groups > 0,
            "a pool needs a segment and an allocation group"
        );
    }

    pub(crate) fn effective_groups(&self) -> u32 {
        self.groups.min(self.segments)
    }
}
