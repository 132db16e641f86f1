//! The header of a batch, and whether a batch counts.

use crate::UNIT_BYTES;
use pmem::crc32c;
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a header.
pub const HEADER_BYTES: usize = size_of::<BatchHeader>();
/// "PdLB".
pub(crate) const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"PdLB");
/// Format of batches.
pub(crate) const BATCH_VERSION: u16 = 1;

/// First bytes of a batch. Entries follow, then zeros up to a whole unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BatchHeader {
    /// "PdLB".
    pub magic: u32,
    /// CRC32C of the header's bytes behind this field.
    pub check: u32,
    /// The check of the batch before.
    pub previous: u32,
    /// CRC32C of the entries.
    pub body: u32,
    /// Bytes of the entries.
    pub payload_bytes: u32,
    /// Format of batches: 1.
    pub version: u16,
    /// Number of batches before this one that were not known to be durable when this one was
    /// placed; 65,535: unknown.
    pub in_flight: u16,
    /// Number of this batch.
    pub number: u64,
    /// Position of this batch: bytes since the log was made.
    pub position: u64,
    /// The mount that wrote it.
    pub epoch: u64,
    /// Number of the first record.
    pub first: u64,
    /// Number of the last record.
    pub last: u64,
}

const _: () = assert!(size_of::<BatchHeader>() == 64);
const _: () = assert!(offset_of!(BatchHeader, check) == 4);
const _: () = assert!(offset_of!(BatchHeader, previous) == CHECKED_FROM);
const _: () = assert!(offset_of!(BatchHeader, payload_bytes) == 16);
const _: () = assert!(offset_of!(BatchHeader, number) == 24);
const _: () = assert!(offset_of!(BatchHeader, last) == 56);

/// The check covers the header from this byte on.
const CHECKED_FROM: usize = 8;

impl BatchHeader {
    /// The header with its check.
    pub fn sealed(self) -> BatchHeader {
        BatchHeader {
            check: crc32c(&self.as_bytes()[CHECKED_FROM..]),
            ..self
        }
    }

    /// The header at the start of a unit, if it is whole.
    pub(crate) fn read(unit: &[u8]) -> Option<BatchHeader> {
        let (header, _) = BatchHeader::read_from_prefix(unit).ok()?;
        (header.magic == BATCH_MAGIC && header.sealed().check == header.check).then_some(header)
    }

    /// Bytes of the batch on the disk.
    pub(crate) fn batch_bytes(&self) -> u64 {
        batch_bytes(u64::from(self.payload_bytes))
    }
}

/// Bytes on the disk of a batch with `payload` bytes of entries.
pub(crate) const fn batch_bytes(payload: u64) -> u64 {
    (HEADER_BYTES as u64 + payload).next_multiple_of(UNIT_BYTES as u64)
}

/// A place between two batches: the next one has this position, number and previous check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Mark {
    pub(crate) position: u64,
    pub(crate) number: u64,
    pub(crate) previous: u32,
    /// All records up to it are in the batches before.
    pub(crate) sequence: u64,
}

/// Why a header is not the next batch's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Misfit {
    /// Another batch, of an earlier lap or mount.
    Other,
    /// A batch that does not fit into the ring.
    TooLong,
    /// A batch that fits, of a mount after the root's.
    LaterEpoch,
}

impl Mark {
    /// Whether a whole header is the next batch's: behind one of epoch `epoch_min`, in a log whose
    /// root has `epoch_max`, with `room` bytes up to the end of the lap.
    pub(crate) fn judge(
        &self,
        header: &BatchHeader,
        epoch_min: u64,
        epoch_max: u64,
        room: u64,
    ) -> Result<(), Misfit> {
        let is_next = header.version == BATCH_VERSION
            && header.number == self.number
            && header.position == self.position
            && header.previous == self.previous
            && header.epoch >= epoch_min;
        if !is_next {
            return Err(Misfit::Other);
        }
        if header.epoch > epoch_max {
            return Err(Misfit::LaterEpoch);
        }
        if header.batch_bytes() > room {
            return Err(Misfit::TooLong);
        }
        Ok(())
    }

    /// The mark behind a batch.
    pub(crate) fn behind(&self, header: &BatchHeader) -> Mark {
        Mark {
            position: self.position + header.batch_bytes(),
            number: self.number + 1,
            previous: header.check,
            // A batch without records has no number of its own.
            sequence: self.sequence.max(header.last),
        }
    }
}
