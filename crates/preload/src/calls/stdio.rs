//! The C library's streams. They read and write unseen, with the kernel's position; the table only has to stay right.

use crate::real;
use crate::table::TABLE;
use libc::{DIR, FILE, c_char, c_int, c_void};

/// The number of a stream.
///
/// # Safety
///
/// The stream is open.
unsafe fn number(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::fileno(stream) }
}

/// # Safety
///
/// The stream is open, or null.
unsafe fn opened(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: the caller's promise.
        TABLE.opened_for_others(unsafe { number(stream) });
    }
    stream
}

before! {
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        opened(real::fopen(path, mode))
    }

    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        opened(real::fopen64(path, mode))
    }

    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        TABLE.replacing(number(stream));
        opened(real::freopen(path, mode, stream))
    }

    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        TABLE.replacing(number(stream));
        opened(real::freopen64(path, mode, stream))
    }

    fn fdopen(number: c_int, mode: *const c_char) -> *mut FILE {
        TABLE.share(number);
        real::fdopen(number, mode)
    }

    // The C library reads directories by itself, and closes them.
    fn fdopendir(number: c_int) -> *mut DIR {
        let directory = real::fdopendir(number);
        if !directory.is_null() {
            TABLE.closing(number);
        }
        directory
    }

    fn closedir(directory: *mut DIR) -> c_int {
        if !directory.is_null() {
            TABLE.closing(libc::dirfd(directory));
        }
        real::closedir(directory)
    }

    fn fclose(stream: *mut FILE) -> c_int {
        TABLE.closing(number(stream));
        real::fclose(stream)
    }

    fn pclose(stream: *mut FILE) -> c_int {
        TABLE.closing(number(stream));
        real::pclose(stream)
    }

    fn vdprintf(number: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        TABLE.share(number);
        real::vdprintf(number, format, arguments)
    }

    fn __vdprintf_chk(number: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        TABLE.share(number);
        real::__vdprintf_chk(number, flag, format, arguments)
    }

    fn backtrace_symbols_fd(addresses: *const *mut c_void, count: c_int, number: c_int) {
        TABLE.share(number);
        real::backtrace_symbols_fd(addresses, count, number);
    }
}
