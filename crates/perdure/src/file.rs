//! Open files.

use crate::dir::Dir;
use crate::error::{Cause, Result};
use crate::metadata::{FileTimes, Metadata};
use crate::open_options::OpenOptions;
use crate::pool::Lease;
use fs::{AllocateOptions, Appended, FsError, Node, SetAttributes};
use parking_lot::Mutex;
use std::fs::Permissions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// An open file, in the shape of `std::fs::File`.
///
/// Every write of up to 4 MiB is atomic, and durable when it returns: after a power cut the file holds all of it or
/// nothing of it. An unlinked file lives until its last handle is dropped.
///
/// `Read`, `Write` and `Seek` move one position that clones made by [`try_clone`](File::try_clone) share;
/// [`read_at`](File::read_at), [`write_at`](File::write_at) and [`append`](File::append) do not touch it and are the
/// quickest way to the memory.
#[derive(Debug)]
pub struct File {
    open: Arc<OpenFile>,
}

struct OpenFile {
    // Before `lease`, so that an unlinked inode is released while the file system is still there.
    node: Node,
    lease: Arc<Lease>,
    readable: bool,
    writable: bool,
    append: bool,
    position: Mutex<u64>,
}

impl File {
    pub(crate) fn new(
        node: Node,
        lease: &Arc<Lease>,
        readable: bool,
        writable: bool,
        append: bool,
    ) -> File {
        let lease = Arc::clone(lease);
        File {
            open: Arc::new(OpenFile {
                node,
                lease,
                readable,
                writable,
                append,
                position: Mutex::new(0),
            }),
        }
    }

    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// Those of [`OpenOptions::open`].
    pub fn open(directory: &Dir, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(directory, path)
    }

    /// Opens a file for writing; creates it, or empties it if it exists.
    ///
    /// # Errors
    /// Those of [`OpenOptions::open`].
    pub fn create(directory: &Dir, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(directory, path)
    }

    /// Creates a file that must not exist, for reading and writing.
    ///
    /// # Errors
    /// Those of [`OpenOptions::open`]; `AlreadyExists` if the name is taken.
    pub fn create_new(directory: &Dir, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(directory, path)
    }

    /// Options for opening.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Creates a file without a name, for reading and writing. It is gone when its last handle is dropped, or after
    /// a crash.
    ///
    /// # Errors
    /// `StorageFull` when the pool is full.
    pub fn unnamed(directory: &Dir) -> Result<File> {
        let shared = directory.shared();
        let new = shared.new_inode(libc::S_IFREG, 0o600, 0);
        let node = shared.filesystem.create_unnamed(&new);
        let node = node.map_err(|error| Cause::from(error).on("unnamed", directory.node()))?;
        Ok(File::new(node, directory.lease(), true, true, false))
    }

    /// Gives the file a (further) name, durably. The usual end of [`File::unnamed`].
    ///
    /// # Errors
    /// Those of link(2).
    pub fn link(&self, directory: &Dir, path: impl AsRef<Path>) -> Result<()> {
        directory.link_node(&self.open.node, path.as_ref())
    }

