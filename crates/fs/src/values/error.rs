//! Errors of operations on files and directories.

use super::quota::Subject;
use crate::format::InodeNumber;
use device::{DeviceBlock, DeviceError};
use scatter::OutOfSpace;
use txn::{CommitError, Corruption, DeviceFault};

/// Why an operation failed. Nothing of it happened, except where an operation says otherwise.
///
/// Four kinds: the request cannot be done (most variants), the medium is damaged
/// ([`Corrupt`](FsError::Corrupt)), its device failed ([`Device`](FsError::Device)), or the pool is
/// exhausted ([`NoSpace`](FsError::NoSpace), [`NoInodes`](FsError::NoInodes)).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// No such name or inode.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name exists already")]
    AlreadyExists,
    /// A directory is needed.
    #[error("not a directory")]
    NotADirectory,
    /// Not possible on a directory.
    #[error("is a directory")]
    IsADirectory,
    /// The directory has entries.
    #[error("directory is not empty")]
    DirectoryNotEmpty,
    /// The name is longer than 255 bytes.
    #[error("a name of {length} bytes is too long: 255 at most")]
    NameTooLong {
        /// Bytes of the name.
        length: usize,
    },
    /// An argument makes no sense; the text says which.
    #[error("{0}")]
    InvalidArgument(&'static str),
    /// The inode has as many links as it can.
    #[error("too many links")]
    TooManyLinks,
    /// No free block is left.
    #[error("no space left in the pool; delete files or make a larger one")]
    NoSpace,
    /// A user's or group's limit is reached.
    #[error("quota of {0} exceeded; delete files or raise the limit")]
    QuotaExceeded(Subject),
    /// No inode number is left.
    #[error("no inodes left in the pool; delete files")]
    NoInodes,
    /// The offset or size is beyond the largest file.
    #[error("beyond the largest file ({} bytes)", crate::format::FILE_BYTES_MAX)]
    FileTooLarge,
    /// The file system is mounted read-only.
    #[error("the file system is mounted read-only")]
    ReadOnly,
    /// There is no data or hole at or after the offset.
    #[error("no data there")]
    NoData,
    /// The attribute does not exist.
    #[error("no such attribute")]
    NoAttribute,
    /// The attribute, or all of an inode's together, are too large.
    #[error("extended attributes too large: {0}")]
    AttributeTooLarge(&'static str),
    /// Not possible on this kind of inode or file system.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// The operation is not allowed on such an object.
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// Metadata on the medium is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// The pool's log has failed: whether the change is durable is unknown.
    #[error("not durable: {0}")]
    NotDurable(String),
    /// The change does not fit a journal.
    #[error(transparent)]
    TooLargeForJournal(CommitError),
    /// The device that holds the data failed. Other files work, and the next call asks it again.
    #[error(transparent)]
    Device(#[from] DeviceFault),
}

impl From<CommitError> for FsError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Device(fault) => FsError::Device(*fault),
            error @ CommitError::TooLarge { .. } => FsError::TooLargeForJournal(error),
        }
    }
}

impl From<OutOfSpace> for FsError {
    fn from(_: OutOfSpace) -> Self {
        FsError::NoSpace
    }
}

impl FsError {
    /// The Linux error number, for the edges (FUSE, `std::io::Error`).
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            FsError::NotFound => Errno::NOENT,
            FsError::AlreadyExists => Errno::EXIST,
            FsError::NotADirectory => Errno::NOTDIR,
            FsError::IsADirectory => Errno::ISDIR,
            FsError::DirectoryNotEmpty => Errno::NOTEMPTY,
            FsError::NameTooLong { .. } => Errno::NAMETOOLONG,
            FsError::InvalidArgument(_) => Errno::INVAL,
            FsError::TooManyLinks => Errno::MLINK,
            FsError::NoSpace | FsError::NoInodes => Errno::NOSPC,
            FsError::QuotaExceeded(_) => Errno::DQUOT,
            FsError::FileTooLarge | FsError::TooLargeForJournal(_) => Errno::FBIG,
            FsError::ReadOnly => Errno::ROFS,
            FsError::NoData => Errno::NXIO,
            FsError::NoAttribute => Errno::NODATA,
            FsError::AttributeTooLarge(_) => Errno::NOSPC,
            FsError::NotSupported(_) => Errno::OPNOTSUPP,
            FsError::NotPermitted(_) => Errno::PERM,
            FsError::Corrupt(_) => Errno::UCLEAN,
            FsError::NotDurable(_) | FsError::Device(_) => Errno::IO,
        };
        errno.raw_os_error()
    }
}

/// Reports a bug: a change met a block of the device that it should have brought in before. The
/// block stays as it is.
#[cold]
pub(crate) fn not_brought_in(block: DeviceBlock) -> FsError {
    debug_assert!(false, "device block {block} was not brought in");
    FsError::Device(DeviceFault {
        device: "(any)".into(),
        block,
        error: DeviceError::Failed("not brought into memory; please report this".into()),
    })
}

/// A damaged inode, by number.
pub(crate) fn damaged_inode(number: InodeNumber, detail: &str) -> FsError {
    FsError::Corrupt(Corruption::new(format!("inode {number}"), detail))
}
