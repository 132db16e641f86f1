//! Threads that make journals: the conversation with their process is told when they make the next one, so that it is awake when the process asks for it.
//!
//! A guess in any case: who is told too often, or not at all, answers as before.

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What wakes the thread of a conversation. Readable while it has rung.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Bell(eventfd(0, flags)?))
    }

    pub(crate) fn ring(&self) {
        // It cannot fail but by ringing more often than a word can count.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Stops ringing.
    pub(super) fn hush(&self) {
        // If it does not ring, that is what is wanted.
        let _ = rustix::io::read(&self.0, &mut [0; size_of::<u64>()]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The file that was made last, and by which thread.
#[derive(Clone, Copy, Default)]
struct Made {
    inode: u64,
    thread: u32,
}

/// Who is told of whose files.
#[derive(Default)]
pub(super) struct Makers {
    last: Mutex<Made>,
    /// Bells, so that who makes a file without any looks no further.
    count: AtomicUsize,
    bells: Mutex<HashMap<u32, Arc<Bell>>>,
}

impl Makers {
    /// The thread has made a file: the bell to ring when it has its answer, if somebody expected that.
    pub(super) fn made(&self, inode: u64, thread: u32) -> Option<Arc<Bell>> {
        *self.last.lock() = Made { inode, thread };
        match self.count.load(Ordering::Relaxed) {
            0 => None,
            _ => self.bells.lock().get(&thread).cloned(),
        }
    }

    /// Which thread has made the file, if it was the last one that was made.
    pub(super) fn maker_of(&self, inode: u64) -> Option<u32> {
        let last = *self.last.lock();
        (last.inode == inode).then_some(last.thread)
    }

    /// From here on the bell rings when the thread makes a file.
    pub(super) fn expect(&self, thread: u32, bell: &Arc<Bell>) {
        let mut bells = self.bells.lock();
        bells.insert(thread, Arc::clone(bell));
        self.count.store(bells.len(), Ordering::Relaxed);
    }

    /// The bell rings no more for this thread.
    pub(super) fn forget(&self, thread: u32, bell: &Arc<Bell>) {
        let mut bells = self.bells.lock();
        // The thread's number may be another one's by now.
        if bells
            .get(&thread)
            .is_some_and(|there| Arc::ptr_eq(there, bell))
        {
            bells.remove(&thread);
        }
        self.count.store(bells.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn rings(bell: &Bell) -> bool {
        let mut polled = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).expect("poll") > 0
    }

    fn make(makers: &Makers, inode: u64, thread: u32) {
        if let Some(bell) = makers.made(inode, thread) {
            bell.ring();
        }
    }

    #[test]
    fn the_bell_rings_for_the_maker_of_the_file_and_for_nobody_else() {
        let (makers, bell) = (Makers::default(), Arc::new(Bell::new().expect("a bell")));
        make(&makers, 1, 100);
        make(&makers, 2, 200);
        assert_eq!(makers.maker_of(1), None, "another file was made since");
        assert_eq!(makers.maker_of(2), Some(200));
        makers.expect(200, &bell);
        make(&makers, 3, 100);
        assert!(!rings(&bell), "not for the other thread");
        make(&makers, 4, 200);
        assert!(rings(&bell));
        bell.hush();
        assert!(!rings(&bell));
        makers.forget(200, &bell);
        make(&makers, 5, 200);
        assert!(!rings(&bell), "not when it is not wanted any more");
    }

    #[test]
    fn who_forgets_leaves_the_bell_of_a_later_process_with_that_number() {
        let makers = Makers::default();
        let [old, new] = [(); 2].map(|()| Arc::new(Bell::new().expect("a bell")));
        makers.expect(100, &old);
        makers.expect(100, &new);
        makers.forget(100, &old);
        make(&makers, 2, 100);
        assert!(rings(&new) && !rings(&old));
    }
}
