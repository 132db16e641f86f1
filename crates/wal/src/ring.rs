//! Where a position of the log lies in the file.

use crate::{LogError, ROOTS_BYTES, UNIT_BYTES};
use std::ops::Range;

/// The smallest ring: eight units.
pub(crate) const RING_BYTES_MIN: u64 = 8 * UNIT_BYTES as u64;

/// A ring behind the two roots. Positions only grow; position p lies at byte p mod ring of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) bytes: u64,
}

/// A part of a batch that lies in one piece in the file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Piece {
    /// Place in the file.
    pub(crate) at: u64,
    /// Bytes of the batch.
    pub(crate) bytes: Range<usize>,
}

impl Ring {
    /// The ring in a file of `length` bytes.
    pub(crate) fn in_file(length: u64, disk: &dyn crate::Disk) -> Result<Ring, LogError> {
        let bytes = length.saturating_sub(ROOTS_BYTES) / UNIT_BYTES as u64 * UNIT_BYTES as u64;
        if bytes < RING_BYTES_MIN {
            return Err(LogError::TooSmall {
                disk: disk.name(),
                bytes: length,
                least: ROOTS_BYTES + RING_BYTES_MIN,
            });
        }
        Ok(Ring { bytes })
    }

    /// Place in the file of a position.
    pub(crate) fn place(self, position: u64) -> u64 {
        ROOTS_BYTES + position % self.bytes
    }

    /// Bytes from a position to the end of the file.
    pub(crate) fn until_wrap(self, position: u64) -> u64 {
        self.bytes - position % self.bytes
    }

    /// The one or two pieces of `length` bytes at a position; the second one is empty unless they
    /// wrap.
    pub(crate) fn pieces(self, position: u64, length: usize) -> [Piece; 2] {
        let first = self.until_wrap(position).min(length as u64) as usize;
        [
            Piece {
                at: self.place(position),
                bytes: 0..first,
            },
            Piece {
                at: ROOTS_BYTES,
                bytes: first..length,
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_the_end_of_the_ring_are_at_its_start() {
        let ring = Ring { bytes: 8 * 4096 };
        let [first, second] = ring.pieces(7 * 4096, 4096);
        assert_eq!((first.at, first.bytes), (9 * 4096, 0..4096));
        assert!(second.bytes.is_empty());
        let [first, second] = ring.pieces(15 * 4096, 3 * 4096);
        assert_eq!((first.at, first.bytes), (9 * 4096, 0..4096));
        assert_eq!((second.at, second.bytes), (2 * 4096, 4096..3 * 4096));
    }
}
