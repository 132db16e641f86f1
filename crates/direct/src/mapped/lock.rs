//! The lock of the table. Its holder is not interrupted by a signal: a handler that maps or forks would wait for itself.

use locks::Alone;
use std::mem::MaybeUninit;

/// The lock.
#[derive(Debug)]
pub(super) struct Lock(locks::Lock);

/// The lock is held, and all signals are blocked on this thread.
pub(super) struct Held<'l> {
    alone: Option<Alone<'l>>,
    before: libc::sigset_t,
}

impl Lock {
    pub(super) const fn new() -> Lock {
        Lock(locks::Lock::new())
    }

    pub(super) fn hold(&self) -> Held<'_> {
        let before = block_signals();
        Held {
            alone: Some(self.0.hold()),
            before,
        }
    }

    /// In a child of `fork`, whose only thread this is: whoever held it is not here.
    pub(super) fn forget(&self) {
        self.0.forget();
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        drop(self.alone.take());
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
