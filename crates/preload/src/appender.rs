//! A file that is open for appending beside the program's own description.
//!
//! It stays open as long as the description that it was made for: when a process closes any descriptor of a file, it loses its `POSIX` locks on it, so the library must not close one while the program
//! still has the file open.

use rustix::fs::{Mode, OFlags, Stat, fcntl_getfl, fstat, open};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// None so far, or one.
#[derive(Default)]
pub(crate) struct Appender(OnceLock<Opened>);

struct Opened {
    /// Taken at the end only.
    descriptor: Option<OwnedFd>,
    device: u64,
    inode: u64,
}

impl Appender {
    /// One of the file behind this descriptor, for as long as it is what it was: a program may close all numbers from some on, and get this one for another file.
    pub(crate) fn get(&self, descriptor: BorrowedFd<'_>) -> Option<BorrowedFd<'_>> {
        let opened = match self.0.get() {
            Some(opened) => opened,
            None => {
                if let Err(late) = self.0.set(Opened::of(descriptor)?) {
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
    fn of(descriptor: BorrowedFd<'_>) -> Option<Opened> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let low = open(path, flags, Mode::empty()).ok()?;
        let status = fstat(&low).ok()?;
        Some(Opened {
            descriptor: Some(low),
            device: status.st_dev,
            inode: status.st_ino,
        })
    }

    fn sound(&self) -> Option<BorrowedFd<'_>> {
        let descriptor = self.descriptor.as_ref()?.as_fd();
        let is_same = |status: Stat| (status.st_dev, status.st_ino) == (self.device, self.inode);
        let appends = fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::APPEND));
        (appends && fstat(descriptor).is_ok_and(is_same)).then_some(descriptor)
    }
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
