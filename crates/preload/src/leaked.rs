//! A value that is made when it is first needed, and then lives as long as the process.
//!
//! Unlike `OnceLock` it has no state in between in which a child of `fork` could find it: two threads may both make the value, and one of the two is dropped.

use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Room for the value.
pub(crate) struct Leaked<T: Send + Sync + 'static>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> Leaked<T> {
    /// Nothing so far.
    pub(crate) const fn new() -> Leaked<T> {
        Leaked(AtomicPtr::new(null_mut()))
    }

    /// The value, if it was made.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or from a box that is never freed.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// The value, made now if it was not.
    #[inline]
    pub(crate) fn get_or(&self, make: impl FnOnce() -> T) -> &'static T {
        self.get_or_box(|| Box::new(make()))
    }

    /// The same for a value that is too large for the stack.
    #[inline]
    pub(crate) fn get_or_box(&self, make: impl FnOnce() -> Box<T>) -> &'static T {
        match self.get() {
            Some(value) => value,
            None => self.make(make),
        }
    }

    #[cold]
    fn make(&self, make: impl FnOnce() -> Box<T>) -> &'static T {
        let made = Box::into_raw(make());
        match self.0.compare_exchange(null_mut(), made, AcqRel, Acquire) {
            // SAFETY: it is never freed from here on.
            Ok(_) => unsafe { &*made },
            Err(other) => {
                // SAFETY: nobody but this function has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: not null, and never freed.
                unsafe { &*other }
            }
        }
    }

    /// Forgets the value without touching it; the next who needs one makes it.
    pub(crate) fn abandon(&self) {
        self.0.store(null_mut(), Release);
    }
}
