//! A stand-in for the client, for tests without a mount: every regular file is one of a mount, and its operations are system calls on a descriptor of its own.
//!
//! It is stricter than the real one: every seventh operation is refused, so that the way back to the kernel is gone in between; and a file that a child of `fork` uses although
//! it is the parent's ends the process.

use rustix::fs::{FileType, Mode, OFlags, Statx, fstat, open};
use rustix::io::{fcntl_dupfd_cloexec, preadv, pwritev, writev};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::leaked::Leaked;
use direct::mapped::{MapRequest, Plan};
use direct::{Past, Rule};

type Files = Mutex<HashMap<(u64, u64), Weak<File>>>;

/// The client.
pub(crate) struct Client {
    files: Leaked<Files>,
}

impl Client {
    /// As the real one, which goes by the rule.
    pub(crate) fn with_rule(_: Rule) -> Client {
        let files = Leaked::new();
        Client { files }
    }

    /// As the real one.
    pub(crate) fn writes_files(&self) -> bool {
        true
    }

    /// As the real one.
    pub(crate) fn status_of(&self, found: &Statx) -> Option<Statx> {
        let files = self.files.get()?;
        let files = files.lock().unwrap_or_else(PoisonError::into_inner);
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        let file = files.get(&(device, found.stx_ino))?.upgrade()?;
        drop(files);
        file.status(file.any.as_fd())
    }
}

impl Client {
    /// Every regular file is ours.
    pub(crate) fn look(&self, descriptor: BorrowedFd<'_>) -> Option<Arc<File>> {
        let status = fstat(descriptor).ok()?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return None;
        }
        let mut files = self
            .files
            .get_or(Files::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let key = (status.st_dev, status.st_ino);
        if let Some(file) = files.get(&key).and_then(Weak::upgrade) {
            return Some(file);
        }
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        // The number may have been given to another file since.
        let again = |flags| {
            let again = high(open(path.as_str(), flags | OFlags::CLOEXEC, Mode::empty()).ok()?)?;
            let status = fstat(&again).ok()?;
            (key == (status.st_dev, status.st_ino)).then_some(again)
        };
        let file = Arc::new(File {
            any: again(OFlags::RDWR).or_else(|| again(OFlags::RDONLY))?,
            end: Mutex::new(again(OFlags::RDWR | OFlags::APPEND)),
            process: rustix::process::getpid(),
            operations: AtomicU64::new(0),
        });
        files.insert(key, Arc::downgrade(&file));
        Some(file)
    }

    /// As the real one.
    pub(crate) fn forget(&self) {
        self.files.abandon();
    }
}

/// Out of the way of the numbers that a program counts on.
fn high(descriptor: OwnedFd) -> Option<OwnedFd> {
    fcntl_dupfd_cloexec(descriptor, 600).ok()
}

impl File {
    /// Whatever is not done here is done by the way that the tests look at.
    pub(crate) fn read_as_owner(&self, _into: &mut [u8], _offset: u64) -> Option<usize> {
        None
    }

    /// As above.
    pub(crate) fn read_block(&self, _into: &mut [u8; 4096], _offset: u64) -> bool {
        false
    }

    /// As above.
    pub(crate) fn overwrite_block(&self, _block: &[u8; 4096], _offset: u64) -> bool {
        false
    }
}

/// A file.
pub(crate) struct File {
    any: OwnedFd,
    end: Mutex<Option<OwnedFd>>,
    process: rustix::process::Pid,
    operations: AtomicU64,
}

impl File {
    fn may(&self) -> Option<()> {
        if rustix::process::getpid() != self.process {
            std::process::abort();
        }
        (self.operations.fetch_add(1, Relaxed) % 7 != 6).then_some(())
    }

    /// As the real one.
    pub(crate) fn read_at(
        &self,
        _: BorrowedFd<'_>,
        into: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Option<usize> {
        self.may()?;
        preadv(&self.any, into, offset).ok()
    }

    /// As the real one.
    pub(crate) fn write_at(
        &self,
        _: BorrowedFd<'_>,
        data: &[IoSlice<'_>],
        offset: u64,
    ) -> Option<usize> {
        self.may()?;
        pwritev(&self.any, data, offset).ok()
    }

    /// As the real one.
    pub(crate) fn append(&self, _: BorrowedFd<'_>, data: &[IoSlice<'_>]) -> Option<(usize, u64)> {
        self.may()?;
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let end = end.as_ref()?;
        let bytes = writev(end, data).ok()?;
        Some((bytes, rustix::fs::tell(end).ok()?))
    }

    /// As the real one.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        self.may()?;
        u64::try_from(fstat(&self.any).ok()?.st_size).ok()
    }

    /// As the real one.
    pub(crate) fn status(&self, _: BorrowedFd<'_>) -> Option<Statx> {
        self.may()?;
        let flags = rustix::fs::AtFlags::EMPTY_PATH;
        rustix::fs::statx(&self.any, c"", flags, rustix::fs::StatxFlags::BASIC_STATS).ok()
    }

    /// As the real one.
    pub(crate) fn is_durable(&self) -> bool {
        self.may().is_some()
    }

    /// As the real one, where nothing lies on blocks.
    pub(crate) fn plan_mapping(
        self: &Arc<Self>,
        _: BorrowedFd<'_>,
        _: &MapRequest,
    ) -> Option<Plan> {
        let _ = self.may();
        None
    }

    /// As the real one.
    pub(crate) fn leave_to_kernel(&self, _: BorrowedFd<'_>) {
        let _ = self.may();
    }

    /// As the real one.
    pub(crate) fn tell_kernel_size(&self, _: BorrowedFd<'_>) {
        let _ = self.may();
    }

    /// As the real one.
    pub(crate) fn tell_kernel_end(&self, _: BorrowedFd<'_>) {
        let _ = self.may();
    }

    /// As the real one.
    pub(crate) fn expect_use(&self) {
        let _ = self.may();
    }

    /// As the real one.
    pub(crate) fn close(&self) -> Option<Past> {
        self.may()?;
        let operations = self.operations.swap(0, Relaxed);
        let is_journal = operations >= 6;
        Some(Past {
            operations,
            is_journal,
        })
    }

    /// As the real one by a fixed rule.
    pub(crate) fn leaves_read(&self) -> Option<bool> {
        None
    }

    /// As the real one.
    pub(crate) fn kernel_read(&self, _: usize, _: Duration) {}

    /// As the real one.
    pub(crate) fn kernel_wrote(&self, _: usize, _: Duration) {}

    /// As the real one.
    pub(crate) fn kernel_synced(&self, _: Duration) {}
}
