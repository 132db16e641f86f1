//! The functions behind ours: the next ones of the same name that the dynamic linker finds, the C library's as a rule.
//!
//! Each is looked up when it is first called. Two threads may both do so; they find the same. Cancelling a thread unwinds through what is called here, so callers have nothing
//! to be dropped meanwhile.

use libc::{c_char, c_int, c_long, c_uint, c_void, gid_t, mode_t, off_t, size_t, ssize_t, uid_t};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// Address of the next function of some name.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next {
            name,
            address: AtomicPtr::new(null_mut()),
        }
    }

    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let address = self.address.load(Relaxed);
        if address.is_null() {
            self.find()
        } else {
            address
        }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a string of C's.
        let mut address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            address = missing as *mut c_void;
        }
        self.address.store(address, Relaxed);
        address
    }
}

/// Stands for a function that this C library does not have.
extern "C" fn missing() -> ssize_t {
    crate::thread::set_errno(libc::ENOSYS);
    -1
}

macro_rules! behind {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[inline]
        #[allow(non_snake_case, reason = "the C library has named it")]
        pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            static NEXT: Next = Next::new(NAME);
            // SAFETY: the function of this name has this type, by the C library's manual; of one that is variadic, arguments are passed as to one that is not.
            let function = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) $(-> $result)?>(NEXT.address()) };
            // SAFETY: the caller promises what the function wants.
            unsafe { function($($argument),*) }
        }
    )*};
}

