//! Cache entries in the region: 16 bytes for each cached block.

use std::sync::Arc;

use device::DeviceBlock;
use pmem::{Flushed, LINE_BYTES, Offset, Region};
use zerocopy::FromBytes;

/// An entry as it lies in the region.
#[derive(Copy, Clone, Debug, FromBytes)]
#[repr(C)]
struct Entry {
    /// Block of the disk plus 1; 0 means that the entry is free.
    block: u64,
    /// Where the copy is, in the form of the design.
    place: u64,
}

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: u64 = 16;

const _: () = assert!(size_of::<Entry>() as u64 == ENTRY_BYTES);
// Both words of an entry are in one line, whose stores become durable in their order.
const _: () = assert!((LINE_BYTES as u64).is_multiple_of(ENTRY_BYTES));

/// An array of entries.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    region: Arc<Region>,
    at: Offset,
    count: u32,
}

impl Entries {
    pub(super) fn new(region: Arc<Region>, at: Offset, count: u32) -> Entries {
        assert!(at.is_aligned(LINE_BYTES as u64));
        Entries { region, at, count }
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    fn at(&self, slot: u32) -> Offset {
        assert!(slot < self.count);
        self.at + u64::from(slot) * ENTRY_BYTES
    }

    /// Returns the disk block and the place of an entry in use.
    pub(super) fn get(&self, slot: u32) -> Option<(DeviceBlock, u64)> {
        let entry: Entry = self.region.load(self.at(slot));
        let block = entry.block.checked_sub(1)?;
        Some((DeviceBlock::new(block), entry.place))
    }

    /// Returns the entries in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, DeviceBlock, u64)> {
        (0..self.count).filter_map(|slot| {
            let (block, place) = self.get(slot)?;
            Some((slot, block, place))
        })
    }

    /// Fills a free entry. The place is stored first: an entry in use always has one.
    pub(super) fn insert(&self, slot: u32, block: DeviceBlock, place: u64) -> Flushed {
        let at = self.at(slot);
        let _same_line = self.region.store_u64(at + 8, place);
        self.region.store_u64(at, block.get() + 1).flush()
    }

    /// Changes the place of an entry in use, in one store.
    pub(super) fn set_place(&self, slot: u32, place: u64) -> Flushed {
        self.region.store_u64(self.at(slot) + 8, place).flush()
    }

    /// Frees an entry.
    pub(super) fn remove(&self, slot: u32) -> Flushed {
        self.region.store_u64(self.at(slot), 0).flush()
    }

    /// Frees all entries.
    pub(super) fn format(&self) -> Flushed {
        let bytes = u64::from(self.count) * ENTRY_BYTES;
        self.region.zero_streaming(self.at, bytes)
    }

    /// Returns the bytes of `count` entries in whole blocks.
    pub(super) fn blocks(count: u64) -> u64 {
        (count * ENTRY_BYTES).div_ceil(pmem::BLOCK_BYTES as u64)
    }
}
