//! Why something failed.

use pmem::Offset;

use super::layout::InodeNumber;

/// The medium holds what no operation writes.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// A superblock that was not written for a region of this size.
    #[error("the superblock does not fit the region")]
    Superblock,
    /// A block number that is not one.
    #[error("a pointer to block {number}, which is no block for content")]
    Block {
        /// What was found.
        number: u64,
    },
    /// A block that two files hold, or one file twice.
    #[error("block {number} is used twice")]
    SharedBlock {
        /// The block.
        number: u64,
    },
    /// Fields of an inode that contradict each other.
    #[error("the inode at {at} makes no sense")]
    Inode {
        /// Where it lies.
        at: Offset,
    },
    /// A reference to an inode that is free or beyond the table.
    #[error("a reference to inode {0}, which is not in use", .number.get())]
    NoInode {
        /// The number referred to.
        number: InodeNumber,
    },
    /// An inode in use that no name and no truncate list leads to, or whose link count is not the number of its names.
    #[error("inode {number} says {links} links and has {names} names")]
    Links {
        /// The inode.
        number: InodeNumber,
        /// What it says.
        links: u16,
        /// What was found.
        names: u16,
    },
    /// A directory block whose entries do not follow one another.
    #[error("the directory entry at {at} makes no sense")]
    Entry {
        /// Where it lies.
        at: Offset,
    },
    /// The table has another number of free inodes than it believes.
    #[error("{counted} inodes are free, not {believed}")]
    FreeInodes {
        /// What the table believes.
        believed: u64,
        /// What was found.
        counted: u64,
    },
    /// The truncate list does not end, or does not hold the inodes without names.
    #[error("the truncate list is not the list of what is to be finished")]
    TruncateList,
    /// A journal whose positions or entries are impossible.
    #[error("the journal entry at {at} makes no sense")]
    Journal {
        /// Where it lies.
        at: Offset,
    },
    /// The in-use list and the block maps disagree.
    #[error("block {number} is {} the in-use list and {} the block maps", found(*.is_listed), found(!*.is_listed))]
    InUseList {
        /// The first such block.
        number: u64,
        /// Does the list say that it is in use?
        is_listed: bool,
    },
}

fn found(is_found: bool) -> &'static str {
    if is_found { "in" } else { "not in" }
}

/// Why a region could not be formatted.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Too small to hold anything.
    #[error("a region of {bytes} bytes is too small: give at least {least_bytes}")]
    TooSmall {
        /// The region's length.
        bytes: u64,
        /// What is needed.
        least_bytes: u64,
    },
}

/// Why a region could not be opened. Nothing can be done with it but to format it again.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The region was never formatted.
    #[error("there is no baseline file system in this region: format it first")]
    NotFormatted,
    /// It was, and something has damaged it since.
    #[error("the file system is damaged: {0}")]
    Corrupt(#[from] Corruption),
}

/// Why an operation failed. It has changed nothing.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmfsError {
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
    /// A name of more than 255 bytes.
    #[error("a name of {length} bytes is too long: 255 are allowed")]
    NameTooLong {
        /// Bytes of the name.
        length: usize,
    },
    /// No free block is left.
    #[error("no space left: remove something")]
    NoSpace,
    /// The file would be larger than a block map of three levels can hold.
    #[error("a file cannot have more than 512 GiB")]
    FileTooLarge,
    /// The medium holds what no operation writes.
    #[error("the file system is damaged: {0}")]
    Corrupt(#[from] Corruption),
}
