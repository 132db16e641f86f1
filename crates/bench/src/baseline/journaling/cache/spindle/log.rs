//! The metadata log: sub-blocks as they were before the committing transaction.

use std::sync::Arc;

use pmem::{BlockNumber, Flushed, Offset, Region, crc32c};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::{DESCRIPTOR_BYTES, Geometry, SUB_BLOCK_BYTES, SUB_BLOCKS};

/// Where a slot of the log belongs.
///
/// The checksum makes a slot valid without a fence between its content and its descriptor.
#[derive(Copy, Clone, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Descriptor {
    sequence: u64,
    /// Index of the sub-block among those of all cached metadata blocks.
    sub_block: u32,
    /// CRC32C of the content, the sequence and the index.
    checksum: u32,
}

const _: () = assert!(size_of::<Descriptor>() as u64 == DESCRIPTOR_BYTES);

type Content = [u8; SUB_BLOCK_BYTES];

/// The log.
#[derive(Debug)]
pub(super) struct MetadataLog {
    region: Arc<Region>,
    geometry: Geometry,
}

fn checksum(content: &Content, sequence: u64, sub_block: u32) -> u32 {
    let mut bytes = [0; SUB_BLOCK_BYTES + 12];
    bytes[..SUB_BLOCK_BYTES].copy_from_slice(content);
    bytes[SUB_BLOCK_BYTES..][..8].copy_from_slice(&sequence.to_le_bytes());
    bytes[SUB_BLOCK_BYTES + 8..].copy_from_slice(&sub_block.to_le_bytes());
    crc32c(&bytes)
}

impl MetadataLog {
    pub(super) fn new(region: &Arc<Region>, geometry: &Geometry) -> MetadataLog {
        MetadataLog {
            region: Arc::clone(region),
            geometry: *geometry,
        }
    }

    fn descriptor_at(&self, slot: u64) -> Offset {
        assert!(slot < self.geometry.log_slots);
        self.geometry.descriptors_at + slot * DESCRIPTOR_BYTES
    }

    fn content_at(&self, slot: u64) -> Offset {
        self.geometry.contents_at + slot * SUB_BLOCK_BYTES as u64
    }

    /// Saves a sub-block of a cached metadata block.
    pub(super) fn save(
        &self,
        slot: u64,
        sequence: u64,
        place: BlockNumber,
        sub_block: usize,
    ) -> Flushed {
        let mut content = [0; SUB_BLOCK_BYTES];
        let from = place.offset() + (sub_block * SUB_BLOCK_BYTES) as u64;
        self.region.read(from, &mut content);
        let block = place - self.geometry.metadata_first;
        let sub_block = (block * SUB_BLOCKS as u64) as u32 + sub_block as u32;
        let descriptor = Descriptor {
            sequence,
            sub_block,
            checksum: checksum(&content, sequence, sub_block),
        };
        let mut batch = self.region.write_streaming(self.content_at(slot), &content);
        let at = self.descriptor_at(slot);
        batch.join(self.region.store(at, descriptor.as_bytes()).flush());
        batch
    }

    /// Puts back what a transaction has saved. Returns whether its log is there, whole or not.
    pub(super) fn restore(&self, sequence: u64) -> bool {
        let sub_blocks = self.geometry.metadata_blocks * SUB_BLOCKS as u64;
        let mut batch = Flushed::nothing(&self.region);
        let mut is_there = false;
        for slot in 0..self.geometry.log_slots {
            let descriptor: Descriptor = self.region.load(self.descriptor_at(slot));
            // Slots are used in order.
            if descriptor.sequence != sequence {
                continue;
            }
            is_there = true;
            let content: Content = self.region.load(self.content_at(slot));
            let sub_block = descriptor.sub_block;
            let is_whole = checksum(&content, sequence, sub_block) == descriptor.checksum;
            if is_whole && u64::from(sub_block) < sub_blocks {
                let first = self.geometry.metadata_first.offset();
                let to = first + u64::from(sub_block) * SUB_BLOCK_BYTES as u64;
                batch.join(self.region.write_streaming(to, &content));
            }
        }
        self.region.fence(batch);
        is_there
    }
}
