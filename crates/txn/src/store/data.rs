//! Data blocks: in memory or on a device.

use super::PmemStore;
use crate::device::PoolDevice;
use crate::read_speed::ReadSpeed;
use crate::sharing::SeenBlocks;
use device::DeviceBlock;
use pmem::{BLOCK_BYTES, BlockNumber};
use std::sync::Arc;

/// Copies whole blocks out.
pub type BlockReader = Box<dyn Fn(BlockNumber, &mut [u8; BLOCK_BYTES]) + Send>;

/// Data blocks. Those in memory are read without fail, those on the [device](PoolDevice) with a
/// `Result`.
pub trait Data: Send + Sync + 'static {
    /// Copies bulk data out of a block.
    fn read_data(&self, block: BlockNumber, offset: usize, into: &mut [u8]);
    /// The same, in whole blocks, for a thread of its own, which may outlive a borrow. It ends
    /// before the store is closed.
    fn reader(&self) -> BlockReader;
    /// How fast a block is read here, against DRAM; `None` for a store that is known to be slow.
    fn read_speed(&self) -> Option<ReadSpeed>;
    /// The device that other data blocks lie on; `None` if all of them are memory.
    fn device(&self) -> Option<&PoolDevice>;
    /// A block of the device that no pointer names, and that is no twin any more, is free when
    /// records and readers have left it.
    fn free_twin(&self, block: DeviceBlock);
    /// A block of memory has changed in place, and the change is applied: the device does not have
    /// the same content any more.
    fn changed_in_place(&self, block: BlockNumber);
    /// Blocks that a process may still see after their files have freed them.
    fn seen_blocks(&self) -> &Arc<SeenBlocks>;
}

impl Data for PmemStore {
    #[inline]
    fn read_data(&self, block: BlockNumber, offset: usize, into: &mut [u8]) {
        debug_assert!(offset + into.len() <= BLOCK_BYTES);
        match <&mut [u8; BLOCK_BYTES]>::try_from(&mut *into) {
            Ok(whole) => self.region.read_block(block.offset(), whole),
            Err(_) => self.region.read(block.offset() + offset as u64, into),
        }
    }

    fn reader(&self) -> BlockReader {
        let region = Arc::clone(&self.region);
        let first = self.geometry.first_block();
        let end = BlockNumber::new(self.geometry.total_bytes() / BLOCK_BYTES as u64);
        Box::new(move |block, into| {
            if (first..end).contains(&block) {
                region.read(block.offset(), into);
            }
        })
    }

    fn read_speed(&self) -> Option<ReadSpeed> {
        Some(ReadSpeed::measure(&self.region, &self.geometry))
    }

    #[inline]
    fn device(&self) -> Option<&PoolDevice> {
        self.device.as_ref()
    }

    fn free_twin(&self, block: DeviceBlock) {
        if let Some(device) = &self.device {
            device.free_twin(self.journals.sequence(), block);
        }
    }

    #[inline]
    fn changed_in_place(&self, block: BlockNumber) {
        if let Some(device) = &self.device {
            device.changed(self.journals.sequence(), block);
        }
    }

    fn seen_blocks(&self) -> &Arc<SeenBlocks> {
        &self.seen
    }
}
