//! Where something lies in a region: byte offsets and block numbers.

use std::fmt;
use std::ops::{Add, Sub};

/// Bytes of a processor cache line, the unit that is flushed and that persists.
pub const LINE_BYTES: usize = 64;

/// Bytes of a block, the unit that is allocated.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes of a word, the unit that is never torn when it is stored aligned.
pub const WORD_BYTES: usize = 8;

/// Distance in bytes from the start of a region.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Offset(u64);

impl Offset {
    /// The offset `bytes` from the start of the region.
    #[inline]
    pub const fn new(bytes: u64) -> Self {
        Offset(bytes)
    }

    /// Bytes from the start of the region.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The block that holds this byte.
    #[inline]
    pub const fn block(self) -> BlockNumber {
        BlockNumber(self.0 / BLOCK_BYTES as u64)
    }

    /// The first byte of the line that holds this byte.
    #[inline]
    pub const fn line_start(self) -> Offset {
        Offset(self.0 & !(LINE_BYTES as u64 - 1))
    }

    /// Is this offset a multiple of `bytes` (a power of two)?
    #[inline]
    pub const fn is_aligned(self, bytes: u64) -> bool {
        self.0 & (bytes - 1) == 0
    }
}

impl Add<u64> for Offset {
    type Output = Offset;

    #[inline]
    fn add(self, bytes: u64) -> Offset {
        Offset(self.0 + bytes)
    }
}

impl Sub<Offset> for Offset {
    type Output = u64;

    #[inline]
    fn sub(self, other: Offset) -> u64 {
        self.0 - other.0
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Number of a 4 KiB block, counted from the start of a region.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct BlockNumber(u64);

impl BlockNumber {
    /// Block number `number`.
    #[inline]
    pub const fn new(number: u64) -> Self {
        BlockNumber(number)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The first byte of the block.
    #[inline]
    pub const fn offset(self) -> Offset {
        Offset(self.0 * BLOCK_BYTES as u64)
    }
}

impl Add<u64> for BlockNumber {
    type Output = BlockNumber;

    #[inline]
    fn add(self, blocks: u64) -> BlockNumber {
        BlockNumber(self.0 + blocks)
    }
}

impl Sub<BlockNumber> for BlockNumber {
    type Output = u64;

    #[inline]
    fn sub(self, other: BlockNumber) -> u64 {
        self.0 - other.0
    }
}

impl fmt::Display for BlockNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How many lines the bytes `at .. at + length` touch.
#[inline]
pub(crate) fn lines_touched(at: Offset, length: usize) -> u64 {
    if length == 0 {
        return 0;
    }
    let last = at.get() + length as u64 - 1;
    last / LINE_BYTES as u64 - at.get() / LINE_BYTES as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_blocks_convert() {
        let at = BlockNumber::new(3).offset() + 100;
        assert_eq!(at.get(), 12_388);
        assert_eq!(at.block(), BlockNumber::new(3));
        assert_eq!(at.line_start().get(), 12_352);
        assert_eq!(at - at.line_start(), 36);
        assert!(at.line_start().is_aligned(64) && !at.is_aligned(8));
    }

    #[test]
    fn lines_are_counted_by_touch() {
        let count = |at, length| lines_touched(Offset::new(at), length);
        assert_eq!(count(0, 0), 0);
        assert_eq!(count(63, 1), 1);
        assert_eq!(count(63, 2), 2);
        assert_eq!(count(64, 64), 1);
        assert_eq!(count(1, 4096), 65);
    }
}
