//! Descriptors of the caller, and the system calls on them.

use crate::boundary::Answer;
use crate::failure::Failure;
use rustix::fs::{OFlags, fcntl_getfl, fstat, fsync};
use rustix::io::{Errno, pread, pwrite};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// A descriptor that the caller has open, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    number: RawFd,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    pub(crate) appends: bool,
}

impl Descriptor {
    /// Looks at it.
    pub(crate) fn look(number: RawFd) -> Answer<Descriptor> {
        let mut descriptor = Descriptor {
            number,
            is_readable: false,
            is_writable: false,
            appends: false,
        };
        if number < 0 {
            return Err(Failure::system("fcntl", number, Errno::BADF));
        }
        let flags = fcntl_getfl(descriptor.borrow());
        let flags = flags.map_err(|error| Failure::system("fcntl", number, error))?;
        let is_open = !flags.contains(OFlags::PATH);
        let mode = flags & OFlags::ACCMODE;
        descriptor.is_readable = is_open && mode != OFlags::WRONLY;
        descriptor.is_writable = is_open && mode != OFlags::RDONLY;
        descriptor.appends = flags.contains(OFlags::APPEND);
        Ok(descriptor)
    }

    #[inline]
    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: not negative, and the caller keeps it open as long as it uses what was made of it (`perdure.h`). If it does not, the kernel says so, or another file
        // of the caller's is worked on: no memory is in danger.
        unsafe { BorrowedFd::borrow_raw(self.number) }
    }

    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> Answer<usize> {
        self.said("pread", pread(self.borrow(), into, offset))
    }

    pub(crate) fn write_at(&self, data: &[u8], offset: u64) -> Answer<usize> {
        self.said("pwrite", pwrite(self.borrow(), data, offset))
    }

    /// Writes at the end; the descriptor appends, so the kernel and the server agree where that is.
    pub(crate) fn append(&self, data: &[u8]) -> Answer<usize> {
        debug_assert!(self.appends, "the kernel would write at offset 0");
        self.write_at(data, 0)
    }

    pub(crate) fn size_bytes(&self) -> Answer<u64> {
        let status = self.said("fstat", fstat(self.borrow()))?;
        Ok(status.st_size.unsigned_abs())
    }

    pub(crate) fn sync(&self) -> Answer<()> {
        self.said("fsync", fsync(self.borrow()))
    }

    fn said<T>(&self, operation: &str, outcome: rustix::io::Result<T>) -> Answer<T> {
        outcome.map_err(|error| Failure::system(operation, self.borrow().as_raw_fd(), error))
    }
}
