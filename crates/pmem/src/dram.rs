//! Memory of this process that threads may read while others write it: what caches keep their copies in.

use std::io;

use rustix::mm::{Advice, madvise};

use crate::copy::Content;
use crate::mapping::Mapping;
use crate::{BLOCK_BYTES, LINE_BYTES, copy, instructions};

/// A range of zeroed memory, whole blocks of 4 KiB. Nothing is taken from the machine before it is written, and [`discard`](Dram::discard) gives it back.
///
/// A copy that races with a change gets some mixture of old and new bytes and nothing worse; whoever reads without a lock finds out
/// afterwards whether to believe it. Ordinary memory does not allow that in Rust.
#[derive(Debug)]
pub struct Dram {
    memory: Mapping,
    length: usize,
}

/// As many lines as a processor has requests for its first-level cache on their way.
const NEAR_BYTES: usize = 16 * LINE_BYTES;

impl Dram {
    /// Addresses for `length` bytes, rounded up to whole blocks; of huge pages where the kernel has some.
    ///
    /// # Errors
    /// There are no addresses left (`ulimit -v`), or `length` is 0.
    pub fn new(length: usize) -> io::Result<Dram> {
        let length = length
            .checked_next_multiple_of(BLOCK_BYTES)
            .filter(|&length| length > 0)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let memory = Mapping::private(length)?;
        Ok(Dram { memory, length })
    }

    /// Bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    #[inline]
    fn address(&self, at: usize, length: usize) -> *mut u8 {
        assert!(
            at.checked_add(length).is_some_and(|end| end <= self.length),
            "outside of the memory"
        );
        self.memory.base().as_ptr().wrapping_add(at)
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn copy_out(&self, at: usize, into: &mut [u8]) {
        let from = self.address(at, into.len());
        // SAFETY: the range is inside; `into` is exclusive, so private.
        unsafe { copy::copy_out(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies bytes in, in no particular order.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn copy_in(&self, at: usize, bytes: &[u8]) {
        let to = self.address(at, bytes.len());
        // SAFETY: the range is inside; `bytes` is shared, so unchanging.
        unsafe { copy::copy_in(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes in past the processor's caches, for another thread than this one to read. All of them are there when it returns.
    ///
    /// # Panics
    /// If the range is not inside, or not of whole lines.
    pub fn stream_in(&self, at: usize, bytes: &[u8]) {
        assert!(
            at.is_multiple_of(LINE_BYTES) && bytes.len().is_multiple_of(LINE_BYTES),
            "only whole lines can be streamed"
        );
        let to = self.address(at, bytes.len());
        // SAFETY: the range is inside, and of whole lines.
        unsafe { instructions::stream_plain(to, Content::Bytes(bytes)) };
        instructions::store_fence();
    }

    /// Takes the lines of a range out of the processor's caches.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn evict(&self, at: usize, length: usize) {
        let from = self.address(at, length);
        // SAFETY: the range is mapped.
        unsafe { instructions::evict_lines(from, length) };
    }

    /// Asks the processor for the lines of a range that is copied out next and probably in none of its caches, but for the first KiB: those
    /// the copy itself asks for. Of lines for the second-level cache more can be on their way at a time, so the copy takes a fifth less; where the
    /// lines are there already, or the processor had foreseen the range, it takes 10 ns more.
    #[inline]
    pub fn prefetch_far(&self, at: usize, length: usize) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        let first = self.memory.base().as_ptr().wrapping_add(at);
        for offset in (NEAR_BYTES..length).step_by(LINE_BYTES) {
            // SAFETY: a prefetch of any address is harmless.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(first.wrapping_add(offset).cast()) };
        }
    }

    /// Asks the processor to fetch the line of `at`. Any place is allowed, also one outside.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        prefetch(self.memory.base().as_ptr().wrapping_add(at));
    }

    /// The bytes in place.
    ///
    /// # Safety
    /// Nobody changes or discards the range as long as the result lives.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub unsafe fn bytes(&self, at: usize, length: usize) -> &[u8] {
        let from = self.address(at, length);
        // SAFETY: inside the mapping, initialised (zeroed), and unchanging by contract.
        unsafe { std::slice::from_raw_parts(from, length) }
    }

    /// Gives whole blocks back to the machine; they read as zeros from now on.
    ///
    /// # Panics
    /// If the range is not inside, or not of whole blocks.
    pub fn discard(&self, at: usize, length: usize) {
        let from = self.address(at, length);
        assert!(
            at.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES),
            "only whole blocks can be given back"
        );
        // SAFETY: our own private mapping; its bytes become zeros, which whoever reads at the same time has to expect. A kernel that
        // refuses keeps the memory, and the bytes.
        if unsafe { madvise(from.cast(), length, Advice::LinuxDontNeed) }.is_err() {
            self.zero(at, length);
        }
    }

    /// Takes memory for whole blocks from the machine, as writing to them would; their bytes stay what they are. `false` if the kernel can't (before Linux 5.14), or has
    /// none left.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn populate(&self, at: usize, length: usize) -> bool {
        let from = self.address(at, length);
        // SAFETY: our own private mapping, whose content does not change.
        unsafe { madvise(from.cast(), length, Advice::LinuxPopulateWrite) }.is_ok()
    }

    #[cold]
    fn zero(&self, at: usize, length: usize) {
        for block in (at..at + length).step_by(BLOCK_BYTES) {
            self.copy_in(block, &[0; BLOCK_BYTES]);
        }
    }
}

/// Asks the processor to fetch the line of an address. Any address is allowed.
#[inline]
pub fn prefetch<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch of any address is harmless.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// The same, so that it can be changed as soon as it is there. Others who have the line lose it.
#[inline]
pub fn prefetch_for_write<T>(address: *const T) {
    // SAFETY: a prefetch of any address is harmless. Processors that do not know this one take it for none.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_until_they_are_given_back() {
        let dram = Dram::new(3 * BLOCK_BYTES - 1).expect("memory");
        assert_eq!(dram.length(), 3 * BLOCK_BYTES);
        dram.copy_in(BLOCK_BYTES - 2, b"four");
        let mut out = [1; 4];
        dram.copy_out(BLOCK_BYTES - 2, &mut out);
        assert_eq!(&out, b"four");
        // SAFETY: nobody else has this memory.
        assert_eq!(unsafe { dram.bytes(BLOCK_BYTES - 2, 4) }, b"four");
        dram.discard(BLOCK_BYTES, BLOCK_BYTES);
        dram.copy_out(BLOCK_BYTES - 2, &mut out);
        assert_eq!(&out, b"fo\0\0");
        dram.stream_in(BLOCK_BYTES - 64, &[b'x'; 128]);
        dram.copy_out(BLOCK_BYTES - 2, &mut out);
        assert_eq!(&out, b"xxxx");
        dram.zero(0, 2 * BLOCK_BYTES);
        dram.copy_out(BLOCK_BYTES - 2, &mut out);
        assert_eq!(out, [0; 4]);
    }

    #[test]
    #[should_panic(expected = "outside of the memory")]
    fn nobody_reads_outside() {
        Dram::new(1)
            .expect("memory")
            .copy_out(BLOCK_BYTES - 1, &mut [0; 2]);
    }

    #[test]
    fn no_memory_is_an_error() {
        assert!(Dram::new(0).is_err());
        assert!(Dram::new(usize::MAX).is_err());
        assert!(Dram::new(1 << 60).is_err());
    }
}
