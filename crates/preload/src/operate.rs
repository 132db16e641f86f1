//! Reading, writing and seeking a description that is ours.
//!
//! What the file does not do directly is done by a system call at the library's position, so the kernel's need not be set. Those calls are no cancellation points, as nothing may
//! be cancelled while the position is locked.

use crate::by_kernel::{
    append_by_kernel, append_rest, kernel_write, read_by_kernel, seek_by_kernel, tell_end, total,
    write_rest,
};
use crate::client::mapped::{MapRequest, Plan};
use crate::real;
use crate::slab::Pin;
use crate::table::{Found, TABLE, borrow, pinned_as_owner};
use crate::thread::{self, Inside, set_errno};
pub(crate) use crate::way::{Call, Way};
use descriptors::Step;
use direct::BLOCK_BYTES;
use libc::{c_int, c_long, c_void, iovec, ssize_t};
use rustix::fs::{SeekFrom, Statx, fstat, seek, tell};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// To the end if the description appends.
    AsOpened,
    /// To the end (`RWF_APPEND`).
    End,
    /// Where the offset or the position says (`RWF_NOAPPEND`).
    Named,
}

impl Place {
    fn is_end(self, number: RawFd, pin: &Pin) -> bool {
        match self {
            Place::AsOpened => pin.appends(borrow(number)),
            Place::End => true,
            Place::Named => false,
        }
    }
}

fn fits(start: u64, bytes: usize) -> bool {
    start
        .checked_add(bytes as u64)
        .is_some_and(|end| end <= i64::MAX as u64)
}

/// `pread` of a whole block without a lock, if this thread uses the file alone.
#[inline(always)]
pub(crate) fn read_block(number: RawFd, into: &mut [u8; BLOCK_BYTES], offset: i64) -> bool {
    let Some(pin) = pinned_as_owner(number) else {
        return false;
    };
    let Some(description) = pin.description() else {
        return false;
    };
    // A negative offset is behind the end of any file.
    description.is_readable() && description.file().read_block(into, offset as u64)
}

/// `pread` without a lock, if this thread uses the file alone, or by the kernel, if the file has
/// hardly been used.
#[inline]
pub(crate) fn read_as_owner(number: RawFd, into: &mut [u8], offset: i64) -> Option<Way> {
    let offset = u64::try_from(offset).ok()?;
    let pin = TABLE.pinned(number)?;
    let file = pin.is_readable().then(|| pin.file())?;
    match file.leaves_read() {
        Some(true) => Some(Way::Timed(Call::Read)),
        Some(false) => Some(Way::Kernel),
        None => Some(Way::Done(Ok(file.read_as_owner(into, offset)?))),
    }
}

/// `pwrite` of a whole block without a lock, if this thread writes the file alone.
#[inline(always)]
pub(crate) fn overwrite_block(number: RawFd, block: &[u8; BLOCK_BYTES], offset: i64) -> bool {
    let Ok(offset) = u64::try_from(offset) else {
        return false;
    };
    let Some(pin) = TABLE.pinned(number) else {
        return false;
    };
    pin.is_writable() && !pin.appends(borrow(number)) && pin.file().overwrite_block(block, offset)
}

