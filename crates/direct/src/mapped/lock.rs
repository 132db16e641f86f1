//! The lock of the table. Its holder is not interrupted by a signal: a handler that maps or forks would wait for itself.

use rustix::thread::futex;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody sleeps.
const WANTED: u32 = 2;

/// The lock. Unlike others it allocates nothing, whoever waits.
#[derive(Debug)]
pub(super) struct Lock(AtomicU32);

/// The lock is held, and all signals are blocked on this thread.
pub(super) struct Held<'l> {
    lock: &'l Lock,
    before: libc::sigset_t,
}

impl Lock {
    pub(super) const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    pub(super) fn hold(&self) -> Held<'_> {
        let before = block_signals();
        if self
            .0
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_err()
        {
            while self.0.swap(WANTED, Acquire) != FREE {
                let _ = futex::wait(&self.0, futex::Flags::PRIVATE, WANTED, None);
            }
        }
        Held { lock: self, before }
    }

    /// In a child of `fork`, whose only thread this is: whoever held it is not here.
    pub(super) fn forget(&self) {
        self.0.store(FREE, Release);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.lock.0.swap(FREE, Release) == WANTED {
            let _ = futex::wake(&self.lock.0, futex::Flags::PRIVATE, 1);
        }
        restore_signals(&self.before);
    }
}

/// Blocks all signals on this thread; what was blocked before.
pub(super) fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both are sets of the C library's own, the first is filled in by `sigfillset`, and the second is all zeros, an empty set, if the call fails.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

pub(super) fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that `block_signals` has returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}
