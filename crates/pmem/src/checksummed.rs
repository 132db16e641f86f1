//! Streaming and checksumming in one pass.
//!
//! A processor that streams is waiting most of the time. A checksum computed between the stores costs nothing; computed behind them it costs
//! all it takes, because the last store is issued when nearly everything has arrived.

use std::arch::x86_64::{_mm_crc32_u64, _mm512_loadu_si512, _mm512_stream_si512};

use crate::copy::Content;
use crate::crc32c::{LANES, Lanes, crc32c, has_instructions};
use crate::instructions::{StreamInstruction, stream_plain};
use crate::{BLOCK_BYTES, LINE_BYTES, WORD_BYTES};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instructions;

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