/// `preadv`.
pub(crate) fn read_at(number: RawFd, pin: &Pin, into: &mut [IoSliceMut<'_>], offset: i64) -> Way {
    let bytes = into.iter().map(|part| part.len()).sum();
    let Some(offset) = u64::try_from(offset)
        .ok()
        .filter(|offset| fits(*offset, bytes))
    else {
        return Way::Kernel;
    };
    if !pin.is_readable() {
        return Way::Kernel;
    }
    let inside = Inside::enter();
    let read = inside.and_then(|_inside| pin.file().read_at(borrow(number), into, offset));
    Way::of(read, Call::Read)
}

/// `pwritev2` with an offset, and with a flag that says where it goes. The position stays.
pub(crate) fn write_flagged_at(
    number: RawFd,
    pin: &Pin,
    data: &[IoSlice<'_>],
    offset: i64,
    flags: ReadWriteFlags,
    place: Place,
) -> Way {
    let Some(offset) = u64::try_from(offset)
        .ok()
        .filter(|offset| fits(*offset, total(data)))
    else {
        return Way::Kernel;
    };
    let call = |to: BorrowedFd<'_>| pwritev2(to, data, offset, flags);
    match write_at(number, pin, data, offset.cast_signed(), place) {
        Way::Timed(_) | Way::Kernel if place == Place::End => {
            Way::Done(append_by_kernel(number, pin, call).0)
        }
        Way::Timed(_) | Way::Kernel => {
            Way::Done(Call::Write.timed(pin, || call(placing(number, pin))))
        }
        way => way,
    }
}

/// A descriptor by which the kernel writes where it is told to. As with [appends](append_by_kernel), the server knows only how a file was opened.
fn placing(number: RawFd, pin: &Pin) -> BorrowedFd<'_> {
    let own = borrow(number);
    match pin.appends(own) {
        true => pin.beside(own, false).unwrap_or(own),
        false => own,
    }
}

/// `pwritev2` with `RWF_APPEND` of a vector that only the kernel can judge. An offset of -1 is the position, which is the kernel's from now on.
///
/// # Safety
///
/// As for `pwritev2`.
pub(crate) unsafe fn append_odd(
    number: RawFd,
    pin: &Pin,
    vector: *const iovec,
    count: c_int,
    offset: i64,
    flags: ReadWriteFlags,
) -> Way {
    let flags = c_long::from(flags.bits());
    let call = |to: BorrowedFd<'_>| {
        let errno = thread::errno();
        let (to, count) = (c_long::from(to.as_raw_fd()), c_long::from(count));
        let number = libc::SYS_pwritev2;
        // SAFETY: the caller's promise. Not the function behind: that one is a cancellation point.
        let bytes = unsafe { real::syscall(number, to, vector as c_long, count, offset, 0, flags) };
        let outcome = usize::try_from(bytes).map_err(|_| Errno::from_raw_os_error(thread::errno()));
        set_errno(errno);
        outcome
    };
    if offset == -1 {
        TABLE.share(number);
    }
    let (outcome, end) = append_by_kernel(number, pin, call);
    if let (-1, Ok(1..), Some(end)) = (offset, outcome, end) {
        let _ = seek(borrow(number), SeekFrom::Start(end));
    }
    Way::Done(outcome)
}

