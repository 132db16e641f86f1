//! The file system that the paper compares with: PMFS's policies over a [`pmem::Region`].
//!
//! PMFS (Dulloor et al., "System Software for Persistent Memory", EuroSys 2014) is a kernel file system. What decides its ageing and its wear are its
//! policies, and those are built here (section II of the paper), for experiments only:
//!
//! | what | policy | where |
//! | --- | --- | --- |
//! | free space | one sorted list of the ranges in use under one mutex; the first gap that fits; freeing walks the list | `in_use` |
//! | directories | blocks of entries, searched from the first one on for every insert, lookup and delete; free bytes hide in `de_len` | `directory` |
//! | inodes | a table of 128-byte inodes; the free one is searched from a hint on | `inode_table` |
//! | block maps | radix tree with 512 pointers per node, changed in place | `block_map` |
//! | data | written in place with non-temporal stores | `file` |
//! | consistency | one undo journal of 4 MiB with 64-byte entries; a truncate list for what takes longer than a transaction | `journal`, `truncate_list` |
//!
//! PMFS was never without Linux above it, so it has here what Linux gave it: a cache of inodes, a lock per inode, and a cache of names per
//! directory ([`Options::dentry_cache`]), with which an open of a known name does not search, while a creation and a removal do. It is spared what the kernel cost
//! it (system calls, page tables, access times), and where PMFS's code loses a race or leaks, this does not.
//!
//! An operation is durable when it returns, but for a write inside one block that makes the file longer: its size is durable after
//! [`Pmfs::sync`] by the same thread, as in PMFS.
//!
//! The caches in persistent memory above a disk, Tinca and Spindle, are in [`journaling`].

mod block_map;
mod directory;
mod error;
mod file;
mod in_use;
mod inode;
mod inode_table;
mod journal;
pub mod journaling;
mod layout;
mod names;
mod namespace;
mod recover;
mod transaction;
mod truncate_list;
mod verify;
mod volume;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pmem::{Flushed, Region};

pub use directory::DirEntry;
pub use error::{Corruption, FormatError, PmfsError, RecoverError};
pub use layout::{FileType, InodeNumber};

use inode::Inode;
use volume::Volume;

/// How the file system behaves while it is open.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Options {
    /// Names that were used once are found without a search, as below Linux's VFS. On by default.
    pub dentry_cache: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { dentry_cache: true }
    }
}

/// An open file system. Any number of threads may use it.
///
/// Paths are names separated by `/`, from the root directory on.
pub struct Pmfs {
    volume: Arc<Volume>,
    root: Arc<Inode>,
}

/// An open file. Without names left, the file keeps its blocks until the last handle is dropped.
#[derive(Clone)]
pub struct Handle(Arc<Inode>);

/// What is in use.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Statistics {
    /// Blocks of the region.
    pub blocks: u64,
    /// Blocks in use, superblock and journal included.
    pub blocks_in_use: u64,
    /// Ranges in the in-use list: what a walk through it passes.
    pub in_use_ranges: u64,
    /// Inodes in use.
    pub inodes_in_use: u64,
}

impl fmt::Debug for Pmfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pmfs")
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.0.number).finish()
    }
}

impl Pmfs {
    /// Makes an empty file system in a region and opens it. What the region held is lost.
    ///
    /// # Errors
    /// If the region is too small.
    pub fn format(region: impl Into<Arc<Region>>, options: Options) -> Result<Pmfs, FormatError> {
        let volume = recover::format(region.into(), options)?;
        match Pmfs::over(volume) {
            Ok(pmfs) => Ok(pmfs),
            Err(corruption) => unreachable!("a new file system: {corruption}"),
        }
    }

