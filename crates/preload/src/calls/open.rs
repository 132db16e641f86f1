//! Opening. The mode is passed on even if the program has not passed one: it is what happens to be in the register, and the C library looks at it under the same conditions.

use crate::{real, table};
use libc::{c_char, c_int, mode_t};

/// Whatever is open now is fresh.
fn opened(number: c_int) -> c_int {
    table::opened(number);
    number
}

macro_rules! opening {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        before! {$(
            fn $name($($argument: $type),*) -> c_int {
                opened(real::$name($($argument),*))
            }
        )*}
    };
}

opening! {
    open(path: *const c_char, flags: c_int, mode: mode_t);
    open64(path: *const c_char, flags: c_int, mode: mode_t);
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t);
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
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened(real::open(path, flags, mode))
    }

    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened(real::open64(path, flags, mode))
    }
}
