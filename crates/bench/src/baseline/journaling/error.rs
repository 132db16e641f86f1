//! Why something failed.

use device::DeviceError;

use super::cache::CacheCorruption;
use super::layout::{InodeNumber, NAME_BYTES_MAX};

/// The disk holds what no operation writes.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// The superblock is none, or belongs to a disk of another size.
    #[error("the superblock does not fit the disk: format it first")]
    SuperBlock,
    /// A pointer to a block that is none.
    #[error("a pointer to block {number}, which is no block for content")]
    Block {
        /// The pointer.
        number: u64,
    },
    /// Two pointers lead to one block.
    #[error("block {number} is used twice")]
    SharedBlock {
        /// The block.
        number: u64,
    },
    /// The block bitmap and the block maps disagree.
    #[error("block {number} is {} the bitmap and {} the block maps", found(*.is_marked), found(!*.is_marked))]
    BlockBitmap {
        /// The first such block.
        number: u64,
        /// Does the bitmap have it?
        is_marked: bool,
    },
    /// Fields of an inode that contradict each other, or an inode that is free where one is needed.
    #[error("inode {number} makes no sense")]
    Inode {
        /// The inode.
        number: InodeNumber,
    },
    /// The inode has more or fewer links than names, and is not in the list of open files.
    #[error("inode {number} has {names} names, which is not what it says")]
    Links {
        /// The inode.
        number: InodeNumber,
        /// Names that lead to it.
        names: u16,
    },
    /// The last block of a file is not zero beyond the end of the file.
    #[error("inode {number} has bytes beyond its end")]
    Tail {
        /// The inode.
        number: InodeNumber,
    },
    /// A directory entry makes no sense.
    #[error("an entry of directory {number} makes no sense")]
    Entry {
        /// The directory.
        number: InodeNumber,
    },
    /// The cache below is damaged.
    #[error(transparent)]
    Cache(#[from] CacheCorruption),
}

fn found(is_found: bool) -> &'static str {
    if is_found { "in" } else { "not in" }
}

/// Why an operation failed.
///
/// After [`FsError::Device`] the operation may have happened in memory. It is not durable then, and
/// the next transaction that commits makes it durable. With any other error nothing has changed.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// There is no such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// There is one already.
    #[error("the name exists already")]
    AlreadyExists,
    /// A component of the path, or the object itself, is not a directory.
    #[error("not a directory")]
    NotADirectory,
    /// A directory where a file is needed.
    #[error("is a directory")]
    IsADirectory,
    /// The path ends in no name, or has `..` in it.
    #[error("not a path: give names separated by `/`, without `..`")]
    InvalidPath,
    /// The name is too long.
    #[error("a name of {length} bytes is too long: {NAME_BYTES_MAX} are allowed")]
    NameTooLong {
        /// Bytes of the name.
        length: usize,
    },
    /// No free block or inode is left.
    #[error("no space left: remove something")]
    NoSpace,
    /// The file would be larger than its block map can hold.
    #[error("a file cannot have more than 24 GiB")]
    FileTooLarge,
    /// The disk failed.
    #[error("the disk below the cache: {0}")]
    Device(#[from] DeviceError),
    /// The disk holds what no operation writes.
    #[error("the file system is damaged: {0}")]
    Corrupt(#[from] Corruption),
}

/// Why a disk could not be formatted or mounted.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The disk has too few blocks, or more than a block pointer can name.
    #[error("a disk of {blocks} blocks is too small or too large")]
    DiskSize {
        /// Blocks of the disk.
        blocks: u64,
    },
    /// The bitmaps of the disk do not fit a transaction of the cache.
    #[error(
        "the cache allows {limit} metadata blocks in a transaction and the disk needs {needed}: give the cache more memory"
    )]
    CacheTooSmall {
        /// The limit of the cache.
        limit: usize,
        /// Blocks of the largest operation.
        needed: usize,
    },
    /// The disk failed, or holds no file system.
    #[error(transparent)]
    FileSystem(#[from] FsError),
}

impl From<Corruption> for MountError {
    fn from(corruption: Corruption) -> MountError {
        MountError::FileSystem(corruption.into())
    }
}

impl From<DeviceError> for MountError {
    fn from(error: DeviceError) -> MountError {
        MountError::FileSystem(error.into())
    }
}
