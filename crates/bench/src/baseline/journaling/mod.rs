//! The published designs of a cache in persistent memory above a disk: Tinca's policies, Spindle.
//!
//! A small journaling file system of ext4's manner lies above a [`TransactionalCache`] and knows no
//! cache policy. Each change is a list of whole data blocks and of changed lines of metadata
//! blocks; the cache makes such a list durable at once. Built for experiments only.
//!
//! | part | module |
//! | --- | --- |
//! | superblock, bitmaps, inodes of 256 bytes, entries of directories | `layout` |
//! | the running transaction, metadata in memory | `journal`, `bitmap` |
//! | files, block maps | `file`, `map` |
//! | names | `namespace`, `directory`, `inode` |
//! | Tinca, Spindle | [`cache`] |
//!
//! Like ext4 it has metadata in use in memory: inodes, block maps, names, bitmaps, and the blocks
//! that hold them. So a look-up reads neither the disk nor the region. Content that is read, and
//! everything that changes, goes through the cache.
//!
//! # Crash guarantees
//!
//! With [`Options::operations_per_commit`] 1, an operation is durable when it returns, and after a
//! power failure it has happened whole or not at all (a write of more than 1 MiB: each MiB, or each
//! piece that fits a small cache). With larger numbers the last operations may be lost together, in
//! no part, up to [`JournalingFs::sync`]. [`CommitPoints::Published`] breaks this promise; that is
//! the finding.
//!
//! ```
//! use device::faulty::Faulty;
//! use perdure_bench::baseline::journaling::{JournalingFs, Options, Replacement, Tinca};
//! use pmem::Region;
//! use std::sync::Arc;
//!
//! let disk = Arc::new(Faulty::new(4096));
//! JournalingFs::format_disk(&*disk).unwrap();
//! let memory = Arc::new(Region::anonymous(1 << 20));
//! let tinca = Tinca::format(memory, disk, Replacement::default()).unwrap();
//! let fs = JournalingFs::mount(Arc::new(tinca), Options::default()).unwrap();
//! let file = fs.create("/file").unwrap();
//! fs.append(&file, b"content").unwrap();
//! ```

mod bitmap;
pub mod cache;
mod deliberate;
mod directory;
mod error;
mod file;
mod inode;
mod journal;
mod layout;
mod map;
mod mount;
mod namespace;
mod target;
#[cfg(test)]
mod tests;
mod verify;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use device::Device;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

pub use cache::{
    CacheCorruption, CommitPoints, Counts, Replacement, Spindle, Tinca, TooSmall,
    TransactionalCache,
};
pub use error::{Corruption, FsError, MountError};
pub use layout::{FileKind, InodeNumber};

use inode::Inode;
use journal::{Journal, Overlay};

/// How the file system behaves while it is mounted.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Options {
    /// Operations of one transaction, as JBD2 groups them. With 1, the default, each operation is
    /// durable when it returns; with more, [`JournalingFs::sync`] makes durable what is not.
    pub operations_per_commit: u32,
    /// Each read changes the inode's access time, as in the paper's evaluation. On by default.
    pub access_times: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            operations_per_commit: 1,
            access_times: true,
        }
    }
}

/// A mounted file system. Any number of threads may use it.
///
/// Paths are names of at most 56 bytes, separated by `/`, from the root directory on.
pub struct JournalingFs {
    volume: Arc<Volume>,
}

/// An open file. Without names, the file keeps its blocks until the last handle is dropped.
pub struct Handle {
    volume: Arc<Volume>,
    inode: Arc<Inode>,
}

/// A name in a directory.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// File or directory.
    pub kind: FileKind,
}

/// Blocks and inodes that are free, and the work of the cache.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Statistics {
    /// Blocks of the disk.
    pub disk_blocks: u64,
    /// Free blocks of the disk.
    pub free_blocks: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Of the cache: hits, misses, replacements, reads and writes of the disk.
    pub cache: Counts,
}

/// The state that all parts of a mounted file system share.
///
/// Order of the locks: directory, file, lifetime of an inode, journal, inodes in memory, cache.
struct Volume {
    cache: Arc<dyn TransactionalCache>,
    options: Options,
    journal: Mutex<Journal>,
    overlay: Arc<Overlay>,
    /// The inodes in memory, as the kernel's inode cache: nothing replaces them.
    inodes: Mutex<HashMap<InodeNumber, Arc<Inode>, RandomState>>,
    bitmap_blocks: usize,
    /// Data blocks of a transaction.
    data_blocks_max: usize,
}

impl Volume {
    fn new(cache: Arc<dyn TransactionalCache>, options: Options, journal: Journal) -> Volume {
        Volume {
            cache,
            options,
            overlay: journal.overlay(),
            inodes: Mutex::default(),
            bitmap_blocks: journal.superblock.block_bitmap_blocks() as usize,
            data_blocks_max: journal.limits().data_blocks,
            journal: Mutex::new(journal),
        }
    }

    /// The inode of a number that a directory holds.
    fn inode(&self, number: InodeNumber) -> Result<Arc<Inode>, FsError> {
        if let Some(inode) = self.inodes.lock().get(&number) {
            return Ok(Arc::clone(inode));
        }
        let mut journal = self.journal.lock();
        // Another thread may have loaded it meanwhile.
        if let Some(inode) = self.inodes.lock().get(&number) {
            return Ok(Arc::clone(inode));
        }
        let inode = Arc::new(Inode::load(&mut journal, number)?);
        self.remember(&inode);
        Ok(inode)
    }

    fn remember(&self, inode: &Arc<Inode>) {
        let mut inodes = self.inodes.lock();
        inodes.insert(inode.number, Arc::clone(inode));
    }

