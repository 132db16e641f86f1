//! Files of which the kernel has dropped its pages, until it has written to them.
//!
//! The kernel puts what a program writes into its page first, lets go of the page, and asks the server then. If the page is dropped in between, because a process attaches the file, and somebody reads it again
//! before the server has written, then the kernel has the old content, and keeps it. It holds the inode's lock during all that, so only the first write that arrives after a drop can be such a one. When
//! something was read between the two, its pages are dropped once more, before the writer has his answer.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Copy, Debug, Default)]
struct Dropped {
    /// Drops that have begun and not ended.
    running: usize,
    /// The kernel has asked for content since.
    is_read: bool,
}

/// All such files of a mount.
#[derive(Debug, Default)]
pub(super) struct Drops {
    /// Files, so that requests look no further where there are none.
    count: AtomicUsize,
    files: Mutex<HashMap<u64, Dropped>>,
}

impl Drops {
    /// Drops with `work`, which makes the kernel do it.
    pub(super) fn during(&self, inode: u64, work: impl FnOnce()) {
        self.change(|files| files.entry(inode).or_default().running += 1);
        work();
        self.change(|files| {
            if let Some(dropped) = files.get_mut(&inode) {
                dropped.running -= 1;
            }
        });
    }

    /// The kernel is about to read.
    #[inline]
    pub(super) fn read(&self, inode: u64) {
        if self.count.load(Ordering::SeqCst) > 0
            && let Some(dropped) = self.files.lock().get_mut(&inode)
        {
            dropped.is_read = true;
        }
    }

    /// The kernel has written, and has no answer yet: whether it may have old pages of the file.
    #[inline]
    pub(super) fn written(&self, inode: u64) -> bool {
        self.count.load(Ordering::SeqCst) > 0
            && self.change(|files| {
                let is_read = files.get(&inode).is_some_and(|dropped| dropped.is_read);
                settle(files, inode);
                is_read
            })
    }

    /// What [`written`](Self::written) told of was dropped, before the answer: the next write comes behind it.
    pub(super) fn dropped_again(&self, inode: u64) {
        self.change(|files| settle(files, inode));
    }

    /// The kernel has forgotten the file.
    pub(super) fn forget(&self, inode: u64) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.change(|files| settle(files, inode));
        }
    }

    fn change<T>(&self, work: impl FnOnce(&mut HashMap<u64, Dropped>) -> T) -> T {
        let mut files = self.files.lock();
        let outcome = work(&mut files);
        self.count.store(files.len(), Ordering::SeqCst);
        outcome
    }
}

/// Later writes come behind all drops, but for those that have not ended.
fn settle(files: &mut HashMap<u64, Dropped>, inode: u64) {
    if files
        .get(&inode)
        .is_some_and(|dropped| dropped.running == 0)
    {
        files.remove(&inode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_between_a_drop_and_the_first_write_behind_it_is_remembered() {
        let drops = Drops::default();
        drops.read(1);
        assert!(!drops.written(1), "nothing was dropped");
        drops.during(1, || {});
        assert!(!drops.written(1), "nothing was read");
        drops.read(1);
        assert!(!drops.written(1), "it is not the first write");
        drops.during(1, || {});
        drops.read(2);
        assert!(!drops.written(2), "another file");
        drops.read(1);
        assert!(drops.written(1));
        assert!(!drops.written(1), "once");
        drops.during(1, || {});
        drops.read(1);
        drops.forget(1);
        assert!(!drops.written(1), "it has no pages any more");
    }

    #[test]
    fn while_a_drop_runs_each_write_may_be_the_first_one() {
        let drops = Drops::default();
        drops.during(1, || {
            drops.read(1);
            assert!(drops.written(1));
            drops.dropped_again(1);
            assert!(drops.written(1));
        });
        drops.dropped_again(1);
        assert!(!drops.written(1));
        assert_eq!(drops.count.load(Ordering::SeqCst), 0);
    }
}
