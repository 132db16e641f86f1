//! The edge: here, and only here, an error becomes an error number.

use std::ffi::OsStr;
use std::fmt;

use fs::FsError;
use fuse::Errno;

/// Why a request is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The file system's reason.
    FileSystem(FsError),
    /// The request makes no sense here, or is one that we do not offer.
    Request(Errno, &'static str),
}

impl Refusal {
    /// The kernel names an inode that it holds no reference to: a file handle from before the
    /// inode was deleted.
    pub(crate) const STALE: Refusal =
        Refusal::Request(Errno::ESTALE, "the kernel holds no reference to this inode");

    /// What the kernel is told.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Refusal::FileSystem(error) => Errno::from_i32(error.errno()),
            Refusal::Request(errno, _) => *errno,
        }
    }

    /// True if the medium is damaged: to be logged where administrators look.
    pub(crate) fn is_corruption(&self) -> bool {
        matches!(self, Refusal::FileSystem(FsError::Corrupt(_)))
    }

    /// True for a name that does not exist, which is an answer rather than a failure.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(
            self,
            Refusal::FileSystem(FsError::NotFound | FsError::NoAttribute)
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::FileSystem(error) => error.fmt(formatter),
            Refusal::Request(_, reason) => formatter.write_str(reason),
        }
    }
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Refusal {
        Refusal::FileSystem(error)
    }
}

/// What a request is about, for the log: an inode, and a name in it if it is a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) inode: u64,
    pub(crate) name: Option<&'a OsStr>,
}

impl<'a> Subject<'a> {
    pub(crate) fn inode(inode: fuse::INodeNo) -> Subject<'a> {
        Subject {
            inode: inode.0,
            name: None,
        }
    }

    pub(crate) fn named(directory: fuse::INodeNo, name: &'a OsStr) -> Subject<'a> {
        Subject {
            inode: directory.0,
            name: Some(name),
        }
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(formatter, "name {name:?} in inode {}", self.inode),
            None => write!(formatter, "inode {}", self.inode),
        }
    }
}
