//! Streaming and checksumming in one pass.
//!
//! A processor that streams is waiting most of the time. A checksum computed between the stores costs nothing; computed behind them it costs
//! all it takes, because the last store is issued when nearly everything has arrived.

use std::arch::x86_64::{_mm512_loadu_si512, _mm512_stream_si512};

use crate::copy::Content;
use crate::crc32c::{LANES, Lanes, crc32c, has_instructions};
use crate::instructions::{StreamInstruction, stream_plain};
use crate::{BLOCK_BYTES, LINE_BYTES, WORD_BYTES};

/// Streams `block` to `to` and returns its CRC32C.
///
/// # Safety
/// `to` is aligned to a line and writable for a block.
#[inline]
pub(crate) unsafe fn stream_checksummed(to: *mut u8, block: &[u8; BLOCK_BYTES]) -> u32 {
    if StreamInstruction::chosen() == StreamInstruction::Avx512 && has_instructions() {
        // SAFETY: the processor has the instructions; the rest is the caller's.
        unsafe { stream_in_lanes(to, block) }
    } else {
        // SAFETY: the caller's.
        unsafe { stream_plain(to, Content::Bytes(block)) };
        crc32c(block)
    }
}

/// In one lane the block's last line would leave the processor 550 ns after its first, and what is computed behind it would no
/// longer be hidden.
///
/// # Safety
/// As [`stream_checksummed`], on a processor with AVX-512 and the [instructions](has_instructions) for checksums.
#[target_feature(enable = "avx512f,sse4.2,pclmulqdq")]
unsafe fn stream_in_lanes(to: *mut u8, block: &[u8; BLOCK_BYTES]) -> u32 {
    let words = block.as_chunks::<WORD_BYTES>().0;
    let mut lanes = Lanes::<{ BLOCK_BYTES / LANES }>::new();
    for (index, line) in block.as_chunks::<LINE_BYTES>().0.iter().enumerate() {
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
        let block: [u8; BLOCK_BYTES] = std::array::from_fn(|index| (index * 7 % 251) as u8);
        let mut target = vec![0_u8; BLOCK_BYTES + LINE_BYTES];
        let skip = target.as_ptr().align_offset(LINE_BYTES);
        // SAFETY: aligned, and inside the vector.
        let checksum = unsafe { stream_checksummed(target.as_mut_ptr().add(skip), &block) };
        instructions::store_fence();
        assert_eq!(checksum, crc32c(&block));
        assert_eq!(target[skip..skip + BLOCK_BYTES], block);
    }
}
