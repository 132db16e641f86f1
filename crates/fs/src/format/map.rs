//! The shape of block maps: the width of their nodes, their height, and the size of files that
//! follows from these.

use pmem::BLOCK_BYTES;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
/// Pointers in a node, as a power of two.
pub const FANOUT_BITS: u32 = 9;
/// Pointers in a node.
pub const FANOUT: u64 = 1 << FANOUT_BITS;
/// Most levels: 2^36 blocks, 256 TiB.
pub const HEIGHT_MAX: u8 = 4;
/// Largest file: 256 TiB.
pub const FILE_BYTES_MAX: u64 = BLOCK << (FANOUT_BITS * HEIGHT_MAX as u32);
/// More blocks than any inode can own: the largest file, its map and its attributes.
pub(crate) const INODE_BLOCKS_MAX: u64 = 1 << 40;

/// Blocks that a map of this height can hold.
pub const fn capacity(height: u8) -> u64 {
    1 << (FANOUT_BITS * height as u32)
}
