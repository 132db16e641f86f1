//! An open file description that is ours: the file, what it was opened for, and the position.
//!
//! Each step of the position is one, and right whoever else takes one ([`descriptors::Position`]); its lock can be passed by ([`PassableLock`]).

use crate::appender::Appender;
use crate::client::File;
use crate::habits::Name;
use crate::thread;
use descriptors::Step;
use locks::{Hold, PassableLock};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// A description.
pub(crate) struct Description {
    file: Arc<File>,
    /// What the program made the file as, if it did.
    name: Option<Name>,
    is_readable: bool,
    is_writable: bool,
    appends: AtomicBool,
    appender: Appender,
    placer: Appender,
    lock: PassableLock,
    position: descriptors::Position,
}

impl Description {
    /// A description of this file, opened with these flags, whose position is the kernel's.
    ///
    /// With a limit on the size of files (`RLIMIT_FSIZE`) writes are the kernel's, which enforces it.
    pub(crate) fn new(file: Arc<File>, flags: OFlags, name: Option<Name>) -> Description {
        let access = flags & OFlags::ACCMODE;
        let is_limited = || {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
            limit.current.is_some()
        };
        Description {
            file,
            name,
            is_readable: access == OFlags::RDONLY || access == OFlags::RDWR,
            is_writable: (access == OFlags::WRONLY || access == OFlags::RDWR) && !is_limited(),
            appends: AtomicBool::new(flags.contains(OFlags::APPEND)),
            appender: Appender::default(),
            placer: Appender::default(),
            lock: PassableLock::default(),
            position: descriptors::Position::new(),
        }
    }

    /// The file.
    #[inline]
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// What the program made the file as, if it did.
    pub(crate) fn name(&self) -> Option<Name> {
        self.name
    }

    /// Whether reads may go directly.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// Whether writes may go directly.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Whether every write goes to the end. Others may see a description whose position is the kernel's, and change that.
    #[inline]
    pub(crate) fn appends(&self, descriptor: BorrowedFd<'_>) -> bool {
        match self.position.is_settled() {
            true => self.appends.load(Relaxed),
            false => self.appends_now(descriptor),
        }
    }

    #[cold]
    fn appends_now(&self, descriptor: BorrowedFd<'_>) -> bool {
        match rustix::fs::fcntl_getfl(descriptor) {
            Ok(flags) => flags.contains(OFlags::APPEND),
            Err(_) => self.appends.load(Relaxed),
        }
    }

    /// The file, opened once more for appending or for anything but that, as long as there is this description.
    pub(crate) fn beside(
        &self,
        descriptor: BorrowedFd<'_>,
        appends: bool,
    ) -> Option<BorrowedFd<'_>> {
        let opened = if appends {
            &self.appender
        } else {
            &self.placer
        };
        opened.get(descriptor, appends)
    }

    /// The flags were changed by `fcntl`.
    pub(crate) fn set_flags(&self, flags: OFlags) {
        self.appends.store(flags.contains(OFlags::APPEND), Relaxed);
    }

    /// Locks the position, or passes the lock by.
    #[inline]
    pub(crate) fn lock(&self) -> Position<'_> {
        Position {
            description: self,
            hold: self.lock.lock(thread::number()),
        }
    }

    /// Gives it to the kernel for good, if it is the library's.
    pub(crate) fn give_up_position(&self, descriptor: BorrowedFd<'_>) {
        self.lock().give(descriptor);
    }
}

/// The position, locked or not.
pub(crate) struct Position<'a> {
    description: &'a Description,
    hold: Hold,
}

impl Position<'_> {
    /// Whether the lock is not this call's.
    #[inline]
    pub(crate) fn is_passing(&self) -> bool {
        self.hold != Hold::Locked
    }

    /// Whether it is the library's.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.get().is_some()
    }

    /// Where it is, if it is the library's.
    #[inline]
    pub(crate) fn get(&self) -> Option<u64> {
        self.description.position.get(self.hold)
    }

    /// Moves it there, whose ever it is.
    pub(crate) fn set(&self, descriptor: BorrowedFd<'_>, place: u64) -> Result<u64, Errno> {
        self.description.position.set(self.hold, descriptor, place)
    }

    /// Moves it on, and says where it was.
    #[inline]
    pub(crate) fn advance(&self, bytes: usize) -> Step {
        self.description.position.advance(self.hold, bytes)
    }

    /// Moves it from `start` to the end that an append has made, or leaves it where somebody has moved it meanwhile, if that is farther.
    pub(crate) fn reach(&self, descriptor: BorrowedFd<'_>, start: u64, end: u64) {
        let position = &self.description.position;
        position.reach(self.hold, descriptor, start, end);
    }

    /// Moves it back: less was read or written than was meant to be.
    #[inline]
    pub(crate) fn retreat(&self, descriptor: BorrowedFd<'_>, bytes: usize) {
        let position = &self.description.position;
        position.retreat(self.hold, descriptor, bytes);
    }

    /// Tells the kernel where it is.
    pub(crate) fn push(&self, descriptor: BorrowedFd<'_>) {
        self.description.position.push(self.hold, descriptor);
    }

    /// Takes it from the kernel, unless this call passes by: it is the library's from now on. False if the kernel has none, or somebody uses it.
    pub(crate) fn take(&self, descriptor: BorrowedFd<'_>) -> bool {
        !self.is_passing() && self.description.position.take(descriptor)
    }

    /// It is the kernel's from now on, until it is taken, unless this call passes by. False if it was before.
    pub(crate) fn lend(&self, descriptor: BorrowedFd<'_>) -> bool {
        !self.is_passing() && self.description.position.lend(descriptor)
    }

    /// It is the kernel's for good.
    pub(crate) fn give(&self, descriptor: BorrowedFd<'_>) {
        self.description.position.give(self.hold, descriptor);
    }
}

impl Drop for Position<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_passing() {
            self.description.lock.unlock();
        }
    }
}
