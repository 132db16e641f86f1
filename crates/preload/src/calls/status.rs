//! What is asked about a file: `stat` and its relatives.
//!
//! A file that is attached is answered for in the process. By its path too, if the process writes any files directly: about those the kernel asks the server each time. Which file a path names, the kernel says without
//! asking anybody.

use crate::client::client;
use crate::table::TABLE;
use crate::thread::Inside;
use crate::{operate, real};
use libc::{c_char, c_int, c_uint};
use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::mem::MaybeUninit;

/// The version of `struct stat` that programs mean which were linked before the C library had `fstat` itself.
const VERSION: c_int = 1;

/// What is asked about: a descriptor, or a path from a directory on.
enum Subject {
    Descriptor(c_int),
    Path(c_int, *const c_char, AtFlags),
}

/// The subject of `fstatat` and `statx`, if it is one for us.
///
/// # Safety
///
/// A string of C's, or null.
unsafe fn subject(directory: c_int, path: *const c_char, flags: c_int) -> Option<Subject> {
    let known = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let flags = AtFlags::from_bits(flags.cast_unsigned())?;
    if path.is_null() || !known.contains(flags) {
        return None;
    }
    if !flags.contains(AtFlags::EMPTY_PATH) {
        return Some(Subject::Path(directory, path, flags));
    }
    // Only where it matters: else the kernel looks at the path, and says so if it cannot.
    let is_ours = TABLE.ours(directory).is_some();
    // SAFETY: the caller's promise.
    (is_ours && unsafe { *path } == 0).then_some(Subject::Descriptor(directory))
}

/// What is known of it without asking the server.
///
/// # Safety
///
/// A path is a string of C's.
unsafe fn status(subject: Option<Subject>) -> Option<Statx> {
    match subject? {
        Subject::Descriptor(number) if TABLE.is_kernels(number) => None,
        Subject::Descriptor(number) => operate::status(number),
        Subject::Path(..) if !client().writes_files() => None,
        // SAFETY: the caller's promise.
        Subject::Path(directory, path, flags) => unsafe { named(directory, path, flags) },
    }
}

/// # Safety
///
/// A string of C's.
unsafe fn named(directory: c_int, path: *const c_char, flags: AtFlags) -> Option<Statx> {
    let _inside = Inside::enter()?;
    let flags = (flags | AtFlags::STATX_DONT_SYNC).bits().cast_signed();
    let wanted = (StatxFlags::TYPE | StatxFlags::INO).bits();
    let mut found = MaybeUninit::<Statx>::zeroed();
    // SAFETY: what is odd about directory and path the kernel judges; there is room for its answer, which is numbers.
    let found = unsafe {
        let into = found.as_mut_ptr().cast::<libc::statx>();
        if real::statx(directory, path, flags, wanted, into) != 0 {
            return None;
        }
        found.assume_init()
    };
    client().status_of(&found)
}

fn device(major: u32, minor: u32) -> libc::dev_t {
    libc::makedev(major, minor)
}

/// As `struct stat`.
fn short(status: &Statx) -> libc::stat {
    // SAFETY: all of it is numbers.
    let mut short: libc::stat = unsafe { std::mem::zeroed() };
    short.st_dev = device(status.stx_dev_major, status.stx_dev_minor);
    short.st_ino = status.stx_ino;
    short.st_nlink = status.stx_nlink.into();
    short.st_mode = status.stx_mode.into();
    short.st_uid = status.stx_uid;
    short.st_gid = status.stx_gid;
    short.st_rdev = device(status.stx_rdev_major, status.stx_rdev_minor);
    short.st_size = status.stx_size.cast_signed();
    short.st_blksize = status.stx_blksize.into();
    short.st_blocks = status.stx_blocks.cast_signed();
    short.st_atime = status.stx_atime.tv_sec;
    short.st_atime_nsec = status.stx_atime.tv_nsec.into();
    short.st_mtime = status.stx_mtime.tv_sec;
    short.st_mtime_nsec = status.stx_mtime.tv_nsec.into();
    short.st_ctime = status.stx_ctime.tv_sec;
    short.st_ctime_nsec = status.stx_ctime.tv_nsec.into();
    short
}

