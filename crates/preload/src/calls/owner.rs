//! Giving a file to whom it belongs already.
//!
//! SQLite, run by root, does so with each new journal, in case the database is somebody else's. It costs two requests to the server, of which nothing is to be seen, if the file was made just now: then this says so without asking.
//!
//! What `fchown` changes even if owner and group stay: the bits that set ids go, file capabilities go, and the time of change becomes the clock's. So nobody can tell whether it was called if
//!
//! * there are no such bits,
//! * the file has no block: each extended attribute of a file of ours takes one, and capabilities are such an attribute,
//! * the time of change is the clock's already: the server stamps files with the kernel's coarse clock, which ticks each few milliseconds.
//!
//! It is allowed to whoever owns the file. To have it open for writing keeps the mount from becoming read-only.

use crate::real;
use crate::table::{TABLE, borrow};
use crate::thread::Inside;
use libc::{c_char, c_int, gid_t, uid_t};
use rustix::fs::{Stat, fstat};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Stands for the id that the file has.
const KEEP: u32 = u32::MAX;
/// What the kernel shows in place of an id that has no number in the caller's user namespace. Nothing can be told by it.
const OVERFLOW: u32 = 65_534;
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// Whether this is a call that changes nothing, and would have succeeded. Only of a file that is about to be used directly, and was not used yet: others have been written to, or are not worth the question.
fn changes_nothing(number: c_int, user: uid_t, group: gid_t) -> bool {
    let Some(pin) = TABLE.find_expected(number) else {
        return false;
    };
    let Some(_inside) = Inside::enter() else {
        return false;
    };
    let now = tick();
    let Ok(status) = fstat(borrow(number)) else {
        return false;
    };
    let is_same = |asked, found| asked == found || asked == KEEP;
    pin.is_writable()
        && (user, group) != (KEEP, KEEP)
        && is_same(user, status.st_uid)
        && is_same(group, status.st_gid)
        && ![status.st_uid, status.st_gid].contains(&OVERFLOW)
        && status.st_mode & SET_ID == 0
        && status.st_blocks == 0
        && changed(&status) == now
        && is_owner(&status)
        && tick() == now
}

/// The server's clock.
fn tick() -> Timespec {
    clock_gettime(ClockId::RealtimeCoarse)
}

fn changed(status: &Stat) -> Timespec {
    Timespec {
        tv_sec: status.st_ctime,
        tv_nsec: status.st_ctime_nsec.cast_signed(),
    }
}

/// Whether the file is the calling thread's, in the kernel's eyes.
fn is_owner(status: &Stat) -> bool {
    // SAFETY: changes nothing, as no user has this id; says who it is.
    let user = unsafe { libc::setfsuid(KEEP) };
    user.cast_unsigned() == status.st_uid
}

/// Whether `fchownat` with this path and these flags is about the descriptor itself.
///
/// # Safety
///
/// A string of C's, or null.
unsafe fn is_descriptor(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: the caller's promise.
    flags == libc::AT_EMPTY_PATH && !path.is_null() && unsafe { *path } == 0
}

before! {
    fn fchown(number: c_int, user: uid_t, group: gid_t) -> c_int {
        if !TABLE.is_kernels(number) && changes_nothing(number, user, group) {
            return 0;
        }
        real::fchown(number, user, group)
    }

    fn fchownat(directory: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int {
        if TABLE.find_expected(directory).is_some() && is_descriptor(path, flags) && changes_nothing(directory, user, group) {
            return 0;
        }
        real::fchownat(directory, path, user, group, flags)
    }
}
