//! Checksums of a device's blocks, kept in the region.
//!
//! Four bytes a block, CRC32C of its content, in an array that mkfs sets aside at the end of the
//! region. A seal is changed by the record that makes its block reachable, and a block is written
//! once between two such records. So an old, a torn, a lost or a misdirected write shows as other
//! bytes than the seal's, unless they are the same bytes (D5).

use device::DeviceBlock;
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region, crc32c};
use std::sync::Arc;

/// Bytes of a seal.
pub(crate) const SEAL_BYTES: u64 = 4;

/// The seals of a pool's device.
#[derive(Debug)]
pub(crate) struct Seals {
    region: Arc<Region>,
    start: BlockNumber,
}

impl Seals {
    /// Those in the blocks from `start` on.
    pub(crate) fn new(region: Arc<Region>, start: BlockNumber) -> Seals {
        Seals { region, start }
    }

    /// Where the seal of a block is.
    pub(crate) fn at(&self, block: DeviceBlock) -> Offset {
        self.start.offset() + block.get() * SEAL_BYTES
    }

    /// The seal of this content.
    pub(crate) fn of(content: &[u8]) -> [u8; SEAL_BYTES as usize] {
        crc32c(content).to_le_bytes()
    }

    /// Whether a block was sealed with this content.
    pub(crate) fn fits(&self, block: DeviceBlock, content: &[u8; BLOCK_BYTES]) -> bool {
        let mut found = [0; SEAL_BYTES as usize];
        self.region.read(self.at(block), &mut found);
        found == Seals::of(content)
    }
}
