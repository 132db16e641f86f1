//! What can go wrong, and how it looks from `std::io`.

use home::{AttachError, HomeError};
use std::io;
use std::path::{Path, PathBuf};
use txn::{FormatError, OpenError};

/// The result of everything in this crate that is not forced into `io::Result` by a trait of `std`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation: what was tried, on which object, and why not.
///
/// Converts into [`io::Error`] with the kind that `std::fs` would report for the same mistake, so `?` works in
/// functions that return `io::Result`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool could not be created.
    #[error("{}", naming(pool, source))]
    Create {
        /// Directory (or device) of the pool.
        pool: PathBuf,
        /// The reason, with its remedy.
        source: FormatError,
    },
    /// There already is a pool at this place, and nobody asked to replace it.
    #[error("{}: a pool is there already; remove it, or ask for it to be overwritten", pool.display())]
    PoolExists {
        /// Directory (or device) of the pool.
        pool: PathBuf,
    },
    /// The old pool at this place could not be removed.
    #[error("{}: the old pool cannot be removed: {source}", pool.display())]
    Remove {
        /// Directory of the pool.
        pool: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The pool could not be opened.
    #[error("{}", naming(pool, source))]
    Open {
        /// Directory (or device) of the pool.
        pool: PathBuf,
        /// The reason, with its remedy.
        source: OpenError,
    },
    /// The disk below the pool could not be made or attached.
    #[error("{}: {source}", pool.display())]
    Home {
        /// Directory (or device) of the pool.
        pool: PathBuf,
        /// The reason, with its remedy.
        source: AttachError,
    },
    /// Files or directories of the pool are still open.
    #[error("{}: cannot be closed while {handles} files or directories of it are open; drop them first", pool.display())]
    StillOpen {
        /// Directory (or device) of the pool.
        pool: PathBuf,
        /// Number of handles that keep the pool open.
        handles: usize,
    },
    /// An operation on a path failed.
    #[error("{operation} {}: {cause}", path.display())]
    Path {
        /// The operation, by its name in this crate.
        operation: &'static str,
        /// The path as the caller gave it.
        path: PathBuf,
        /// The reason.
        cause: Cause,
    },
    /// An operation on two paths failed.
    #[error("{operation} {} -> {}: {cause}", from.display(), to.display())]
    Paths {
        /// The operation, by its name in this crate.
        operation: &'static str,
        /// The first path as the caller gave it.
        from: PathBuf,
        /// The second path as the caller gave it.
        to: PathBuf,
        /// The reason.
        cause: Cause,
    },
    /// An operation on an open file or directory failed.
    #[error("{operation} inode {inode}: {cause}")]
    Inode {
        /// The operation, by its name in this crate.
        operation: &'static str,
        /// Number of the inode.
        inode: u64,
        /// The reason.
        cause: Cause,
    },
}

/// Why an operation on a path or a file failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The file system refused it.
    #[error(transparent)]
    FileSystem(#[from] fs::FsError),
    /// More than 40 symbolic links stood in the way of one path: probably a loop.
    #[error("more than {MAX_SYMLINKS} symbolic links in one path (is there a loop?)")]
    TooManyLinks,
    /// The path has 4,096 bytes or more.
    #[error("the path has {length} bytes, the limit is {}", MAX_PATH_BYTES - 1)]
    PathTooLong {
        /// Length of the path in bytes.
        length: usize,
    },
    /// The path holds a byte of value zero.
    #[error("the path contains a NUL byte")]
    NulInPath,
    /// The options contradict each other.
    #[error("{0}")]
    InvalidOptions(&'static str),
    /// The handle was not opened for reading.
    #[error("the file was not opened for reading")]
    NotOpenForReading,
    /// The handle was not opened for writing.
    #[error("the file was not opened for writing")]
    NotOpenForWriting,
    /// The root directory, `.` or `..` cannot be removed or renamed.
    #[error("the root directory, `.` and `..` cannot be removed or renamed")]
    Busy,
    /// Devices, sockets and fifos have no content in the pool.
    #[error("devices, sockets and fifos have no content in a pool (mount the pool to use them)")]
    SpecialFile,
    /// The content does not fit into the memory of this process.
    #[error("the content does not fit into memory")]
    OutOfMemory,
    /// The name of an attribute begins with none of the namespaces that are kept.
    #[error("attributes begin with `user.`, `trusted.` or `security.`; others are not kept")]
    AttributeNamespace,
    /// The value of an attribute is too long.
    #[error(
        "the value has {length} bytes, an attribute holds at most {}",
        fs::format::xattr::VALUE_BYTES_MAX
    )]
    AttributeTooLong {
        /// Length of the value in bytes.
        length: usize,
    },
    /// Text was expected, but the content is not UTF-8.
    #[error("the content is not UTF-8")]
    NotUtf8,
}

