//! Copies between private memory and memory that other threads, or other processes, may be changing.
//!
//! A region is shared: a reader may race with a writer, and only the layers above know that the result is thrown away or
//! cannot happen. To Rust a plain racing access is undefined behaviour, so nothing here is plain: words move by volatile or
//! atomic accesses, bulk copies call the C library's `memcpy` from inline assembly, which the compiler cannot look into.
//! A racing reader therefore gets some mixture of old and new bytes and nothing worse; an aligned word is never mixed.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::mem::MaybeUninit;
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::{BLOCK_BYTES, LINE_BYTES, WORD_BYTES};

/// Longest copy that is done word by word, without a call.
const INLINE_BYTES: usize = 128;

/// Eight bytes at any address.
#[derive(Copy, Clone)]
#[repr(C, packed)]
struct AnyWord(u64);

/// Copies `length` bytes out of shared memory.
///
/// # Safety
/// `from` is readable and `to` writable for `length` bytes; `to` is private to the caller.
#[inline]
pub(crate) unsafe fn copy_out(from: *const u8, to: *mut u8, length: usize) {
    if length > INLINE_BYTES {
        // SAFETY: passed on.
        return unsafe { call_memcpy(to, from, length) };
    }
    let words = length & !(WORD_BYTES - 1);
    let mut at = 0;
    while at < words {
        // SAFETY: `at + 8 <= length`.
        unsafe {
            let word = from.add(at).cast::<AnyWord>().read_volatile();
            to.add(at).cast::<AnyWord>().write(word);
        }
        at += WORD_BYTES;
    }
    while at < length {
        // SAFETY: `at < length`.
        unsafe { to.add(at).write(from.add(at).read_volatile()) };
        at += 1;
    }
}

/// Room for bytes that are needed twice, stored and checksummed for example, while other threads may be changing where they come from.
pub struct Held(MaybeUninit<[u8; BLOCK_BYTES]>);

impl Held {
    /// Room for a block.
    #[inline]
    pub fn new() -> Held {
        Held(MaybeUninit::uninit())
    }

    /// The bytes as they were when each was loaded, once.
    ///
    /// # Panics
    /// If they are more than a block.
    #[inline]
    pub fn copy(&mut self, bytes: &[u8]) -> &[u8] {
        assert!(bytes.len() <= BLOCK_BYTES, "more than a block");
        let to = self.0.as_mut_ptr().cast::<u8>();
        // SAFETY: there is room for so many bytes, which are written when they are looked at; nobody else sees them.
        unsafe {
            copy_out(bytes.as_ptr(), to, bytes.len());
            slice::from_raw_parts(to, bytes.len())
        }
    }
}

impl Default for Held {
    fn default() -> Held {
        Held::new()
    }
}

/// How well the processor copies by one instruction, `rep movsb`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Strings {
    /// Not.
    Slow = 1,
    /// To addresses of whole lines.
    FastToLines,
    /// To any address.
    Fast,
}

/// A [`Strings`], or that the processor was not asked yet.
static STRINGS: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;

/// Whether a block is to be copied there by one instruction.
#[inline(always)]
fn copies_strings_fast(to: *const u8) -> bool {
    match STRINGS.load(Ordering::Relaxed) {
        UNKNOWN => ask_for_strings(to),
        answer => {
            answer == Strings::Fast as u8
                || answer == Strings::FastToLines as u8 && to.addr().is_multiple_of(LINE_BYTES)
        }
    }
}

#[cold]
fn ask_for_strings(to: *const u8) -> bool {
    let leaf_0 = __cpuid_count(0, 0);
    let is_amd = leaf_0.ebx == u32::from_le_bytes(*b"Auth");
    let version = __cpuid_count(1, 0).eax;
    let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
    // "Enhanced rep movsb".
    let is_enhanced = leaf_0.eax >= 7 && __cpuid_count(7, 0).ebx & 1 << 9 != 0;
    let strings = strings_of(is_enhanced, is_amd, family);
    STRINGS.store(strings as u8, Ordering::Relaxed);
    copies_strings_fast(to)
}

/// Before AMD's family 26 (Zen 5) a copy to an address a few bytes behind the source's, within their pages, is reported to be many times slower; and that is where programs have their buffers: 16 bytes behind the beginning of a page. On that family it takes as long as anywhere else (measured).
fn strings_of(is_enhanced: bool, is_amd: bool, family: u32) -> Strings {
    match is_enhanced {
        true if is_amd && family >= 26 => Strings::Fast,
        true => Strings::FastToLines,
        false => Strings::Slow,
    }
}

