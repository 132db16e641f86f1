//! Streaming and checksumming in one pass.
//!
//! A processor that streams is waiting most of the time. A checksum computed between the stores costs nothing; computed behind them it costs
//! all it takes, because the last store is issued when nearly everything has arrived.

use std::arch::x86_64::{
    _mm256_loadu_si256, _mm256_stream_si256, _mm512_loadu_si512, _mm512_stream_si512,
};

use crate::copy::Content;
use crate::crc32c::{LANES, Lanes, crc32c, has_instructions};
use crate::instructions::{StreamInstruction, stream_plain};
use crate::{BLOCK_BYTES, LINE_BYTES, WORD_BYTES};

/// Checksums of the quarters of a block.
type BlockLanes = Lanes<{ BLOCK_BYTES / LANES }>;

/// Streams `block` to `to` and returns its CRC32C.
///
/// # Safety
/// `to` is aligned to a line and writable for a block.
#[inline]
pub(crate) unsafe fn stream_checksummed(to: *mut u8, block: &[u8; BLOCK_BYTES]) -> u32 {
    // SAFETY: the processor has the instructions; the rest is the caller's.
    unsafe {
        match StreamInstruction::chosen() {
            StreamInstruction::Avx512 if has_instructions() => stream_in_lanes_avx512(to, block),
            StreamInstruction::Avx2 if has_instructions() => stream_in_lanes_avx2(to, block),
            _ => {
                stream_plain(to, Content::Bytes(block));
                crc32c(block)
            }
        }
    }
}

/// In one lane the block's last line would leave the processor 550 ns after its first, and what is computed behind it would no
/// longer be hidden.
///
/// # Safety
/// As [`stream_checksummed`], on a processor with AVX-512 and the [instructions](has_instructions) for checksums.
#[target_feature(enable = "avx512f,sse4.2,pclmulqdq")]
unsafe fn stream_in_lanes_avx512(to: *mut u8, block: &[u8; BLOCK_BYTES]) -> u32 {
    let mut lanes = BlockLanes::new();
    for (index, line) in block.as_chunks::<LINE_BYTES>().0.iter().enumerate() {
        // SAFETY: a whole line of the block, aligned, and a slice never overlaps it.
        unsafe {
            let to = to.add(index * LINE_BYTES);
            _mm512_stream_si512(to.cast(), _mm512_loadu_si512(line.as_ptr().cast()));
        }
        step_line(&mut lanes, block, index);
    }
    lanes.join()
}

/// # Safety
/// As [`stream_in_lanes_avx512`], with AVX2.
#[target_feature(enable = "avx2,sse4.2,pclmulqdq")]
unsafe fn stream_in_lanes_avx2(to: *mut u8, block: &[u8; BLOCK_BYTES]) -> u32 {
    const HALF: usize = LINE_BYTES / 2;
    let mut lanes = BlockLanes::new();
    for (index, line) in block.as_chunks::<LINE_BYTES>().0.iter().enumerate() {
        // SAFETY: two halves of a line of the block, aligned, and a slice never overlaps it.
        unsafe {
            let (to, from) = (to.add(index * LINE_BYTES), line.as_ptr());
            _mm256_stream_si256(to.cast(), _mm256_loadu_si256(from.cast()));
            let (to, from) = (to.add(HALF), from.add(HALF));
            _mm256_stream_si256(to.cast(), _mm256_loadu_si256(from.cast()));
        }
        step_line(&mut lanes, block, index);
    }
    lanes.join()
}

/// As many words of each quarter as make a line together: those numbered `2 * line` and `2 * line + 1`.
#[inline]
#[target_feature(enable = "sse4.2")]
fn step_line(lanes: &mut BlockLanes, block: &[u8; BLOCK_BYTES], line: usize) {
    let words = block.as_chunks::<WORD_BYTES>().0;
    lanes.step(words, 2 * line);
    lanes.step(words, 2 * line + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instructions;

    fn check(stream: unsafe fn(*mut u8, &[u8; BLOCK_BYTES]) -> u32) {
        let block: [u8; BLOCK_BYTES] = std::array::from_fn(|index| (index * 7 % 251) as u8);
        let mut target = vec![0_u8; BLOCK_BYTES + LINE_BYTES];
        let skip = target.as_ptr().align_offset(LINE_BYTES);
        // SAFETY: aligned, and inside the vector; the caller knows that the processor has the instructions.
        let checksum = unsafe { stream(target.as_mut_ptr().add(skip), &block) };
        instructions::store_fence();
        assert_eq!(checksum, crc32c(&block));
        assert_eq!(target[skip..skip + BLOCK_BYTES], block);
    }

    #[test]
    fn one_pass_writes_the_bytes_and_returns_their_checksum() {
        check(stream_checksummed);
        for instruction in StreamInstruction::available() {
            match instruction {
                _ if !has_instructions() => {}
                StreamInstruction::Avx512 => check(stream_in_lanes_avx512),
                StreamInstruction::Avx2 => check(stream_in_lanes_avx2),
                StreamInstruction::Sse2 => {}
            }
        }
    }
}
