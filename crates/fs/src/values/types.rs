//! The values that operations take and return.

use crate::format::{FileType, InodeNumber, MODE_PERMISSION_MASK, RawInode, Timestamp};
use crate::values::clock::Clock;
use pmem::BLOCK_BYTES;
use std::time::Duration;

/// What `stat` tells of an inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attributes {
    /// Number of the inode.
    pub inode: InodeNumber,
    /// Distinguishes uses of the same number.
    pub generation: u32,
    /// `st_mode`, type bits included.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub device: u32,
    /// Bytes of content.
    pub size_bytes: u64,
    /// Space taken, in units of 512 bytes.
    pub sectors: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Creation.
    pub created: Timestamp,
}

impl Attributes {
    pub(crate) fn of(number: InodeNumber, raw: &RawInode) -> Attributes {
        Attributes {
            inode: number,
            generation: raw.generation,
            mode: raw.mode,
            links: raw.links,
            uid: raw.uid,
            gid: raw.gid,
            device: raw.device,
            size_bytes: raw.size,
            sectors: raw.blocks * (BLOCK_BYTES as u64 / 512),
            accessed: Timestamp::from_nanoseconds(raw.accessed),
            modified: Timestamp::from_nanoseconds(raw.modified),
            changed: Timestamp::from_nanoseconds(raw.changed),
            created: Timestamp::from_nanoseconds(raw.created),
        }
    }

    /// What the inode is.
    pub fn file_type(&self) -> FileType {
        // An inode in use always has a known type: it is checked when the inode is loaded.
        FileType::from_mode(self.mode).unwrap_or(FileType::Regular)
    }

    /// Permission bits, set-id and sticky bits included.
    pub fn permissions(&self) -> u32 {
        self.mode & MODE_PERMISSION_MASK
    }
}

/// A new inode's attributes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NewInode {
    /// `st_mode`; no type bits = a regular file.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group. A parent directory with the set-group-id bit overrides it.
    pub gid: u32,
    /// Device number of a device.
    pub device: u32,
}

impl NewInode {
    /// A file or directory of root's with these permissions.
    pub fn file(mode: u32) -> NewInode {
        NewInode {
            mode,
            ..NewInode::default()
        }
    }
}

/// A new value of a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimeChange {
    /// The present.
    Now,
    /// This time.
    At(Timestamp),
}

impl TimeChange {
    pub(crate) fn resolve(self, now: Timestamp) -> i64 {
        match self {
            TimeChange::Now => now.nanoseconds(),
            TimeChange::At(time) => time.nanoseconds(),
        }
    }
}

/// Changes of attributes; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SetAttributes {
    /// Permission bits (type bits are ignored).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of content.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub accessed: Option<TimeChange>,
    /// Last change of content.
    pub modified: Option<TimeChange>,
}

/// When reads update the access time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AccessTime {
    /// When it is older than the last change, or than a day (the kernel's `relatime`).
    #[default]
    Relative,
    /// Never (`noatime`).
    Never,
    /// Always (`strictatime`).
    Strict,
}

/// Whether hot blocks are copied to DRAM.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ReadCacheMode {
    /// No.
    #[default]
    Off,
    /// If the medium is slower to read than DRAM, which is measured when the file system is mounted.
    Auto,
    /// Yes.
    On,
}

/// How hot blocks are copied to DRAM.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadCacheOptions {
    /// Whether they are.
    pub mode: ReadCacheMode,
    /// Most bytes of copies; 0 = a quarter of the memory that is available when the file system is mounted.
    pub budget_bytes: u64,
    /// A block is hot when it is read for this time within the window, 1 to 63; 0 = the default, 2.
    pub threshold: u32,
    /// How long a read is remembered, at least, in milliseconds; 0 = the default, 10 seconds.
    pub window_ms: u32,
}

/// The mover of data between memory and the device of a pool that has one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TierMode {
    /// Nobody: data stays where it is.
    #[default]
    Off,
    /// The caller, by [`FileSystem::tier_step`](crate::FileSystem::tier_step), and writers that
    /// find no room. Tests repeat this way.
    Steps,
    /// Two threads of the mount.
    Threads,
}

/// How data moves between memory and the device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TierOptions {
    /// The mover.
    pub mode: TierMode,
    /// Percent of the memory that dirty blocks may take before they are copied whatever their age.
    pub dirty_max_percent: u8,
    /// Age at which a dirty block is copied to the device.
    pub dirty_age: Duration,
    /// Most bytes a second that are copied because of their age; 0 = no limit.
    pub rate_max: u64,
}

impl Default for TierOptions {
    fn default() -> TierOptions {
        TierOptions {
            mode: TierMode::Off,
            dirty_max_percent: 60,
            dirty_age: Duration::from_secs(30),
            rate_max: 0,
        }
    }
}

/// How to mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct MountOptions {
    /// Refuse changes.
    pub read_only: bool,
    /// Drop direct writes whose records are damaged. Else their files cannot be opened.
    pub force_recovery: bool,
    /// Threads that rebuild volatile state; 0 = one per core.
    pub threads: usize,
    /// When reads update the access time.
    pub access_time: AccessTime,
    /// Seed of the allocator's random walk; `None` = from the system.
    pub seed: Option<u64>,
    /// What time it is.
    pub clock: Clock,
    /// Changes in place after which a block of metadata moves, on average, so that no corner of the medium wears out; 0 = the default, 512. Less spreads writes
    /// sooner and costs more of them.
    pub roam_after: u32,
    /// Copies of hot blocks in DRAM.
    pub read_cache: ReadCacheOptions,
    /// Moving data between memory and a device below it.
    pub tier: TierOptions,
}

/// How to rename (`renameat2`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RenameOptions {
    /// Fail if the new name exists.
    pub no_replace: bool,
    /// Exchange the two names.
    pub exchange: bool,
    /// Leave a whiteout (character device 0/0) at the old name.
    pub whiteout: bool,
}

/// How to allocate (`fallocate`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AllocateOptions {
    /// Do not change the size.
    pub keep_size: bool,
    /// Free the range; it reads as zeros. Implies `keep_size`.
    pub punch_hole: bool,
    /// Make the range read as zeros, with its space reserved.
    pub zero_range: bool,
}

/// Whether `set_xattr` may create or replace.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum XattrMode {
    /// Either.
    #[default]
    Any,
    /// Only create.
    Create,
    /// Only replace.
    Replace,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DirectoryEntry<'a> {
    /// Where to go on after this entry.
    pub next_cookie: u64,
    /// The inode.
    pub inode: InodeNumber,
    /// What it is.
    pub file_type: FileType,
    /// Its name.
    pub name: &'a [u8],
}

/// What `statfs` tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SpaceStatistics {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that the data of one file can take (the rest is for its block map, or kept so
    /// that overwrites work in a full pool).
    pub available_blocks: u64,
    /// Inodes that exist or could.
    pub inodes: u64,
    /// Inodes that are free or could be made.
    pub free_inodes: u64,
    /// Most bytes in a name.
    pub name_max: u32,
}

/// Segments of one user that other users cannot have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeptSpace {
    /// The user.
    pub user: u32,
    /// Segments that stay with the user.
    pub segments: u64,
    /// Blocks of 4 KiB in them that are free, or will be at the next checkpoint.
    pub free_blocks: u64,
    /// Blocks that count against the user's quota and share, because no files justify them.
    pub charged_blocks: u64,
}