/// Bytes at the end of a block whose lines are asked for before the copy begins.
///
/// A processor has, as it looks, some 50 lines on their way at once; the last ones of a block it asks for when the first have come, a whole latency of memory later. Asked for ahead they come with the others. Twelve are best (EPYC of the fifth generation; docs/DIRECT.md has
/// the figures): with eight or sixteen half of it is gained, and with all 64 nearly nothing, because then they are waited for before the copy.
const ASKED_AHEAD_BYTES: usize = 12 * LINE_BYTES;

/// Copies a block out of shared memory in as few instructions as there are, so that the processor is at what comes behind it, perhaps the next copy, while the first lines are on their way.
///
/// One instruction where the processor is good at it: it asks for the later lines before the first have come, whatever is in between; vectors of 64 bytes, which fill the window of instructions, are 4 % faster
/// if half of the blocks are cached and 15 % slower if none is (EPYC of the fifth generation).
///
/// # Safety
/// `from` is readable and `to` writable for a block; `to` is private to the caller.
#[inline(always)]
pub(crate) unsafe fn copy_block_out(from: *const u8, to: *mut u8) {
    for at in (BLOCK_BYTES - ASKED_AHEAD_BYTES..BLOCK_BYTES).step_by(LINE_BYTES) {
        crate::prefetch(from.wrapping_add(at));
    }
    if !copies_strings_fast(to) {
        // SAFETY: passed on.
        return unsafe { call_memcpy(to, from, BLOCK_BYTES) };
    }
    // SAFETY: a block each; the direction flag is clear between functions.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") BLOCK_BYTES => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies `length` bytes into shared memory, in no particular order.
///
/// # Safety
/// `from` is readable and `to` writable for `length` bytes; `from` is private to the caller.
pub(crate) unsafe fn copy_in(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: passed on.
    unsafe { call_memcpy(to, from, length) };
}

/// # Safety
/// As `memcpy`; either side may be shared.
#[inline]
unsafe fn call_memcpy(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: memcpy keeps to the C calling convention, all of whose scratch registers are declared; the stack is
    // aligned for a call because `nostack` is not given.
    unsafe {
        asm!(
            "call {memcpy}",
            memcpy = in(reg) libc::memcpy as *const (),
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rdx") length => _,
            clobber_abi("C"),
        );
    }
}

/// Loads the word at `from` in one access.
///
/// # Safety
/// `from` is aligned to 8 and readable.
#[inline]
pub(crate) unsafe fn load_word(from: *const u8, ordering: Ordering) -> u64 {
    // SAFETY: aligned and readable by contract; every other access to the word is atomic, volatile or in assembly.
    unsafe { (*from.cast::<AtomicU64>()).load(ordering) }
}

/// Stores the word at `to` in one access that no power cut and no reader sees half of.
///
/// # Safety
/// `to` is aligned to 8 and writable.
#[inline]
pub(crate) unsafe fn store_word(to: *mut u8, word: u64) {
    // SAFETY: as in `load_word`. Release, so that a reader of the word sees what was stored before it.
    unsafe { (*to.cast::<AtomicU64>()).store(word, Ordering::Release) };
}

/// Are `length` bytes of shared memory at `shared` those at `private`?
///
/// # Safety
/// Both are readable for `length` bytes; `private` doesn't change.
#[inline]
pub(crate) unsafe fn equals(shared: *const u8, private: *const u8, length: usize) -> bool {
    let words = length & !(WORD_BYTES - 1);
    let mut at = 0;
    while at < words {
        // SAFETY: `at + 8 <= length`.
        let (left, right) = unsafe {
            (
                shared.add(at).cast::<AnyWord>().read_volatile(),
                private.add(at).cast::<AnyWord>().read(),
            )
        };
        if { left.0 } != { right.0 } {
            return false;
        }
        at += WORD_BYTES;
    }
    while at < length {
        // SAFETY: `at < length`.
        if unsafe { shared.add(at).read_volatile() != private.add(at).read() } {
            return false;
        }
        at += 1;
    }
    true
}

/// A range of bytes cut at word boundaries, and what to store in it. Each step is one aligned word.
///
/// This is *the* program order of a store: ascending words, each stored whole and once. The emulator records the same
/// steps, so that what it lets survive of a line is what the instructions can leave behind.
#[derive(Copy, Clone)]
pub(crate) enum Content<'b> {
    Bytes(&'b [u8]),
    Zeros(usize),
}

impl<'b> Content<'b> {
    /// Bytes `from .. from + length` of this content.
    #[inline]
    pub(crate) fn part(&self, from: usize, length: usize) -> Content<'b> {
        match self {
            Content::Bytes(bytes) => Content::Bytes(&bytes[from..from + length]),
            Content::Zeros(_) => Content::Zeros(length),
        }
    }

    #[inline]
    pub(crate) fn length(&self) -> usize {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Zeros(length) => *length,
        }
    }

    /// Bytes `from .. from + length` (at most 8) as the low bytes of a word.
    #[inline]
    pub(crate) fn low_bytes(&self, from: usize, length: usize) -> u64 {
        match self {
            Content::Bytes(bytes) => match bytes[from..from + length].try_into() {
                Ok(word) => u64::from_le_bytes(word),
                Err(_) => bytes[from..from + length]
                    .iter()
                    .rev()
                    .fold(0, |word, byte| word << 8 | u64::from(*byte)),
            },
            Content::Zeros(_) => 0,
        }
    }

    /// Calls `step(address of the word, mask of the old bits to keep, new bits)` for every
    /// aligned word that `address .. address + length` touches, ascending.
    #[inline]
    pub(crate) fn words(&self, address: u64, mut step: impl FnMut(u64, u64, u64)) {
        let length = self.length();
        let mut done = 0;
        while done < length {
            let at = address + done as u64;
            let within = (at % WORD_BYTES as u64) as usize;
            let count = (WORD_BYTES - within).min(length - done);
            let new = self.low_bytes(done, count) << (8 * within);
            let keep = if count == WORD_BYTES {
                0
            } else {
                !((!0 >> (64 - 8 * count)) << (8 * within))
            };
            step(at - within as u64, keep, new);
            done += count;
        }
    }
}

