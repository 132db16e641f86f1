//! Stores, and the evidence of how far they have come: dirty, flushed, durable.

use std::marker::PhantomData;

use crate::address::lines_touched;
use crate::checksummed::{can_fold, stream_and_fold, stream_held};
use crate::copy::{self, Content, Held};
use crate::counters;
use crate::crc32c::crc32c;
use crate::emulator::{Origin, thread_number};
use crate::instructions::{self, FlushInstruction, stream_line, stream_plain};
use crate::{LINE_BYTES, Offset, Region, WORD_BYTES};
use zerocopy::IntoBytes;

/// Bytes stored with ordinary stores: they are in the processor's cache and may or may not survive a power cut.
#[must_use = "stored bytes are not durable before they are flushed and fenced"]
#[derive(Debug)]
pub struct Dirty<'r> {
    region: &'r Region,
    at: Offset,
    length: u64,
}

/// Bytes on their way to the medium: durable after this thread's next fence. A batch of any number of stores.
///
/// A fence orders only its own processor's stores, so this cannot be sent to another thread.
#[must_use = "flushed bytes are not durable before a fence"]
#[derive(Debug)]
pub struct Flushed {
    region: u32,
    not_send: PhantomData<*const ()>,
}

/// Evidence that a batch of stores survives a power cut (within the class of its region).
#[derive(Debug)]
pub struct Durable {
    region: u32,
}

