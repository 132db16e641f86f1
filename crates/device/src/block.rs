//! Names of blocks on a device.

use std::fmt;
use std::ops::Range;

/// A block of 4 KiB on the device, counted from its first one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeviceBlock(u64);

impl DeviceBlock {
    /// Block `index` of the device.
    #[inline]
    pub const fn new(index: u64) -> DeviceBlock {
        DeviceBlock(index)
    }

    /// Its index.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Its first byte, counted from the beginning of the device.
    #[inline]
    pub const fn byte(self) -> u64 {
        self.0 * pmem::BLOCK_BYTES as u64
    }
}

impl fmt::Display for DeviceBlock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Blocks of the device next to each other.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Run {
    /// The first of them.
    pub start: DeviceBlock,
    /// How many, at least one.
    pub blocks: u32,
}

impl Run {
    /// One block.
    #[inline]
    pub const fn one(block: DeviceBlock) -> Run {
        Run {
            start: block,
            blocks: 1,
        }
    }

    /// The blocks' indexes.
    pub fn indexes(self) -> Range<u64> {
        self.start.0..self.start.0 + u64::from(self.blocks)
    }

    /// The blocks, in order.
    pub fn iter(self) -> impl Iterator<Item = DeviceBlock> {
        self.indexes().map(DeviceBlock)
    }
}
