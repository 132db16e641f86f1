//! The instructions that move bytes towards the medium, chosen at run time.
//!
//! Flushes are written as inline assembly because the standard library has no clwb or clflushopt; being opaque to the
//! compiler they also order it: no store moves across them.

use std::arch::asm;
use std::arch::x86_64::{
    __cpuid_count, __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_mfence, _mm_setzero_si128,
    _mm_sfence, _mm_stream_si64, _mm_stream_si128, _mm256_loadu_si256, _mm256_setzero_si256,
    _mm256_stream_si256, _mm512_loadu_si512, _mm512_setzero_si512, _mm512_stream_si512,
};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::copy::Content;
use crate::{LINE_BYTES, WORD_BYTES};

/// The instruction that writes a line back.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[repr(u8)]
pub enum FlushInstruction {
    /// Writes back and may keep the line; the best where it exists.
    Clwb = 1,
    /// Writes back and evicts, unordered among lines.
    Clflushopt = 2,
    /// Writes back and evicts, one line after the other; every x86-64 has it.
    Clflush = 3,
}

/// The widest non-temporal store.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[repr(u8)]
pub enum StreamInstruction {
    /// A whole line per instruction.
    Avx512 = 1,
    /// Half a line per instruction.
    Avx2 = 2,
    /// 16 bytes per instruction; every x86-64 has it.
    Sse2 = 3,
}

impl fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FlushInstruction::Clwb => "clwb",
            FlushInstruction::Clflushopt => "clflushopt",
            FlushInstruction::Clflush => "clflush",
        })
    }
}

impl fmt::Display for StreamInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            StreamInstruction::Avx512 => "avx512",
            StreamInstruction::Avx2 => "avx2",
            StreamInstruction::Sse2 => "sse2",
        })
    }
}

impl FlushInstruction {
    /// All that this processor has, the best first.
    pub fn available() -> Vec<FlushInstruction> {
        let leaf7 = __cpuid_count(7, 0).ebx;
        let mut found = Vec::new();
        if leaf7 & (1 << 24) != 0 {
            found.push(FlushInstruction::Clwb);
        }
        if leaf7 & (1 << 23) != 0 {
            found.push(FlushInstruction::Clflushopt);
        }
        found.push(FlushInstruction::Clflush);
        found
    }

    /// The one this process uses.
    #[inline]
    pub fn chosen() -> FlushInstruction {
        match FLUSH.load(Ordering::Relaxed) {
            1 => FlushInstruction::Clwb,
            2 => FlushInstruction::Clflushopt,
            3 => FlushInstruction::Clflush,
            _ => detect_flush(),
        }
    }
}

impl StreamInstruction {
    /// All that this processor has, the widest first.
    pub fn available() -> Vec<StreamInstruction> {
        let mut found = Vec::new();
        if is_x86_feature_detected!("avx512f") {
            found.push(StreamInstruction::Avx512);
        }
        if is_x86_feature_detected!("avx2") {
            found.push(StreamInstruction::Avx2);
        }
        found.push(StreamInstruction::Sse2);
        found
    }

    /// The one this process uses.
    #[inline]
    pub fn chosen() -> StreamInstruction {
        match STREAM.load(Ordering::Relaxed) {
            1 => StreamInstruction::Avx512,
            2 => StreamInstruction::Avx2,
            3 => StreamInstruction::Sse2,
            _ => detect_stream(),
        }
    }
}

/// 0 until the processor was asked.
static FLUSH: AtomicU8 = AtomicU8::new(0);
static STREAM: AtomicU8 = AtomicU8::new(0);

#[cold]
fn detect_flush() -> FlushInstruction {
    let best = FlushInstruction::available()[0];
    FLUSH.store(best as u8, Ordering::Relaxed);
    best
}

#[cold]
fn detect_stream() -> StreamInstruction {
    let best = StreamInstruction::available()[0];
    STREAM.store(best as u8, Ordering::Relaxed);
    best
}

/// Flushes `lines` lines beginning with the one at `first`.
///
/// # Safety
/// The lines are mapped, and the processor has the instruction.
#[inline]
pub(crate) unsafe fn flush_lines(first: *const u8, lines: u64, with: FlushInstruction) {
    let mut line = first;
    match with {
        FlushInstruction::Clwb => {
            for _ in 0..lines {
                // SAFETY: the caller vouches for the line; clwb changes no byte and no register.
                unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) };
                line = line.wrapping_add(LINE_BYTES);
            }
        }
        FlushInstruction::Clflushopt => {
            for _ in 0..lines {
                // SAFETY: as above.
                unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) };
                line = line.wrapping_add(LINE_BYTES);
            }
        }
        FlushInstruction::Clflush => {
            for _ in 0..lines {
                // SAFETY: as above.
                unsafe { asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)) };
                line = line.wrapping_add(LINE_BYTES);
            }
        }
    }
}

