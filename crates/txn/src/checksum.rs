//! Checks of metadata: CRC32C for structures, sealed words for single 8-byte values.
//!
//! A *sealed word* carries a value of 48 bits and a 16-bit check, so that it can be replaced by one
//! 8-byte store (the unit that never tears) and a flipped bit is still noticed.

pub use pmem::crc32c;

/// Largest value that a sealed word can carry.
pub const SEALED_MAX: u64 = (1 << 48) - 1;

/// What a sealed word is used for; part of its check, so that a word copied to another place does not pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seal {
    /// The checkpoint's sequence number.
    Checkpoint = 1,
    /// The mark of a clean unmount.
    Clean = 2,
    /// The place of half a journal.
    Journal = 3,
    /// A segment's wear.
    Wear = 4,
    /// A segment's owner.
    Segment = 5,
    /// Whose content a segment holds.
    Content = 6,
}

/// Mixes `value` so that every input bit flips about half of the output bits.
#[inline]
pub const fn mix64(value: u64) -> u64 {
    // The finaliser of MurmurHash3 / SplitMix64: a bijection, so distinct inputs never collide in 64 bits.
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

const fn check(value: u64, seal: Seal, position: u64) -> u64 {
    let salt = ((seal as u64) << 56) ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Never 0, so that a zeroed word is not a valid seal of anything.
    (mix64(value ^ salt) >> 48) | 1
}

/// Seals `value` (at most [`SEALED_MAX`]) for `position`, the index of the word among its kind.
pub const fn seal(value: u64, seal: Seal, position: u64) -> u64 {
    debug_assert!(value <= SEALED_MAX);
    (check(value, seal, position) << 48) | value
}

/// The value of a sealed word, or `None` if its check does not hold.
pub const fn unseal(word: u64, seal: Seal, position: u64) -> Option<u64> {
    let value = word & SEALED_MAX;
    if word >> 48 == check(value, seal, position) {
        Some(value)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_sealed_word_returns_its_value_and_notices_any_flipped_bit() {
        for value in [0, 1, 4096, 123_456_789, SEALED_MAX] {
            let word = seal(value, Seal::Checkpoint, 0);
            assert_eq!(unseal(word, Seal::Checkpoint, 0), Some(value));
            for bit in 0..64 {
                assert_ne!(unseal(word ^ (1 << bit), Seal::Checkpoint, 0), Some(value));
            }
            assert_eq!(unseal(word, Seal::Clean, 0), None);
            assert_eq!(unseal(word, Seal::Checkpoint, 1), None);
        }
        assert_eq!(unseal(0, Seal::Checkpoint, 0), None);
    }
}
