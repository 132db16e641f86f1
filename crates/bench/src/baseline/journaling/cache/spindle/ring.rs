//! The ring buffer: the previous place of each data block of the committing transaction.

use std::sync::Arc;

use device::DeviceBlock;
use pmem::{BlockNumber, Flushed, LINE_BYTES, Offset, Region};
use zerocopy::FromBytes;

use super::super::entries::ENTRY_BYTES;
use super::layout::{Geometry, Position};
use crate::baseline::journaling::deliberate::{self, Bug};

/// A ring entry as it lies in the region.
///
/// The upper 16 bits of both words are the lap of the ring. So an entry of an earlier lap, or one
/// of which only a word became durable, is not believed. The paper scans an entry beyond the tail
/// and does not say how it knows a valid one.
#[derive(Copy, Clone, Debug, FromBytes)]
#[repr(C)]
struct RingEntry {
    disk_block: u64,
    place: u64,
}

const _: () = assert!(size_of::<RingEntry>() as u64 == ENTRY_BYTES);

const LAP_SHIFT: u32 = 48;
const VALUE_MASK: u64 = (1 << LAP_SHIFT) - 1;
/// The NON tag: the block was not cached.
const NON: u64 = VALUE_MASK;

/// The previous place of a block.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Before {
    pub(super) block: DeviceBlock,
    pub(super) place: Option<BlockNumber>,
}

/// The ring.
#[derive(Debug)]
pub(super) struct Ring {
    region: Arc<Region>,
    at: Offset,
    entries: u64,
}

impl Ring {
    pub(super) fn new(region: &Arc<Region>, geometry: &Geometry) -> Ring {
        assert!(geometry.ring_at.is_aligned(LINE_BYTES as u64));
        Ring {
            region: Arc::clone(region),
            at: geometry.ring_at,
            entries: geometry.ring_entries,
        }
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    fn at(&self, position: Position) -> Offset {
        self.at + position.index(self.entries) * ENTRY_BYTES
    }

    pub(super) fn write(&self, position: Position, before: Before) -> Flushed {
        let lap = position.lap(self.entries) << LAP_SHIFT;
        let place = before.place.map_or(NON, BlockNumber::get);
        let at = self.at(position);
        let _same_line = self.region.store_u64(at, lap | before.block.get());
        self.region.store_u64(at + 8, lap | place).flush()
    }

    /// Returns the entry of a position, if it was written whole in this lap.
    pub(super) fn read(&self, position: Position) -> Option<Before> {
        let entry: RingEntry = self.region.load(self.at(position));
        let lap = position.lap(self.entries);
        let is_of_lap = |word: u64| word >> LAP_SHIFT == lap;
        let is_whole = is_of_lap(entry.disk_block) && is_of_lap(entry.place);
        let is_believed =
            deliberate::is(Bug::IgnoreLap) && entry.disk_block != 0 && entry.place != 0;
        (is_whole || is_believed).then(|| {
            let place = entry.place & VALUE_MASK;
            Before {
                block: DeviceBlock::new(entry.disk_block & VALUE_MASK),
                place: (place != NON).then(|| BlockNumber::new(place)),
            }
        })
    }
}
