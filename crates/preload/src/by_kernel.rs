//! System calls in place of operations that the file refused, or did in part.

use crate::client::knows_mounts;
use crate::process;
use crate::slab::Pin;
use crate::table::{TABLE, borrow};
use crate::way::Call;
use direct::refresh_end;
use libc::c_int;
use rustix::fs::{AtFlags, OFlags, SeekFrom, StatxFlags, fcntl_getfl, seek, statx, tell};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite, pwritev2};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, RawFd};

/// Returns the bytes of all parts.
pub(crate) fn total(data: &[IoSlice<'_>]) -> usize {
    data.iter().map(|part| part.len()).sum()
}

/// Tells the kernel where the file ends, before it appends to a descriptor that was not looked at.
#[cold]
pub(crate) fn tell_end(number: RawFd) {
    if knows_mounts()
        && !TABLE.is_kernels(number)
        && process::may_look()
        && fcntl_getfl(borrow(number)).is_ok_and(|flags| flags.contains(OFlags::APPEND))
    {
        refresh_end(borrow(number));
    }
}

/// Reads. One buffer is read by `pread`, because a vector takes the kernel longer.
pub(crate) fn read_by_kernel(
    number: RawFd,
    into: &mut [IoSliceMut<'_>],
    start: u64,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    match into {
        [alone] if flags.is_empty() => pread(borrow(number), &mut **alone, start),
        _ => preadv2(borrow(number), into, start, flags),
    }
}

/// Writes in the same way, and tells the file how long that took.
pub(crate) fn kernel_write(
    pin: &Pin,
    to: BorrowedFd<'_>,
    data: &[IoSlice<'_>],
    start: u64,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    Call::Write.timed(pin, || match data {
        [alone] if flags.is_empty() => pwrite(to, alone, start),
        _ => pwritev2(to, data, start, flags),
    })
}

/// Appends by a call to the kernel. Returns its outcome, and the end of the file behind it, if that
/// is known. If the call has an offset, no position moves, and the end means nothing.
///
/// The kernel goes by the end that it was told last. The server learns whether the file was opened
/// for appending, and then writes at the real end. A single write that appends (`RWF_APPEND`) looks
/// to the server like a write to the end that the kernel knows. So it goes through a description
/// that was opened for appending.
pub(crate) fn append_by_kernel(
    number: RawFd,
    pin: &Pin,
    call: impl FnOnce(BorrowedFd<'_>) -> Result<usize, Errno>,
) -> (Result<usize, Errno>, Option<u64>) {
    let append = |descriptor: BorrowedFd<'_>| {
        pin.file().tell_kernel_end(descriptor);
        let outcome = Call::Write.timed(pin, || call(descriptor));
        (outcome, tell(descriptor).ok())
    };
    let is_read_only = || {
        let access = fcntl_getfl(borrow(number)).map(|flags| flags & OFlags::ACCMODE);
        access == Ok(OFlags::RDONLY)
    };
    if !pin.appends(borrow(number)) && !is_read_only() {
        // A process that may not open the file again appends as it would without the library.
        if let Some(another) = pin.beside(borrow(number), true) {
            return append(another);
        }
    }
    append(borrow(number))
}

/// Has the kernel write the rest of a long write, of which `done` bytes were written directly.
/// Returns the bytes written.
#[inline]
pub(crate) fn write_rest(
    to: BorrowedFd<'_>,
    data: &[IoSlice<'_>],
    done: usize,
    offset: u64,
    flags: ReadWriteFlags,
) -> usize {
    if done == total(data) {
        return done;
    }
    let write = |rest: &[IoSlice<'_>]| pwritev2(to, rest, offset + done as u64, flags).unwrap_or(0);
    done + with_rest(data, done, write)
}

/// Has the kernel write the rest of an append, and returns the bytes written and the end behind
/// them.
///
/// If the file does not end where the first part did, another process has appended. Then the call
/// is cut short, because the next bytes of the program belong behind those of the other process.
#[inline]
pub(crate) fn append_rest(
    number: RawFd,
    pin: &Pin,
    data: &[IoSlice<'_>],
    (done, end): (usize, u64),
    offset: Option<u64>,
    flags: ReadWriteFlags,
) -> (usize, u64) {
    if done == total(data) || real_size(number) != Some(end) {
        return (done, end);
    }
    with_rest(data, done, |rest| {
        let call = |to: BorrowedFd<'_>| pwritev2(to, rest, offset.unwrap_or(u64::MAX), flags);
        match append_by_kernel(number, pin, call) {
            (Ok(bytes), found) => (done + bytes, found.unwrap_or(end + bytes as u64)),
            (Err(_), _) => (done, end),
        }
    })
}

/// Calls `write` with what is behind the first `done` bytes.
#[cold]
fn with_rest<R>(data: &[IoSlice<'_>], done: usize, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
    let mut parts = data.to_vec();
    let mut rest = &mut parts[..];
    IoSlice::advance_slices(&mut rest, done);
    write(rest)
}

/// Bytes of the file, as the server says.
#[cold]
fn real_size(number: RawFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let status = statx(borrow(number), c"", flags, StatxFlags::SIZE).ok()?;
    Some(status.stx_size)
}

/// Moves the kernel's position.
pub(crate) fn seek_by_kernel(number: RawFd, offset: i64, whence: c_int) -> Result<u64, Errno> {
    let to = match (whence, u64::try_from(offset)) {
        (libc::SEEK_END, _) => SeekFrom::End(offset),
        (libc::SEEK_DATA, Ok(offset)) => SeekFrom::Data(offset),
        (libc::SEEK_HOLE, Ok(offset)) => SeekFrom::Hole(offset),
        // As the kernel answers a negative offset of these.
        (libc::SEEK_DATA | libc::SEEK_HOLE, Err(_)) => return Err(Errno::NXIO),
        _ => return Err(Errno::INVAL),
    };
    seek(borrow(number), to)
}
