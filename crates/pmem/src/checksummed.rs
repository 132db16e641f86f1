//! Streaming and checksumming in one pass.
//!
//! A processor that streams is waiting most of the time. A checksum computed between the stores costs nothing; computed behind them it costs
//! all it takes, because the last store is issued when nearly everything has arrived.

use std::arch::x86_64::{_mm_crc32_u64, _mm512_loadu_si512, _mm512_stream_si512};

use crate::copy::Content;
use crate::instructions::{StreamInstruction, stream_plain};
use crate::{LINE_BYTES, WORD_BYTES};

/// CRC32C (Castagnoli) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Streams `bytes` to `to` and returns their CRC32C.
///
/// # Safety
/// `to` is aligned to a line and writable for the bytes, whose number is a multiple of a line's.
#[inline]
pub(crate) unsafe fn stream_checksummed(to: *mut u8, bytes: &[u8]) -> u32 {
    if StreamInstruction::chosen() == StreamInstruction::Avx512 {
        // SAFETY: the processor has the instruction; the rest is the caller's.
        unsafe { stream_lines(to, bytes) }
    } else {
        // SAFETY: the caller's.
        unsafe { stream_plain(to, Content::Bytes(bytes)) };
        crc32c(bytes)
    }
}

/// # Safety
/// As [`stream_checksummed`], on a processor with AVX-512, which brings the instruction for the checksum (SSE 4.2) along.
#[target_feature(enable = "avx512f")]
unsafe fn stream_lines(to: *mut u8, bytes: &[u8]) -> u32 {
    let mut checksum = u64::from(u32::MAX);
    for (index, line) in bytes.as_chunks::<LINE_BYTES>().0.iter().enumerate() {
        // SAFETY: a whole line of the caller's range, aligned; a slice never overlaps it.
        unsafe {
            let content = _mm512_loadu_si512(line.as_ptr().cast());
            _mm512_stream_si512(to.add(index * LINE_BYTES).cast(), content);
        }
        for word in line.as_chunks::<WORD_BYTES>().0 {
            checksum = _mm_crc32_u64(checksum, u64::from_le_bytes(*word));
        }
    }
    !(checksum as u32)
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
        for length in [0, 64, 128, 4096] {
            // SAFETY: aligned, and inside the vector.
            let checksum =
                unsafe { stream_checksummed(target.as_mut_ptr().add(skip), &bytes[..length]) };
            instructions::store_fence();
            assert_eq!(checksum, crc32c(&bytes[..length]));
            assert_eq!(target[skip..skip + length], bytes[..length]);
        }
    }
}