    fn forget(&self, number: InodeNumber) {
        let inode = self.inodes.lock().remove(&number);
        drop(inode);
    }
}

impl fmt::Debug for JournalingFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalingFs")
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.inode.number).finish()
    }
}

impl Handle {
    fn new(volume: &Arc<Volume>, inode: Arc<Inode>) -> Handle {
        inode.lifetime.lock().open += 1;
        Handle {
            volume: Arc::clone(volume),
            inode,
        }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        Handle::new(&self.volume, Arc::clone(&self.inode))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // If the disk fails, the next mount frees the file.
        let _left_to_mount = namespace::close(&self.volume, &self.inode);
    }
}

impl JournalingFs {
    /// Makes an empty file system on a disk. The cache above is formatted anew as well, before the
    /// mount: a cache with blocks of the former content shows those.
    ///
    /// # Errors
    /// The disk is too small or fails.
    pub fn format_disk(device: &dyn Device) -> Result<(), MountError> {
        mount::format_disk(device)
    }

    /// Opens the file system of the disk below a cache, and frees files without names. There is no
    /// other way to close it than to drop it, after [`JournalingFs::sync_all`].
    ///
    /// # Errors
    /// There is none, it is damaged, the disk fails, or the cache is too small for the disk.
    pub fn mount(
        cache: Arc<dyn TransactionalCache>,
        options: Options,
    ) -> Result<JournalingFs, MountError> {
        let volume = mount::mount(cache, options)?;
        Ok(JournalingFs { volume })
    }

    /// Returns the cache below.
    pub fn cache(&self) -> &dyn TransactionalCache {
        &*self.volume.cache
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// The parent is missing or no directory, the name exists, no space is left, or the disk fails.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<(), FsError> {
        namespace::create(&self.volume, path.as_ref(), FileKind::Directory).map(drop)
    }

    /// Makes an empty file and opens it.
    ///
    /// # Errors
    /// As [`JournalingFs::create_dir`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Handle, FsError> {
        let inode = namespace::create(&self.volume, path.as_ref(), FileKind::Regular)?;
        Ok(Handle::new(&self.volume, inode))
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// There is none of that path, it is a directory, or the disk fails.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Handle, FsError> {
        namespace::open(&self.volume, path.as_ref())
    }

    /// Removes a file's name. The file goes with its last handle.
    ///
    /// # Errors
    /// There is no file of that path, 1,024 open files have no names, or the disk fails.
    pub fn unlink(&self, path: impl AsRef<Path>) -> Result<(), FsError> {
        namespace::unlink(&self.volume, path.as_ref())
    }

    /// Lists a directory in no particular order.
    ///
    /// # Errors
    /// There is no directory of that path, or the disk fails.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>, FsError> {
        let names = namespace::read_dir(&self.volume, path.as_ref())?;
        let entry = |(name, kind)| DirEntry { name, kind };
        Ok(names.into_iter().map(entry).collect())
    }

    /// Returns the size of an open file in bytes.
    pub fn size(&self, handle: &Handle) -> u64 {
        handle.inode.state.read().size_bytes
    }

    /// Returns the size of the file or directory of a path in bytes.
    ///
    /// # Errors
    /// There is none of that path, or the disk fails.
    pub fn size_of(&self, path: impl AsRef<Path>) -> Result<u64, FsError> {
        namespace::size(&self.volume, path.as_ref())
    }

    /// Reads from an offset on; returns how many bytes there were. Holes are zero.
    ///
    /// # Errors
    /// The disk fails: at the read, or when the access time is committed.
    pub fn read_at(&self, handle: &Handle, offset: u64, into: &mut [u8]) -> Result<usize, FsError> {
        file::read(&self.volume, &handle.inode, offset, into)
    }

    /// Writes at an offset. After a power failure all of it is there, or nothing; of more than
    /// 1 MiB, or of more than a small cache allows in a transaction, the first pieces.
    ///
    /// # Errors
    /// No space is left, the file would be too large, or the disk fails. The first pieces of a
    /// large write may have been done.
    pub fn write_at(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<(), FsError> {
        file::write(&self.volume, &handle.inode, offset, data)
    }

    /// Writes at the end of the file; returns where that was.
    ///
    /// # Errors
    /// As [`JournalingFs::write_at`].
    pub fn append(&self, handle: &Handle, data: &[u8]) -> Result<u64, FsError> {
        file::append(&self.volume, &handle.inode, data)
    }

    /// Makes durable what was done before: everything, as ext4's journal does.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self, _handle: &Handle) -> Result<(), FsError> {
        self.sync_all()
    }

    /// Makes durable what was done before.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync_all(&self) -> Result<(), FsError> {
        self.volume.journal.lock().commit()
    }

    /// Returns the free blocks and inodes, and the work of the cache.
    ///
    /// Flushes, fences and lines are counted by [`pmem::Counters`] in the calling thread: all of
    /// them happen in the thread of the operation that causes them.
    pub fn statistics(&self) -> Statistics {
        let journal = self.volume.journal.lock();
        Statistics {
            disk_blocks: journal.superblock.disk_blocks,
            free_blocks: journal.blocks.free(),
            free_inodes: journal.inodes.free(),
            cache: self.volume.cache.counts(),
        }
    }

    /// Commits, walks everything and compares: no block is lost or used twice, bitmaps and link
    /// counts are right, and so are the entries of the cache. No other call may run meanwhile.
    ///
    /// # Errors
    /// The first disagreement, or the disk fails.
    pub fn verify(&self) -> Result<(), FsError> {
        verify::verify(&self.volume)
    }
}
