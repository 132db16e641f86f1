//! `syscall`: system calls that a program makes by their number, where they concern a descriptor.

use super::{
    data, data_at, descriptors, memory, messages, others, owner, process as children, status,
};
use crate::process;
use crate::real;
use crate::table::TABLE;
use libc::{c_int, c_long, c_uint};

before! {
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
        // As the kernel does it: a descriptor is the lower half of its register.
        let first = a as c_int;
        match number {
            libc::SYS_read => data::read(first, b as _, c as _) as c_long,
            libc::SYS_write => data::write(first, b as _, c as _) as c_long,
            libc::SYS_readv => data::readv(first, b as _, c as c_int) as c_long,
            libc::SYS_writev => data::writev(first, b as _, c as c_int) as c_long,
            libc::SYS_lseek => data::lseek(first, b, c as c_int),
            libc::SYS_pread64 => data_at::pread(first, b as _, c as _, d) as c_long,
            libc::SYS_pwrite64 => data_at::pwrite(first, b as _, c as _, d) as c_long,
            libc::SYS_preadv => data_at::preadv(first, b as _, c as c_int, d) as c_long,
            libc::SYS_pwritev => data_at::pwritev(first, b as _, c as c_int, d) as c_long,
            libc::SYS_preadv2 => data_at::preadv2(first, b as _, c as c_int, d, f as c_int) as c_long,
            libc::SYS_pwritev2 => data_at::pwritev2(first, b as _, c as c_int, d, f as c_int) as c_long,
            libc::SYS_close => c_long::from(descriptors::close(first)),
            libc::SYS_close_range => c_long::from(descriptors::close_range(a as c_uint, b as c_uint, c as c_int)),
            libc::SYS_dup => c_long::from(descriptors::dup(first)),
            libc::SYS_dup2 => c_long::from(descriptors::dup2(first, b as c_int)),
            libc::SYS_dup3 => c_long::from(descriptors::dup3(first, b as c_int, c as c_int)),
            libc::SYS_fcntl => c_long::from(descriptors::fcntl(first, b as c_int, c)),
            libc::SYS_fstat => c_long::from(status::fstat(first, b as _)),
            libc::SYS_stat => c_long::from(status::stat(a as _, b as _)),
            libc::SYS_lstat => c_long::from(status::lstat(a as _, b as _)),
            libc::SYS_newfstatat => c_long::from(status::fstatat(first, b as _, c as _, d as c_int)),
            libc::SYS_statx => c_long::from(status::statx(first, b as _, c as c_int, d as c_uint, e as _)),
            libc::SYS_fchown => c_long::from(owner::fchown(first, b as c_uint, c as c_uint)),
            libc::SYS_fchownat => c_long::from(owner::fchownat(first, b as _, c as c_uint, d as c_uint, e as c_int)),
            libc::SYS_sendfile => others::sendfile(first, b as c_int, c as _, d as _) as c_long,
            libc::SYS_splice => others::splice(first, b as _, c as c_int, d as _, e as _, f as c_uint) as c_long,
            libc::SYS_copy_file_range => {
                others::copy_file_range(first, b as _, c as c_int, d as _, e as _, f as c_uint) as c_long
            }
            libc::SYS_mmap => memory::mmap(a as _, b as _, c as c_int, d as c_int, e as c_int, f) as c_long,
            libc::SYS_munmap => c_long::from(memory::munmap(a as _, b as _)),
            libc::SYS_mremap => memory::mremap(a as _, b as _, c as _, d as c_int, e as _) as c_long,
            libc::SYS_mprotect => c_long::from(memory::mprotect(a as _, b as _, c as c_int)),
            libc::SYS_pkey_mprotect => c_long::from(memory::pkey_mprotect(a as _, b as _, c as c_int, d as c_int)),
            libc::SYS_madvise => c_long::from(memory::madvise(a as _, b as _, c as c_int)),
            libc::SYS_mlock => c_long::from(memory::mlock(a as _, b as _)),
            libc::SYS_mlockall => c_long::from(memory::mlockall(first)),
            libc::SYS_mlock2 => c_long::from(memory::mlock2(a as _, b as _, c as c_int)),
            libc::SYS_shmat => memory::shmat(first, b as _, c as c_int) as c_long,
            libc::SYS_vmsplice => memory::vmsplice(first, b as _, c as _, d as c_uint) as c_long,
            libc::SYS_sendmsg => messages::sendmsg(first, b as _, c as c_int) as c_long,
            libc::SYS_sendmmsg => c_long::from(messages::sendmmsg(first, b as _, c as c_uint, d as c_int)),
            libc::SYS_recvmsg => messages::recvmsg(first, b as _, c as c_int) as c_long,
            libc::SYS_recvmmsg => c_long::from(messages::recvmmsg(first, b as _, c as c_uint, d as c_int, e as _)),
            libc::SYS_prctl => c_long::from(children::prctl(first, b, c, d, e)),
            libc::SYS_seccomp => {
                process::switch_off("system calls are filtered");
                real::syscall(number, a, b, c, d, e, f)
            }
            libc::SYS_pidfd_getfd => {
                let got = real::syscall(number, a, b, c, d, e, f);
                TABLE.opened_for_others(got as c_int);
                got
            }
            libc::SYS_unshare => c_long::from(children::unshare(first)),
            libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_creat => {
                let opening = TABLE.opening();
                let opened = real::syscall(number, a, b, c, d, e, f);
                TABLE.opened(opened as c_int, opening);
                opened
            }
            libc::SYS_execve | libc::SYS_execveat => {
                process::sharing(|| real::syscall(number, a, b, c, d, e, f))
            }
            // A child in this memory could not return from here in any case.
            libc::SYS_fork | libc::SYS_vfork => cloned(libc::SYS_fork, 0, [a, b, c, d, e, f]),
            libc::SYS_clone => cloned(number, first, [a, b, c, d, e, f]),
            libc::SYS_clone3 => {
                let flags = (a as *const u64).as_ref().map_or(0, |flags| *flags as c_int);
                cloned(number, flags, [a, b, c, d, e, f])
            }
            _ => real::syscall(number, a, b, c, d, e, f),
        }
    }
}

/// # Safety
///
/// As for the system call.
unsafe fn cloned(number: c_long, flags: c_int, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    children::check_clone(flags);
    // SAFETY: the caller's promise.
    let child = unsafe { real::syscall(number, a, b, c, d, e, f) };
    match child {
        0 if flags & libc::CLONE_VM == 0 => process::after_fork(),
        0 => {}
        _ => children::check_cloned(flags),
    }
    child
}
