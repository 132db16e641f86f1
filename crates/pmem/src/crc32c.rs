//! CRC32C with the processor's instructions: short inputs at once, longer ones by a library that knows every processor.

use std::arch::asm;
use std::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
};

use crate::{LINE_BYTES, WORD_BYTES};
use zerocopy::IntoBytes;

/// Longest input whose checksum is computed here, step by step.
const SHORT_BYTES_MAX: usize = 256;
/// Parts of a block, or of an inode, that are checksummed side by side.
pub(crate) const LANES: usize = 4;

/// CRC32C (Castagnoli) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.len() <= SHORT_BYTES_MAX && has_instructions() {
        // SAFETY: the processor has the instructions.
        return unsafe { crc32c_short(bytes) };
    }
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC32C of a line, from registers: words that were just stored, behind a streaming copy, would be waited for.
#[inline(always)]
pub fn crc32c_of_line(line: &[u64; LINE_BYTES / WORD_BYTES]) -> u32 {
    if !has_instructions() {
        return crc32c_short_of(*line);
    }
    let mut checksum = u64::from(u32::MAX);
    for word in line {
        // SAFETY: the processor has the instruction, which changes its target only. (The function for it is not inlined into code for any processor.)
        unsafe {
            asm!("crc32 {}, {}", inout(reg) checksum, in(reg) *word, options(pure, nomem, nostack, preserves_flags));
        }
    }
    !(checksum as u32)
}

#[cold]
#[inline(never)]
fn crc32c_short_of(line: [u64; LINE_BYTES / WORD_BYTES]) -> u32 {
    crc32c(line.as_bytes())
}

/// Whether the processor has the instructions for a checksum and for joining several.
#[inline]
pub(crate) fn has_instructions() -> bool {
    is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
}

/// Without the choice among algorithms, which takes 100 instructions and twenty stores that queue behind a stream.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn crc32c_short(bytes: &[u8]) -> u32 {
    match bytes.as_array() {
        Some(inode) => crc32c_in_lanes(inode),
        None => crc32c_in_one_lane(bytes),
    }
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn crc32c_in_one_lane(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let whole = words.iter().fold(u64::from(u32::MAX), |checksum, word| {
        _mm_crc32_u64(checksum, u64::from_le_bytes(*word))
    });
    !rest
        .iter()
        .fold(whole as u32, |checksum, byte| _mm_crc32_u8(checksum, *byte))
}

#[target_feature(enable = "sse4.2,pclmulqdq")]
fn crc32c_in_lanes(bytes: &[u8; SHORT_BYTES_MAX]) -> u32 {
    let words = bytes.as_chunks::<WORD_BYTES>().0;
    let mut lanes = Lanes::<{ SHORT_BYTES_MAX / LANES }>::new();
    for step in 0..words.len() / LANES {
        lanes.step(words, step);
    }
    lanes.join()
}

/// Checksums of the quarters of an input, `BYTES` each. They are computed side by side, because each step of a checksum waits three
/// cycles for the one before.
pub(crate) struct Lanes<const BYTES: usize>([u64; LANES]);

impl<const BYTES: usize> Lanes<BYTES> {
    const WORDS: usize = BYTES / WORD_BYTES;
    /// What moves a quarter's checksum ahead over those behind it.
    const POWERS: [u32; LANES - 1] = [
        power_of_x(3 * BYTES * 8 - 33),
        power_of_x(2 * BYTES * 8 - 33),
        power_of_x(BYTES * 8 - 33),
    ];

    #[inline]
    pub(crate) fn new() -> Lanes<BYTES> {
        Lanes([u64::from(u32::MAX), 0, 0, 0])
    }

    /// Takes word `step` of each quarter.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    pub(crate) fn step(&mut self, words: &[[u8; WORD_BYTES]], step: usize) {
        for (lane, checksum) in self.0.iter_mut().enumerate() {
            let word = u64::from_le_bytes(words[lane * Self::WORDS + step]);
            *checksum = _mm_crc32_u64(*checksum, word);
        }
    }

    /// The checksum of the whole.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(crate) fn join(self) -> u32 {
        let [first, second, third, last] = self.0;
        let moved = move_ahead(first, Self::POWERS[0])
            ^ move_ahead(second, Self::POWERS[1])
            ^ move_ahead(third, Self::POWERS[2]);
        !((_mm_crc32_u64(0, moved) ^ last) as u32)
    }
}

/// The product of a checksum and a power of x, not reduced. Reducing it by one step of the checksum multiplies it by x^33 more: 32 of the
/// step, one because bits are in reverse order and a product of two 32-bit polynomials has 63.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn move_ahead(checksum: u64, power: u32) -> u64 {
    let factors = (
        _mm_cvtsi64_si128(checksum as i64),
        _mm_cvtsi64_si128(i64::from(power)),
    );
    _mm_cvtsi128_si64(_mm_clmulepi64_si128(factors.0, factors.1, 0)) as u64
}

/// x to the power of `exponent` modulo the polynomial of CRC32C, its bits in reverse order as everywhere in a CRC32C.
pub(crate) const fn power_of_x(exponent: usize) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut power = 1 << 31;
    let mut step = 0;
    while step < exponent {
        power = (power >> 1) ^ if power & 1 == 1 { POLYNOMIAL } else { 0 };
        step += 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_same_checksum_from_registers_and_from_memory() {
        for seed in 1..100_u64 {
            let line: [u64; 8] = std::array::from_fn(|word| {
                (seed + word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            });
            let expected = crc32c(line.as_bytes());
            assert_eq!(crc32c_of_line(&line), expected);
            assert_eq!(crc32c_short_of(line), expected);
        }
    }

    #[test]
    fn short_inputs_have_the_checksum_that_long_ones_have() {
        let bytes: Vec<u8> = (0..512u32).map(|index| (index * 31 % 251) as u8).collect();
        for length in 0..bytes.len() {
            let expected = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..length]);
            assert_eq!(u64::from(crc32c(&bytes[..length])), expected, "{length}");
        }
    }
}
