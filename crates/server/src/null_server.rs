//! The benches' floor: a FUSE file system with one file in memory, whose reads and writes move the bytes and do nothing else.
//!
//! It is mounted and served exactly as Perdure is: the same connection settings, threads, and
//! opens without requests. What a request costs here is the price of FUSE itself.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};
use parking_lot::RwLock;

use crate::attributes::made_up;
use crate::connection::{self, CACHE_LIFETIME};
use crate::serve::{self, Mounting, ServeError, Stopper};
use crate::unanswered::refuse;

/// Name of the only file.
pub const FILE_NAME: &str = "null";

const FILE: INodeNo = INodeNo(2);
const PIECE_BYTES: usize = 4096;

/// A mounted null server; dropping it unmounts.
pub struct NullServer {
    stopper: Stopper,
    session: Option<JoinHandle<io::Result<()>>>,
}

impl NullServer {
    /// Mounts a file of `file_bytes` at `mountpoint`, served by `threads` threads (0: one per core).
    ///
    /// # Errors
    ///
    /// As for any mount.
    pub fn mount(
        mountpoint: &Path,
        file_bytes: usize,
        threads: usize,
    ) -> Result<NullServer, ServeError> {
        let mounting = Mounting {
            threads,
            ..Mounting::new("perdure-null", mountpoint)
        };
        let place = serve::place_for(&mounting)?;
        let session = serve::connect(
            NullFileSystem::new(file_bytes),
            &mounting,
            mounting.restrictions,
            &place,
        )?;
        let stopper = Stopper {
            mountpoint: place,
            device_minor: None,
            ended: Arc::default(),
        };
        let ended = stopper.ended.clone();
        let thread = std::thread::Builder::new()
            .name("null-session".to_owned())
            .spawn(move || {
                let outcome = session.run();
                ended.store(true, std::sync::atomic::Ordering::Release);
                outcome
            })
            .map_err(|error| {
                stopper.stop(&mut || true);
                ServeError::Start(error)
            })?;
        Ok(NullServer {
            stopper,
            session: Some(thread),
        })
    }

    /// Path of the file.
    pub fn file(&self) -> PathBuf {
        self.stopper.mountpoint.join(FILE_NAME)
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.stopper.stop(&mut || true);
        if self.stopper.has_ended(Duration::from_secs(5))
            && let Some(session) = self.session.take()
        {
            // Nothing depends on how it ended.
            let _ = session.join();
        }
    }
}

/// Content in pieces of a page, each under its own lock: two threads seldom meet, and none of them needs `unsafe`.
pub(crate) struct NullFileSystem {
    pieces: Box<[RwLock<[u8; PIECE_BYTES]>]>,
    bytes: usize,
}

impl NullFileSystem {
    pub(crate) fn new(bytes: usize) -> NullFileSystem {
        let pieces = bytes.div_ceil(PIECE_BYTES);
        NullFileSystem {
            pieces: std::iter::repeat_with(|| RwLock::new([0; PIECE_BYTES]))
                .take(pieces)
                .collect(),
            bytes,
        }
    }

    /// Calls `visit` with each piece of `length` bytes from `offset` on: its index, the range in it and the distance from the start.
    fn for_each(
        &self,
        offset: u64,
        length: usize,
        mut visit: impl FnMut(usize, std::ops::Range<usize>, usize),
    ) -> usize {
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.bytes);
        let end = start.saturating_add(length).min(self.bytes);
        let mut at = start;
        while at < end {
            let within = at % PIECE_BYTES;
            let step = (PIECE_BYTES - within).min(end - at);
            visit(at / PIECE_BYTES, within..within + step, at - start);
            at += step;
        }
        end - start
    }

    fn attributes(&self, number: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match number {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            FILE => (FileType::RegularFile, 0o666, self.bytes as u64),
            _ => return None,
        };
        Some(made_up(number, kind, perm, size))
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for NullFileSystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        connection::negotiate(config);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(attributes) if name == FILE_NAME => {
                reply.entry(&CACHE_LIFETIME, &attributes, Generation(0))
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attributes(number) {
            Some(attributes) => reply.attr(&CACHE_LIFETIME, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    refuse! {
        ENOSYS: flush fsync fsyncdir setattr readdirplus listxattr access create getlk setlk bmap poll fallocate lseek copy_file_range;
        ENODATA: getxattr removexattr;
        EPERM: mknod mkdir unlink rmdir symlink rename link setxattr;
        EINVAL: readlink;
        ENOTTY: ioctl;
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size as usize {
                buffer.resize(size as usize, 0);
            }
            let bytes = self.for_each(offset, size as usize, |piece, range, distance| {
                let length = range.len();
                buffer[distance..distance + length]
                    .copy_from_slice(&self.pieces[piece].read()[range]);
            });
            reply.data(&buffer[..bytes]);
        });
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = self.for_each(offset, data.len(), |piece, range, distance| {
            let length = range.len();
            self.pieces[piece].write()[range].copy_from_slice(&data[distance..distance + length]);
        });
        match bytes {
            0 if !data.is_empty() => reply.error(Errno::ENOSPC),
            bytes => reply.written(bytes as u32),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (index, (number, kind, name)) in (1..)
            .zip(entries)
            .skip(usize::try_from(offset).unwrap_or(usize::MAX))
        {
            if reply.add(number, index, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
