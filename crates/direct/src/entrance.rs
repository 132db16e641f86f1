//! Who may go into this library: one operation at a time on each thread, and only in the process whose memory it is.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Evidence that this thread has just come in.
///
/// A signal handler that interrupts an operation may call the same functions again: it would wait for locks that its own thread holds. It is sent to the kernel instead.
#[derive(Debug)]
pub(crate) struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Goes in; `None` if this thread is inside already.
    #[inline]
    pub(crate) fn enter() -> Option<Inside> {
        let was_inside = IS_INSIDE.try_with(|inside| inside.replace(true));
        // Not made where it is not given: dropping it says that the thread has left.
        (was_inside == Ok(false)).then(|| Inside(PhantomData))
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let _ = IS_INSIDE.try_with(|inside| inside.set(false));
    }
}

/// Which of the processes that this memory was copied through by `fork` something belongs to. What belongs to an earlier one must not be touched: locks may be held by threads that are not here,
/// and the pool is not mapped here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Generation(u32);

static GENERATION: AtomicU32 = AtomicU32::new(0);

impl Generation {
    /// This process.
    #[inline]
    pub(crate) fn current() -> Generation {
        Generation(GENERATION.load(Ordering::Relaxed))
    }

    /// This process is another one from here on.
    pub(crate) fn begin_next() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_once() {
        let first = Inside::enter();
        assert!(first.is_some());
        for _ in 0..3 {
            assert!(Inside::enter().is_none(), "being refused is not leaving");
        }
        let elsewhere = std::thread::spawn(|| Inside::enter().is_some()).join();
        assert!(elsewhere.expect("joined"));
        drop(first);
        assert!(Inside::enter().is_some());
    }
}
