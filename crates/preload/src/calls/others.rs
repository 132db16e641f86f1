//! Calls beside reading and writing that need to know of a descriptor.

use crate::table::TABLE;
use crate::{operate, real};
use libc::{c_int, c_long, c_uint, off_t, size_t, ssize_t};

/// Number of a descriptor whose position is used: that of one without an offset of its own.
fn moved(number: c_int, offset: *const off_t) -> Option<c_int> {
    (offset.is_null() && !TABLE.is_kernels(number)).then_some(number)
}

/// What is read from a file by the kernel alone has to be what the kernel knows of.
fn will_be_read(number: c_int) {
    if !TABLE.is_kernels(number) {
        operate::tell_kernel_size(number);
    }
}

before! {
    fn fsync(number: c_int) -> c_int {
        operate::sync(number, || real::fsync(number))
    }

    fn fdatasync(number: c_int) -> c_int {
        operate::sync(number, || real::fdatasync(number))
    }

    fn sync_file_range(number: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int {
        let is_sound = offset >= 0 && bytes >= 0 && offset.checked_add(bytes).is_some() && flags < 8;
        if is_sound && !TABLE.is_kernels(number) && operate::is_durable(number) {
            return 0;
        }
        real::sync_file_range(number, offset, bytes, flags)
    }

    // These may wait for a pipe or a socket, so the position is not locked meanwhile, but given up.
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t {
        TABLE.share(to);
        moved(from, offset).into_iter().for_each(|number| TABLE.share(number));
        will_be_read(from);
        real::sendfile(to, from, offset, bytes)
    }

    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t {
        TABLE.share(to);
        moved(from, offset).into_iter().for_each(|number| TABLE.share(number));
        will_be_read(from);
        real::sendfile64(to, from, offset, bytes)
    }

    fn splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t {
        moved(from, from_at).into_iter().for_each(|number| TABLE.share(number));
        moved(to, to_at).into_iter().for_each(|number| TABLE.share(number));
        will_be_read(from);
        real::splice(from, from_at, to, to_at, bytes, flags)
    }

    fn copy_file_range(
        from: c_int,
        from_at: *mut off_t,
        to: c_int,
        to_at: *mut off_t,
        bytes: size_t,
        flags: c_uint,
    ) -> ssize_t {
        will_be_read(from);
        let moved = [moved(from, from_at), moved(to, to_at)];
        if moved == [None, None] {
            return real::copy_file_range(from, from_at, to, to_at, bytes, flags);
        }
        operate::with_kernels_position(moved, || {
            // Not the function behind: that one is a cancellation point.
            real::syscall(
                libc::SYS_copy_file_range,
                c_long::from(from),
                from_at as c_long,
                c_long::from(to),
                to_at as c_long,
                bytes as c_long,
                c_long::from(flags),
            ) as ssize_t
        })
    }
}
