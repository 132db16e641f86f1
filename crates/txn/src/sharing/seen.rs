//! Blocks that a process may still see after their file has freed them.
//!
//! A process that has mapped a file's blocks into its memory and does not answer when it is told to
//! give them back (it is stopped) goes on seeing them. As long as it does they go to no other file:
//! blocks that a checkpoint would make free wait here. Nothing of this is on the medium: after a
//! crash the file system is rebuilt from the blocks that files own, and the opener of the pool has
//! waited for such processes.

use parking_lot::Mutex;
use pmem::BlockNumber;
use scatter::Extent;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The blocks of a pool that processes may still see.
#[derive(Debug, Default)]
pub struct SeenBlocks {
    /// Whether there is anything at all, so that checkpoints look no further.
    is_any: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    seen: Vec<Seen>,
    /// Blocks that their files freed while a process saw them.
    waiting: Vec<Extent>,
    /// Runs that a process still has mapped when the pool is closed.
    left: Vec<(u64, u64)>,
}

/// The blocks of one guard: runs in order, first and behind the last.
#[derive(Debug)]
struct Seen {
    number: u64,
    runs: Vec<(u64, u64)>,
}

/// As long as it lives, its blocks go to no other file.
#[derive(Debug)]
pub struct SeenGuard {
    blocks: Arc<SeenBlocks>,
    number: u64,
}

impl SeenBlocks {
    /// Keeps these blocks, which processes may see from here on. They belong to a file at this
    /// moment.
    pub fn hold(self: &Arc<Self>, blocks: impl IntoIterator<Item = BlockNumber>) -> SeenGuard {
        let runs = runs_of(blocks);
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        inner.seen.push(Seen { number, runs });
        self.is_any.store(true, Ordering::Release);
        SeenGuard {
            blocks: Arc::clone(self),
            number,
        }
    }

    /// Returns whether a process may see one of these blocks: they are not free for others as soon
    /// as their file frees them.
    pub fn sees(&self, mut blocks: impl Iterator<Item = BlockNumber>) -> bool {
        let inner = self.inner.lock();
        blocks.any(|block| inner.look(block.get(), block.get() + 1).0)
    }

    /// Returns whether there was anything to sort out at the last look.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Returns those of the freed blocks that can be given to others now. The rest waits, and comes
    /// with a later call.
    pub(crate) fn sort_out(&self, freed: &[Extent]) -> Vec<Extent> {
        let mut inner = self.inner.lock();
        let mut all = std::mem::take(&mut inner.waiting);
        all.extend_from_slice(freed);
        let mut free = Vec::with_capacity(all.len());
        for extent in all {
            inner.split(extent, &mut free);
        }
        let is_any = !(inner.seen.is_empty() && inner.waiting.is_empty());
        self.is_any.store(is_any, Ordering::Release);
        free
    }

    /// Returns the blocks that no file has any more and that wait here.
    pub(crate) fn waiting(&self) -> Vec<Extent> {
        self.inner.lock().waiting.clone()
    }

    /// Forgets all guards, because the pool is about to be closed: nothing waits any longer than
    /// for the next checkpoint.
    pub fn forget(&self) {
        self.inner.lock().seen.clear();
    }

    /// Notes blocks that a process still has mapped when the pool is closed.
    pub fn leave(&self, blocks: impl IntoIterator<Item = BlockNumber>) {
        self.inner.lock().left.extend(runs_of(blocks));
    }

    /// Returns whether a process still has one of these blocks mapped when the pool is closed.
    pub(crate) fn were_left(&self, blocks: &Range<u64>) -> bool {
        let inner = self.inner.lock();
        let mut left = inner.left.iter();
        left.any(|(first, end)| *first < blocks.end && blocks.start < *end)
    }
}

/// Returns the runs of blocks, in order.
fn runs_of(blocks: impl IntoIterator<Item = BlockNumber>) -> Vec<(u64, u64)> {
    let mut numbers: Vec<u64> = blocks.into_iter().map(BlockNumber::get).collect();
    numbers.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, end)) if number <= *end => *end = number + 1,
            _ => runs.push((number, number + 1)),
        }
    }
    runs
}

impl Inner {
    /// Adds the parts of an extent that no process sees to `free`, the others to those that wait.
    fn split(&mut self, extent: Extent, free: &mut Vec<Extent>) {
        let (mut at, end) = (
            extent.start.get(),
            extent.start.get() + u64::from(extent.blocks),
        );
        while at < end {
            let (is_seen, until) = self.look(at, end);
            let part = Extent {
                start: BlockNumber::new(at),
                blocks: (until - at) as u32,
            };
            match is_seen {
                true => self.waiting.push(part),
                false => free.push(part),
            }
            at = until;
        }
    }

    /// Returns whether block `at` is seen, and up to where the answer is the same at least.
    fn look(&self, at: u64, end: u64) -> (bool, u64) {
        let mut nearest = end;
        for Seen { runs, .. } in &self.seen {
            let behind = runs.partition_point(|(_, run_end)| *run_end <= at);
            match runs.get(behind) {
                Some(&(first, run_end)) if first <= at => return (true, run_end.min(end)),
                Some(&(first, _)) => nearest = nearest.min(first),
                None => {}
            }
        }
        (false, nearest)
    }
}

impl Drop for SeenGuard {
    fn drop(&mut self) {
        let mut inner = self.blocks.inner.lock();
        inner.seen.retain(|seen| seen.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, blocks: u32) -> Extent {
        Extent {
            start: BlockNumber::new(start),
            blocks,
        }
    }

    #[test]
    fn what_is_seen_waits_until_nobody_sees_it() {
        let seen = Arc::new(SeenBlocks::default());
        assert!(!seen.is_any());
        let numbers = [12, 10, 11, 20].map(BlockNumber::new);
        let first = seen.hold(numbers);
        let second = seen.hold([BlockNumber::new(11)]);
        assert!(seen.is_any());
        assert_eq!(
            seen.sort_out(&[extent(8, 14)]),
            [extent(8, 2), extent(13, 7), extent(21, 1)]
        );
        drop(first);
        assert_eq!(
            seen.sort_out(&[]),
            [extent(10, 1), extent(12, 1), extent(20, 1)]
        );
        assert!(seen.is_any(), "the other one still sees a block");
        drop(second);
        assert_eq!(seen.sort_out(&[]), [extent(11, 1)]);
        assert!(!seen.is_any());
    }

    #[test]
    fn a_pool_that_is_closed_keeps_nothing() {
        let seen = Arc::new(SeenBlocks::default());
        let _guard = seen.hold([BlockNumber::new(5)]);
        assert_eq!(seen.sort_out(&[extent(5, 1)]), []);
        seen.forget();
        assert_eq!(seen.sort_out(&[]), [extent(5, 1)]);
    }
}
