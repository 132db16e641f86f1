//! A file that is open beside the program's own description, for appending or not.
//!
//! It stays open as long as the description that it was made for: when a process closes any descriptor of a file, it loses its `POSIX` locks on it, so the library must not close one while the program
//! still has the file open. For the same reason it stays at the number that it got, the lowest, which programs count on; but as long as the process has never locked anything there is nothing
//! to lose, so it goes to a high one.

use rustix::fs::{Mode, OFlags, Stat, fcntl_getfl, fstat, open};
use rustix::io::{fcntl_dupfd_cloexec, read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// Numbers out of the way of those that programs count on; the first that is allowed.
const NUMBERS: [RawFd; 3] = [768, 240, 100];

/// Descriptors that are on their way to a high number; and whether the process has ever locked a part of a file.
static MOVING: AtomicU32 = AtomicU32::new(0);
const LOCKED: u32 = 1 << 31;
/// The process had none when it began.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// How often one looks whether they have arrived. Each takes some microseconds.
const LOOKS: u32 = 100_000;

/// The process is about to lock a part of a file: from now on no descriptor is closed that was opened here.
pub(crate) fn locking() {
    if MOVING.load(SeqCst) != LOCKED {
        MOVING.fetch_or(LOCKED, SeqCst);
        let mut looks = 0..LOOKS;
        while MOVING.load(SeqCst) != LOCKED && looks.next().is_some() {
            std::thread::yield_now();
        }
    }
}

/// In a child of `fork`: it has no locks, and nobody moves anything.
pub(crate) fn forget() {
    MOVING.store(0, SeqCst);
}

/// None so far, or one.
#[derive(Default)]
pub(crate) struct Appender(OnceLock<Opened>);

struct Opened {
    /// Taken at the end only.
    descriptor: Option<OwnedFd>,
    appends: bool,
    device: u64,
    inode: u64,
}

impl Appender {
    /// One of the file behind this descriptor, always asked for with the same `appends`, for as long as it is what it was: a program may close all numbers from some on, and get this one for another file.
    pub(crate) fn get(&self, descriptor: BorrowedFd<'_>, appends: bool) -> Option<BorrowedFd<'_>> {
        let opened = match self.0.get() {
            Some(opened) => opened,
            None => {
                if let Err(late) = self.0.set(Opened::of(descriptor, appends)?) {
                    // Another thread was faster. Not closed, as said.
                    std::mem::forget(late);
                }
                self.0.get()?
            }
        };
        opened.sound()
    }
}

impl Opened {
    fn of(descriptor: BorrowedFd<'_>, appends: bool) -> Option<Opened> {
        let append = if appends {
            OFlags::APPEND
        } else {
            OFlags::empty()
        };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | append;
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let low = open(path, flags, Mode::empty()).ok()?;
        let status = fstat(&low).ok()?;
        Some(Opened {
            descriptor: Some(high(low)),
            appends,
            device: status.st_dev,
            inode: status.st_ino,
        })
    }

    fn sound(&self) -> Option<BorrowedFd<'_>> {
        let descriptor = self.descriptor.as_ref()?.as_fd();
        let is_same = |status: Stat| (status.st_dev, status.st_ino) == (self.device, self.inode);
        let appends = fcntl_getfl(descriptor).map(|flags| flags.contains(OFlags::APPEND));
        (appends == Ok(self.appends) && fstat(descriptor).is_ok_and(is_same)).then_some(descriptor)
    }
}

/// The same at a high number, if it may be moved and there is one.
fn high(low: OwnedFd) -> OwnedFd {
    // A handler that locks something would wait for what it has interrupted.
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: there is room for both sets, and each is filled in before it is used.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let one_more = |moving: u32| (moving & LOCKED == 0).then(|| moving + 1);
    let kept = match MOVING.try_update(SeqCst, SeqCst, one_more) {
        Ok(_) => {
            let numbers: &[RawFd] = if has_inherited() { &[] } else { &NUMBERS };
            let mut numbers = numbers.iter();
            let high = numbers.find_map(|number| fcntl_dupfd_cloexec(&low, *number).ok());
            let kept = high.unwrap_or(low);
            MOVING.fetch_sub(1, SeqCst);
            kept
        }
        Err(_) => low,
    };
    // SAFETY: the set that was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    kept
}

/// Whether the process has locked a part of any file before this library came to it: `exec` keeps locks. Not known counts as yes.
fn has_inherited() -> bool {
    let has_any = || {
        let locks = open(
            "/proc/locks",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        let (mut text, mut part) = (Vec::new(), [0; 512]);
        loop {
            match read(&locks, &mut part).ok()? {
                0 => break,
                bytes => text.extend_from_slice(&part[..bytes]),
            }
        }
        let process = std::process::id().to_string();
        let mut words = text.split(u8::is_ascii_whitespace);
        Some(words.any(|word| word == process.as_bytes()))
    };
    if IS_KNOWN.load(SeqCst) {
        return false;
    }
    let has_any = has_any().unwrap_or(true);
    if has_any {
        MOVING.fetch_or(LOCKED, SeqCst);
    } else {
        IS_KNOWN.store(true, SeqCst);
    }
    has_any
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.sound().is_none()
            && let Some(descriptor) = self.descriptor.take()
        {
            // Somebody else's number by now.
            std::mem::forget(descriptor);
        }
    }
}
