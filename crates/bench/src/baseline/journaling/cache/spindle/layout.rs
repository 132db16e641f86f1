//! Where everything lies in the region.
//!
//! ```text
//! block 0     what the cache is | head | tail | removed
//! block 1 …   ring, 16 bytes an entry
//! after it    metadata log: descriptors of 16 bytes, then contents of 256 bytes
//! after it    data cache entries, metadata cache entries, 16 bytes each
//! after them  data blocks, metadata blocks (an eighth of the region)
//! ```

use pmem::{BLOCK_BYTES, BlockNumber, Flushed, Offset, Region};

use super::super::TooSmall;
use super::super::entries::{ENTRY_BYTES, Entries};

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"SPINDL01");
pub(super) const MAGIC_AT: Offset = Offset::new(0);
pub(super) const REGION_BLOCKS_AT: Offset = Offset::new(8);
pub(super) const DISK_BLOCKS_AT: Offset = Offset::new(16);
/// 1: the commit points are mended.
pub(super) const IS_MENDED_AT: Offset = Offset::new(24);
pub(super) const HEAD_AT: Offset = Offset::new(64);
pub(super) const TAIL_AT: Offset = Offset::new(128);
/// Published order: the newest sequence whose undo log is removed.
pub(super) const REMOVED_AT: Offset = Offset::new(192);

/// Bytes of an inode: the unit of metadata changes.
pub(super) const SUB_BLOCK_BYTES: usize = 256;
pub(super) const SUB_BLOCKS: usize = BLOCK_BYTES / SUB_BLOCK_BYTES;
/// Bytes of a descriptor in the metadata log.
pub(super) const DESCRIPTOR_BYTES: u64 = 16;

const METADATA_SHARE: u64 = 8;
const METADATA_BLOCKS_MIN: u64 = 10;
const DATA_BLOCKS_MIN: u64 = 16;
const TRANSACTION_DATA_MAX: u64 = 4096;
const TRANSACTION_METADATA_MAX: u64 = 1024;

/// Positions in the ring are counted modulo this; it is a multiple of each ring's length.
const POSITIONS: u64 = 1 << POSITION_BITS;
const POSITION_BITS: u32 = 24;

const _: () = assert!((TRANSACTION_DATA_MAX + 2).next_power_of_two() <= POSITIONS / 4);

/// The sizes that follow from the region's.
#[derive(Copy, Clone, Debug)]
pub(super) struct Geometry {
    pub(super) ring_entries: u64,
    /// Sub-blocks that fit the metadata log.
    pub(super) log_slots: u64,
    pub(super) data_blocks: u64,
    pub(super) metadata_blocks: u64,
    pub(super) ring_at: Offset,
    pub(super) descriptors_at: Offset,
    pub(super) contents_at: Offset,
    pub(super) data_entries_at: Offset,
    pub(super) metadata_entries_at: Offset,
    pub(super) data_first: BlockNumber,
    pub(super) metadata_first: BlockNumber,
}

impl Geometry {
    pub(super) fn of(region: &Region) -> Result<Geometry, TooSmall> {
        let region_blocks = region.length() / BLOCK_BYTES as u64;
        Geometry::fitting(region_blocks).ok_or(TooSmall {
            bytes: region.length(),
            least_bytes: METADATA_BLOCKS_MIN * METADATA_SHARE * BLOCK_BYTES as u64,
        })
    }

    fn fitting(region_blocks: u64) -> Option<Geometry> {
        let metadata_blocks = region_blocks / METADATA_SHARE;
        if metadata_blocks < METADATA_BLOCKS_MIN {
            return None;
        }
        let mut data_blocks = region_blocks;
        loop {
            let geometry = Geometry::with(metadata_blocks, data_blocks);
            let end = geometry.metadata_first.get() + metadata_blocks;
            if end <= region_blocks {
                return Some(geometry);
            }
            let fewer = data_blocks.checked_sub(end - region_blocks)?;
            data_blocks = Some(fewer).filter(|&fewer| fewer >= DATA_BLOCKS_MIN)?;
        }
    }

