//! Reading and writing at the position.

use crate::buffers::{self, Named};
use crate::operate::{self, Place, Way};
use crate::real;
use crate::table::TABLE;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use rustix::io::ReadWriteFlags;
use std::slice;

/// # Safety
///
/// As for `read`.
unsafe fn reading(number: c_int, into: *mut c_void, bytes: size_t) -> Way {
    // SAFETY: the caller's promise.
    match unsafe { buffers::to_read(into, bytes) } {
        Named::Memory(mut into) => operate::if_ours_to_read(number, true, |pin| {
            let into = slice::from_mut(&mut into);
            operate::read(number, pin, into, ReadWriteFlags::empty())
        }),
        Named::Nothing => Way::Kernel,
        Named::Odd => operate::odd(number),
    }
}

/// # Safety
///
/// As for `write`.
unsafe fn writing(number: c_int, data: *const c_void, bytes: size_t) -> Way {
    // SAFETY: the caller's promise.
    match unsafe { buffers::to_write(data, bytes) } {
        Named::Memory(data) => operate::if_ours_to_write(number, |pin| {
            let data = slice::from_ref(&data);
            operate::write(number, pin, data, ReadWriteFlags::empty(), Place::AsOpened)
        }),
        Named::Nothing => Way::Kernel,
        Named::Odd => operate::odd(number),
    }
}

/// # Safety
///
/// As for `readv`.
pub(super) unsafe fn reading_vector(
    number: c_int,
    vector: *const iovec,
    count: c_int,
    flags: ReadWriteFlags,
) -> Way {
    // SAFETY: the caller's promise.
    operate::if_ours_to_write(number, |pin| unsafe {
        buffers::vector_to_read(vector, count, |named| match named {
            Named::Memory(into) => operate::read(number, pin, into, flags),
            Named::Nothing => Way::Kernel,
            Named::Odd => operate::odd(number),
        })
    })
}

/// # Safety
///
/// As for `writev`.
pub(super) unsafe fn writing_vector(
    number: c_int,
    vector: *const iovec,
    count: c_int,
    flags: ReadWriteFlags,
    place: Place,
) -> Way {
    operate::if_ours_to_write(number, |pin| {
        // SAFETY: the caller's promise.
        match unsafe { buffers::vector_to_write(vector, count) } {
            Named::Memory(data) => operate::write(number, pin, data, flags, place),
            Named::Nothing => Way::Kernel,
            // SAFETY: the caller's promise.
            Named::Odd if place == Place::End => unsafe {
                operate::append_odd(number, pin, vector, count, -1, flags)
            },
            Named::Odd => operate::odd(number),
        }
    })
}

before! {
    fn read(number: c_int, into: *mut c_void, bytes: size_t) -> ssize_t {
        if TABLE.is_kernels(number) {
            return real::read(number, into, bytes);
        }
        reading(number, into, bytes).or(number, || real::read(number, into, bytes))
    }

    fn __read(number: c_int, into: *mut c_void, bytes: size_t) -> ssize_t {
        read(number, into, bytes)
    }

    fn __read_chk(number: c_int, into: *mut c_void, bytes: size_t, room: size_t) -> ssize_t {
        if bytes > room {
            return real::__read_chk(number, into, bytes, room);
        }
        read(number, into, bytes)
    }

    fn readv(number: c_int, vector: *const iovec, count: c_int) -> ssize_t {
        if TABLE.is_kernels(number) {
            return real::readv(number, vector, count);
        }
        reading_vector(number, vector, count, ReadWriteFlags::empty()).or(number, || real::readv(number, vector, count))
    }

    fn write(number: c_int, data: *const c_void, bytes: size_t) -> ssize_t {
        if TABLE.is_kernels(number) {
            return real::write(number, data, bytes);
        }
        writing(number, data, bytes).or(number, || real::write(number, data, bytes))
    }

    fn __write(number: c_int, data: *const c_void, bytes: size_t) -> ssize_t {
        write(number, data, bytes)
    }

    fn writev(number: c_int, vector: *const iovec, count: c_int) -> ssize_t {
        if TABLE.is_kernels(number) {
            return real::writev(number, vector, count);
        }
        writing_vector(number, vector, count, ReadWriteFlags::empty(), Place::AsOpened).or(number, || real::writev(number, vector, count))
    }

    fn lseek(number: c_int, offset: off_t, whence: c_int) -> off_t {
        if TABLE.is_kernels(number) {
            return real::lseek(number, offset, whence);
        }
        operate::lseek(number, offset, whence).or(number, || real::lseek(number, offset, whence) as ssize_t) as off_t
    }

    fn __lseek(number: c_int, offset: off_t, whence: c_int) -> off_t {
        lseek(number, offset, whence)
    }

    fn lseek64(number: c_int, offset: off_t, whence: c_int) -> off_t {
        if TABLE.is_kernels(number) {
            return real::lseek64(number, offset, whence);
        }
        operate::lseek(number, offset, whence).or(number, || real::lseek64(number, offset, whence) as ssize_t) as off_t
    }
}