/// Lets lines go out of all caches, if the processor can do that without waiting for each.
///
/// # Safety
/// The lines are mapped.
#[inline]
pub(crate) unsafe fn release_lines(first: *const u8, lines: u64) {
    if can_evict() {
        // SAFETY: the caller's, and the processor has the instruction.
        unsafe { flush_lines(first, lines, FlushInstruction::Clflushopt) };
    }
}

fn can_evict() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| FlushInstruction::available().contains(&FlushInstruction::Clflushopt))
}

/// Waits until every earlier flush and non-temporal store of this processor has been accepted by the medium.
#[inline]
pub(crate) fn store_fence() {
    // SAFETY: every x86-64 has sfence.
    unsafe { _mm_sfence() };
}

/// Stands still until every store and flush of this processor has left it. Behind a [`store_fence`] it goes on meanwhile (4 KiB streamed and fenced take 198 ns on an EPYC of the
/// fifth generation, with this 237), and so it does behind a [`full_fence`] (202).
#[inline]
pub(crate) fn drain_stores() {
    // SAFETY: every x86-64 has mfence.
    unsafe { _mm_mfence() };
}

/// What a streaming store writes.
#[derive(Copy, Clone)]
pub(crate) enum Source {
    Bytes(*const u8),
    Zeros,
}

/// Up to here a range is streamed word by word: so little has mostly just been assembled by stores of words, and a wider load would wait
/// until they have left the store buffer, behind all that was streamed before.
const WORDWISE_BYTES_MAX: usize = 4 * LINE_BYTES;

/// Writes a line with non-temporal stores, word by word from registers.
///
/// # Safety
/// `to` is aligned to a line, which is mapped and writable. A fence must follow before another thread is told of it.
#[inline(always)]
pub(crate) unsafe fn stream_line(to: *mut u8, line: [u64; LINE_BYTES / WORD_BYTES]) {
    for (index, word) in line.into_iter().enumerate() {
        // SAFETY: inside the caller's line.
        unsafe { _mm_stream_si64(to.add(index * WORD_BYTES).cast(), word as i64) };
    }
}

/// Writes `length` bytes at `to` with non-temporal stores.
///
/// # Safety
/// `to` is aligned to 8 and `length` a multiple of 8; `to .. to + length` is mapped and writable; the source has
/// `length` readable bytes outside of that range; the processor has the instruction. A fence must follow before another
/// thread is told of the bytes.
#[inline]
pub(crate) unsafe fn stream(to: *mut u8, from: Source, length: usize, with: StreamInstruction) {
    if length <= WORDWISE_BYTES_MAX {
        // SAFETY: the caller's.
        return unsafe { stream_words(to, from, length) };
    }
    let head = to.align_offset(LINE_BYTES).min(length);
    let body = (length - head) / LINE_BYTES * LINE_BYTES;
    let tail = length - head - body;
    // SAFETY: the three ranges partition the caller's; the body starts on a line.
    unsafe {
        stream_words(to, from, head);
        match with {
            StreamInstruction::Avx512 => stream_lines_avx512(to.add(head), from.skip(head), body),
            StreamInstruction::Avx2 => stream_lines_avx2(to.add(head), from.skip(head), body),
            StreamInstruction::Sse2 => stream_lines_sse2(to.add(head), from.skip(head), body),
        }
        stream_words(to.add(head + body), from.skip(head + body), tail);
    }
}

/// # Safety
/// `to` is aligned to 8 and writable for the content, whose length is a multiple of 8.
#[inline]
pub(crate) unsafe fn stream_plain(to: *mut u8, content: Content<'_>) {
    let source = match content {
        Content::Bytes(bytes) => Source::Bytes(bytes.as_ptr()),
        Content::Zeros(_) => Source::Zeros,
    };
    // SAFETY: a slice never overlaps a region, because nobody has a reference into one; the instruction was detected.
    unsafe { stream(to, source, content.length(), StreamInstruction::chosen()) };
}

impl Source {
    #[inline]
    fn skip(self, bytes: usize) -> Source {
        match self {
            Source::Bytes(from) => Source::Bytes(from.wrapping_add(bytes)),
            Source::Zeros => Source::Zeros,
        }
    }
}

/// # Safety
/// As [`stream`], except for the instruction: every x86-64 has movnti.
#[inline]
unsafe fn stream_words(to: *mut u8, from: Source, length: usize) {
    for at in (0..length).step_by(WORD_BYTES) {
        // SAFETY: `at + 8 <= length` because length is a multiple of 8; `to` is aligned to 8.
        unsafe {
            let word = match from {
                Source::Bytes(from) => from.add(at).cast::<i64>().read_unaligned(),
                Source::Zeros => 0,
            };
            _mm_stream_si64(to.add(at).cast(), word);
        }
    }
}

