//! A block pointer: 8 bytes that check themselves.
//!
//! ```text
//! bits 0–39   block number
//! bit  40     unwritten: allocated in memory, reads as zeros
//! bit  41     device: the number is that of a block of the device
//! bits 42–43  zero (reserved for larger units)
//! bits 44–63  check of the bits above, the owner and the position
//! ```
//! Zero is a hole. The check makes a flipped bit, a pointer copied to another place and a stale block
//! of another file visible before anything is read through it.

use super::InodeNumber;
use device::DeviceBlock;
use pmem::BlockNumber;
use pmem::deliberate::{self, Bug};
use txn::checksum::mix64;

const BLOCK_BITS: u32 = 40;
const BLOCK_MASK: u64 = (1 << BLOCK_BITS) - 1;
const UNWRITTEN: u64 = 1 << BLOCK_BITS;
const DEVICE: u64 = 2 << BLOCK_BITS;
const CHECK_SHIFT: u32 = 44;
const BODY_MASK: u64 = (1 << CHECK_SHIFT) - 1;

/// Where a pointer stands: it is only valid there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Position {
    /// The inode that owns the pointer.
    pub inode: InodeNumber,
    /// 0 = points to data, n = points to a node whose pointers have level n − 1; see also [`Position::ATTRIBUTES`].
    pub level: u8,
    /// Index among the pointers of this level.
    pub index: u64,
}

impl Position {
    /// Level of pointers to extended attributes.
    pub const ATTRIBUTES: u8 = 15;

    #[inline]
    fn salt(self) -> u64 {
        mix64((self.inode.get() << 24) ^ (u64::from(self.level) << 60))
            ^ self.index.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A block pointer that is not a hole. Code that matches it handles each kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pointer {
    /// To a written block of memory.
    Written(BlockNumber),
    /// To a block of memory that is allocated and was never written: it reads as zeros.
    Unwritten(BlockNumber),
    /// To a written block of the device. Only data lies there.
    Device(DeviceBlock),
}

/// A pointer whose check fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DamagedPointer;

impl Pointer {
    /// The word that stands for this pointer at `position`.
    #[inline]
    pub fn word(self, position: Position) -> u64 {
        let body = match self {
            Pointer::Written(block) => block.get(),
            Pointer::Unwritten(block) => block.get() | UNWRITTEN,
            Pointer::Device(block) => block.get() | DEVICE,
        };
        body | (check(body, position) << CHECK_SHIFT)
    }

    /// Reads a word: `Ok(None)` is a hole.
    ///
    /// # Errors
    ///
    /// [`DamagedPointer`] if the check fails.
    #[inline]
    pub fn read(word: u64, position: Position) -> Result<Option<Pointer>, DamagedPointer> {
        if word == 0 {
            return Ok(None);
        }
        let body = word & BODY_MASK;
        if word >> CHECK_SHIFT != check(body, position) {
            return Err(DamagedPointer);
        }
        let number = body & BLOCK_MASK;
        Ok(Some(match body & !BLOCK_MASK {
            0 => Pointer::Written(BlockNumber::new(number)),
            UNWRITTEN => Pointer::Unwritten(BlockNumber::new(number)),
            DEVICE if deliberate::is(Bug::IgnoreLocation) => {
                Pointer::Written(BlockNumber::new(number))
            }
            DEVICE => Pointer::Device(DeviceBlock::new(number)),
            _ => return Err(DamagedPointer),
        }))
    }

    /// Reads the word of a pointer to metadata: that is a written block of memory.
    ///
    /// # Errors
    ///
    /// [`DamagedPointer`] if the check fails, or the block is another kind of block.
    #[inline]
    pub fn read_metadata(
        word: u64,
        position: Position,
    ) -> Result<Option<BlockNumber>, DamagedPointer> {
        match Pointer::read(word, position)? {
            None => Ok(None),
            Some(Pointer::Written(block)) => Ok(Some(block)),
            Some(Pointer::Unwritten(_) | Pointer::Device(_)) => Err(DamagedPointer),
        }
    }

    /// The block, if it lies in memory.
    #[inline]
    pub fn memory(self) -> Option<BlockNumber> {
        match self {
            Pointer::Written(block) | Pointer::Unwritten(block) => Some(block),
            Pointer::Device(_) => None,
        }
    }
}

#[inline]
fn check(body: u64, position: Position) -> u64 {
    // Never 0: a word that lost its check is damaged, not a hole.
    (mix64(body ^ position.salt()) >> CHECK_SHIFT) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_valid_only_in_its_place_and_unflipped() {
        let position = Position {
            inode: InodeNumber::new(5),
            level: 0,
            index: 77,
        };
        let mut missed = 0;
        for block in [1, 4096, 123_456_789, BLOCK_MASK] {
            let number = BlockNumber::new(block);
            for pointer in [
                Pointer::Written(number),
                Pointer::Unwritten(number),
                Pointer::Device(DeviceBlock::new(block)),
            ] {
                let word = pointer.word(position);
                assert_eq!(Pointer::read(word, position), Ok(Some(pointer)));
                let others = [
                    Position {
                        index: 78,
                        ..position
                    },
                    Position {
                        level: 1,
                        ..position
                    },
                    Position {
                        inode: InodeNumber::new(6),
                        ..position
                    },
                ];
                missed += others
                    .iter()
                    .filter(|&&other| Pointer::read(word, other).is_ok())
                    .count();
                missed += (0..64)
                    .filter(|bit| Pointer::read(word ^ (1 << bit), position).is_ok())
                    .count();
            }
        }
        // 19 bits of check: about one in half a million slips through.
        assert_eq!(missed, 0);
        assert_eq!(Pointer::read(0, position), Ok(None));
    }
}
