//! Mapping files into memory, and what is done to such memory (`docs/DIRECT.md`, *Mapped files*).
//!
//! What lies straight on blocks is told to the kernel before a call does to it what only the kernel can do to its own mappings. As long as there is none such, a call costs a load and a branch.

use crate::buffers::is_readable;
use crate::client::mapped::{self, Area, MapRequest};
use crate::table::TABLE;
use crate::{operate, process, real, thread};
use libc::{c_int, c_void, off_t, size_t};
use std::mem::MaybeUninit;

/// Calls of `madvise` that change nothing but how soon pages come and go.
const HARMLESS_ADVICE: [c_int; 8] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_DONTNEED,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
    libc::MADV_POPULATE_READ,
];

fn area(at: *mut c_void, bytes: size_t) -> Area {
    Area {
        start: at.addr(),
        bytes,
    }
}

/// The kernel gets what lies on blocks there. `errno` stays as it is.
fn leave(at: *mut c_void, bytes: size_t) {
    let errno = thread::errno();
    mapped::leave_to_kernel(area(at, bytes));
    thread::set_errno(errno);
}

/// A call that unmaps an area or maps something else there; `errno` is what it left.
fn changing<T>(
    at: *mut c_void,
    bytes: size_t,
    real: impl FnOnce() -> T,
    succeeded: impl FnOnce(&T) -> bool,
) -> T {
    let mut errno = 0;
    let call = || {
        let result = real();
        errno = thread::errno();
        result
    };
    let result = mapped::changing(area(at, bytes), call, succeeded);
    thread::set_errno(errno);
    result
}

/// How much memory a shared segment is, if the process may know.
fn bytes_of(segment: c_int) -> Option<usize> {
    let mut status = MaybeUninit::<libc::shmid_ds>::uninit();
    let errno = thread::errno();
    // SAFETY: there is room for what the kernel tells.
    let answer = unsafe { libc::shmctl(segment, libc::IPC_STAT, status.as_mut_ptr()) };
    thread::set_errno(errno);
    // SAFETY: the kernel has filled it in.
    (answer == 0).then(|| unsafe { status.assume_init() }.shm_segsz)
}

fn map(
    number: c_int,
    at: *mut c_void,
    request: MapRequest,
    real: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let plan = match TABLE.is_kernels(number) || request.flags & libc::MAP_ANONYMOUS != 0 {
        true => None,
        false => operate::plan_mapping(number, &request),
    };
    let is_fixed = request.flags & libc::MAP_FIXED != 0;
    let found = match is_fixed {
        true => changing(at, request.bytes, real, |found| *found != libc::MAP_FAILED),
        false => real(),
    };
    if let Some(plan) = plan {
        operate::lay(number, plan, found);
    }
    found
}

before! {
    fn mmap(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, number: c_int, offset: off_t) -> *mut c_void {
        let request = MapRequest { bytes, protection, flags, offset };
        map(number, at, request, || real::mmap(at, bytes, protection, flags, number, offset))
    }

    fn mmap64(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, number: c_int, offset: off_t) -> *mut c_void {
        let request = MapRequest { bytes, protection, flags, offset };
        map(number, at, request, || real::mmap64(at, bytes, protection, flags, number, offset))
    }

    fn munmap(at: *mut c_void, bytes: size_t) -> c_int {
        changing(at, bytes, || real::munmap(at, bytes), |result| *result == 0)
    }

    // With less than five arguments the last is what happens to be in its register, and used only if the flags say so.
    fn mremap(at: *mut c_void, bytes: size_t, new_bytes: size_t, flags: c_int, to: *mut c_void) -> *mut c_void {
        leave(at, bytes.max(1));
        if flags & libc::MREMAP_FIXED != 0 {
            leave(to, new_bytes);
        }
        real::mremap(at, bytes, new_bytes, flags, to)
    }

    fn mprotect(at: *mut c_void, bytes: size_t, protection: c_int) -> c_int {
        leave(at, bytes);
        real::mprotect(at, bytes, protection)
    }

    fn pkey_mprotect(at: *mut c_void, bytes: size_t, protection: c_int, key: c_int) -> c_int {
        leave(at, bytes);
        real::pkey_mprotect(at, bytes, protection, key)
    }

    fn madvise(at: *mut c_void, bytes: size_t, advice: c_int) -> c_int {
        if !HARMLESS_ADVICE.contains(&advice) {
            leave(at, bytes);
        }
        real::madvise(at, bytes, advice)
    }

    fn mlock(at: *mut c_void, bytes: size_t) -> c_int {
        leave(at, bytes);
        real::mlock(at, bytes)
    }

    fn mlock2(at: *mut c_void, bytes: size_t, flags: c_int) -> c_int {
        leave(at, bytes);
        real::mlock2(at, bytes, flags)
    }

    // The kernel reads all that is mapped, shadows too, and with `MCL_FUTURE` each mapping while it is made.
    fn mlockall(flags: c_int) -> c_int {
        process::map_nothing();
        real::mlockall(flags)
    }

    fn remap_file_pages(at: *mut c_void, bytes: size_t, protection: c_int, page: size_t, flags: c_int) -> c_int {
        leave(at, bytes);
        real::remap_file_pages(at, bytes, protection, page, flags)
    }

    fn shmat(segment: c_int, at: *const c_void, flags: c_int) -> *mut c_void {
        if flags & libc::SHM_REMAP != 0 && !process::is_off() {
            leave(at.cast_mut(), bytes_of(segment).unwrap_or(usize::MAX - at.addr()));
        }
        real::shmat(segment, at, flags)
    }

    // Pages that are in a pipe stay there, whoever gets their blocks.
    fn vmsplice(pipe: c_int, parts: *const libc::iovec, count: size_t, flags: libc::c_uint) -> libc::ssize_t {
        let count_looked_at = count.min(1024);
        // Without direct access nothing lies on blocks, and each system call may end the process.
        if !process::is_off() && is_readable(parts.cast(), count_looked_at * size_of::<libc::iovec>()) && !parts.is_null() {
            for part in std::slice::from_raw_parts(parts, count_looked_at) {
                leave(part.iov_base, part.iov_len);
            }
        }
        real::vmsplice(pipe, parts, count, flags)
    }
}
