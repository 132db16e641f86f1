//! One record of a ring: a line.

use pmem::{BLOCK_BYTES, LINE_BYTES, crc32c_of_line};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Numbers that a record can have: nobody writes so many that adding to one overflows.
pub const RECORD_NUMBERS: std::ops::Range<u64> = 1..1 << 62;

/// Bytes of a record.
pub const RECORD_BYTES: usize = LINE_BYTES;

/// In [`Record::slot`]: no block changes places. The data was written behind the end of the file, in its last block; or there is none, and the file was overwritten in place about then.
pub const NO_SLOT: u32 = u32::MAX;

/// What a lease mixes into its records' checksums, so that what lay there before is not taken for one. Not a secret: the holder knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Salt(pub u64);

/// One step of a write: block `index` of the file and spare block `slot` change places, then the file has `size` bytes.
///
/// Its data is in the block that the file then has at `index`: `data_bytes` from byte `data_at` on, with this checksum, if the record shares their fence; else
/// `data_bytes` is 0 and the data was fenced before.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    /// One more than that of the record before; the first one's is 1.
    pub sequence: u64,
    /// Block of the file.
    pub index: u64,
    /// Bytes of the file afterwards.
    pub size: u64,
    /// When, nanoseconds since the epoch.
    pub modified: i64,
    /// Spare block, or [`NO_SLOT`].
    pub slot: u32,
    /// 1 if the record belongs together with the next one: both happened, or neither.
    pub continues: u32,
    /// First byte of the data in its block.
    pub data_at: u32,
    /// Bytes of the data.
    pub data_bytes: u32,
    /// CRC32C of the data.
    pub data_checksum: u32,
    /// CRC32C of the salt and the other fields.
    pub checksum: u32,
    /// Zero.
    pub reserved: u64,
}

const _: () = {
    assert!(size_of::<Record>() == RECORD_BYTES);
    assert!(std::mem::offset_of!(Record, size) == 16);
    assert!(std::mem::offset_of!(Record, slot) == 32);
    assert!(std::mem::offset_of!(Record, checksum) == 52);
};

/// The words of a sealed record.
pub(crate) type Words = [u64; RECORD_BYTES / size_of::<u64>()];
const CHECKSUM_WORD: usize = std::mem::offset_of!(Record, checksum) / size_of::<u64>();
const SALT_WORD: usize = std::mem::offset_of!(Record, reserved) / size_of::<u64>();

impl Record {
    /// The words of the record with its checksum. Made of whole words, in registers: whoever reads back what was just stored waits until that has left the store buffer, behind the data.
    #[inline(always)]
    pub(crate) fn sealed_words(&self, salt: Salt) -> Words {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut words = [
            self.sequence,
            self.index,
            self.size,
            self.modified as u64,
            pair(self.slot, self.continues),
            pair(self.data_at, self.data_bytes),
            pair(self.data_checksum, 0),
            self.reserved ^ salt.0,
        ];
        let checksum = crc32c_of_line(&words);
        words[CHECKSUM_WORD] = pair(self.data_checksum, checksum);
        words[SALT_WORD] = self.reserved;
        words
    }

    /// The record with the checksum that makes it one of the lease with this salt.
    #[inline]
    #[must_use]
    pub fn sealed(mut self, salt: Salt) -> Record {
        self.checksum = self.expected_checksum(salt);
        self
    }

    /// By whole words: whoever stores a half of one and then loads all of it waits for the store.
    #[inline]
    fn expected_checksum(&self, salt: Salt) -> u32 {
        let mut words: Words = zerocopy::transmute!(*self);
        words[CHECKSUM_WORD] &= u64::from(u32::MAX);
        words[SALT_WORD] ^= salt.0;
        crc32c_of_line(&words)
    }

    /// Whether these bytes are record number `sequence` of the lease with this salt, whole.
    #[inline]
    pub fn is_whole(&self, sequence: u64, salt: Salt) -> bool {
        self.sequence == sequence && self.checksum == self.expected_checksum(salt)
    }

    /// Whether the data's place is inside a block.
    pub(crate) fn has_possible_data(&self) -> bool {
        u64::from(self.data_at) + u64::from(self.data_bytes) <= BLOCK_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_flipped_bit_another_number_or_another_lease_is_noticed() {
        let salt = Salt(77);
        let record = Record {
            sequence: 5,
            index: 7,
            size: 40_000,
            modified: 1,
            slot: 3,
            continues: 0,
            data_at: 0,
            data_bytes: 4096,
            data_checksum: 9,
            checksum: 0,
            reserved: 0,
        }
        .sealed(salt);
        assert!(record.is_whole(5, salt));
        assert_eq!(record.sealed_words(salt).as_bytes(), record.as_bytes());
        assert!(!record.is_whole(6, salt));
        assert!(!record.is_whole(5, Salt(78)));
        for bit in 0..RECORD_BYTES * 8 {
            let mut copy = record;
            copy.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
            assert!(!copy.is_whole(5, salt), "bit {bit}");
        }
        assert!(!Record::new_zeroed().is_whole(0, salt));
    }
}
