//! The bytes of the file system: inodes, block pointers, and the numbers that name things.
//!
//! The header below these (superblock, journals, segment table) is `txn::layout`; dentries are in
//! [`directory`](crate::directory).

pub mod inode;
pub mod lease;
pub mod map;
pub mod pointer;
pub mod xattr;

pub use inode::RawInode;
pub(crate) use map::BLOCK;
pub use map::FILE_BYTES_MAX;
pub use pointer::{Pointer, Position};

/// Names an inode.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct InodeNumber(u64);

impl InodeNumber {
    /// The inode table itself; it lives in the root area of the state block, not in the table.
    pub const TABLE: InodeNumber = InodeNumber(0);
    /// The root directory.
    pub const ROOT: InodeNumber = InodeNumber(1);
    /// Largest number: the table is a file, and its numbers fit 32 bits.
    pub const MAX: InodeNumber = InodeNumber(u32::MAX as u64);

    /// The inode with this number.
    pub const fn new(number: u64) -> InodeNumber {
        InodeNumber(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for InodeNumber {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// What an inode is. The values are the `DT_*` values that dentries carry.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum FileType {
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    CharacterDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

/// The type bits of `st_mode`.
pub const MODE_TYPE_MASK: u32 = 0o170_000;
/// The permission bits of `st_mode`, set-id and sticky bits included.
pub const MODE_PERMISSION_MASK: u32 = 0o7777;

impl FileType {
    /// The type with this `DT_*` value.
    pub const fn from_raw(byte: u8) -> Option<FileType> {
        Some(match byte {
            1 => FileType::Fifo,
            2 => FileType::CharacterDevice,
            4 => FileType::Directory,
            6 => FileType::BlockDevice,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return None,
        })
    }

    /// The type in the type bits of `mode`.
    pub const fn from_mode(mode: u32) -> Option<FileType> {
        FileType::from_raw(((mode & MODE_TYPE_MASK) >> 12) as u8)
    }

    /// The type bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// A point in time: nanoseconds since the epoch (years 1677 to 2262).
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From nanoseconds since the epoch.
    pub const fn from_nanoseconds(nanoseconds: i64) -> Timestamp {
        Timestamp(nanoseconds)
    }

    /// Nanoseconds since the epoch.
    pub const fn nanoseconds(self) -> i64 {
        self.0
    }

    /// From seconds and nanoseconds; beyond the range it is the nearest time in range.
    pub const fn from_parts(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp(
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(nanoseconds as i64),
        )
    }

    /// Seconds (rounded down) and nanoseconds.
    pub const fn parts(self) -> (i64, u32) {
        (
            self.0.div_euclid(1_000_000_000),
            self.0.rem_euclid(1_000_000_000) as u32,
        )
    }
}

/// Most bytes in a name.
pub const NAME_BYTES_MAX: usize = 255;
/// Most bytes in a symbolic link's target.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Most links to one inode.
pub const LINKS_MAX: u32 = u32::MAX - 1;