    /// Reads up to `into.len()` bytes at `offset`; 0 bytes means that the file ends there.
    ///
    /// # Errors
    /// `IsADirectory`; `EBADF` for a handle that is not open for reading.
    #[inline]
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        let open = &*self.open;
        if !open.readable {
            return Err(Cause::NotOpenForReading.on("read", &open.node));
        }
        open.lease
            .filesystem
            .read(&open.node, offset, into)
            .map_err(|error| open.failed("read", error))
    }

    /// Reads exactly `into.len()` bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends earlier, and the errors of [`read_at`](File::read_at).
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, into, offset)
    }

    /// Writes `data` at `offset`. Durable when it returns; atomic up to 4 MiB. A file opened for append gets
    /// the data at its end instead, as on Linux.
    ///
    /// Returns how many bytes were written: all, or fewer if the pool becomes full in the middle of more than 4 MiB.
    ///
    /// # Errors
    /// `StorageFull` when the pool is full (nothing was written then); `EBADF` for a handle that is not open for
    /// writing.
    #[inline]
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        let open = &*self.open;
        if open.append {
            return self.append_some(data).map(|appended| appended.bytes);
        }
        if !open.writable {
            return Err(Cause::NotOpenForWriting.on("write", &open.node));
        }
        open.lease
            .filesystem
            .write(&open.node, offset, data)
            .map_err(|error| open.failed("write", error))
    }

    /// Writes all of `data` at `offset`, whatever the length, with the errors of this library.
    pub(crate) fn write_whole_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            done += self.write_at(&data[done..], offset + done as u64)?;
        }
        Ok(())
    }

    /// Writes all of `data` at `offset`; more than 4 MiB become several atomic writes.
    ///
    /// # Errors
    /// Those of [`write_at`](File::write_at).
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, data, offset)
    }

    /// Writes all of `data` at the end of the file and returns the offset where it landed. Appends of several threads
    /// never overlap. Durable when it returns; atomic up to 4 MiB.
    ///
    /// # Errors
    /// Those of [`write_at`](File::write_at). Of more than 4 MiB the beginning may have been written then.
    #[inline]
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let appended = self.append_some(data)?;
        match appended.broken_off_by {
            None => Ok(appended.at),
            Some(error) => Err(self.open.failed("append", error)),
        }
    }

    #[inline]
    fn append_some(&self, data: &[u8]) -> Result<Appended> {
        let open = &*self.open;
        if !open.writable {
            return Err(Cause::NotOpenForWriting.on("append", &open.node));
        }
        open.lease
            .filesystem
            .append(&open.node, data)
            .map_err(|error| open.failed("append", error))
    }

    /// Cuts the file to `size_bytes`, or extends it by a hole that reads as zeros.
    ///
    /// # Errors
    /// `InvalidInput` for a handle that is not open for writing, as on Linux; `FileTooLarge` beyond 256 TiB.
    pub fn set_len(&self, size_bytes: u64) -> Result<()> {
        if !self.open.writable {
            let cause = Cause::InvalidOptions("the file was not opened for writing");
            return Err(cause.on("set_len", &self.open.node));
        }
        self.set_attributes(
            "set_len",
            &SetAttributes {
                size_bytes: Some(size_bytes),
                ..SetAttributes::default()
            },
        )
    }

    /// Returns when every call that returned before is durable. Waits only in class `log` with
    /// [`Durability::Fsync`](crate::Durability); elsewhere calls are durable when they return.
    ///
    /// # Errors
    /// `EIO` if the disk failed: the pool is read-only until it is opened again.
    pub fn sync_all(&self) -> Result<()> {
        let synced = self.open.lease.filesystem.sync();
        synced.map_err(|error| self.open.failed("sync_all", error))
    }

    /// As [`sync_all`](Self::sync_all).
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// What is known about the file.
    ///
    /// # Errors
    /// `EIO` for a damaged inode.
    pub fn metadata(&self) -> Result<Metadata> {
        let attributes = self.open.lease.filesystem.attributes(&self.open.node);
        attributes
            .map(Metadata::new)
            .map_err(|error| self.open.failed("metadata", error))
    }

    /// Changes the permission bits.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem` in a pool opened for reading.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let mode = Some(permissions.mode() & 0o7777);
        self.set_attributes(
            "set_permissions",
            &SetAttributes {
                mode,
                ..SetAttributes::default()
            },
        )
    }

    /// Changes the times of last access and last modification.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem` in a pool opened for reading.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.set_attributes("set_times", &times.change())
    }

    /// Changes the time of the last modification.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem` in a pool opened for reading.
    pub fn set_modified(&self, time: std::time::SystemTime) -> Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Reserves space for a range, so that later writes into it cannot run out of it; extends the file if the range
    /// ends beyond it.
    ///
    /// # Errors
    /// `StorageFull`; `EBADF` for a handle that is not open for writing.
    pub fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.allocate_with("allocate", offset, length_bytes, AllocateOptions::default())
    }

    /// Turns a range into a hole that reads as zeros and takes no space. The size stays.
    ///
    /// # Errors
    /// `EBADF` for a handle that is not open for writing.
    pub fn punch_hole(&self, offset: u64, length_bytes: u64) -> Result<()> {
        let options = AllocateOptions {
            punch_hole: true,
            keep_size: true,
            ..AllocateOptions::default()
        };
        self.allocate_with("punch_hole", offset, length_bytes, options)
    }

    /// Any other way of fallocate(2).
    ///
    /// # Errors
    /// Those of fallocate(2).
    pub fn fallocate(
        &self,
        offset: u64,
        length_bytes: u64,
        options: AllocateOptions,
    ) -> Result<()> {
        self.allocate_with("fallocate", offset, length_bytes, options)
    }

    /// Where the next data at or after `offset` begins; `None` if there is none before the end.
    ///
    /// # Errors
    /// `EIO` for damage on the medium.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_result(
            "next_data",
            self.open
                .lease
                .filesystem
                .seek_data(&self.open.node, offset),
        )
    }

    /// Where the next hole at or after `offset` begins, the end of the file included; `None` beyond the end.
    ///
    /// # Errors
    /// `EIO` for damage on the medium.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_result(
            "next_hole",
            self.open
                .lease
                .filesystem
                .seek_hole(&self.open.node, offset),
        )
    }

    /// A second handle of the same open file: it shares the position.
    ///
    /// # Errors
    /// None.
    pub fn try_clone(&self) -> Result<File> {
        Ok(File {
            open: Arc::clone(&self.open),
        })
    }

    /// The inode, for use with [`Pool::filesystem`](crate::Pool::filesystem).
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.open.node
    }

    fn allocate_with(
        &self,
        operation: &'static str,
        offset: u64,
        length: u64,
        options: AllocateOptions,
    ) -> Result<()> {
        let open = &*self.open;
        if !open.writable {
            return Err(Cause::NotOpenForWriting.on(operation, &open.node));
        }
        let done = open
            .lease
            .filesystem
            .allocate(&open.node, offset, length, options);
        done.map_err(|error| open.failed(operation, error))
    }

    fn seek_result(
        &self,
        operation: &'static str,
        found: Result<u64, FsError>,
    ) -> Result<Option<u64>> {
        match found {
            Ok(offset) => Ok(Some(offset)),
            Err(FsError::NoData) => Ok(None),
            Err(error) => Err(self.open.failed(operation, error)),
        }
    }

    fn set_attributes(&self, operation: &'static str, change: &SetAttributes) -> Result<()> {
        let open = &*self.open;
        let changed = open.lease.filesystem.set_attributes(&open.node, change);
        changed
            .map(drop)
            .map_err(|error| open.failed(operation, error))
    }
}

