//! Reading and writing at an offset.

use super::data::{reading_vector, writing_vector};
use crate::buffers::{self, Named};
use crate::operate::{self, Place, Way};
use crate::real;
use crate::table::TABLE;
use direct::BLOCK_BYTES;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use rustix::io::ReadWriteFlags;
use std::slice;

/// The short way of `pread`: a whole block, of a file that this thread alone uses. `false` if there is another way to go.
///
/// # Safety
///
/// As for `pread`.
#[inline(always)]
unsafe fn reads_block(number: c_int, into: *mut c_void, bytes: size_t, offset: off_t) -> bool {
    if bytes != BLOCK_BYTES || into.is_null() {
        return false;
    }
    // SAFETY: there is room for so many bytes, as the caller promises.
    let block = unsafe { &mut *into.cast::<[u8; BLOCK_BYTES]>() };
    operate::read_block(number, block, offset)
}

/// # Safety
///
/// As for `pread`. Not inline, so that what it needs of the stack is no burden to the short way.
#[inline(never)]
unsafe fn reading_at(number: c_int, into: *mut c_void, bytes: size_t, offset: off_t) -> Way {
    // SAFETY: the caller's promise.
    match unsafe { buffers::to_read(into, bytes) } {
        Named::Memory(mut into) => match operate::read_as_owner(number, &mut into, offset) {
            Some(way) => way,
            None => operate::if_ours_to_read(number, false, |pin| {
                operate::read_at(number, pin, slice::from_mut(&mut into), offset)
            }),
        },
        _ => Way::Kernel,
    }
}

/// The short way of `pwrite`: a whole block, of a file that this thread alone writes. `false` if there is another way to go, and nothing has happened.
///
/// # Safety
///
/// As for `pwrite`.
#[inline(always)]
unsafe fn overwrites_block(
    number: c_int,
    data: *const c_void,
    bytes: size_t,
    offset: off_t,
) -> bool {
    if bytes != BLOCK_BYTES || data.is_null() {
        return false;
    }
    // SAFETY: so many bytes are there, as the caller promises.
    let block = unsafe { &*data.cast::<[u8; BLOCK_BYTES]>() };
    operate::overwrite_block(number, block, offset)
}

/// # Safety
///
/// As for `pwrite`. Not inline, so that what it needs of the stack is no burden to the short way.
#[inline(never)]
unsafe fn writing_at(number: c_int, data: *const c_void, bytes: size_t, offset: off_t) -> Way {
    // SAFETY: the caller's promise.
    match unsafe { buffers::to_write(data, bytes) } {
        Named::Memory(data) => operate::if_ours(number, false, |pin| {
            operate::write_at(number, pin, slice::from_ref(&data), offset, Place::AsOpened)
        }),
        _ => Way::Kernel,
    }
}

