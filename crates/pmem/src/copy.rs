//! Copies between private memory and memory that other threads, or other processes, may be changing.
//!
//! A region is shared: a reader may race with a writer, and only the layers above know that the result is thrown away or
//! cannot happen. To Rust a plain racing access is undefined behaviour, so nothing here is plain: words move by volatile or
//! atomic accesses, bulk copies call the C library's `memcpy` from inline assembly, which the compiler cannot look into.
//! A racing reader therefore gets some mixture of old and new bytes and nothing worse; an aligned word is never mixed.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
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

/// 0 until the processor was asked whether it copies strings fast, 1 if it does, 2 if not.
static STRINGS: AtomicU8 = AtomicU8::new(0);

#[inline(always)]
fn copies_strings_fast() -> bool {
    match STRINGS.load(Ordering::Relaxed) {
        0 => ask_for_strings(),
        answer => answer == 1,
    }
}

#[cold]
fn ask_for_strings() -> bool {
    // Leaf 7: "enhanced rep movsb".
    let is_fast = __cpuid_count(7, 0).ebx & 1 << 9 != 0;
    STRINGS.store(if is_fast { 1 } else { 2 }, Ordering::Relaxed);
    is_fast
}

/// Copies a block out of shared memory in as few instructions as there are, so that the processor is at what comes behind it, perhaps the next copy, while the first lines are on their way.
///
/// One instruction where the processor is good at it, which is where the C library chooses it too: it asks for the last lines before the first have come, whatever is in between; vectors of 64 bytes, which fill the window of instructions, are 4 % faster
/// if half of the blocks are cached and 15 % slower if none is (EPYC of the fifth generation).
///
/// # Safety
/// `from` is readable and `to` writable for a block; `to` is private to the caller.
#[inline(always)]
pub(crate) unsafe fn copy_block_out(from: *const u8, to: *mut u8) {
    if !to.addr().is_multiple_of(LINE_BYTES) || !copies_strings_fast() {
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
