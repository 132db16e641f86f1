//! Pages of DRAM and who may have how many.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, Dram};

use crate::word::{FRAMES_MAX, Frame};

/// The cache's pages: taken by whoever fills an entry, given back by whoever ends one.
pub(crate) struct Frames {
    dram: Dram,
    /// How many may be in use. Less than there are while the machine is short of memory.
    limit: AtomicU32,
    /// Apart from what every hit reads.
    free: CachePadded<Mutex<Free>>,
}

#[derive(Default)]
struct Free {
    /// Pages that hold memory.
    warm: Vec<Frame>,
    /// Pages that gave theirs back.
    cold: Vec<Frame>,
    /// All from here on were never used.
    next: u32,
    in_use: u32,
}

impl Frames {
    /// Addresses for a budget in bytes; memory is taken page by page.
    pub(crate) fn new(budget_bytes: u64) -> io::Result<Frames> {
        let count = (budget_bytes / BLOCK_BYTES as u64).clamp(1, u64::from(FRAMES_MAX)) as u32;
        Ok(Frames {
            dram: Dram::new(count as usize * BLOCK_BYTES)?,
            limit: AtomicU32::new(count),
            free: CachePadded::default(),
        })
    }

    /// Pages there are.
    pub(crate) fn count(&self) -> u32 {
        (self.dram.length() / BLOCK_BYTES) as u32
    }

    /// Pages that may be in use.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit.min(self.count()), Ordering::Relaxed);
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.free.lock().in_use
    }

    /// Takes a page, if one may be taken.
    pub(crate) fn take(&self) -> Option<Frame> {
        let mut free = self.free.lock();
        if free.in_use >= self.limit() {
            return None;
        }
        let reused = free.warm.pop().or_else(|| free.cold.pop());
        let frame = reused.unwrap_or_else(|| {
            free.next += 1;
            Frame(free.next - 1)
        });
        free.in_use += 1;
        Some(frame)
    }

    pub(crate) fn give_back(&self, frame: Frame) {
        let mut free = self.free.lock();
        free.in_use -= 1;
        free.warm.push(frame);
    }

    /// Gives the memory of pages that nobody has back to the machine.
    pub(crate) fn discard_free(&self) {
        let warm = std::mem::take(&mut self.free.lock().warm);
        for frame in &warm {
            self.dram.discard(offset(*frame), BLOCK_BYTES);
        }
        self.free.lock().cold.extend(warm);
    }

    /// Copies out of a page that may be overwritten at the same time; the caller finds out afterwards.
    #[inline]
    pub(crate) fn copy_out(&self, frame: Frame, in_block: usize, into: &mut [u8]) {
        debug_assert!(in_block + into.len() <= BLOCK_BYTES);
        self.dram.copy_out(offset(frame) + in_block, into);
    }

    /// Fills a page that is the caller's, past the caches: they belong to readers, and lines that another processor has changed are slow to come.
    pub(crate) fn fill(&self, frame: Frame, bytes: &[u8; BLOCK_BYTES]) {
        self.dram.stream_in(offset(frame), bytes);
    }

    /// The page's bytes in place.
    ///
    /// # Safety
    /// The caller has pinned an entry that owns the frame, and holds it as long as the result lives.
    #[inline]
    pub(crate) unsafe fn bytes(&self, frame: Frame) -> &[u8] {
        // SAFETY: a frame is written only by who fills an entry that nobody has pinned (E3), and discarded only when it is free.
        unsafe { self.dram.bytes(offset(frame), BLOCK_BYTES) }
    }
}

#[inline]
fn offset(frame: Frame) -> usize {
    frame.0 as usize * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_is_handed_out_twice_nor_beyond_the_limit() {
        let frames = Frames::new(3 * BLOCK_BYTES as u64 + 1).expect("memory");
        assert_eq!(frames.count(), 3);
        let taken: Vec<Frame> = std::iter::from_fn(|| frames.take()).collect();
        assert_eq!(taken, [Frame(0), Frame(1), Frame(2)]);
        frames.fill(Frame(1), &[7; BLOCK_BYTES]);
        frames.give_back(Frame(1));
        frames.set_limit(2);
        assert_eq!(frames.take(), None, "two are out");
        frames.set_limit(9);
        frames.discard_free();
        assert_eq!(frames.take(), Some(Frame(1)));
        let mut bytes = [1; 8];
        frames.copy_out(Frame(1), 8, &mut bytes);
        assert_eq!(bytes, [0; 8], "it was given back to the machine meanwhile");
        assert_eq!((frames.take(), frames.in_use()), (None, 3));
    }
}
