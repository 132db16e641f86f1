//! Streaming and checksumming in one pass.
//!
//! A processor that streams is waiting most of the time. A checksum computed between the stores costs nothing; computed behind them it costs
//! all it takes, because the last store is issued when nearly everything has arrived.
//!
//! Invariant: the checksum is that of the bytes that were stored, whatever other threads do to the source meanwhile. So each byte of it is loaded once: from registers it is both stored and
//! checksummed, or it is copied first.

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_extract_epi64,
    _mm256_loadu_si256, _mm256_stream_si256, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32,
    _mm512_loadu_si512, _mm512_set_epi64, _mm512_stream_si512, _mm512_ternarylogic_epi64,
    _mm512_xor_si512, _mm512_zextsi128_si512,
};

use crate::copy::Content;
use crate::crc32c::{LANES, Lanes, crc32c, has_instructions, power_of_x};
use crate::instructions::{StreamInstruction, stream_plain};
use crate::{BLOCK_BYTES, LINE_BYTES, WORD_BYTES};

/// Checksums of the quarters of a block.
type BlockLanes = Lanes<{ BLOCK_BYTES / LANES }>;

/// Streams `block` to `to` and returns its CRC32C.
///
/// # Safety
/// `to` is aligned to a line and writable for a block; nobody changes the block.
pub(crate) unsafe fn stream_held(to: *mut u8, block: &[u8; BLOCK_BYTES]) -> u32 {
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

/// Whether the processor streams from a register in which it can also multiply polynomials.
#[inline]
pub(crate) fn can_fold() -> bool {
    StreamInstruction::chosen() == StreamInstruction::Avx512
        && has_instructions()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
}

/// Lines that are folded side by side, because a step waits some cycles for the one before.
const FOLDED_LINES: usize = 4;

/// Powers of x that move 16 bytes ahead over `bytes`: of their first 8 bytes and of their last.
///
/// The exponent is less by 33: the product of two words in reverse order is one bit farther ahead than theirs, and the 32 bits of a power, at the lower end of its word, are 32. The first 8 bytes
/// are 64 bits ahead of the last.
const fn powers_over(bytes: usize) -> (u64, u64) {
    let bits = bytes * 8;
    (
        power_of_x(bits + 64 - 33) as u64,
        power_of_x(bits - 33) as u64,
    )
}

/// A sum of 64 bytes, moved ahead, and what is there.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(sum: __m512i, powers: __m512i, there: __m512i) -> __m512i {
    /// Exclusive or of three.
    const XOR: i32 = 0x96;
    let first = _mm512_clmulepi64_epi128(sum, powers, 0x00);
    let last = _mm512_clmulepi64_epi128(sum, powers, 0x11);
    _mm512_ternarylogic_epi64(first, last, there, XOR)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn all_four((first, last): (u64, u64)) -> __m512i {
    let (first, last) = (first.cast_signed(), last.cast_signed());
    _mm512_set_epi64(last, first, last, first, last, first, last, first)
}

/// Streams `block`, which other threads may be changing, to `to` and returns the CRC32C of what was stored. Each line goes through one register, from which it is stored and summed up:
/// a line is four polynomials, which are moved ahead over what lies between, modulo that of CRC32C.
///
/// # Safety
/// `to` is aligned to a line and writable for a block; the processor [can fold](can_fold).
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2,pclmulqdq")]
pub(crate) unsafe fn stream_and_fold(to: *mut u8, block: &[u8; BLOCK_BYTES]) -> u32 {
    const STEP_BYTES: usize = FOLDED_LINES * LINE_BYTES;
    let stream_line = |at: usize| {
        let line: __m512i;
        // SAFETY: a whole line of the block. In assembly, so that it is loaded exactly once.
        unsafe {
            asm!("vmovdqu64 {}, [{}]", out(zmm_reg) line, in(reg) block.as_ptr().add(at), options(nostack, preserves_flags, readonly));
            _mm512_stream_si512(to.add(at).cast(), line);
        }
        line
    };
    let mut sums: [__m512i; FOLDED_LINES] = [
        stream_line(0),
        stream_line(LINE_BYTES),
        stream_line(2 * LINE_BYTES),
        stream_line(3 * LINE_BYTES),
    ];
    // A checksum begins with all ones in place of what would come before the first four bytes.
    let ones = _mm512_zextsi128_si512(_mm_cvtsi64_si128(i64::from(u32::MAX)));
    sums[0] = _mm512_xor_si512(sums[0], ones);
    let powers = all_four(const { powers_over(STEP_BYTES) });
    for step in (STEP_BYTES..BLOCK_BYTES).step_by(STEP_BYTES) {
        for (number, sum) in sums.iter_mut().enumerate() {
            *sum = fold(*sum, powers, stream_line(step + number * LINE_BYTES));
        }
    }
    let powers = all_four(const { powers_over(LINE_BYTES) });
    let [first, second, third, last] = sums;
    let sum = fold(
        fold(fold(first, powers, second), powers, third),
        powers,
        last,
    );
    checksum_of(sum)
}

/// The checksum of a line that stands for all before it as well.
#[inline]
#[target_feature(enable = "avx512f,sse4.2")]
fn checksum_of(line: __m512i) -> u32 {
    let quarters = [
        _mm512_extracti32x4_epi32::<0>(line),
        _mm512_extracti32x4_epi32::<1>(line),
        _mm512_extracti32x4_epi32::<2>(line),
        _mm512_extracti32x4_epi32::<3>(line),
    ];
    let sum = quarters.iter().fold(0, |sum, quarter| {
        let sum = _mm_crc32_u64(sum, _mm_cvtsi128_si64(*quarter).cast_unsigned());
        _mm_crc32_u64(sum, _mm_extract_epi64::<1>(*quarter).cast_unsigned())
    });
    !(sum as u32)
}

/// In one lane the block's last line would leave the processor 550 ns after its first, and what is computed behind it would no
/// longer be hidden.
///
/// # Safety
/// As [`stream_held`], on a processor with AVX-512 and the [instructions](has_instructions) for checksums.
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
        for seed in 0..50 {
            let block: [u8; BLOCK_BYTES] =
                std::array::from_fn(|index| ((index + seed) * (7 + seed) % 251) as u8);
            let mut target = vec![0_u8; BLOCK_BYTES + LINE_BYTES];
            let skip = target.as_ptr().align_offset(LINE_BYTES);
            // SAFETY: aligned, and inside the vector; the caller knows that the processor has the instructions.
            let checksum = unsafe { stream(target.as_mut_ptr().add(skip), &block) };
            instructions::store_fence();
            assert_eq!(checksum, crc32c(&block));
            assert_eq!(target[skip..skip + BLOCK_BYTES], block);
        }
    }

    #[test]
    fn one_pass_writes_the_bytes_and_returns_their_checksum() {
        check(stream_held);
        if can_fold() {
            check(|to, block| {
                // SAFETY: the caller's, and the processor can.
                unsafe { stream_and_fold(to, block) }
            });
        }
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
