//! Why the last call of a thread failed.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

/// A failed call: a number for the program, a sentence for its user.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Failure {
        Failure {
            errno,
            message: message.into(),
        }
    }

    /// An argument makes no sense.
    #[cold]
    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, message)
    }

    /// An argument is NULL that must not be.
    #[cold]
    pub(crate) fn null(name: &str) -> Failure {
        Failure::argument(format!(
            "the argument `{name}` is NULL; did the call that was to make it fail?"
        ))
    }

    /// What the system said to a call of ours.
    #[cold]
    pub(crate) fn system(operation: &str, descriptor: c_int, error: rustix::io::Errno) -> Failure {
        let text = std::io::Error::from(error);
        let message = format!("{operation} on descriptor {descriptor}: {text}");
        Failure::new(error.raw_os_error(), message)
    }
}

impl From<perdure::Error> for Failure {
    #[cold]
    fn from(error: perdure::Error) -> Failure {
        Failure::new(error.errno(), error.to_string())
    }
}

struct Last {
    errno: c_int,
    message: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last {
            errno: 0,
            message: None,
        })
    };
}

/// Remembers a failure of this thread, and sets `errno`.
#[cold]
pub(crate) fn remember(function: &str, failure: Failure) {
    let mut text = format!("{function}: {}", failure.message).into_bytes();
    text.retain(|byte| *byte != 0);
    // A thread that is ending may have no place for it any more.
    let _ = LAST.try_with(|last| {
        *last.borrow_mut() = Last {
            errno: failure.errno,
            message: CString::new(text).ok(),
        };
    });
    // SAFETY: the C library's own variable, of this thread.
    unsafe { *libc::__errno_location() = failure.errno };
}

/// Why the last call that failed on this thread did: one line that names the function, the object
/// (the pool, the path, the inode) and, where there is one, the remedy. Empty if none has failed.
/// It stays valid until the next call of this library fails on the same thread; a call that
/// succeeds does not change it.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_last_error() -> *const c_char {
    let message = LAST.try_with(|last| last.borrow().message.as_ref().map(|text| text.as_ptr()));
    message.ok().flatten().unwrap_or(c"".as_ptr())
}

/// The Linux error number (ENOENT, ENOSPC …) of the last call that failed on this thread; 0 if none
/// has. `errno` has the same value right after the call.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_last_errno() -> c_int {
    LAST.try_with(|last| last.borrow().errno).unwrap_or(0)
}