/// # Safety
///
/// As for `preadv2`.
unsafe fn reading_vector_at(
    number: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> Way {
    let Some(flags) = without_effect(flags) else {
        return operate::odd(number);
    };
    // SAFETY: the caller's promise.
    unsafe {
        if offset == -1 {
            return reading_vector(number, vector, count, flags);
        }
        operate::if_ours(number, false, |pin| {
            buffers::vector_to_read(vector, count, |named| match named {
                Named::Memory(into) => operate::read_at(number, pin, into, offset),
                _ => Way::Kernel,
            })
        })
    }
}

/// # Safety
///
/// As for `pwritev2`.
unsafe fn writing_vector_at(
    number: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> Way {
    const PLACES: c_int = libc::RWF_APPEND | libc::RWF_NOAPPEND;
    let place = match flags & PLACES {
        0 => Place::AsOpened,
        libc::RWF_APPEND => Place::End,
        libc::RWF_NOAPPEND => Place::Named,
        _ => return operate::odd(number),
    };
    if without_effect(flags & !PLACES).is_none() {
        return operate::odd(number);
    }
    let flags = ReadWriteFlags::from_bits_retain(flags.unsigned_abs());
    if place != Place::AsOpened {
        // However seldom it was used: the kernel may take the end to be elsewhere.
        drop(TABLE.find_now(number));
    }
    // SAFETY: the caller's promise.
    unsafe {
        if offset == -1 {
            return writing_vector(number, vector, count, flags, place);
        }
        operate::if_ours(number, false, |pin| {
            match buffers::vector_to_write(vector, count) {
                Named::Memory(data) if place == Place::AsOpened => {
                    operate::write_at(number, pin, data, offset, place)
                }
                Named::Memory(data) => {
                    operate::write_flagged_at(number, pin, data, offset, flags, place)
                }
                Named::Odd if place == Place::End => {
                    operate::append_odd(number, pin, vector, count, offset, flags)
                }
                _ => Way::Kernel,
            }
        })
    }
}

/// Flags that change nothing about a direct operation: it is durable, and waits for nobody. `None` if there are others.
fn without_effect(flags: c_int) -> Option<ReadWriteFlags> {
    const KNOWN: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT;
    (flags & !KNOWN == 0).then(|| ReadWriteFlags::from_bits_retain(flags.unsigned_abs()))
}

macro_rules! at_offset {
    ($name:ident, $way:ident($($argument:ident: $type:ty),*)) => {
        before! {
            fn $name(number: c_int, $($argument: $type),*) -> ssize_t {
                if TABLE.is_kernels(number) {
                    return real::$name(number, $($argument),*);
                }
                $way(number, $($argument),*).or(number, || real::$name(number, $($argument),*))
            }
        }
    };
}

at_offset!(preadv2, reading_vector_at(vector: *const iovec, count: c_int, offset: off_t, flags: c_int));
at_offset!(preadv64v2, reading_vector_at(vector: *const iovec, count: c_int, offset: off_t, flags: c_int));
at_offset!(pwritev2, writing_vector_at(vector: *const iovec, count: c_int, offset: off_t, flags: c_int));
at_offset!(pwritev64v2, writing_vector_at(vector: *const iovec, count: c_int, offset: off_t, flags: c_int));

/// Those with a short way for a block.
macro_rules! block_first {
    ($name:ident, $data:ty, $short:ident, $long:ident) => {
        before! {
            fn $name(number: c_int, data: $data, bytes: size_t, offset: off_t) -> ssize_t {
                if $short(number, data, bytes, offset) {
                    return BLOCK_BYTES as ssize_t;
                }
                if TABLE.is_kernels(number) {
                    return real::$name(number, data, bytes, offset);
                }
                $long(number, data, bytes, offset)
                    .or(number, || real::$name(number, data, bytes, offset))
            }
        }
    };
}

block_first!(pread, *mut c_void, reads_block, reading_at);
block_first!(pread64, *mut c_void, reads_block, reading_at);
block_first!(pwrite, *const c_void, overwrites_block, writing_at);
block_first!(pwrite64, *const c_void, overwrites_block, writing_at);

/// # Safety
///
/// As for `preadv`.
unsafe fn reading_parts_at(
    number: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off_t,
) -> Way {
    // An offset of -1 means the position to `preadv2` only.
    if offset < 0 {
        return Way::Kernel;
    }
    // SAFETY: the caller's promise.
    unsafe { reading_vector_at(number, vector, count, offset, 0) }
}

/// # Safety
///
/// As for `pwritev`.
unsafe fn writing_parts_at(
    number: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off_t,
) -> Way {
    if offset < 0 {
        return Way::Kernel;
    }
    // SAFETY: the caller's promise.
    unsafe { writing_vector_at(number, vector, count, offset, 0) }
}

at_offset!(preadv, reading_parts_at(vector: *const iovec, count: c_int, offset: off_t));
at_offset!(preadv64, reading_parts_at(vector: *const iovec, count: c_int, offset: off_t));
at_offset!(pwritev, writing_parts_at(vector: *const iovec, count: c_int, offset: off_t));
at_offset!(pwritev64, writing_parts_at(vector: *const iovec, count: c_int, offset: off_t));

before! {
    fn __pread64(number: c_int, into: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t {
        pread64(number, into, bytes, offset)
    }

    fn __pwrite64(number: c_int, data: *const c_void, bytes: size_t, offset: off_t) -> ssize_t {
        pwrite64(number, data, bytes, offset)
    }

    fn __pread_chk(number: c_int, into: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t {
        if bytes > room {
            return real::__pread_chk(number, into, bytes, offset, room);
        }
        pread(number, into, bytes, offset)
    }

    fn __pread64_chk(number: c_int, into: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t {
        if bytes > room {
            return real::__pread64_chk(number, into, bytes, offset, room);
        }
        pread64(number, into, bytes, offset)
    }
}
