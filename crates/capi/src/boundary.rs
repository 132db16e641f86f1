//! Between C and Rust: no panic leaves the library, and every failure is remembered (C1, C2).

use crate::failure::{Failure, remember};
use libc::ssize_t;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What the functions behind the boundary return.
pub(crate) type Answer<T> = Result<T, Failure>;

/// There was a panic. What it left behind in memory nobody knows.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// Whether there was a panic in this process.
#[inline]
pub(crate) fn is_broken() -> bool {
    IS_BROKEN.load(Relaxed)
}

/// Refuses once there was a panic.
#[inline]
pub(crate) fn sound() -> Answer<()> {
    match is_broken() {
        false => Ok(()),
        true => Err(Failure::new(
            libc::EIO,
            "an earlier call met a fault of this library; end the process: the next one that opens the pool recovers it, and nothing that was acknowledged is lost",
        )),
    }
}

/// Does the work of an exported function; `failed` is what the function returns if it fails.
#[inline]
pub(crate) fn call<T>(function: &str, failed: T, work: impl FnOnce() -> Answer<T>) -> T {
    // Whoever comes after a panic is refused, so nobody sees what it has left half done.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            remember(function, failure);
            failed
        }
        Err(payload) => {
            IS_BROKEN.store(true, Relaxed);
            let said = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("no reason given");
            let message = format!("a fault of this library, please report it: {said}");
            // A payload that panics when it is dropped would be the second one.
            std::mem::forget(payload);
            remember(function, Failure::new(libc::EIO, message));
            failed
        }
    }
}

/// As [`call`]: 0 or -1.
#[inline]
pub(crate) fn status(function: &str, work: impl FnOnce() -> Answer<()>) -> c_int {
    call(function, -1, || work().map(|()| 0))
}

/// As [`call`]: 1 for yes, 0 for no, or -1.
#[inline]
pub(crate) fn truth(function: &str, work: impl FnOnce() -> Answer<bool>) -> c_int {
    call(function, -1, || work().map(c_int::from))
}

/// As [`call`]: a number of bytes, or -1. No caller has more than `isize::MAX` bytes (`pointers`
/// looks after that).
#[inline]
pub(crate) fn count(function: &str, work: impl FnOnce() -> Answer<usize>) -> ssize_t {
    call(function, -1, || work().map(|bytes| bytes as ssize_t))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{perdure_last_errno, perdure_last_error};
    use std::ffi::CStr;

    #[test]
    fn a_panic_becomes_a_failure_and_nothing_is_trusted_afterwards() {
        let returned = status("perdure_test", || panic!("number {}", 7));
        // SAFETY: a text of this thread, and no call in between.
        let message = unsafe { CStr::from_ptr(perdure_last_error()) };
        assert_eq!((returned, perdure_last_errno()), (-1, libc::EIO));
        let expected = c"perdure_test: a fault of this library, please report it: number 7";
        assert_eq!(message, expected);
        assert!(sound().is_err());
    }
}
