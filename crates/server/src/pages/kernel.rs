//! Makes the kernel write back or drop pages of a file.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use fuse::{INodeNo, Notifier};

use super::questions::Speech;

/// The kernel's number of this layout of a handle (`FILEID_INO64_GEN`).
const HANDLE_TYPE: i32 = 0x81;
const HANDLE_WORDS: usize = 3;

/// A page that a thread of the server has taken from the queue is saved in less.
const ON_ITS_WAY: Duration = Duration::from_millis(2);

/// A FUSE inode as `open_by_handle_at` names it.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    /// High and low half of the inode number, generation.
    words: [u32; HANDLE_WORDS],
}

/// An open file or directory of the mount. Dropping it closes it, which may wait for the inode
/// lock: so it is kept until the request that holds the lock has its answer.
pub(crate) struct KeptOpen {
    _descriptor: Option<OwnedFd>,
}

/// How a server waits for dirty pages that may not open files by handle.
pub(crate) enum Otherwise<'a> {
    /// Drops the pages from this offset on, which waits for those that are being written.
    DropFrom(u64),
    /// Waits a moment for a dirty page. The function says whether one has come.
    Await(&'a dyn Fn() -> bool),
}

/// The kernel, as the threads of [`Questions`](super::Questions) reach it.
pub(crate) struct Kernel {
    pub(super) mountpoint: PathBuf,
    pub(super) device_minor: Option<u32>,
    pub(super) notifier: Notifier,
    pub(super) speakers: Sender<Speech>,
}

impl Kernel {
    /// Writes the dirty pages of an inode back, and waits until the server has them.
    ///
    /// A server that may open files by handle asks for this file only. Another one makes the kernel
    /// write back the whole mount, which since Linux 6.18 does not wait: `otherwise` says how to.
    pub(crate) fn write_back(
        &self,
        inode: u64,
        generation: u32,
        otherwise: Otherwise<'_>,
    ) -> KeptOpen {
        let written = self
            .root()
            .and_then(|root| match open(&root, inode, generation) {
                Ok(file) => {
                    sync(&file)?;
                    Ok(file)
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    rustix::fs::syncfs(&root)?;
                    pass_queue(&root);
                    match otherwise {
                        Otherwise::DropFrom(offset) => {
                            let notifier = self.notifier.clone();
                            self.speak(move || drop_range(&notifier, inode, offset, 0));
                        }
                        Otherwise::Await(has_come) => await_page(has_come),
                    }
                    Ok(root.into())
                }
                Err(error) => Err(error),
            });
        match written {
            Ok(file) => KeptOpen {
                _descriptor: Some(file),
            },
            Err(error) => {
                tracing::debug!(inode, %error, "dirty pages of a file were not written back");
                KeptOpen { _descriptor: None }
            }
        }
    }

    /// Runs `speech` on a thread that has the process's descriptors, and waits for it.
    pub(crate) fn speak(&self, speech: impl FnOnce() + Send + 'static) {
        let (done, is_done) = channel::<()>();
        let sent = self.speakers.send(Box::new(move || {
            speech();
            drop(done);
        }));
        // Speakers end after all that was sent to them.
        if sent.is_ok() {
            let _ = is_done.recv();
        }
    }

    /// Opens the mount's root directory, for a moment: while it is open, `umount` fails.
    fn root(&self) -> io::Result<File> {
        let root = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK)
            .open(&self.mountpoint)?;
        // Another file system may be mounted on top. The answer comes without a request.
        let flags = rustix::fs::AtFlags::EMPTY_PATH | rustix::fs::AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(&root, c"", flags, rustix::fs::StatxFlags::INO)?;
        match self.device_minor {
            Some(minor) if minor == found.stx_dev_minor => Ok(root),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Drops the kernel's pages of `length` bytes at `offset`. Dirty ones are written back before.
pub(super) fn drop_range(notifier: &Notifier, inode: u64, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
        return;
    };
    if let Err(error) = notifier.inval_inode(INodeNo(inode), offset, length)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(inode, %error, "the kernel could not drop pages of a file");
    }
}

/// Waits until the server has taken all requests from the queue that are there now: the kernel
/// puts this one behind them.
fn pass_queue(root: &File) {
    let flags = rustix::fs::AtFlags::EMPTY_PATH | rustix::fs::AtFlags::STATX_FORCE_SYNC;
    // A mount that is ending refuses it, and has no more pages then.
    let _ = rustix::fs::statx(root, c"", flags, rustix::fs::StatxFlags::MODE);
}

/// Waits a moment for a page that may be on its way.
fn await_page(has_come: &dyn Fn() -> bool) {
    let begin = Instant::now();
    while !has_come() && begin.elapsed() < ON_ITS_WAY {
        std::thread::sleep(ON_ITS_WAY / 10);
    }
}

/// Opens a file that the kernel knows. No request reaches the server but for attributes.
fn open(root: &File, inode: u64, generation: u32) -> io::Result<OwnedFd> {
    let mut handle = FileHandle {
        bytes: (HANDLE_WORDS * size_of::<u32>()) as u32,
        kind: HANDLE_TYPE,
        words: [(inode >> 32) as u32, inode as u32, generation],
    };
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: `handle` has the layout of struct file_handle with `bytes` bytes of content. It
    // lives longer than the call, which only reads it.
    let descriptor =
        unsafe { libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Writes dirty pages and waits. Unlike `fsync` it takes no lock that the waiting request may hold.
fn sync(file: &OwnedFd) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open, and the call takes no pointer.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
