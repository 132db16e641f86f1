//! The protocol's terms: numbers, flags, attributes.

use std::fmt;
use std::io;

use bitflags::bitflags;

use crate::abi;

/// The number by which the kernel names an inode.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct INodeNo(pub u64);

impl INodeNo {
    /// The root directory.
    pub const ROOT: INodeNo = INodeNo(1);
}

/// The server's number of an open file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileHandle(pub u64);

/// Tells two files apart that had one inode number, one after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Generation(pub u64);

/// An error number.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        #[allow(missing_docs)]
        impl Errno { $(pub const $name: Errno = Errno(libc::$name);)* }
    };
}

errnos! {
    EACCES EDQUOT EINVAL EIO ENODATA ENOENT ENOSPC ENOSYS ENOTTY ENXIO EOPNOTSUPP EOVERFLOW EPERM
    ERANGE ESTALE
}

impl Errno {
    /// A number of the system's; any other becomes `EIO`.
    pub fn from_i32(number: i32) -> Errno {
        match number {
            1..4096 => Errno(number),
            _ => Errno::EIO,
        }
    }

    /// The system's number.
    pub fn code(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", io::Error::from_raw_os_error(self.0))
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

mod flags {
    #![allow(missing_docs)]

    use super::{abi, bitflags};

    bitflags! {
        /// Features that kernel and server may agree on when a connection starts.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[allow(missing_docs)]
        pub struct InitFlags: u64 {
            const ASYNC_READ = 1;
            const EXPORT_SUPPORT = 1 << 4;
            const BIG_WRITES = 1 << 5;
            const DO_READDIRPLUS = 1 << 13;
            const READDIRPLUS_AUTO = 1 << 14;
            const ASYNC_DIO = 1 << 15;
            const NO_OPEN_SUPPORT = 1 << 17;
            const PARALLEL_DIROPS = 1 << 18;
            const MAX_PAGES = 1 << 22;
            const CACHE_SYMLINKS = 1 << 23;
            const NO_OPENDIR_SUPPORT = 1 << 24;
            const EXPLICIT_INVAL_DATA = 1 << 25;
            const HANDLE_KILLPRIV_V2 = 1 << 28;
            const INIT_EXT = 1 << 30;
            const PASSTHROUGH = 1 << 37;
            const OVER_IO_URING = 1 << 41;
            const _ = !0;
        }

        /// How the kernel treats a file that was opened.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[allow(missing_docs)]
        pub struct FopenFlags: u32 {
            const DIRECT_IO = 1;
            const KEEP_CACHE = 1 << 1;
            const CACHE_DIR = 1 << 3;
            const NOFLUSH = 1 << 5;
            const PASSTHROUGH = 1 << 7;
        }

        /// Kinds of WRITE besides a program's own.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub struct WriteFlags: u32 {
            /// The kernel writes pages of its cache back.
            const CACHE = 1;
            /// The lock's owner is named: the write goes past the page cache.
            const LOCKOWNER = abi::WRITE_LOCKOWNER;
            /// Set-id bits fall.
            const KILL_SUIDGID = 1 << 2;
            const _ = !0;
        }

        /// Flags of `renameat2`.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[allow(missing_docs)]
        pub struct RenameFlags: u32 {
            const NOREPLACE = 1;
            const EXCHANGE = 1 << 1;
            const WHITEOUT = 1 << 2;
        }
    }
}

pub use flags::{FopenFlags, InitFlags, RenameFlags, WriteFlags};

/// A moment: seconds since the epoch, which may be negative, and nanoseconds after them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Below 1,000,000,000 where the server sends it; the kernel's are not checked.
    pub nanoseconds: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimeOrNow {
    /// The server's clock says it.
    Now,
    /// This one.
    At(Time),
}

/// The type of a file, as directories tell it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum FileType {
    Fifo,
    CharacterDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

impl FileType {
    /// Its bits in a mode.
    pub fn mode(self) -> u32 {
        match self {
            FileType::Fifo => libc::S_IFIFO,
            FileType::CharacterDevice => libc::S_IFCHR,
            FileType::Directory => libc::S_IFDIR,
            FileType::BlockDevice => libc::S_IFBLK,
            FileType::Regular => libc::S_IFREG,
            FileType::Symlink => libc::S_IFLNK,
            FileType::Socket => libc::S_IFSOCK,
        }
    }
}

/// What `stat` shows.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct FileAttr {
    pub inode: INodeNo,
    pub size_bytes: u64,
    /// Units of 512 bytes.
    pub sectors: u64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    /// Type and permissions.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    /// The best size for a transfer.
    pub block_bytes: u32,
}

impl FileAttr {
    pub(crate) fn to_abi(self) -> abi::Attr {
        abi::Attr {
            ino: self.inode.0,
            size: self.size_bytes,
            blocks: self.sectors,
            atime: self.accessed.seconds,
            mtime: self.modified.seconds,
            ctime: self.changed.seconds,
            atimensec: self.accessed.nanoseconds,
            mtimensec: self.modified.nanoseconds,
            ctimensec: self.changed.nanoseconds,
            mode: self.mode,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.device,
            blksize: self.block_bytes,
            flags: 0,
        }
    }
}

/// The changes that SETATTR asks for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs)]
pub struct Changes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size_bytes: Option<u64>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
}

impl Changes {
    pub(crate) fn from_abi(message: &abi::SetattrIn) -> Changes {
        use abi::valid;
        let has = |bit| message.valid & bit != 0;
        let time = |now, bit, seconds, nanoseconds| match (has(now), has(bit)) {
            (true, _) => Some(TimeOrNow::Now),
            (false, true) => Some(TimeOrNow::At(Time {
                seconds,
                nanoseconds,
            })),
            (false, false) => None,
        };
        Changes {
            mode: has(valid::MODE).then_some(message.mode),
            uid: has(valid::UID).then_some(message.uid),
            gid: has(valid::GID).then_some(message.gid),
            size_bytes: has(valid::SIZE).then_some(message.size),
            accessed: time(
                valid::ATIME_NOW,
                valid::ATIME,
                message.atime,
                message.atimensec,
            ),
            modified: time(
                valid::MTIME_NOW,
                valid::MTIME,
                message.mtime,
                message.mtimensec,
            ),
        }
    }
}

/// The caller of a request, as the kernel shows it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    header: abi::InHeader,
}

impl Request {
    pub(crate) fn new(header: abi::InHeader) -> Request {
        Request { header }
    }

    /// The caller's user.
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// The caller's group.
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// The caller's thread.
    pub fn pid(&self) -> u32 {
        self.header.pid
    }
}
