//! An open file description that is ours: the file, what it was opened for, and the position.
//!
//! The position has a lock, held while something is read or written there, as the kernel holds its own. Who holds it is known, so that a signal handler that comes
//! back to it on the same thread is not locked out.

use crate::appender::Appender;
use crate::client::File;
use crate::habits::Name;
use crate::thread;
use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::thread::futex;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Set in the lock's word beside its holder's number: somebody sleeps.
const SLEEPS: u32 = 1 << 31;
/// Looks at a lock that is held before one sleeps.
const LOOKS: u32 = 100;

/// A description.
pub(crate) struct Description {
    file: Arc<File>,
    /// What the program made the file as, if it did.
    name: Option<Name>,
    is_readable: bool,
    is_writable: bool,
    appends: AtomicBool,
    appender: Appender,
    /// 0, or the number of the thread that holds the lock.
    lock: AtomicU32,
    /// The position is the library's (P2). Changed under the lock.
    is_ours: AtomicBool,
    position: AtomicU64,
}

impl Description {
    /// A description of this file, opened with these flags, whose position is the kernel's.
    ///
    /// With a limit on the size of files (`RLIMIT_FSIZE`) writes are the kernel's, which enforces it.
    pub(crate) fn new(file: Arc<File>, flags: OFlags, name: Option<Name>) -> Description {
        let access = flags & OFlags::ACCMODE;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
        Description {
            file,
            name,
            is_readable: access == OFlags::RDONLY || access == OFlags::RDWR,
            is_writable: (access == OFlags::WRONLY || access == OFlags::RDWR)
                && limit.current.is_none(),
            appends: AtomicBool::new(flags.contains(OFlags::APPEND)),
            appender: Appender::default(),
            lock: AtomicU32::new(0),
            is_ours: AtomicBool::new(false),
            position: AtomicU64::new(0),
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
        match self.is_ours.load(Relaxed) {
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

    /// The file, opened once more for appending, as long as there is this description.
    pub(crate) fn appender(&self, descriptor: BorrowedFd<'_>) -> Option<BorrowedFd<'_>> {
        self.appender.get(descriptor)
    }

    /// The flags were changed by `fcntl`.
    pub(crate) fn set_flags(&self, flags: OFlags) {
        self.appends.store(flags.contains(OFlags::APPEND), Relaxed);
    }

    /// Locks the position.
    #[inline]
    pub(crate) fn lock(&self) -> Position<'_> {
        let me = thread::number();
        if self.lock.compare_exchange(0, me, Acquire, Relaxed).is_err() {
            if self.lock.load(Relaxed) & !SLEEPS == me {
                return Position {
                    description: self,
                    is_nested: true,
                };
            }
            self.lock_slowly(me);
        }
        Position {
            description: self,
            is_nested: false,
        }
    }

    #[cold]
    fn lock_slowly(&self, me: u32) {
        for _ in 0..LOOKS {
            if self.lock.load(Relaxed) == 0
                && self.lock.compare_exchange(0, me, Acquire, Relaxed).is_ok()
            {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            // Whoever slept does not know whether others still do.
            let held = match self.lock.compare_exchange(0, me | SLEEPS, Acquire, Relaxed) {
                Ok(_) => return,
                Err(held) => held,
            };
            let sleeps = held | SLEEPS;
            if held == sleeps
                || self
                    .lock
                    .compare_exchange(held, sleeps, Relaxed, Relaxed)
                    .is_ok()
            {
                let _ = futex::wait(&self.lock, futex::Flags::PRIVATE, sleeps, None);
            }
        }
    }

    /// Gives it to the kernel for good, if it is the library's.
    pub(crate) fn give_up_position(&self, descriptor: BorrowedFd<'_>) {
        let position = self.lock();
        if position.is_ours() {
            position.push(descriptor);
            position.give_up();
        }
    }
}

/// The position, locked. If the lock is held by the same thread, which a signal has interrupted, it is not locked once more (`is_nested`).
pub(crate) struct Position<'a> {
    description: &'a Description,
    is_nested: bool,
}

impl Position<'_> {
    /// Whether it is the library's.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.description.is_ours.load(Relaxed)
    }

    /// Whether this thread was interrupted while it held the lock.
    #[inline]
    pub(crate) fn is_nested(&self) -> bool {
        self.is_nested
    }

    /// The position.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.description.position.load(Relaxed)
    }

    /// Moves it.
    #[inline]
    pub(crate) fn set(&self, position: u64) {
        self.description.position.store(position, Relaxed);
    }

    /// Moves it on, in one step, and says where it was. A signal handler that comes in between moves it by what is its own.
    #[inline]
    pub(crate) fn advance(&self, bytes: usize) -> u64 {
        self.description.position.fetch_add(bytes as u64, Relaxed)
    }

    /// Moves it from `start` to the end that an append has made, or leaves it where a signal handler has moved it meanwhile, if that is farther.
    pub(crate) fn reach(&self, start: u64, end: u64) {
        let position = &self.description.position;
        if position
            .compare_exchange(start, end, Relaxed, Relaxed)
            .is_err()
        {
            position.fetch_max(end, Relaxed);
        }
    }

    /// Moves it back: less was read or written than was meant to be. A signal handler may have given it to the kernel meanwhile.
    #[inline]
    pub(crate) fn retreat(&self, descriptor: BorrowedFd<'_>, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if self.is_ours() {
            self.description.position.fetch_sub(bytes as u64, Relaxed);
        } else {
            let _ = seek(descriptor, SeekFrom::Current(-(bytes as i64)));
        }
    }

    /// Tells the kernel where it is.
    pub(crate) fn push(&self, descriptor: BorrowedFd<'_>) {
        let _ = seek(descriptor, SeekFrom::Start(self.get()));
    }

    /// Takes it from the kernel: it is the library's from now on. False if the kernel has none.
    pub(crate) fn take(&self, descriptor: BorrowedFd<'_>) -> bool {
        let Ok(position) = rustix::fs::tell(descriptor) else {
            return false;
        };
        self.set(position);
        self.description.is_ours.store(true, Relaxed);
        true
    }

    /// It is the kernel's from now on.
    pub(crate) fn give_up(&self) {
        self.description.is_ours.store(false, Relaxed);
    }
}

impl Drop for Position<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_nested && self.description.lock.swap(0, Release) & SLEEPS != 0 {
            let _ = futex::wake(&self.description.lock, futex::Flags::PRIVATE, 1);
        }
    }
}
