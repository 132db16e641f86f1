//! Opening. The mode is passed on even if the program has not passed one: it is what happens to be in the register, and the C library looks at it under the same conditions.

use crate::habits::Name;
use crate::real;
use crate::table::TABLE;
use libc::{O_CREAT, c_char, c_int, mode_t};

/// Whatever this opens is fresh.
fn opened(open: impl FnOnce() -> c_int) -> c_int {
    let opening = TABLE.opening();
    let number = open();
    TABLE.opened(number, opening);
    number
}

/// The same, and whether the kernel was told to make what was not there.
///
/// # Safety
///
/// If the kernel opens something by this path, it is a string of C's.
unsafe fn opened_as(open: impl FnOnce() -> c_int, path: *const c_char, flags: c_int) -> c_int {
    let opening = TABLE.opening();
    let number = open();
    if number >= 0 && flags & O_CREAT != 0 {
        // SAFETY: the caller's promise.
        let name = unsafe { Name::of(path) };
        TABLE.made(number, name.bits(), opening);
    } else {
        TABLE.opened(number, opening);
    }
    number
}

macro_rules! opening {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        before! {$(
            fn $name($($argument: $type),*) -> c_int {
                opened(|| real::$name($($argument),*))
            }
        )*}
    };
}

opening! {
    creat(path: *const c_char, mode: mode_t);
    creat64(path: *const c_char, mode: mode_t);
    __open_2(path: *const c_char, flags: c_int);
    __open64_2(path: *const c_char, flags: c_int);
    __openat_2(directory: c_int, path: *const c_char, flags: c_int);
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int);
    mkstemp(template: *mut c_char);
    mkstemp64(template: *mut c_char);
    mkostemp(template: *mut c_char, flags: c_int);
    mkostemp64(template: *mut c_char, flags: c_int);
    mkstemps(template: *mut c_char, suffix: c_int);
    mkstemps64(template: *mut c_char, suffix: c_int);
    mkostemps(template: *mut c_char, suffix: c_int, flags: c_int);
    mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int);
}

before! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened_as(|| real::open(path, flags, mode), path, flags)
    }

    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened_as(|| real::open64(path, flags, mode), path, flags)
    }

    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened_as(|| real::openat(directory, path, flags, mode), path, flags)
    }

    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened_as(|| real::openat64(directory, path, flags, mode), path, flags)
    }

    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened_as(|| real::open(path, flags, mode), path, flags)
    }

    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened_as(|| real::open64(path, flags, mode), path, flags)
    }
}
