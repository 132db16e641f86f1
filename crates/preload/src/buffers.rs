//! The memory that a program names, as slices. Whatever is odd about it the kernel judges.

use crate::thread;
use libc::{c_int, c_long, c_void, iovec};
use std::io::{IoSlice, IoSliceMut};
use std::slice;

/// Bytes that one call reads or writes at most, as in the kernel.
const CALL_BYTES_MAX: usize = 0x7fff_f000;
/// Where memory of programs ends, as far as the kernel gives it without being asked for more.
const MEMORY_END: usize = (1 << 47) - 4096;
/// Parts that a vector may have.
const PARTS_MAX: usize = 1024;
/// Parts that a vector to read into may have; they are copied, and there may be little stack.
pub(crate) const READ_PARTS_MAX: usize = 64;

/// Whether memory can be read, as far as the kernel can tell without a signal: it looks at a set of signals before it says that it does not know what to do with it.
pub(crate) fn is_readable(at: *const c_void, bytes: usize) -> bool {
    const PAGE: usize = 4096;
    const SET_BYTES: usize = size_of::<u64>();
    let Some(end) = at.addr().checked_add(bytes).filter(|_| bytes > 0) else {
        return bytes == 0;
    };
    let errno = thread::errno();
    let mut place = at.addr() / SET_BYTES * SET_BYTES;
    let mut is_readable = true;
    while place < end && is_readable {
        let (unknown, set) = (c_long::from(c_int::MAX), place as c_long);
        // SAFETY: changes nothing, as there is no such thing to do.
        let answer = unsafe {
            let none = std::ptr::null_mut::<c_void>();
            libc::syscall(libc::SYS_rt_sigprocmask, unknown, set, none, SET_BYTES)
        };
        is_readable = answer == 0 || thread::errno() != libc::EFAULT;
        place = place / PAGE * PAGE + PAGE;
    }
    thread::set_errno(errno);
    is_readable
}

/// Whether so many bytes can be there at all. If not, the kernel refuses them however few would be used.
#[inline]
fn can_be(at: *const c_void, bytes: usize) -> bool {
    at.addr()
        .checked_add(bytes)
        .is_some_and(|end| end <= MEMORY_END)
}

/// What a call has named.
pub(crate) enum Named<T> {
    /// Memory to work with.
    Memory(T),
    /// Nothing, or something that the kernel refuses: no position moves.
    Nothing,
    /// The kernel is to judge, and may move the position.
    Odd,
}

/// A buffer to read into.
///
/// # Safety
///
/// As for `read`.
#[inline]
pub(crate) unsafe fn to_read<'a>(into: *mut c_void, bytes: usize) -> Named<IoSliceMut<'a>> {
    if into.is_null() || bytes == 0 {
        return Named::Nothing;
    }
    if !can_be(into, bytes) {
        return Named::Odd;
    }
    // SAFETY: the caller names this memory, as `read` wants it, and it is not null.
    let into = unsafe { slice::from_raw_parts_mut(into.cast::<u8>(), bytes.min(CALL_BYTES_MAX)) };
    Named::Memory(IoSliceMut::new(into))
}

/// A buffer to write.
///
/// # Safety
///
/// As for `write`.
#[inline]
pub(crate) unsafe fn to_write<'a>(data: *const c_void, bytes: usize) -> Named<IoSlice<'a>> {
    if data.is_null() || bytes == 0 {
        return Named::Nothing;
    }
    if !can_be(data, bytes) {
        return Named::Odd;
    }
    // SAFETY: the caller names this memory, as `write` wants it, and it is not null.
    let data = unsafe { slice::from_raw_parts(data.cast::<u8>(), bytes.min(CALL_BYTES_MAX)) };
    Named::Memory(IoSlice::new(data))
}

/// The parts of a vector.
///
/// # Safety
///
/// As for `readv` and `writev`.
unsafe fn parts<'a>(parts: *const iovec, count: c_int) -> Named<&'a [iovec]> {
    let Some(count) = usize::try_from(count)
        .ok()
        .filter(|count| (1..=PARTS_MAX).contains(count))
    else {
        return Named::Nothing;
    };
    if parts.is_null() {
        return Named::Nothing;
    }
    // SAFETY: the caller names so many parts.
    let parts = unsafe { slice::from_raw_parts(parts, count) };
    let total = parts
        .iter()
        .try_fold(0_usize, |total, part| total.checked_add(part.iov_len));
    let is_sound = |part: &iovec| !part.iov_base.is_null() && can_be(part.iov_base, part.iov_len);
    match total {
        Some(0) => Named::Nothing,
        Some(total) if total <= CALL_BYTES_MAX && parts.iter().all(is_sound) => {
            Named::Memory(parts)
        }
        _ => Named::Odd,
    }
}

/// A vector to write.
///
/// # Safety
///
/// As for `writev`.
pub(crate) unsafe fn vector_to_write<'a>(
    vector: *const iovec,
    count: c_int,
) -> Named<&'a [IoSlice<'a>]> {
    // SAFETY: the caller's promise.
    match unsafe { parts(vector, count) } {
        Named::Memory(parts) => {
            let slices = parts.as_ptr().cast::<IoSlice<'a>>();
            // SAFETY: `IoSlice` is guaranteed to have the form of an `iovec`, and no base is null.
            Named::Memory(unsafe { slice::from_raw_parts(slices, parts.len()) })
        }
        Named::Nothing => Named::Nothing,
        Named::Odd => Named::Odd,
    }
}

/// Calls `with` with a vector to read into, which it may change.
///
/// # Safety
///
/// As for `readv`.
pub(crate) unsafe fn vector_to_read<R>(
    vector: *const iovec,
    count: c_int,
    with: impl FnOnce(Named<&mut [IoSliceMut<'_>]>) -> R,
) -> R {
    // SAFETY: the caller's promise.
    match unsafe { parts(vector, count) } {
        Named::Memory(parts) if parts.len() <= READ_PARTS_MAX => {
            let mut copies: [_; READ_PARTS_MAX] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
            for (copy, part) in copies.iter_mut().zip(parts) {
                // SAFETY: the caller names this memory, and it is not null.
                let into =
                    unsafe { slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), part.iov_len) };
                *copy = IoSliceMut::new(into);
            }
            with(Named::Memory(&mut copies[..parts.len()]))
        }
        Named::Nothing => with(Named::Nothing),
        _ => with(Named::Odd),
    }
}