    fn with(metadata_blocks: u64, data_blocks: u64) -> Geometry {
        let blocks_of = |bytes: u64| bytes.div_ceil(BLOCK_BYTES as u64);
        let transaction_data = (data_blocks / 2).min(TRANSACTION_DATA_MAX);
        let ring_entries = (transaction_data + 2).next_power_of_two();
        let log_slots = metadata_blocks.min(TRANSACTION_METADATA_MAX) * SUB_BLOCKS as u64;
        let mut next = 1;
        let mut take = |blocks: u64| {
            next += blocks;
            BlockNumber::new(next - blocks)
        };
        Geometry {
            ring_entries,
            log_slots,
            data_blocks,
            metadata_blocks,
            ring_at: take(blocks_of(ring_entries * ENTRY_BYTES)).offset(),
            descriptors_at: take(blocks_of(log_slots * DESCRIPTOR_BYTES)).offset(),
            contents_at: take(blocks_of(log_slots * SUB_BLOCK_BYTES as u64)).offset(),
            data_entries_at: take(Entries::blocks(data_blocks)).offset(),
            metadata_entries_at: take(Entries::blocks(metadata_blocks)).offset(),
            data_first: take(data_blocks),
            metadata_first: take(metadata_blocks),
        }
    }

    /// Data blocks that a transaction may hold.
    pub(super) fn transaction_data(&self) -> u64 {
        (self.data_blocks / 2).min(TRANSACTION_DATA_MAX)
    }

    /// Metadata blocks that a transaction may hold.
    pub(super) fn transaction_metadata(&self) -> u64 {
        self.log_slots / SUB_BLOCKS as u64
    }

    /// Writes an empty cache, but for the word that makes it one.
    pub(super) fn format(&self, region: &Region) -> Flushed {
        let end = self.data_first.offset();
        region.zero_streaming(self.ring_at, end - self.ring_at)
    }
}

/// A place in the endless ring.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Position(u64);

impl Position {
    pub(super) fn of_word(word: u64) -> Position {
        Position(word % POSITIONS)
    }

    pub(super) fn next(self) -> Position {
        Position((self.0 + 1) % POSITIONS)
    }

    /// Entries from this position up to a later one.
    pub(super) fn until(self, end: Position) -> u64 {
        end.0.wrapping_sub(self.0) % POSITIONS
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// Index in a ring.
    pub(super) fn index(self, ring_entries: u64) -> u64 {
        self.0 % ring_entries
    }

    /// How often the ring was filled before, plus 1: never 0.
    pub(super) fn lap(self, ring_entries: u64) -> u64 {
        self.0 / ring_entries + 1
    }
}

/// The head: one word for both halves of a transaction in the mended order.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Head {
    pub(super) position: Position,
    /// The newest committed transaction.
    pub(super) sequence: u64,
}

impl Head {
    pub(super) const SEQUENCE_MAX: u64 = u64::MAX >> POSITION_BITS;

    pub(super) fn of_word(word: u64) -> Head {
        Head {
            position: Position::of_word(word),
            sequence: word >> POSITION_BITS,
        }
    }

    pub(super) fn word(self) -> u64 {
        self.sequence << POSITION_BITS | self.position.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_laps_go_round() {
        let ring = 32;
        let mut position = Position::of_word(POSITIONS - 2);
        let begin = position;
        let mut laps = Vec::new();
        for count in 0..40 {
            assert_eq!(begin.until(position), count);
            let (index, lap) = (position.index(ring), position.lap(ring));
            assert_eq!(index, (30 + count) % ring);
            assert!(lap > 0 && lap < 1 << 20);
            laps.push(lap);
            position = position.next();
        }
        assert!((0..8).all(|index| laps[index] != laps[index + 32]));
        let head = Head {
            position,
            sequence: 1 << 39,
        };
        assert_eq!(Head::of_word(head.word()), head);
    }

    #[test]
    fn regions_are_used_up() {
        assert!(Geometry::fitting(79).is_none());
        for blocks in [80, 81, 1000, 65_536, 2 << 20] {
            let geometry = Geometry::fitting(blocks).expect("room");
            let end = geometry.metadata_first.get() + geometry.metadata_blocks;
            // Fewer data blocks need fewer entries, so that some blocks may be left.
            assert!(
                end <= blocks && blocks - end <= 2 + blocks / 200,
                "{blocks}"
            );
            assert_eq!(geometry.metadata_blocks, blocks / 8);
        }
    }
}
