//! Closing, duplicating, and `fcntl`.

use crate::client::client;
use crate::table::{TABLE, push};
use crate::{appender, operate, process, real};
use libc::{c_int, c_long, c_uint, flock, off_t};

/// Numbers from `first` to `last` are about to be closed.
pub(super) fn closing_range(first: c_uint, last: c_uint) {
    TABLE
        .used()
        .filter(|number| (first..=last).contains(&number.unsigned_abs()))
        .for_each(|number| TABLE.closing(number));
}

before! {
    fn close(number: c_int) -> c_int {
        TABLE.closing(number);
        real::close(number)
    }

    fn __close(number: c_int) -> c_int {
        TABLE.closing(number);
        real::close(number)
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        let flag = flags.unsigned_abs();
        if flag & libc::CLOSE_RANGE_UNSHARE != 0 {
            process::switch_off("a thread has descriptors of its own");
        } else if flag == 0 {
            closing_range(first, last);
        }
        real::close_range(first, last, flags)
    }

    fn closefrom(first: c_int) {
        closing_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX);
        real::closefrom(first);
    }

    fn dup(number: c_int) -> c_int {
        let source = TABLE.duplicating(number);
        let copy = real::dup(number);
        source.duplicated(copy);
        copy
    }

    fn dup2(number: c_int, copy: c_int) -> c_int {
        if number == copy {
            return real::dup2(number, copy);
        }
        let source = TABLE.duplicating(number);
        let target = TABLE.giving(copy);
        let result = real::dup2(number, copy);
        source.replaced(&target, result >= 0);
        result
    }

    fn __dup2(number: c_int, copy: c_int) -> c_int {
        dup2(number, copy)
    }

    fn dup3(number: c_int, copy: c_int, flags: c_int) -> c_int {
        if number == copy {
            return real::dup3(number, copy, flags);
        }
        let source = TABLE.duplicating(number);
        let target = TABLE.giving(copy);
        let result = real::dup3(number, copy, flags);
        source.replaced(&target, result >= 0);
        result
    }

    fn fcntl(number: c_int, command: c_int, argument: c_long) -> c_int {
        if matches!(command, libc::F_SETLK | libc::F_SETLKW) {
            appender::locking();
        }
        if TABLE.is_kernels(number) {
            return real::fcntl(number, command, argument);
        }
        control(number, command, argument, || real::fcntl(number, command, argument))
    }

    fn __fcntl(number: c_int, command: c_int, argument: c_long) -> c_int {
        fcntl(number, command, argument)
    }

    fn fcntl64(number: c_int, command: c_int, argument: c_long) -> c_int {
        if matches!(command, libc::F_SETLK | libc::F_SETLKW) {
            appender::locking();
        }
        if TABLE.is_kernels(number) {
            return real::fcntl64(number, command, argument);
        }
        control(number, command, argument, || real::fcntl64(number, command, argument))
    }

    fn lockf(number: c_int, command: c_int, bytes: off_t) -> c_int {
        appender::locking();
        push(number);
        real::lockf(number, command, bytes)
    }

    fn lockf64(number: c_int, command: c_int, bytes: off_t) -> c_int {
        appender::locking();
        push(number);
        real::lockf64(number, command, bytes)
    }
}

/// # Safety
///
/// As for `fcntl`.
unsafe fn control(
    number: c_int,
    command: c_int,
    argument: c_long,
    real: impl FnOnce() -> c_int,
) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            let source = TABLE.duplicating(number);
            let copy = real();
            source.duplicated(copy);
            copy
        }
        libc::F_SETFL => {
            let result = real();
            operate::flags_changed(number);
            result
        }
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => {
            // SAFETY: the caller's promise.
            unsafe { locking(number, argument as *const flock) };
            real()
        }
        _ => real(),
    }
}

/// The kernel is about to work out where the range of a lock begins. The position it may not know, nor where a file ends that is written directly, be it by another descriptor.
///
/// # Safety
///
/// As for `fcntl`. Only of what is ours the lock is looked at here, so on other descriptors a bad address is what the kernel finds.
unsafe fn locking(number: c_int, lock: *const flock) {
    let pin = match client().writes_files() {
        true => TABLE.find_now(number),
        false => TABLE.ours(number),
    };
    if pin.is_none() || lock.is_null() {
        return;
    }
    // SAFETY: the caller's promise. The kernel does not mind how it is aligned.
    let whence = unsafe { (&raw const (*lock).l_whence).read_unaligned() };
    match c_int::from(whence) {
        libc::SEEK_CUR => push(number),
        libc::SEEK_END => operate::tell_kernel_size(number),
        _ => {}
    }
}