impl OpenFile {
    #[cold]
    fn failed(&self, operation: &'static str, error: FsError) -> crate::Error {
        Cause::from(error).on(operation, &self.node)
    }
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OpenFile")
            .field("inode", &self.node.number())
            .field("readable", &self.readable)
            .field("writable", &self.writable)
            .field("append", &self.append)
            .finish_non_exhaustive()
    }
}

impl Read for &File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut position = self.open.position.lock();
        let count = self.read_at(into, *position)?;
        *position += count as u64;
        Ok(count)
    }

    fn read_to_end(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let size = self.metadata()?.len();
        let start = into.len();
        let mut position = self.open.position.lock();
        let expected = usize::try_from(size.saturating_sub(*position)).map_err(io::Error::other)?;
        into.try_reserve(expected)?;
        loop {
            let filled = into.len();
            // One byte more than expected shows whether the file has grown meanwhile.
            let wanted = (expected + 1).saturating_sub(filled - start).max(4096);
            into.resize(filled + wanted, 0);
            let read = self.read_at(&mut into[filled..], *position);
            into.truncate(filled + read.as_ref().copied().unwrap_or(0));
            match read? {
                0 => return Ok(into.len() - start),
                count => *position += count as u64,
            }
        }
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.open.position.lock();
        if self.open.append {
            let Appended { at, bytes, .. } = self.append_some(data)?;
            *position = at + bytes as u64;
            return Ok(bytes);
        }
        let count = self.write_at(data, *position)?;
        *position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let size = match to {
            SeekFrom::End(_) => self.metadata()?.len(),
            SeekFrom::Start(_) | SeekFrom::Current(_) => 0,
        };
        let mut position = self.open.position.lock();
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(distance) => position.checked_add_signed(distance),
            SeekFrom::End(distance) => size.checked_add_signed(distance),
        };
        let target = target.filter(|offset| i64::try_from(*offset).is_ok());
        let cause = Cause::InvalidOptions("a position before the start or beyond 8 EiB");
        *position = target.ok_or_else(|| cause.on("seek", &self.open.node))?;
        Ok(*position)
    }
}

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    fn read_to_end(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(into)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl FileExt for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(File::read_at(self, into, offset)?)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        Ok(File::write_at(self, data, offset)?)
    }
}