/// Stores `content` at `to` with ordinary stores, one aligned word after the other.
///
/// A word that is covered in part is read, merged and stored whole: two threads must not store into the same aligned
/// word at a time.
///
/// # Safety
/// The aligned words around `to .. to + length` are readable and writable.
#[inline]
pub(crate) unsafe fn store(to: *mut u8, content: Content<'_>) {
    if to.addr().is_multiple_of(WORD_BYTES) && content.length().is_multiple_of(WORD_BYTES) {
        // SAFETY: passed on.
        return unsafe { store_whole_words(to, content) };
    }
    content.words(to.addr() as u64, |address, keep, new| {
        let word = to.with_addr(address as usize);
        // SAFETY: an aligned word of the caller's range.
        unsafe {
            let kept = if keep == 0 {
                0
            } else {
                load_word(word, Ordering::Relaxed) & keep
            };
            store_word(word, kept | new);
        }
    });
}

/// The same steps, for whole aligned words: what nearly all metadata is.
///
/// # Safety
/// As [`store`]; `to` is aligned to 8 and the length is a multiple of 8.
#[inline]
unsafe fn store_whole_words(to: *mut u8, content: Content<'_>) {
    match content {
        Content::Bytes(bytes) => {
            let (words, _) = bytes.as_chunks::<WORD_BYTES>();
            for (index, word) in words.iter().enumerate() {
                // SAFETY: inside the range.
                unsafe { store_word(to.add(index * WORD_BYTES), u64::from_le_bytes(*word)) };
            }
        }
        Content::Zeros(length) => {
            for at in (0..length).step_by(WORD_BYTES) {
                // SAFETY: inside the range.
                unsafe { store_word(to.add(at), 0) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Strings, strings_of};

    #[test]
    fn one_instruction_copies_anywhere_only_where_that_is_fast() {
        assert_eq!(strings_of(true, true, 26), Strings::Fast);
        assert_eq!(strings_of(true, true, 25), Strings::FastToLines);
        assert_eq!(
            strings_of(true, false, 26),
            Strings::FastToLines,
            "other families"
        );
        assert_eq!(strings_of(false, true, 26), Strings::Slow);
    }
}
