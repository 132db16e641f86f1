//! Children and other programs.

use crate::table::TABLE;
use crate::{process, real};
use libc::{FILE, c_char, c_int, c_long, c_void, pid_t};

/// A child that shares this process's memory and not its descriptors: the table means nothing any more.
pub(super) fn check_clone(flags: c_int) {
    const OTHER_PROCESS: c_int = libc::CLONE_THREAD | libc::CLONE_VFORK;
    if flags & libc::CLONE_VM == 0 {
        process::before_fork();
        return;
    }
    if flags & OTHER_PROCESS == 0 {
        // It may outlive this one, and nobody would give back what is in its memory.
        process::map_nothing();
    }
    if flags & libc::CLONE_FILES == 0 {
        process::switch_off("a child shares the memory and not the descriptors");
    }
}

/// In the parent, after [`check_clone`].
pub(super) fn check_cloned(flags: c_int) {
    if flags & libc::CLONE_VM == 0 {
        process::after_fork_in_parent();
    }
}

before! {
    // What the C library has registered for `fork` does our part too.
    fn fork() -> pid_t {
        real::fork()
    }

    fn __fork() -> pid_t {
        real::fork()
    }

    // A child that runs in this process's memory would change its table.
    fn vfork() -> pid_t {
        real::fork()
    }

    fn __vfork() -> pid_t {
        real::fork()
    }

    fn _Fork() -> pid_t {
        process::before_fork();
        let child = real::_Fork();
        match child {
            0 => process::after_fork(),
            _ => process::after_fork_in_parent(),
        }
        child
    }

    fn clone(
        start: *mut c_void,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        parent: *mut c_void,
        tls: *mut c_void,
        child: *mut c_void,
    ) -> c_int {
        check_clone(flags);
        let number = real::clone(start, stack, flags, argument, parent, tls, child);
        check_cloned(flags);
        number
    }

    fn unshare(flags: c_int) -> c_int {
        if flags & libc::CLONE_FILES != 0 {
            process::switch_off("a thread has descriptors of its own");
        }
        real::unshare(flags)
    }

    fn login_tty(number: c_int) -> c_int {
        (0..=2).chain([number]).for_each(|number| TABLE.replacing(number));
        real::login_tty(number)
    }

    fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        process::sharing(|| real::execve(path, arguments, environment))
    }

    fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
        process::sharing(|| real::execv(path, arguments))
    }

    fn execvp(path: *const c_char, arguments: *const *const c_char) -> c_int {
        process::sharing(|| real::execvp(path, arguments))
    }

    fn execvpe(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        process::sharing(|| real::execvpe(path, arguments, environment))
    }

    fn fexecve(number: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        process::sharing(|| real::fexecve(number, arguments, environment))
    }

    fn execveat(
        directory: c_int,
        path: *const c_char,
        arguments: *const *const c_char,
        environment: *const *const c_char,
        flags: c_int,
    ) -> c_int {
        process::sharing(|| real::execveat(directory, path, arguments, environment, flags))
    }

    fn posix_spawn(
        child: *mut c_void,
        path: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: *const c_void,
        environment: *const c_void,
    ) -> c_int {
        process::sharing(|| real::posix_spawn(child, path, actions, attributes, arguments, environment))
    }

    fn posix_spawnp(
        child: *mut c_void,
        path: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: *const c_void,
        environment: *const c_void,
    ) -> c_int {
        process::sharing(|| real::posix_spawnp(child, path, actions, attributes, arguments, environment))
    }

    fn system(command: *const c_char) -> c_int {
        process::sharing(|| real::system(command))
    }

    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
        process::sharing(|| real::popen(command, mode))
    }

    fn wordexp(words: *const c_char, into: *mut c_void, flags: c_int) -> c_int {
        process::sharing(|| real::wordexp(words, into, flags))
    }

    // The kernel lets through no more system calls, or not all: those that the library makes beside the program's would end it.
    fn prctl(option: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int {
        if option == libc::PR_SET_SECCOMP {
            process::switch_off("system calls are filtered");
        }
        real::prctl(option, a, b, c, d)
    }
}