    /// Opens the file system of a region, after a power cut or not: takes back what did not commit, removes files without names, and finds out from
    /// the block maps which blocks are free. There is no other way to close it than to drop it.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn recover(region: impl Into<Arc<Region>>, options: Options) -> Result<Pmfs, RecoverError> {
        let volume = recover::recover(region.into(), options)?;
        Ok(Pmfs::over(volume)?)
    }

    fn over(volume: Arc<Volume>) -> Result<Pmfs, Corruption> {
        let root = volume.inode(InodeNumber::ROOT)?;
        if root.file_type != FileType::Directory {
            return Err(Corruption::Inode { at: root.at });
        }
        Ok(Pmfs { volume, root })
    }

    /// The region below.
    pub fn region(&self) -> &Region {
        self.volume.region()
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// If its parent is missing or no directory, the name exists, or no space is left.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<(), PmfsError> {
        let path = path.as_ref();
        namespace::create(&self.volume, &self.root, path, FileType::Directory)?;
        Ok(())
    }

    /// Makes an empty file and opens it.
    ///
    /// # Errors
    /// As [`Pmfs::create_dir`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Handle, PmfsError> {
        let path = path.as_ref();
        let inode = namespace::create(&self.volume, &self.root, path, FileType::Regular)?;
        Ok(Handle(inode))
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// If there is none of that path, or it is a directory.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Handle, PmfsError> {
        let inode = namespace::resolve(&self.volume, &self.root, path.as_ref())?;
        inode.require_file()?;
        Ok(Handle(inode))
    }

    /// Removes a file's name. The file goes with its last handle.
    ///
    /// # Errors
    /// If there is no file of that path.
    pub fn unlink(&self, path: impl AsRef<Path>) -> Result<(), PmfsError> {
        namespace::unlink(&self.volume, &self.root, path.as_ref())
    }

    /// Lists a directory in no particular order.
    ///
    /// # Errors
    /// If there is no directory of that path.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>, PmfsError> {
        namespace::read_dir(&self.volume, &self.root, path.as_ref())
    }

    /// The file's size in bytes.
    pub fn size(&self, handle: &Handle) -> u64 {
        handle.0.record.read().size_bytes
    }

    /// Reads from an offset on; returns how many bytes there were. What was never written is zero.
    ///
    /// # Errors
    /// If the block map is damaged.
    pub fn read_at(
        &self,
        handle: &Handle,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, PmfsError> {
        file::read(&self.volume, &handle.0, offset, into)
    }

    /// Writes at an offset, in place: after a power cut, bytes that were there before may be old or new.
    ///
    /// # Errors
    /// If no space is left or the file would be too large. A write of more than four MiB may have been done in part.
    pub fn write_at(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<(), PmfsError> {
        file::write(&self.volume, &handle.0, offset, data)
    }

    /// Writes at the end of the file; returns where that was.
    ///
    /// # Errors
    /// As [`Pmfs::write_at`].
    pub fn append(&self, handle: &Handle, data: &[u8]) -> Result<u64, PmfsError> {
        file::append(&self.volume, &handle.0, data)
    }

    /// Makes the file shorter, or longer by zeros.
    ///
    /// # Errors
    /// If the file would be too large.
    pub fn truncate(&self, handle: &Handle, size_bytes: u64) -> Result<(), PmfsError> {
        file::truncate(&self.volume, &handle.0, size_bytes)
    }

    /// Makes durable what this thread has written. Everything is flushed already, so that one fence is left to do.
    pub fn sync(&self, _handle: &Handle) {
        let region = self.region();
        region.fence(Flushed::nothing(region));
    }

    /// What is in use.
    pub fn statistics(&self) -> Statistics {
        let blocks = self.volume.medium.geometry.region_blocks;
        let inodes_in_use = {
            let table = self.volume.table.lock();
            table.capacity() - 1 - table.free()
        };
        let in_use = self.volume.in_use.lock();
        Statistics {
            blocks,
            blocks_in_use: blocks - in_use.free_blocks(),
            in_use_ranges: in_use.ranges(),
            inodes_in_use,
        }
    }

    /// Walks everything and compares: no block is lost or used twice, the in-use list is that of the block maps, link counts are right. Nobody may
    /// change anything meanwhile.
    ///
    /// # Errors
    /// The first disagreement.
    pub fn verify(&self) -> Result<(), Corruption> {
        verify::verify(&self.volume)
    }
}