/// # Safety
/// As [`stream`]; `to` is aligned to a line, `length` a multiple of one.
#[target_feature(enable = "avx512f")]
unsafe fn stream_lines_avx512(to: *mut u8, from: Source, length: usize) {
    for at in (0..length).step_by(LINE_BYTES) {
        // SAFETY: whole lines of the caller's ranges.
        unsafe {
            let line: __m512i = match from {
                Source::Bytes(from) => _mm512_loadu_si512(from.add(at).cast()),
                Source::Zeros => _mm512_setzero_si512(),
            };
            _mm512_stream_si512(to.add(at).cast(), line);
        }
    }
}

/// # Safety
/// As [`stream_lines_avx512`].
#[target_feature(enable = "avx2")]
unsafe fn stream_lines_avx2(to: *mut u8, from: Source, length: usize) {
    for at in (0..length).step_by(LINE_BYTES / 2) {
        // SAFETY: half lines of the caller's ranges.
        unsafe {
            let half: __m256i = match from {
                Source::Bytes(from) => _mm256_loadu_si256(from.add(at).cast()),
                Source::Zeros => _mm256_setzero_si256(),
            };
            _mm256_stream_si256(to.add(at).cast(), half);
        }
    }
}

/// # Safety
/// As [`stream_lines_avx512`].
unsafe fn stream_lines_sse2(to: *mut u8, from: Source, length: usize) {
    for at in (0..length).step_by(16) {
        // SAFETY: 16 bytes of the caller's ranges.
        unsafe {
            let part: __m128i = match from {
                Source::Bytes(from) => _mm_loadu_si128(from.add(at).cast()),
                Source::Zeros => _mm_setzero_si128(),
            };
            _mm_stream_si128(to.add(at).cast(), part);
        }
    }
}

/// What `std::sync::atomic::fence(SeqCst)` promises, in an eighth of its time (2 ns against 17 on an EPYC): every load and store before it comes before every load and store behind it, for
/// all processors. That function is compiled to `mfence`, which also stops the processor; a locked instruction on a line that is in the cache
/// orders as much.
#[inline]
pub fn full_fence() {
    // SAFETY: changes nothing; not being `nomem`, it orders the compiler, too.
    unsafe { asm!("lock or dword ptr [rsp], 0") };
}

/// Takes lines out of all caches and waits until they are gone.
///
/// # Safety
/// `length` bytes from `from` on are mapped.
pub(crate) unsafe fn evict_lines(from: *const u8, length: usize) {
    let first = from.addr() % LINE_BYTES;
    for at in (0..first + length).step_by(LINE_BYTES) {
        let line = from.wrapping_sub(first).wrapping_add(at);
        // SAFETY: a line of the range; clflush changes no memory, and every x86-64 has it.
        unsafe { asm!("clflush [{line}]", line = in(reg) line, options(nostack, preserves_flags)) };
    }
    drain_stores();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 1024]);

    #[test]
    fn every_stream_instruction_writes_every_range_and_nothing_else() {
        let content: Vec<u8> = (0..1024u32).map(|index| (index % 251) as u8 + 1).collect();
        for with in StreamInstruction::available() {
            for at in (0..136).step_by(8) {
                for length in (0..=880).step_by(8) {
                    for misaligned in [0, 1] {
                        let mut lines = Lines([0xaa; 1024]);
                        let from = &content[misaligned..misaligned + length];
                        // SAFETY: 136 + 880 <= 1024; aligned; the instruction is available.
                        unsafe {
                            stream(
                                lines.0.as_mut_ptr().add(at),
                                Source::Bytes(from.as_ptr()),
                                length,
                                with,
                            )
                        };
                        store_fence();
                        assert_eq!(&lines.0[at..at + length], from, "{with} {at} {length}");
                        assert!(
                            lines.0[..at]
                                .iter()
                                .chain(&lines.0[at + length..])
                                .all(|byte| *byte == 0xaa)
                        );
                        // SAFETY: as above.
                        unsafe {
                            stream(lines.0.as_mut_ptr().add(at), Source::Zeros, length, with)
                        };
                        store_fence();
                        assert!(
                            lines.0[at..at + length].iter().all(|byte| *byte == 0),
                            "{with} {at} {length}"
                        );
                        assert_eq!(
                            lines.0.iter().filter(|byte| **byte == 0xaa).count(),
                            1024 - length
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_flush_instruction_runs_and_changes_nothing() {
        let lines = Lines([7; 1024]);
        for with in FlushInstruction::available() {
            // SAFETY: 16 lines of our own; the instruction is available.
            unsafe { flush_lines(lines.0.as_ptr(), 16, with) };
            store_fence();
            assert_eq!(lines.0, [7; 1024], "{with}");
        }
    }

    #[test]
    fn the_best_available_is_chosen() {
        assert_eq!(FlushInstruction::chosen(), FlushInstruction::available()[0]);
        assert_eq!(
            StreamInstruction::chosen(),
            StreamInstruction::available()[0]
        );
        assert_eq!(
            FlushInstruction::available().last(),
            Some(&FlushInstruction::Clflush)
        );
        assert_eq!(
            StreamInstruction::available().last(),
            Some(&StreamInstruction::Sse2)
        );
    }
}
