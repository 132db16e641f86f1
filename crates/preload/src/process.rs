//! What happens to the process as a whole: children, other programs, and the end of direct access.

use crate::client::mapped;
use crate::log::say;
use crate::table::TABLE;
use crate::thread;
use crate::{appender, client, slab};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64};

/// Direct access: not asked yet, on, off for good.
static STATE: AtomicU8 = AtomicU8::new(NOT_ASKED);
const NOT_ASKED: u8 = 0;
const ON: u8 = 1;
const OFF: u8 = 2;

/// A word that is 1 in the process that set it, and that the kernel sets to 0 in any child, however it was made (`MADV_WIPEONFORK`).
static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// Prepares when the library is loaded: the C library calls what was registered first last before a fork, so hardly anything is opened behind our back; and a child may be made before anything is looked at.
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;

extern "C" fn prepare() {
    may_look();
}

/// Whether direct access is off for good.
pub(crate) fn is_off() -> bool {
    STATE.load(Relaxed) == OFF
}

/// Whether descriptors may be looked at. The first time, which may come before [`prepare`], it prepares for children.
pub(crate) fn may_look() -> bool {
    if STATE.load(Relaxed) == NOT_ASKED {
        let is_off = std::env::var_os("PERDURE_DIRECT").is_some_and(|value| value == "off");
        let is_ready = !is_off && prepare_for_children();
        if !is_ready {
            say(format_args!("direct access is off"));
        }
        let _ = STATE.compare_exchange(NOT_ASKED, if is_ready { ON } else { OFF }, SeqCst, Relaxed);
    }
    STATE.load(Relaxed) == ON
}

/// Ends direct access: numbers do not mean the same in all of the process's memory any more.
pub(crate) fn switch_off(why: &str) {
    say(format_args!("direct access is off: {why}"));
    STATE.store(OFF, SeqCst);
    map_nothing();
    TABLE.give_up();
}

fn prepare_for_children() -> bool {
    const PAGE: usize = 4096;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let page = unsafe {
        mmap_anonymous(
            null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let Ok(page) = page else {
        return false;
    };
    // SAFETY: the page that was just mapped.
    if unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) }.is_err() {
        return false;
    }
    let mark = page.cast::<AtomicU64>();
    // SAFETY: mapped, aligned, and never unmapped.
    unsafe { &*mark }.store(1, SeqCst);
    MARK.store(mark, SeqCst);
    // SAFETY: the three functions are as the C library wants them, and stay as long as the process: the library is never unloaded.
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork),
        ) == 0
    }
}

/// To be called before anything of what the table leads to is touched. If this is a child that nobody has told us of, it forgets its parent's files (P4), and says true.
#[inline]
pub(crate) fn settle() -> bool {
    let mark = MARK.load(Acquire);
    // SAFETY: null, or the page that is never unmapped.
    let is_child = unsafe { mark.as_ref() }.is_some_and(|mark| mark.load(Relaxed) == 0);
    if is_child {
        forget();
    }
    is_child
}

#[cold]
fn forget() {
    TABLE.forget();
    slab::forget();
    appender::forget();
    client::forget();
    // SAFETY: null, or the page that is never unmapped.
    if let Some(mark) = unsafe { MARK.load(Acquire).as_ref() } {
        mark.store(1, SeqCst);
    }
}

/// All positions are the kernel's from now on.
pub(crate) fn share_all() {
    keeping_errno(|| TABLE.share_all());
}

fn keeping_errno(act: impl FnOnce()) {
    let errno = thread::errno();
    act();
    thread::set_errno(errno);
}

/// Calls what lets a child or another program see our descriptors. If the thread is cancelled in there, whatever is opened later counts as shared, which is slower and nothing worse.
pub(crate) fn sharing<T>(call: impl FnOnce() -> T) -> T {
    keeping_errno(|| TABLE.begin_sharing());
    let result = call();
    keeping_errno(|| TABLE.end_sharing());
    result
}

/// As `pthread_atfork` wants it.
pub(crate) extern "C" fn before_fork() {
    keeping_errno(|| {
        TABLE.begin_sharing();
        mapped::begin_fork();
    });
}

/// As `pthread_atfork` wants it: in the parent.
pub(crate) extern "C" fn after_fork_in_parent() {
    keeping_errno(|| TABLE.end_sharing());
    mapped::end_fork();
}

/// Whatever is mapped is the kernel's from now on.
pub(crate) fn map_nothing() {
    // Never ended.
    keeping_errno(mapped::begin_fork);
}

/// As `pthread_atfork` wants it: in the child.
pub(crate) extern "C" fn after_fork() {
    if !settle() {
        // Nothing was prepared, so nothing is forgotten.
        TABLE.forget_calls();
        mapped::end_fork();
    }
}
