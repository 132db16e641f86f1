//! Pages of DRAM and who may have how many.
//!
//! They are handed out in the order of their numbers, round and round. So blocks that are copied one after the other mostly lie one behind the other in memory,
//! where whoever reads them so gets them in 190 ns each; from pages in any order it took 500.
//!
//! Memory is taken from the machine when it is needed, some of it just before: the first touch of a huge page takes 0.2 ms, and 6 ms in a virtual machine whose
//! host has not yet given the memory either. So free pages that have memory go first, and there are some of those kept ready while copies are made.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, Dram};

use crate::page_set::PageSet;
use crate::word::{FRAMES_MAX, Frame};

/// Pages of a huge page of the machine.
const HUGE: u32 = 512;
/// Free pages with memory that are kept ready: 16 MiB of them, and at most this part of all.
const READY_MAX: u32 = 4096;
const READY_PART: u32 = 8;

thread_local! {
    /// The page that this thread has read last.
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// The cache's pages: taken by whoever fills an entry, given back by whoever ends one.
pub(crate) struct Frames {
    dram: Dram,
    /// How many may be in use. Less than there are while the machine is short of memory.
    limit: AtomicU32,
    /// Apart from what every hit reads.
    free: CachePadded<Mutex<Free>>,
}

struct Free {
    /// Pages that hold memory.
    warm: PageSet,
    /// Pages that hold none.
    cold: PageSet,
    /// The page after the one that was taken last.
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
            free: CachePadded::new(Mutex::new(Free {
                warm: PageSet::new(count),
                cold: PageSet::full(count),
                next: 0,
                in_use: 0,
            })),
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
        let page = free.warm.next(free.next).or_else(|| free.cold.next(0))?;
        if !free.warm.remove(page) {
            free.cold.remove(page);
        }
        free.next = page + 1;
        free.in_use += 1;
        Some(Frame(page))
    }

    pub(crate) fn give_back(&self, frame: Frame) {
        let mut free = self.free.lock();
        free.in_use -= 1;
        free.warm.insert(frame.0);
    }

    /// Takes memory for some more free pages, if few have any. Whether it did.
    pub(crate) fn make_ready(&self) -> bool {
        let pages = {
            let free = self.free.lock();
            let room = self.limit().saturating_sub(free.in_use);
            let wanted = READY_MAX.min(self.count() / READY_PART).min(room);
            let Some(first) = free.cold.next(0).filter(|_| free.warm.count() < wanted) else {
                return false;
            };
            let end = (first / HUGE + 1) * HUGE;
            first
                ..end
                    .min(first + wanted - free.warm.count())
                    .min(self.count())
        };
        let (first, count) = (Frame(pages.start), pages.len());
        if !self.dram.populate(offset(first), count * BLOCK_BYTES) {
            return false;
        }
        let mut free = self.free.lock();
        for page in pages {
            // Somebody may have taken it meanwhile.
            if free.cold.remove(page) {
                free.warm.insert(page);
            }
        }
        true
    }

    /// Gives the memory of pages that nobody has back to the machine.
    pub(crate) fn discard_free(&self) {
        loop {
            let first = {
                let mut free = self.free.lock();
                let Some(page) = free.warm.next(0) else {
                    return;
                };
                free.warm.remove(page);
                Frame(page)
            };
            self.dram.discard(offset(first), BLOCK_BYTES);
            self.free.lock().cold.insert(first.0);
        }
    }

    /// Copies out of a page that may be overwritten at the same time; the caller finds out afterwards.
    #[inline]
    pub(crate) fn copy_out(&self, frame: Frame, in_block: usize, into: &mut [u8]) {
        debug_assert!(in_block + into.len() <= BLOCK_BYTES);
        let at = offset(frame) + in_block;
        let last = LAST.replace(frame.0);
        // The page itself is in the processor's caches then, and it has seen the next one coming.
        let is_foreseen = frame.0.wrapping_sub(last) <= 1;
        if !is_foreseen {
            self.dram.prefetch_far(at, into.len());
        }
        self.dram.copy_out(at, into);
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

    #[test]
    fn pages_are_handed_out_in_order_those_with_memory_first() {
        let frames = Frames::new(4096 * BLOCK_BYTES as u64).expect("memory");
        let take = |count: u32| Vec::from_iter((0..count).filter_map(|_| frames.take()));
        let give_back = |pages: &[u32]| {
            let pages = pages.iter();
            pages.for_each(|&page| frames.give_back(Frame(page)));
        };
        assert_eq!(take(6), [0, 1, 2, 3, 4, 5].map(Frame));
        give_back(&[4, 1, 3]);
        assert_eq!(take(4), [1, 3, 4, 6].map(Frame), "6 had none before");
        give_back(&[0, 5]);
        assert_eq!(take(1), [Frame(0)], "round and round");
        assert!(frames.make_ready());
        frames.set_limit(6);
        assert!(!frames.make_ready(), "no more may be taken");
        frames.set_limit(u32::MAX);
        // A huge page has 512, of which 7 are taken; a budget of 4,096 keeps 512.
        let counts = || {
            let free = frames.free.lock();
            (free.warm.count(), free.cold.count(), free.in_use)
        };
        assert_eq!(counts(), (506, 4096 - 512, 6));
        assert!(frames.make_ready());
        assert_eq!(counts(), (512, 4096 - 518, 6));
        assert!(!frames.make_ready());
        assert_eq!(frames.take(), Some(Frame(5)));
        frames.discard_free();
        assert_eq!(counts(), (0, 4096 - 7, 7));
    }

    #[test]
    fn pages_made_ready_keep_what_is_written_meanwhile() {
        let frames = Frames::new(8192 * BLOCK_BYTES as u64).expect("memory");
        std::thread::scope(|scope| {
            scope.spawn(|| while frames.make_ready() {});
            for number in 0..4000_u32 {
                let frame = frames.take().expect("there are more");
                frames.fill(frame, &[number as u8 | 1; BLOCK_BYTES]);
                let mut bytes = [0; BLOCK_BYTES];
                frames.copy_out(frame, 0, &mut bytes);
                assert!(bytes.iter().all(|&byte| byte == number as u8 | 1));
            }
        });
    }
}
