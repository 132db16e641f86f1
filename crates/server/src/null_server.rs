//! The benches' floor: a FUSE file system with one file in memory, whose reads and writes move the bytes and do nothing else.
//!
//! It is mounted and served exactly as Perdure is: the same connection settings, threads, and
//! opens without requests. What a request costs here is the price of FUSE itself.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fuse::{
    At, Config, Errno, FileAttr, FileType, Filesystem, Filled, Generation, INodeNo, Opcode, Read,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyWrite, Request, Write,
};
use parking_lot::RwLock;

use crate::attributes::made_up;
use crate::connection::{self, CACHE_LIFETIME};
use crate::serve::{self, Mounting, ServeError, Stopper};

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
            mounting.options(),
            mounting.restrictions,
            &place,
        )?;
        let stopper = Stopper {
            mountpoint: place,
            device_minor: None,
            ended: Arc::default(),
        };
        let thread = serve::run(session, &stopper).inspect_err(|_| stopper.stop(&mut || true))?;
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
            FILE => (FileType::Regular, 0o666, self.bytes as u64),
            _ => return None,
        };
        Some(made_up(number, kind, perm, size))
    }
}

impl Filesystem for NullFileSystem {
    fn init(&mut self, config: &mut Config) -> io::Result<()> {
        connection::negotiate(config);
        Ok(())
    }

    fn refusal(&self, opcode: Opcode) -> Errno {
        match opcode {
            Opcode::Getxattr | Opcode::Removexattr => Errno::ENODATA,
            Opcode::Mknod | Opcode::Mkdir | Opcode::Unlink | Opcode::Rmdir | Opcode::Symlink => {
                Errno::EPERM
            }
            Opcode::Rename2 | Opcode::Link | Opcode::Setxattr => Errno::EPERM,
            Opcode::Readlink => Errno::EINVAL,
            Opcode::Ioctl => Errno::ENOTTY,
            _ => Errno::ENOSYS,
        }
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(attributes) if name == FILE_NAME => {
                let lifetime = &CACHE_LIFETIME;
                reply.entry(lifetime, lifetime, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, number: INodeNo, reply: ReplyAttr) {
        match self.attributes(number) {
            Some(attributes) => reply.attr(&CACHE_LIFETIME, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(&self, _request: &Request, at: At, read: Read, reply: ReplyData) {
        let bytes = read.bytes as usize;
        reply.fill::<Vec<u8>>(bytes, |room| {
            let filled = self.for_each(at.offset, bytes, |piece, range, distance| {
                let length = range.len();
                let content = &self.pieces[piece].read()[range];
                room[distance..distance + length].copy_from_slice(content);
            });
            Ok(Filled::Room(filled))
        });
    }

    fn write(&self, _request: &Request, at: At, write: Write<'_>, reply: ReplyWrite) {
        let data = write.data;
        let bytes = self.for_each(at.offset, data.len(), |piece, range, distance| {
            let length = range.len();
            self.pieces[piece].write()[range].copy_from_slice(&data[distance..distance + length]);
        });
        match bytes {
            0 if !data.is_empty() => reply.error(Errno::ENOSPC),
            bytes => reply.written(bytes as u32),
        }
    }

    fn readdir(&self, at: At, mut reply: ReplyDirectory) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::Regular, FILE_NAME),
        ];
        let before = usize::try_from(at.offset).unwrap_or(usize::MAX);
        for (next, (number, kind, name)) in (1..).zip(entries).skip(before) {
            if reply.add(number, next, kind, name.as_ref()) {
                break;
            }
        }
        reply.ok();
    }
}