behind! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    creat(path: *const c_char, mode: mode_t) -> c_int;
    creat64(path: *const c_char, mode: mode_t) -> c_int;
    __open_2(path: *const c_char, flags: c_int) -> c_int;
    __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    mkstemp(template: *mut c_char) -> c_int;
    mkstemp64(template: *mut c_char) -> c_int;
    mkostemp(template: *mut c_char, flags: c_int) -> c_int;
    mkostemp64(template: *mut c_char, flags: c_int) -> c_int;
    mkstemps(template: *mut c_char, suffix: c_int) -> c_int;
    mkstemps64(template: *mut c_char, suffix: c_int) -> c_int;
    mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    close(number: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom(first: c_int);
    dup(number: c_int) -> c_int;
    dup2(number: c_int, copy: c_int) -> c_int;
    dup3(number: c_int, copy: c_int, flags: c_int) -> c_int;
    fcntl(number: c_int, command: c_int, argument: c_long) -> c_int;
    fcntl64(number: c_int, command: c_int, argument: c_long) -> c_int;
    lockf(number: c_int, command: c_int, bytes: off_t) -> c_int;
    lockf64(number: c_int, command: c_int, bytes: off_t) -> c_int;

    read(number: c_int, into: *mut c_void, bytes: size_t) -> ssize_t;
    pread(number: c_int, into: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    pread64(number: c_int, into: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    __read_chk(number: c_int, into: *mut c_void, bytes: size_t, room: size_t) -> ssize_t;
    __pread_chk(number: c_int, into: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t;
    __pread64_chk(number: c_int, into: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t;
    readv(number: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t;
    preadv(number: c_int, parts: *const libc::iovec, count: c_int, offset: off_t) -> ssize_t;
    preadv64(number: c_int, parts: *const libc::iovec, count: c_int, offset: off_t) -> ssize_t;
    preadv2(number: c_int, parts: *const libc::iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    preadv64v2(number: c_int, parts: *const libc::iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    write(number: c_int, data: *const c_void, bytes: size_t) -> ssize_t;
    pwrite(number: c_int, data: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    pwrite64(number: c_int, data: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    writev(number: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t;
    pwritev(number: c_int, parts: *const libc::iovec, count: c_int, offset: off_t) -> ssize_t;
    pwritev64(number: c_int, parts: *const libc::iovec, count: c_int, offset: off_t) -> ssize_t;
    pwritev2(number: c_int, parts: *const libc::iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    pwritev64v2(number: c_int, parts: *const libc::iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    lseek(number: c_int, offset: off_t, whence: c_int) -> off_t;
    lseek64(number: c_int, offset: off_t, whence: c_int) -> off_t;
    fsync(number: c_int) -> c_int;
    fdatasync(number: c_int) -> c_int;
    sync_file_range(number: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int;
    mmap(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, number: c_int, offset: off_t) -> *mut c_void;
    mmap64(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, number: c_int, offset: off_t) -> *mut c_void;
    munmap(at: *mut c_void, bytes: size_t) -> c_int;
    mremap(at: *mut c_void, bytes: size_t, new_bytes: size_t, flags: c_int, to: *mut c_void) -> *mut c_void;
    mprotect(at: *mut c_void, bytes: size_t, protection: c_int) -> c_int;
    pkey_mprotect(at: *mut c_void, bytes: size_t, protection: c_int, key: c_int) -> c_int;
    madvise(at: *mut c_void, bytes: size_t, advice: c_int) -> c_int;
    mlock(at: *mut c_void, bytes: size_t) -> c_int;
    mlockall(flags: c_int) -> c_int;
    mlock2(at: *mut c_void, bytes: size_t, flags: c_int) -> c_int;
    remap_file_pages(at: *mut c_void, bytes: size_t, protection: c_int, page: size_t, flags: c_int) -> c_int;
    shmat(segment: c_int, at: *const c_void, flags: c_int) -> *mut c_void;
    vmsplice(pipe: c_int, parts: *const libc::iovec, count: size_t, flags: c_uint) -> ssize_t;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t;
    sendfile64(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t;
    splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t;
    copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t;

    fstat(number: c_int, into: *mut libc::stat) -> c_int;
    fstat64(number: c_int, into: *mut libc::stat) -> c_int;
    stat(name: *const c_char, into: *mut libc::stat) -> c_int;
    stat64(name: *const c_char, into: *mut libc::stat) -> c_int;
    lstat(name: *const c_char, into: *mut libc::stat) -> c_int;
    lstat64(name: *const c_char, into: *mut libc::stat) -> c_int;
    fstatat(directory: c_int, name: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int;
    fstatat64(directory: c_int, name: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int;
    __fxstat(version: c_int, number: c_int, into: *mut libc::stat) -> c_int;
    __fxstat64(version: c_int, number: c_int, into: *mut libc::stat) -> c_int;
    __xstat(version: c_int, name: *const c_char, into: *mut libc::stat) -> c_int;
    __xstat64(version: c_int, name: *const c_char, into: *mut libc::stat) -> c_int;
    __lxstat(version: c_int, name: *const c_char, into: *mut libc::stat) -> c_int;
    __lxstat64(version: c_int, name: *const c_char, into: *mut libc::stat) -> c_int;
    __fxstatat(version: c_int, directory: c_int, name: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int;
    __fxstatat64(version: c_int, directory: c_int, name: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int;
    statx(directory: c_int, name: *const c_char, flags: c_int, wanted: c_uint, into: *mut libc::statx) -> c_int;

    fchown(number: c_int, user: uid_t, group: gid_t) -> c_int;
    fchownat(directory: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int;

    fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    freopen(path: *const c_char, mode: *const c_char, stream: *mut libc::FILE) -> *mut libc::FILE;
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut libc::FILE) -> *mut libc::FILE;
    fdopen(number: c_int, mode: *const c_char) -> *mut libc::FILE;
    fdopendir(number: c_int) -> *mut libc::DIR;
    closedir(directory: *mut libc::DIR) -> c_int;
    fclose(stream: *mut libc::FILE) -> c_int;
    pclose(stream: *mut libc::FILE) -> c_int;
    popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    vdprintf(number: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    __vdprintf_chk(number: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    backtrace_symbols_fd(addresses: *const *mut c_void, count: c_int, number: c_int);

    fork() -> libc::pid_t;
    _Fork() -> libc::pid_t;
    clone(start: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_void, tls: *mut c_void, child: *mut c_void) -> c_int;
    unshare(flags: c_int) -> c_int;
    login_tty(number: c_int) -> c_int;
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    execvp(path: *const c_char, arguments: *const *const c_char) -> c_int;
    execvpe(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fexecve(number: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execveat(directory: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
    posix_spawn(child: *mut c_void, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const c_void, environment: *const c_void) -> c_int;
    posix_spawnp(child: *mut c_void, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const c_void, environment: *const c_void) -> c_int;
    system(command: *const c_char) -> c_int;
    wordexp(words: *const c_char, into: *mut c_void, flags: c_int) -> c_int;
    sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t;
    sendmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int;
    recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t;
    recvmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, timeout: *mut libc::timespec) -> c_int;
    prctl(option: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int;
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
}
