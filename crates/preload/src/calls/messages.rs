//! Descriptors that are sent away, and that come.

use crate::buffers::is_readable;
use crate::table::TABLE;
use crate::{process, real};
use libc::{c_int, c_uint, c_void, cmsghdr, mmsghdr, msghdr, ssize_t};

/// Messages that the kernel looks at in one call.
const MESSAGES_MAX: c_uint = 1024;

/// Calls `with` for each number that goes with a message. The message may be one that the kernel refuses: nothing is looked at that cannot be read, or that lies behind its control part.
///
/// # Safety
///
/// Nobody changes the message meanwhile.
unsafe fn numbers_with(
    message: *const msghdr,
    can_be_read: impl Fn(*const c_void, usize) -> bool,
    with: impl Fn(c_int),
) {
    if !can_be_read(message.cast(), size_of::<msghdr>()) {
        return;
    }
    // SAFETY: it can be read.
    let message = unsafe { message.read_unaligned() };
    let (control, length) = (message.msg_control, message.msg_controllen);
    if length < size_of::<cmsghdr>() || !can_be_read(control, length) {
        return;
    }
    let mut at = 0;
    while length - at >= size_of::<cmsghdr>() {
        let part = control.wrapping_byte_add(at).cast::<cmsghdr>();
        // SAFETY: inside the control part, which can be read.
        let header = unsafe { part.read_unaligned() };
        let bytes = header.cmsg_len.min(length - at);
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            let numbers = part.wrapping_add(1).cast::<c_int>();
            let count = bytes.saturating_sub(size_of::<cmsghdr>()) / size_of::<c_int>();
            for place in 0..count {
                // SAFETY: as above.
                with(unsafe { numbers.add(place).read_unaligned() });
            }
        }
        let step = bytes.next_multiple_of(size_of::<usize>());
        if bytes < size_of::<cmsghdr>() || step > length - at {
            break;
        }
        at += step;
    }
}

/// Positions of descriptors that go to another process with a message are the kernel's from now on. They all are if direct access is off; then nothing is asked, as each system call may end the process.
///
/// # Safety
///
/// As for `sendmsg`.
unsafe fn share_sent(message: *const msghdr) {
    if !process::is_off() {
        // SAFETY: the caller's promise.
        unsafe { numbers_with(message, is_readable, |number| TABLE.share(number)) };
    }
}

/// Descriptors that came with a message are others' too. The kernel has written it, so it can be read.
///
/// # Safety
///
/// The kernel has filled the message in.
unsafe fn note_received(message: *const msghdr) {
    // SAFETY: the caller's promise.
    unsafe {
        numbers_with(
            message,
            |_, _| true,
            |number| TABLE.opened_for_others(number),
        )
    };
}

before! {
    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        share_sent(message);
        real::sendmsg(socket, message, flags)
    }

    fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        for place in 0..count.min(MESSAGES_MAX) as usize {
            share_sent(messages.wrapping_add(place).cast::<c_void>().cast());
        }
        real::sendmmsg(socket, messages, count, flags)
    }

    fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        let bytes = real::recvmsg(socket, message, flags);
        if bytes >= 0 && (*message).msg_controllen > 0 {
            note_received(message);
        }
        bytes
    }

    fn recvmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut libc::timespec) -> c_int {
        let received = real::recvmmsg(socket, messages, count, flags, timeout);
        for place in 0..usize::try_from(received).unwrap_or(0) {
            note_received(&raw const (*messages.add(place)).msg_hdr);
        }
        received
    }
}

const _: () = assert!(std::mem::offset_of!(mmsghdr, msg_hdr) == 0);