/// Symbolic links that one path may cross, as on Linux.
pub const MAX_SYMLINKS: u32 = 40;
/// Length at which a path is refused, its end mark included, as on Linux.
pub const MAX_PATH_BYTES: usize = 4096;

impl Cause {
    /// The Linux error number for this reason.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Cause::FileSystem(error) => error.errno(),
            Cause::TooManyLinks => libc::ELOOP,
            Cause::PathTooLong { .. } => libc::ENAMETOOLONG,
            Cause::NulInPath | Cause::InvalidOptions(_) => libc::EINVAL,
            Cause::NotOpenForReading | Cause::NotOpenForWriting => libc::EBADF,
            Cause::Busy => libc::EBUSY,
            Cause::SpecialFile | Cause::AttributeNamespace => libc::EOPNOTSUPP,
            Cause::AttributeTooLong { .. } => libc::E2BIG,
            Cause::OutOfMemory => libc::ENOMEM,
            Cause::NotUtf8 => libc::EILSEQ,
        }
    }

    /// Names the operation and the path that failed for this reason.
    #[cold]
    pub(crate) fn at(self, operation: &'static str, path: &Path) -> Error {
        Error::Path {
            operation,
            path: path.to_owned(),
            cause: self,
        }
    }

    /// Names the operation and both paths that failed for this reason.
    #[cold]
    pub(crate) fn between(self, operation: &'static str, from: &Path, to: &Path) -> Error {
        Error::Paths {
            operation,
            from: from.to_owned(),
            to: to.to_owned(),
            cause: self,
        }
    }

    /// Names the operation and the inode that failed for this reason.
    #[cold]
    pub(crate) fn on(self, operation: &'static str, node: &fs::Node) -> Error {
        Error::Inode {
            operation,
            inode: node.number().get(),
            cause: self,
        }
    }
}

impl Error {
    /// The reason, when an operation on a file failed (and not the opening of the pool).
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Error::Path { cause, .. } | Error::Paths { cause, .. } | Error::Inode { cause, .. } => {
                Some(cause)
            }
            _ => None,
        }
    }

    /// The kind that `std::fs` reports for the same mistake.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Error::Path {
                cause: Cause::NotUtf8,
                ..
            } => io::ErrorKind::InvalidData,
            _ => io::Error::from_raw_os_error(self.errno()).kind(),
        }
    }

    /// The Linux error number for this mistake; `EIO` for damage on the medium.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Error::Create { source, .. } => format_errno(source),
            Error::PoolExists { .. } => libc::EEXIST,
            Error::Remove { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Error::Open { source, .. } => open_errno(source),
            Error::Home { source, .. } => home_errno(source),
            Error::StillOpen { .. } => libc::EBUSY,
            Error::Path { cause, .. } | Error::Paths { cause, .. } | Error::Inode { cause, .. } => {
                cause.errno()
            }
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// The message of `source`, which begins with the pool's name if it does not hold it anyway.
fn naming(pool: &Path, source: &dyn std::error::Error) -> String {
    let (pool, message) = (pool.display().to_string(), source.to_string());
    if message.contains(&pool) {
        message
    } else {
        format!("{pool}: {message}")
    }
}

fn home_errno(error: &AttachError) -> i32 {
    match error {
        AttachError::Home(HomeError::Io { source, .. }) => {
            source.raw_os_error().unwrap_or(libc::EIO)
        }
        AttachError::Home(HomeError::InUse { .. }) => libc::EBUSY,
        AttachError::Home(HomeError::NotEmpty { .. }) => libc::EEXIST,
        AttachError::Home(_) => libc::EINVAL,
        AttachError::Open(source) => open_errno(source),
        AttachError::Count(_) | AttachError::Log(_) => libc::EIO,
    }
}

fn format_errno(error: &FormatError) -> i32 {
    match error {
        FormatError::TooSmall { .. }
        | FormatError::TooLarge { .. }
        | FormatError::TooManySegments { .. }
        | FormatError::Memory { .. }
        | FormatError::Parameter { .. } => libc::EINVAL,
        FormatError::NoSpace { .. } => libc::ENOSPC,
        FormatError::Exists { .. } => libc::EEXIST,
        FormatError::Io { source, .. } => io_errno(source),
        FormatError::Map(error) => map_errno(error),
        _ => libc::EIO,
    }
}

fn open_errno(error: &OpenError) -> i32 {
    match error {
        OpenError::Missing { .. } => libc::ENOENT,
        OpenError::NotAPool { .. } | OpenError::OtherVersion { .. } | OpenError::Foreign(_) => {
            libc::EINVAL
        }
        OpenError::InUse { .. } => libc::EBUSY,
        OpenError::Io { source, .. } => io_errno(source),
        OpenError::Map(error) => map_errno(error),
        _ => libc::EIO,
    }
}

fn map_errno(error: &pmem::MapError) -> i32 {
    match error {
        pmem::MapError::NotPersistent { .. } => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}

fn io_errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
