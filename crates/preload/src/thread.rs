//! What a thread knows of itself: its number, and whether it is inside the library.

use locks::THREAD_MAX;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, compiler_fence};

// Constants without a destructor: looking at them never allocates, so a signal handler may.
thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// This thread's number, from 1 on. After a thousand million threads they come again.
#[inline]
pub(crate) fn number() -> u32 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NUMBERS.fetch_add(1, Relaxed) % THREAD_MAX + 1);
        }
        number.get()
    })
}

/// Whether this thread is inside: then a signal has interrupted it there, or the library's own doing has come back to it.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// While it lives, the thread is inside: it may hold the locks of a file or of the client. At the end `errno` is what it was.
pub(crate) struct Inside {
    errno: i32,
}

impl Inside {
    /// Enters, if the thread is not inside already.
    #[inline]
    pub(crate) fn enter() -> Option<Inside> {
        if INSIDE.replace(true) {
            return None;
        }
        compiler_fence(SeqCst);
        Some(Inside { errno: errno() })
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        set_errno(self.errno);
        compiler_fence(SeqCst);
        INSIDE.set(false);
    }
}

/// The thread's `errno`.
#[inline]
pub(crate) fn errno() -> i32 {
    // SAFETY: the C library's address of this thread's own word.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's `errno`.
#[inline]
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}