/// # Safety
///
/// As for `fstatat`, for what `subject` stands for.
unsafe fn answered(subject: Option<Subject>, into: *mut libc::stat) -> bool {
    if into.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    match unsafe { status(subject) } {
        Some(status) => {
            // SAFETY: the caller's promise.
            unsafe { into.write(short(&status)) };
            true
        }
        None => false,
    }
}

const FOLLOW: AtFlags = AtFlags::empty();
const NO_FOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

/// # Safety
///
/// A string of C's, or null.
unsafe fn path(path: *const c_char, flags: AtFlags) -> Option<Subject> {
    // SAFETY: the caller's promise.
    unsafe { subject(libc::AT_FDCWD, path, flags.bits().cast_signed()) }
}

macro_rules! stating {
    ($($name:ident($($argument:ident: $type:ty),*), $into:ident, $subject:expr;)*) => {
        before! {$(
            fn $name($($argument: $type),*) -> c_int {
                match answered($subject, $into) {
                    true => 0,
                    false => real::$name($($argument),*),
                }
            }
        )*}
    };
}

stating! {
    fstat(number: c_int, into: *mut libc::stat), into, Some(Subject::Descriptor(number));
    fstat64(number: c_int, into: *mut libc::stat), into, Some(Subject::Descriptor(number));
    stat(name: *const c_char, into: *mut libc::stat), into, path(name, FOLLOW);
    stat64(name: *const c_char, into: *mut libc::stat), into, path(name, FOLLOW);
    lstat(name: *const c_char, into: *mut libc::stat), into, path(name, NO_FOLLOW);
    lstat64(name: *const c_char, into: *mut libc::stat), into, path(name, NO_FOLLOW);
    fstatat(directory: c_int, name: *const c_char, into: *mut libc::stat, flags: c_int), into, subject(directory, name, flags);
    fstatat64(directory: c_int, name: *const c_char, into: *mut libc::stat, flags: c_int), into, subject(directory, name, flags);
    __fxstat(version: c_int, number: c_int, into: *mut libc::stat), into, (version == VERSION).then_some(Subject::Descriptor(number));
    __fxstat64(version: c_int, number: c_int, into: *mut libc::stat), into, (version == VERSION).then_some(Subject::Descriptor(number));
    __xstat(version: c_int, name: *const c_char, into: *mut libc::stat), into, path(name, FOLLOW).filter(|_| version == VERSION);
    __xstat64(version: c_int, name: *const c_char, into: *mut libc::stat), into, path(name, FOLLOW).filter(|_| version == VERSION);
    __lxstat(version: c_int, name: *const c_char, into: *mut libc::stat), into, path(name, NO_FOLLOW).filter(|_| version == VERSION);
    __lxstat64(version: c_int, name: *const c_char, into: *mut libc::stat), into, path(name, NO_FOLLOW).filter(|_| version == VERSION);
    __fxstatat(version: c_int, directory: c_int, name: *const c_char, into: *mut libc::stat, flags: c_int), into, subject(directory, name, flags).filter(|_| version == VERSION);
    __fxstatat64(version: c_int, directory: c_int, name: *const c_char, into: *mut libc::stat, flags: c_int), into, subject(directory, name, flags).filter(|_| version == VERSION);
}

before! {
    fn statx(directory: c_int, name: *const c_char, flags: c_int, wanted: c_uint, into: *mut libc::statx) -> c_int {
        // What the kernel tells beyond the basic things it tells only if it is asked.
        let is_basic = wanted & !libc::STATX_BASIC_STATS == 0;
        if is_basic && !into.is_null() && let Some(status) = status(subject(directory, name, flags)) {
            into.cast::<Statx>().write(status);
            return 0;
        }
        real::statx(directory, name, flags, wanted, into)
    }
}

const _: () = assert!(size_of::<Statx>() == size_of::<libc::statx>());