impl Region {
    /// Stores bytes with ordinary stores: aligned 8-byte words in ascending order, each in one access.
    #[inline]
    pub fn store<'r>(&'r self, at: Offset, bytes: &[u8]) -> Dirty<'r> {
        self.store_content(at, Content::Bytes(bytes))
    }

    /// Stores zeros with ordinary stores, in the same order.
    #[inline]
    pub fn fill_zero(&self, at: Offset, length: u64) -> Dirty<'_> {
        self.store_content(at, Content::Zeros(length as usize))
    }

    #[inline]
    fn store_content(&self, at: Offset, content: Content<'_>) -> Dirty<'_> {
        let length = content.length();
        let to = self.address(at, length);
        if self.flags.any() {
            self.store_watched(at, content);
        } else {
            // SAFETY: the range is inside the region, which is made of whole aligned words.
            unsafe { copy::store(to, content) };
        }
        counters::count_stored(length);
        Dirty {
            region: self,
            at,
            length: length as u64,
        }
    }

    /// Stores one word in one access: after a power cut it is the old or the new one. Who loads it sees what this
    /// thread stored before (release).
    ///
    /// # Panics
    /// If `at` is not a multiple of 8 or outside of the region.
    #[inline]
    pub fn store_u64(&self, at: Offset, word: u64) -> Dirty<'_> {
        let to = self.word_address(at);
        if self.flags.any() {
            self.store_watched(at, Content::Bytes(&word.to_le_bytes()));
        } else {
            // SAFETY: aligned and inside the region.
            unsafe { copy::store_word(to, word) };
        }
        counters::count_stored(WORD_BYTES);
        Dirty {
            region: self,
            at,
            length: WORD_BYTES as u64,
        }
    }

    #[cold]
    fn store_watched(&self, at: Offset, content: Content<'_>) {
        self.remember_stored(at, content.length());
        match self.emulator() {
            Some(emulator) => emulator.store(self, at, content, Origin::Cached),
            // SAFETY: the address is checked; a region is made of whole aligned words.
            None => unsafe { copy::store(self.address(at, content.length()), content) },
        }
    }

    /// Declares that a range may have been stored to, at any time, by any thread: flushing it is always right.
    #[inline]
    pub fn dirty(&self, at: Offset, length: u64) -> Dirty<'_> {
        self.address(at, length as usize);
        Dirty {
            region: self,
            at,
            length,
        }
    }

    /// Writes bytes past the caches, with non-temporal stores. Until the next fence any subset of the words may survive.
    ///
    /// Words that the range covers in part go through the cache and are flushed.
    #[inline]
    pub fn write_streaming(&self, at: Offset, bytes: &[u8]) -> Flushed {
        self.stream_content(at, Content::Bytes(bytes))
    }

    /// Writes a line past the caches, from registers; otherwise as [`write_streaming`](Self::write_streaming). A line that was put together in memory just now would be read back from
    /// there, which has to wait until everything streamed before it has left the processor.
    #[inline(always)]
    pub fn write_line_streaming(
        &self,
        at: Offset,
        line: [u64; LINE_BYTES / WORD_BYTES],
    ) -> Flushed {
        if self.flags.any() || !at.is_aligned(LINE_BYTES as u64) {
            return self.write_line_slowly(at, line);
        }
        // SAFETY: a whole aligned line inside the region.
        unsafe { stream_line(self.address(at, LINE_BYTES), line) };
        counters::count_streamed(LINE_BYTES, 1);
        Flushed::nothing(self)
    }

    #[cold]
    #[inline(never)]
    fn write_line_slowly(&self, at: Offset, line: [u64; LINE_BYTES / WORD_BYTES]) -> Flushed {
        self.write_streaming(at, line.as_bytes())
    }

    /// Writes bytes past the caches, a block at most, and returns the CRC32C of what was written, which costs nothing while a whole block drains. Other threads may be changing the bytes meanwhile:
    /// a program's buffer is the program's.
    ///
    /// # Panics
    /// If they are more than a block.
    #[inline]
    pub fn write_streaming_checksummed(&self, at: Offset, bytes: &[u8]) -> (Flushed, u32) {
        let is_plain = !self.flags.any() && at.is_aligned(LINE_BYTES as u64);
        let block = bytes.as_array().filter(|_| is_plain && can_fold());
        let Some(block) = block else {
            return self.copy_and_checksum(at, bytes);
        };
        let to = self.address(at, bytes.len());
        // SAFETY: aligned, and the block is inside the region; the processor can.
        let checksum = unsafe { stream_and_fold(to, block) };
        counters::count_streamed(bytes.len(), lines_touched(at, bytes.len()));
        (Flushed::nothing(self), checksum)
    }

    /// The same in two passes, over a copy.
    #[inline(never)]
    fn copy_and_checksum(&self, at: Offset, bytes: &[u8]) -> (Flushed, u32) {
        let mut held = Held::new();
        let bytes = held.copy(bytes);
        let is_plain = !self.flags.any() && at.is_aligned(LINE_BYTES as u64);
        let Some(block) = bytes.as_array().filter(|_| is_plain) else {
            return (self.write_streaming(at, bytes), crc32c(bytes));
        };
        let to = self.address(at, bytes.len());
        // SAFETY: aligned, and the block is inside the region.
        let checksum = unsafe { stream_held(to, block) };
        counters::count_streamed(bytes.len(), lines_touched(at, bytes.len()));
        (Flushed::nothing(self), checksum)
    }

    /// Writes zeros past the caches.
    #[inline]
    pub fn zero_streaming(&self, at: Offset, length: u64) -> Flushed {
        self.stream_content(at, Content::Zeros(length as usize))
    }

    #[inline]
    fn stream_content(&self, at: Offset, content: Content<'_>) -> Flushed {
        let length = content.length();
        let to = self.address(at, length);
        if at.is_aligned(WORD_BYTES as u64) && length.is_multiple_of(WORD_BYTES) {
            self.stream_words(at, to, content);
            return Flushed::nothing(self);
        }
        self.stream_ragged(at, content)
    }

    /// Streams a range of whole words.
    #[inline]
    fn stream_words(&self, at: Offset, to: *mut u8, content: Content<'_>) {
        let length = content.length();
        if self.flags.any() {
            self.stream_watched(at, content);
        } else {
            // SAFETY: whole aligned words inside the region.
            unsafe { stream_plain(to, content) };
        }
        counters::count_streamed(length, lines_touched(at, length));
    }

    #[cold]
    fn stream_watched(&self, at: Offset, content: Content<'_>) {
        let length = content.length();
        self.remember_stored(at, length);
        self.count_wear(at, length as u64);
        match self.emulator() {
            Some(emulator) => {
                let thread = thread_number();
                emulator.store(self, at, content, Origin::Streaming { thread });
            }
            // SAFETY: the address is checked, the caller passes whole aligned words.
            None => unsafe { stream_plain(self.address(at, length), content) },
        }
    }

    /// Streams the whole words of a range; its ragged ends are stored and flushed.
    fn stream_ragged(&self, at: Offset, content: Content<'_>) -> Flushed {
        let length = content.length();
        let head = (at.get().wrapping_neg() % WORD_BYTES as u64).min(length as u64) as usize;
        let body = (length - head) / WORD_BYTES * WORD_BYTES;
        let tail = length - head - body;
        let mut batch = Flushed::nothing(self);
        if head > 0 {
            batch.join(self.store_content(at, content.part(0, head)).flush());
        }
        if body > 0 {
            let start = at + head as u64;
            self.stream_words(start, self.address(start, body), content.part(head, body));
        }
        if tail > 0 {
            batch.join(
                self.store_content(at + (head + body) as u64, content.part(head + body, tail))
                    .flush(),
            );
        }
        batch
    }

    /// Waits until a batch is durable: one fence for all that was joined to it, and for all else that this thread has
    /// flushed or streamed.
    #[inline]
    pub fn fence(&self, batch: Flushed) -> Durable {
        assert_eq!(batch.region, self.identity(), "a batch of another region");
        let lines = counters::count_fence();
        if self.flags.any() {
            self.fence_watched(lines);
        } else {
            instructions::store_fence();
        }
        Durable {
            region: self.identity(),
        }
    }

    #[cold]
    fn fence_watched(&self, lines: u64) {
        match self.emulator() {
            Some(emulator) => emulator.fence(),
            None => instructions::store_fence(),
        }
        self.watch.timing.wait_for_fence(lines);
    }

    /// Flushes a range and waits for it.
    #[inline]
    pub fn persist(&self, at: Offset, length: u64) -> Durable {
        self.fence(self.dirty(at, length).flush())
    }
}