/// `pwritev`.
pub(crate) fn write_at(
    number: RawFd,
    pin: &Pin,
    data: &[IoSlice<'_>],
    offset: i64,
    place: Place,
) -> Way {
    let Some(offset) = u64::try_from(offset)
        .ok()
        .filter(|offset| fits(*offset, total(data)))
    else {
        return Way::Kernel;
    };
    if !pin.is_writable() {
        return Way::Kernel;
    }
    let inside = Inside::enter();
    let written = inside.and_then(|_inside| {
        // As Linux does it: the offset of a write to a description that appends is ignored.
        if place.is_end(number, pin) {
            let appended = pin.file().append(borrow(number), data)?;
            let flags = match place {
                Place::End => ReadWriteFlags::APPEND,
                _ => ReadWriteFlags::empty(),
            };
            Some(append_rest(number, pin, data, appended, Some(offset), flags).0)
        } else {
            let bytes = pin.file().write_at(borrow(number), data, offset)?;
            let (to, flags) = match place {
                Place::Named => (
                    placing(number, pin),
                    ReadWriteFlags::from_bits_retain(libc::RWF_NOAPPEND.cast_unsigned()),
                ),
                _ => (borrow(number), ReadWriteFlags::empty()),
            };
            Some(write_rest(to, data, bytes, offset, flags))
        }
    });
    Way::of(written, Call::Write)
}

/// Calls `with` if the descriptor is ours; `moves` if the call uses the position. Only then what the program has named may be looked at: of other descriptors the kernel does, and says so if it cannot.
#[inline]
pub(crate) fn if_ours(number: RawFd, moves: bool, with: impl FnOnce(&Pin) -> Way) -> Way {
    match TABLE.find(number, moves) {
        Found::Kernel => Way::Kernel,
        Found::Counted(then) => Way::Counted(then),
        Found::Ours(pin) => with(&pin),
    }
}

/// As [`if_ours`] with a read.
#[inline]
pub(crate) fn if_ours_to_read(number: RawFd, moves: bool, with: impl FnOnce(&Pin) -> Way) -> Way {
    match TABLE.find_to_read(number, moves) {
        Found::Kernel => Way::Kernel,
        Found::Counted(then) => Way::Counted(then),
        Found::Ours(pin) => with(&pin),
    }
}

/// As [`if_ours`] with a write at the position. Where a file ends that somebody writes directly, the kernel may not know; so it is told before a descriptor that was not looked at yet appends, and its position
/// behind that is where the server has put the data. A look would need more stack than a handler may have.
#[inline]
pub(crate) fn if_ours_to_write(number: RawFd, with: impl FnOnce(&Pin) -> Way) -> Way {
    match TABLE.find(number, true) {
        Found::Kernel => {
            tell_end(number);
            Way::Kernel
        }
        Found::Counted(then) => {
            tell_end(number);
            Way::Counted(then)
        }
        Found::Ours(pin) => with(&pin),
    }
}

/// `readv`.
pub(crate) fn read(
    number: RawFd,
    pin: &Pin,
    into: &mut [IoSliceMut<'_>],
    flags: ReadWriteFlags,
) -> Way {
    let position = pin.lock();
    if !pin.is_readable() {
        return Way::Kernel;
    }
    let bytes = into.iter().map(|part| part.len()).sum();
    // Moved before it is read: a handler that interrupts the read goes on behind it, and so does who gets the position from a handler.
    let start = match position.advance(bytes) {
        Step::From(start) => start,
        Step::TooFar(start) => return Way::Done(preadv2(borrow(number), into, start, flags)),
        Step::Kernels => return Way::Kernel,
    };
    let left = pin.file().leaves_read();
    let inside = match position.is_passing() || left.is_some() {
        true => None,
        false => Inside::enter(),
    };
    let direct = inside.and_then(|_inside| pin.file().read_at(borrow(number), into, start));
    let mut by_kernel = || read_by_kernel(number, into, start, flags);
    let outcome = match direct {
        Some(bytes) => Ok(bytes),
        None if left == Some(false) => by_kernel(),
        None => Call::Read.timed(pin, by_kernel),
    };
    position.retreat(borrow(number), bytes - outcome.unwrap_or(0).min(bytes));
    Way::Done(outcome)
}

/// `writev`.
pub(crate) fn write(
    number: RawFd,
    pin: &Pin,
    data: &[IoSlice<'_>],
    flags: ReadWriteFlags,
    place: Place,
) -> Way {
    let position = pin.lock();
    let inside = if position.is_passing() || !pin.is_writable() {
        None
    } else {
        Inside::enter()
    };
    let appends = place.is_end(number, pin);
    let to = |number| match place {
        Place::Named => placing(number, pin),
        _ => borrow(number),
    };
    let call = |to: BorrowedFd<'_>| pwritev2(to, data, u64::MAX, flags);
    match (position.get(), appends) {
        (Some(start), true) => {
            let appended = inside.and_then(|_inside| pin.file().append(borrow(number), data));
            Way::Done(match appended {
                Some(appended) => {
                    let (bytes, end) = append_rest(number, pin, data, appended, None, flags);
                    position.reach(borrow(number), start, end);
                    Ok(bytes)
                }
                None => {
                    let (outcome, end) = append_by_kernel(number, pin, call);
                    if let (Ok(_), Some(end)) = (outcome, end) {
                        position.reach(borrow(number), start, end);
                    }
                    outcome
                }
            })
        }
        (Some(_), false) => {
            let bytes = total(data);
            // Moved before it is written: a handler that interrupts the write goes on behind it.
            let start = match position.advance(bytes) {
                Step::From(start) => start,
                Step::TooFar(start) => {
                    return Way::Done(pwritev2(to(number), data, start, flags));
                }
                Step::Kernels => return Way::Kernel,
            };
            let direct = inside.and_then(|_inside| {
                let bytes = pin.file().write_at(borrow(number), data, start)?;
                Some(write_rest(to(number), data, bytes, start, flags))
            });
            let outcome =
                direct.map_or_else(|| kernel_write(pin, to(number), data, start, flags), Ok);
            position.retreat(borrow(number), bytes - outcome.unwrap_or(0).min(bytes));
            Way::Done(outcome)
        }
        (None, true) => {
            let appended = inside.and_then(|_inside| {
                let appended = pin.file().append(borrow(number), data)?;
                let (bytes, end) = append_rest(number, pin, data, appended, None, flags);
                let _ = seek(borrow(number), SeekFrom::Start(end));
                Some(bytes)
            });
            if appended.is_some() {
                return Way::of(appended, Call::Write);
            } else if pin.appends(borrow(number)) {
                pin.file().tell_kernel_end(borrow(number));
                return Way::Timed(Call::Write);
            }
            let (outcome, end) = append_by_kernel(number, pin, call);
            if let (Ok(_), Some(end)) = (outcome, end) {
                let _ = seek(borrow(number), SeekFrom::Start(end));
            }
            Way::Done(outcome)
        }
        (None, false) if place == Place::Named => {
            let outcome = tell(borrow(number)).and_then(|start| {
                let bytes = pwritev2(placing(number, pin), data, start, flags)?;
                seek(borrow(number), SeekFrom::Start(start + bytes as u64))?;
                Ok(bytes)
            });
            Way::Done(outcome)
        }
        (None, false) => Way::Kernel,
    }
}

/// `lseek`.
pub(crate) fn lseek(number: RawFd, offset: i64, whence: c_int) -> Way {
    if whence == libc::SEEK_END {
        // Where a file ends that somebody writes directly, the kernel may not know.
        drop(TABLE.find_now(number));
    }
    let pin = match TABLE.find(number, true) {
        Found::Kernel => return Way::Kernel,
        Found::Counted(then) => return Way::Counted(then),
        Found::Ours(pin) => pin,
    };
    let position = pin.lock();
    if !position.is_ours() && whence != libc::SEEK_END {
        return Way::Kernel;
    }
    let base = match whence {
        libc::SEEK_SET => Some(0),
        libc::SEEK_CUR => match position.get() {
            Some(place) => Some(place),
            None => return Way::Kernel,
        },
        libc::SEEK_END => size(number, &pin, position.is_passing()),
        _ => None,
    };
    let outcome = match base {
        Some(base) => base
            .checked_add_signed(offset)
            .filter(|place| *place <= i64::MAX as u64)
            .ok_or(Errno::INVAL),
        None => seek_by_kernel(number, offset, whence),
    };
    let outcome = outcome.and_then(|place| position.set(borrow(number), place));
    Way::Done(outcome.map(|place| place as usize))
}

/// Where the file ends. Who asks the kernel for a file's attributes gets the server's answer, if it needed one; the kernel's own `lseek` goes by what it made of the answer, and it throws that away
/// if it was told to drop what it has of the file meanwhile.
fn size(number: RawFd, pin: &Pin, is_passing: bool) -> Option<u64> {
    let inside = if is_passing { None } else { Inside::enter() };
    let known = inside.and_then(|_inside| pin.file().size_bytes());
    known.or_else(|| u64::try_from(fstat(borrow(number)).ok()?.st_size).ok())
}

/// Whether all that was written through this descriptor is durable, without asking anybody.
pub(crate) fn is_durable(number: RawFd) -> bool {
    match TABLE.find(number, false) {
        Found::Ours(pin) => Inside::enter().is_some_and(|_inside| pin.file().is_durable()),
        _ => false,
    }
}

/// Makes what was written durable with the `real` function, unless it is.
pub(crate) fn sync(number: RawFd, real: impl FnOnce() -> c_int) -> c_int {
    if TABLE.is_kernels(number) {
        return real();
    }
    if is_durable(number) {
        return 0;
    }
    // As for reads and writes nothing has to be dropped while the real function works.
    let begin = Instant::now();
    let result = real();
    if result == 0
        && let Some(pin) = TABLE.pinned(number)
    {
        pin.file().kernel_synced(begin.elapsed());
    }
    result
}

/// What `fstat` tells, if the file is attached.
pub(crate) fn status(number: RawFd) -> Option<Statx> {
    let pin = TABLE.ours(number)?;
    let _inside = Inside::enter()?;
    pin.file().status(borrow(number))
}

/// The file behind this descriptor is about to be used in a way that only the kernel sees. Looks at a descriptor that was not looked at yet: the file may be attached by another one.
pub(crate) fn leave_to_kernel(number: RawFd) {
    if let Some(pin) = TABLE.find_now(number)
        && let Some(_inside) = Inside::enter()
    {
        pin.file().leave_to_kernel(borrow(number));
    }
}

/// The file behind this descriptor is about to be mapped: which blocks can be laid over what the kernel maps. If none can, the file is left to the kernel.
pub(crate) fn plan_mapping(number: RawFd, request: &MapRequest) -> Option<Plan> {
    let pin = TABLE.find_now(number)?;
    let _inside = Inside::enter()?;
    let plan = match pin.is_readable() {
        true => pin.file().plan_mapping(borrow(number), request),
        false => None,
    };
    if plan.is_none() {
        pin.file().leave_to_kernel(borrow(number));
    }
    plan
}

/// The kernel has mapped what was planned, or could not.
pub(crate) fn lay(number: RawFd, plan: Plan, found: *mut c_void) {
    let errno = thread::errno();
    let is_laid = found != libc::MAP_FAILED && plan.lay(found.expose_provenance(), borrow(number));
    if !is_laid && found != libc::MAP_FAILED {
        leave_to_kernel(number);
    }
    thread::set_errno(errno);
}

/// The kernel is about to read from the file behind this descriptor without asking how long it is.
pub(crate) fn tell_kernel_size(number: RawFd) {
    if let Some(pin) = TABLE.find_now(number)
        && let Some(_inside) = Inside::enter()
    {
        pin.file().tell_kernel_size(borrow(number));
    }
}

/// Calls something that uses the kernel's position of up to two descriptors; where the position is the library's, the kernel gets it before and gives it back after.
pub(crate) fn with_kernels_position(
    numbers: [Option<RawFd>; 2],
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let mut counted = [None; 2];
    let mut pins = [None, None];
    for (place, number) in numbers.into_iter().enumerate() {
        match number.map(|number| TABLE.find(number, true)) {
            Some(Found::Counted(then)) => counted[place] = Some(then),
            Some(Found::Ours(pin)) => pins[place] = number.map(|number| (number, pin)),
            _ => {}
        }
    }
    // In one order, and the same one once.
    pins.sort_by_key(|pin| pin.as_ref().map(|(_, pin)| pin.index()));
    if let [Some((_, first)), Some((_, second))] = &pins
        && first.index() == second.index()
    {
        pins[1] = None;
    }
    let positions = pins.each_ref().map(|pin| {
        let (number, pin) = pin.as_ref()?;
        let position = pin.lock();
        if position.is_passing() {
            position.give(borrow(*number));
            return None;
        }
        position
            .lend(borrow(*number))
            .then_some((*number, position))
    });
    let result = call();
    for (number, position) in positions.into_iter().flatten() {
        position.take(borrow(number));
    }
    for (number, then) in numbers.into_iter().zip(counted) {
        if let (Some(number), Some(then)) = (number, then) {
            TABLE.landed(number, then);
        }
    }
    result
}

/// The kernel judges what a call has named, and may move the position: it is the kernel's from now on.
pub(crate) fn odd(number: RawFd) -> Way {
    TABLE.share(number);
    Way::Kernel
}

/// The flags of the description may have changed.
pub(crate) fn flags_changed(number: RawFd) {
    if let Some(pin) = TABLE.ours(number)
        && let Ok(flags) = rustix::fs::fcntl_getfl(borrow(number))
    {
        pin.set_flags(flags);
    }
}
