//! Streaming and checksumming in one pass.
//!
//! A processor that streams is waiting most of the time. A checksum computed between the stores costs nothing; computed behind them it costs
//! all it takes, because the last store is issued when nearly everything has arrived.

use std::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    _mm512_loadu_si512, _mm512_stream_si512,
};

use crate::copy::Content;
use crate::instructions::{StreamInstruction, stream_plain};
use crate::{BLOCK_BYTES, LINE_BYTES, WORD_BYTES};

/// Longest input whose checksum is computed here, step by step.
const SHORT_BYTES_MAX: usize = 256;
/// Parts of a block, or of an inode, that are checksummed side by side.
const LANES: usize = 4;

/// CRC32C (Castagnoli) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.len() <= SHORT_BYTES_MAX && has_instructions() {
        // SAFETY: the processor has the instructions.
        return unsafe { crc32c_short(bytes) };
    }
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Whether the processor has the instructions for a checksum and for joining several.
#[inline]
fn has_instructions() -> bool {
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
struct Lanes<const BYTES: usize>([u64; LANES]);

impl<const BYTES: usize> Lanes<BYTES> {
    const WORDS: usize = BYTES / WORD_BYTES;
    /// What moves a quarter's checksum ahead over those behind it.
    const POWERS: [u32; LANES - 1] = [
        power_of_x(3 * BYTES * 8 - 33),
        power_of_x(2 * BYTES * 8 - 33),
        power_of_x(BYTES * 8 - 33),
    ];

    #[inline]
    fn new() -> Lanes<BYTES> {
        Lanes([u64::from(u32::MAX), 0, 0, 0])
    }

    /// Takes word `step` of each quarter.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn step(&mut self, words: &[[u8; WORD_BYTES]], step: usize) {
        for (lane, checksum) in self.0.iter_mut().enumerate() {
            let word = u64::from_le_bytes(words[lane * Self::WORDS + step]);
            *checksum = _mm_crc32_u64(*checksum, word);
        }
    }

    /// The checksum of the whole.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn join(self) -> u32 {
        let [first, second, third, last] = self.0;
        let moved = move_ahead(first, Self::POWERS[0])
            ^ move_ahead(second, Self::POWERS[1])
            ^ move_ahead(third, Self::POWERS[2]);
        !((_mm_crc32_u64(0, moved) ^ last) as u32)
    }
}

/// Streams `bytes` to `to` and returns their CRC32C.
///
/// # Safety
/// `to` is aligned to a line and writable for the bytes, whose number is a multiple of a line's.
#[inline]
pub(crate) unsafe fn stream_checksummed(to: *mut u8, bytes: &[u8]) -> u32 {
    if StreamInstruction::chosen() == StreamInstruction::Avx512 && has_instructions() {
        // SAFETY: the processor has the instructions; the rest is the caller's.
        unsafe { stream_lines(to, bytes) }
    } else {
        // SAFETY: the caller's.
        unsafe { stream_plain(to, Content::Bytes(bytes)) };
        crc32c(bytes)
    }
}

/// # Safety
/// As [`stream_checksummed`], on a processor with AVX-512 and the [instructions](has_instructions) for checksums.
#[target_feature(enable = "avx512f,sse4.2,pclmulqdq")]
unsafe fn stream_lines(to: *mut u8, bytes: &[u8]) -> u32 {
    match bytes.as_array() {
        // SAFETY: the caller's.
        Some(block) => unsafe { stream_block(to, block) },
        // SAFETY: the caller's.
        None => unsafe { stream_in_one_lane(to, bytes) },
    }
}

/// # Safety
/// As [`stream_lines`].
#[target_feature(enable = "avx512f,sse4.2,pclmulqdq")]
unsafe fn stream_in_one_lane(to: *mut u8, bytes: &[u8]) -> u32 {
    let mut checksum = u64::from(u32::MAX);
    for (index, line) in bytes.as_chunks::<LINE_BYTES>().0.iter().enumerate() {
        // SAFETY: a whole line of the caller's range, aligned.
        unsafe { stream_line(to.add(index * LINE_BYTES), line) };
        for word in line.as_chunks::<WORD_BYTES>().0 {
            checksum = _mm_crc32_u64(checksum, u64::from_le_bytes(*word));
        }
    }
    !(checksum as u32)
}

/// A whole block. In one lane its last line would leave the processor 550 ns after its first, and what is computed behind it would no
/// longer be hidden.
///
/// # Safety
/// As [`stream_lines`].
#[target_feature(enable = "avx512f,sse4.2,pclmulqdq")]
unsafe fn stream_block(to: *mut u8, block: &[u8; BLOCK_BYTES]) -> u32 {
    let lines = block.as_chunks::<LINE_BYTES>().0;
    let words = block.as_chunks::<WORD_BYTES>().0;
    let mut lanes = Lanes::<{ BLOCK_BYTES / LANES }>::new();
    for (index, line) in lines.iter().enumerate() {
        // SAFETY: a whole line of the block, aligned.
        unsafe { stream_line(to.add(index * LINE_BYTES), line) };
        lanes.step(words, 2 * index);
        lanes.step(words, 2 * index + 1);
    }
    lanes.join()
}

/// # Safety
/// `to` is aligned to a line and writable for one; a slice never overlaps it.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn stream_line(to: *mut u8, line: &[u8; LINE_BYTES]) {
    // SAFETY: the caller's.
    unsafe { _mm512_stream_si512(to.cast(), _mm512_loadu_si512(line.as_ptr().cast())) };
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
const fn power_of_x(exponent: usize) -> u32 {
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
    use crate::instructions;

    #[test]
    fn short_inputs_have_the_checksum_that_long_ones_have() {
        let bytes: Vec<u8> = (0..512u32).map(|index| (index * 31 % 251) as u8).collect();
        for length in 0..bytes.len() {
            let expected = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..length]);
            assert_eq!(u64::from(crc32c(&bytes[..length])), expected, "{length}");
        }
    }

    #[test]
    fn one_pass_writes_the_bytes_and_returns_their_checksum() {
        let bytes: Vec<u8> = (0..4096u32).map(|index| (index * 7 % 251) as u8).collect();
        let mut target = vec![0_u8; 4096 + LINE_BYTES];
        let skip = target.as_ptr().align_offset(LINE_BYTES);
        for length in [0, 64, 128, 4032, 4096] {
            // SAFETY: aligned, and inside the vector.
            let checksum =
                unsafe { stream_checksummed(target.as_mut_ptr().add(skip), &bytes[..length]) };
            instructions::store_fence();
            assert_eq!(checksum, crc32c(&bytes[..length]));
            assert_eq!(target[skip..skip + length], bytes[..length]);
        }
    }
}