impl Region {
    #[inline]
    fn flush_plain(&self, first: Offset, lines: u64) {
        let address = self.address(first, lines as usize * LINE_BYTES);
        // SAFETY: the lines are inside the region; the instruction was detected.
        unsafe { instructions::flush_lines(address, lines, FlushInstruction::chosen()) };
    }

    #[cold]
    fn flush_watched(&self, first: Offset, lines: u64) {
        self.count_wear(first, lines * LINE_BYTES as u64);
        match self.emulator() {
            Some(emulator) => emulator.flush(first, lines),
            None => self.flush_plain(first, lines),
        }
    }
}

impl Dirty<'_> {
    /// Flushes every line of the range once.
    #[inline]
    pub fn flush(self) -> Flushed {
        let lines = lines_touched(self.at, self.length as usize);
        let first = self.at.line_start();
        if self.region.flags.any() {
            self.region.flush_watched(first, lines);
        } else {
            self.region.flush_plain(first, lines);
        }
        counters::count_flushed(lines);
        Flushed::nothing(self.region)
    }

    /// Leaves the lines dirty, for a checkpoint to flush.
    ///
    /// Only for bytes that a durable redo record holds as well: until the checkpoint has flushed them, that record
    /// must stay alive.
    #[inline]
    pub fn leave_to_checkpoint(self) {}
}

impl Flushed {
    /// An empty batch.
    #[inline]
    pub fn nothing(region: &Region) -> Flushed {
        Flushed {
            region: region.identity(),
            not_send: PhantomData,
        }
    }

    /// Adds another batch to this one: the same fence cleans both.
    ///
    /// # Panics
    /// If the other belongs to another region.
    #[inline]
    pub fn join(&mut self, other: Flushed) {
        assert_eq!(
            self.region, other.region,
            "batches of two regions cannot share a fence"
        );
    }
}

impl Durable {
    /// Evidence that nothing needs: for an operation without data.
    #[inline]
    pub fn nothing(region: &Region) -> Durable {
        Durable {
            region: region.identity(),
        }
    }

    /// Panics unless this is evidence about `region`.
    #[inline]
    pub fn assert_of(&self, region: &Region) {
        assert_eq!(
            self.region,
            region.identity(),
            "evidence about another region"
        );
    }
}
