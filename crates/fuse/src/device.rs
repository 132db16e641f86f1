//! `/dev/fuse`: reading requests, writing answers and messages.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as SystemError;
use zerocopy::IntoBytes;

use crate::abi::{self, OutHeader, notify};
use crate::types::INodeNo;

const CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;
const BACKING_OPEN: libc::Ioctl = 0x4010_e501;
const BACKING_CLOSE: libc::Ioctl = 0x4004_e502;

/// Requests that we ask the kernel for have numbers that its own never reach; they are even, as
/// the kernel's last bit marks an interrupt.
const ASKED_FOR: u64 = 1 << 62;

/// A descriptor of one connection.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

/// The outcome of an attempt to read.
pub(crate) enum Taken {
    /// A request of so many bytes.
    Request(usize),
    /// None is there: the descriptor does not wait.
    Nothing,
    /// The mount is gone.
    Ended,
}

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Arc<Device> {
        Arc::new(Device(descriptor))
    }

    /// Another descriptor of the connection: the kernel remembers by the descriptor what a thread
    /// has taken, so each thread has its own. `Err` where this is no device, as in tests.
    pub(crate) fn again(&self, flags: OFlags) -> io::Result<Arc<Device>> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
        let mut source = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: both descriptors are open, and the kernel reads a u32 that lives that long.
        let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), CLONE, &raw mut source) };
        match result {
            0.. => Ok(Device::new(descriptor)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn take(&self, buffer: &mut [u8]) -> io::Result<Taken> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) | Err(SystemError::NODEV) => return Ok(Taken::Ended),
                Ok(bytes) => return Ok(Taken::Request(bytes)),
                // ENOENT: the caller was interrupted before its request was copied.
                Err(SystemError::INTR | SystemError::NOENT) => {}
                Err(SystemError::AGAIN) => return Ok(Taken::Nothing),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a message in one piece; `code` is an error of an answer or the kind of a message.
    pub(crate) fn send(&self, unique: u64, code: i32, parts: &[&[u8]]) -> io::Result<()> {
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let header = OutHeader {
            len: u32::try_from(size_of::<OutHeader>() + body).map_err(io::Error::other)?,
            error: code,
            unique,
        };
        let mut slices = [
            IoSlice::new(header.as_bytes()),
            IoSlice::new(&[]),
            IoSlice::new(&[]),
        ];
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        rustix::io::writev(&self.0, &slices[..=parts.len()])?;
        Ok(())
    }

    /// Lets the kernel map reads and writes of a file to another one.
    pub(crate) fn open_backing(self: &Arc<Device>, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        let map = abi::BackingMap {
            fd: file.as_raw_fd(),
            ..abi::BackingMap::default()
        };
        // SAFETY: the descriptors are open, and the kernel only reads the structure.
        let number = unsafe { libc::ioctl(self.0.as_raw_fd(), BACKING_OPEN, &raw const map) };
        match u32::try_from(number) {
            Ok(number) => Ok(BackingId {
                device: Arc::downgrade(self),
                number,
            }),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A file that stands behind others of the connection while this value lives.
#[derive(Debug)]
pub struct BackingId {
    device: Weak<Device>,
    pub(crate) number: u32,
}

impl Drop for BackingId {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            // SAFETY: the descriptor is open, and the kernel reads a u32 that lives that long.
            unsafe { libc::ioctl(device.0.as_raw_fd(), BACKING_CLOSE, &raw const self.number) };
        }
    }
}

/// Tells the kernel what it did not ask for.
///
/// The kernel may wait for a page, and so for the answer to another request, before it returns.
#[derive(Clone, Debug)]
pub struct Notifier(pub(crate) Arc<Device>);

impl Notifier {
    /// Has the kernel drop attributes, and pages of `length` bytes at `offset`; 0 is all the rest.
    /// Dirty pages are written back before.
    ///
    /// # Errors
    ///
    /// `NotFound`: the kernel does not know the inode.
    pub fn inval_inode(&self, inode: INodeNo, offset: i64, length: i64) -> io::Result<()> {
        let message = abi::NotifyInvalInodeOut {
            ino: inode.0,
            off: offset,
            len: length,
        };
        self.0.send(0, notify::INVAL_INODE, &[message.as_bytes()])
    }

    /// Puts data into the kernel's pages of a file, which ends behind them at least.
    ///
    /// # Errors
    ///
    /// `NotFound`: the kernel does not know the inode.
    pub fn store(&self, inode: INodeNo, offset: u64, data: &[u8]) -> io::Result<()> {
        let message = abi::NotifyStoreOut {
            nodeid: inode.0,
            offset,
            size: u32::try_from(data.len()).map_err(io::Error::other)?,
            padding: 0,
        };
        self.0.send(0, notify::STORE, &[message.as_bytes(), data])
    }

    /// Makes the kernel send one request, about no bytes of a file, from this thread's processor.
    pub(crate) fn ask_for_a_request(&self, inode: INodeNo) -> io::Result<()> {
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let message = abi::NotifyRetrieveOut {
            notify_unique: ASKED_FOR | (ASKED.fetch_add(1, Ordering::Relaxed) << 1),
            nodeid: inode.0,
            ..abi::NotifyRetrieveOut::default()
        };
        self.0.send(0, notify::RETRIEVE, &[message.as_bytes()])
    }
}
