//! Where everything lies on the disk.
//!
//! ```text
//! block 0     superblock
//! block 1     files without names that are open: an inode number each, as in ext4's orphan file
//! block 2 …   block bitmap | inode bitmap | inode table, 16 inodes a block
//! after them  data blocks, directory blocks, block maps
//! ```
//!
//! Numbers are little-endian. Block number 0 means "none".

use std::fmt;

use device::DeviceBlock;
use pmem::BLOCK_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::Corruption;

/// Bytes of a block as a file offset sees them.
pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"JOURNFS1");
pub(super) const SUPERBLOCK: DeviceBlock = DeviceBlock::new(0);
pub(super) const ORPHANS: DeviceBlock = DeviceBlock::new(1);
const BITMAPS_AT: u64 = 2;

/// Bytes of an inode.
pub(super) const INODE_BYTES: usize = 256;
pub(super) const INODES_PER_BLOCK: u64 = BLOCK / INODE_BYTES as u64;
/// Bytes of an inode in front of its block pointers: one line.
pub(super) const RECORD_BYTES: usize = 64;
/// One inode for so many blocks, as ext4 has it.
const BLOCKS_PER_INODE: u64 = 4;
const BITS_PER_BLOCK: u64 = BLOCK * 8;

/// Blocks that an inode points to.
pub(super) const DIRECT: usize = 40;
/// Leaves, of [`LEAF`] pointers each, that an inode points to.
pub(super) const DIRECT_LEAVES: usize = 2;
/// Roots, of [`LEAF`] leaves each, that an inode points to.
pub(super) const ROOTS: usize = 6;
/// Pointers of a block of pointers.
pub(super) const LEAF: usize = BLOCK_BYTES / POINTER_BYTES;
pub(super) const POINTER_BYTES: usize = 4;
/// Blocks of the largest file: 24 GiB.
pub(super) const FILE_BLOCKS_MAX: u64 = (DIRECT + (DIRECT_LEAVES + ROOTS * LEAF) * LEAF) as u64;

/// Bytes of a directory entry: one line.
pub(super) const DIR_ENTRY_BYTES: usize = 64;
pub(super) const DIR_ENTRIES_PER_BLOCK: usize = BLOCK_BYTES / DIR_ENTRY_BYTES;
/// The longest name.
pub(super) const NAME_BYTES_MAX: usize = 56;
/// Open files without names at a time.
pub(super) const ORPHANS_MAX: usize = BLOCK_BYTES / 4;

/// The superblock.
#[derive(Copy, Clone, Eq, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SuperBlock {
    pub(super) magic: u64,
    pub(super) disk_blocks: u64,
    pub(super) inodes: u64,
    pub(super) block_bitmap_at: u64,
    pub(super) inode_bitmap_at: u64,
    pub(super) inode_table_at: u64,
    pub(super) data_at: u64,
    reserved: u64,
}

/// An inode.
#[derive(Copy, Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DiskInode {
    /// 0: free, 1: file, 2: directory.
    pub(super) kind: u16,
    pub(super) links: u16,
    reserved: u32,
    pub(super) size_bytes: u64,
    pub(super) accessed_ns: u64,
    pub(super) modified_ns: u64,
    pub(super) changed_ns: u64,
    pub(super) created_ns: u64,
    reserved_words: [u64; 2],
    pub(super) direct: [u32; DIRECT],
    pub(super) leaves: [u32; DIRECT_LEAVES],
    pub(super) roots: [u32; ROOTS],
}

/// Where the words of an inode lie that change alone.
pub(super) const ACCESSED_AT: usize = std::mem::offset_of!(DiskInode, accessed_ns);
pub(super) const SIZE_AT: usize = std::mem::offset_of!(DiskInode, size_bytes);
pub(super) const MODIFIED_AT: usize = std::mem::offset_of!(DiskInode, modified_ns);
pub(super) const CHANGED_AT: usize = std::mem::offset_of!(DiskInode, changed_ns);
pub(super) const LINKS_AT: usize = std::mem::offset_of!(DiskInode, links);
pub(super) const DIRECT_AT: usize = std::mem::offset_of!(DiskInode, direct);
pub(super) const LEAVES_AT: usize = std::mem::offset_of!(DiskInode, leaves);
pub(super) const ROOTS_AT: usize = std::mem::offset_of!(DiskInode, roots);

/// A directory entry.
#[derive(Copy, Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DirEntryRecord {
    /// 0: a free entry.
    pub(super) inode: u32,
    pub(super) kind: u16,
    pub(super) name_bytes: u16,
    pub(super) name: [u8; NAME_BYTES_MAX],
}

const _: () = assert!(size_of::<SuperBlock>() == 64);
const _: () = assert!(size_of::<DiskInode>() == INODE_BYTES);
const _: () = assert!(DIRECT_AT == RECORD_BYTES);
const _: () = assert!(size_of::<DirEntryRecord>() == DIR_ENTRY_BYTES);

impl SuperBlock {
    /// Of a new file system; `None` if the disk is too small or too large.
    pub(super) fn of_new(disk_blocks: u64) -> Option<SuperBlock> {
        let inodes = (disk_blocks / BLOCKS_PER_INODE).max(INODES_PER_BLOCK);
        let inode_bitmap_at = BITMAPS_AT + disk_blocks.div_ceil(BITS_PER_BLOCK);
        let inode_table_at = inode_bitmap_at + inodes.div_ceil(BITS_PER_BLOCK);
        let data_at = inode_table_at + inodes.div_ceil(INODES_PER_BLOCK);
        let fits = data_at < disk_blocks && disk_blocks <= u64::from(u32::MAX);
        fits.then_some(SuperBlock {
            magic: MAGIC,
            disk_blocks,
            inodes,
            block_bitmap_at: BITMAPS_AT,
            inode_bitmap_at,
            inode_table_at,
            data_at,
            reserved: 0,
        })
    }

    pub(super) fn block_bitmap_blocks(&self) -> u64 {
        self.inode_bitmap_at - self.block_bitmap_at
    }

    pub(super) fn inode_bitmap_blocks(&self) -> u64 {
        self.inode_table_at - self.inode_bitmap_at
    }

    /// The block of the inode table that has an inode, and its offset there.
    pub(super) fn inode_at(&self, number: InodeNumber) -> (DeviceBlock, usize) {
        let number = u64::from(number.0);
        let block = self.inode_table_at + number / INODES_PER_BLOCK;
        let at = (number % INODES_PER_BLOCK) as usize * INODE_BYTES;
        (DeviceBlock::new(block), at)
    }

    /// A pointer from the disk, if it can be one.
    pub(super) fn pointer(&self, number: u32) -> Result<u32, Corruption> {
        let number = u64::from(number);
        match number == 0 || (self.data_at..self.disk_blocks).contains(&number) {
            true => Ok(number as u32),
            false => Err(Corruption::Block { number }),
        }
    }
}

/// Number of an inode: its position in the inode table.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct InodeNumber(u32);

impl InodeNumber {
    /// The root directory.
    pub const ROOT: InodeNumber = InodeNumber(1);

    pub(super) const fn new(number: u32) -> InodeNumber {
        InodeNumber(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for InodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of an inode.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum FileKind {
    /// A file with bytes.
    Regular,
    /// A directory.
    Directory,
}

impl FileKind {
    pub(super) fn of_code(code: u16) -> Option<FileKind> {
        match code {
            1 => Some(FileKind::Regular),
            2 => Some(FileKind::Directory),
            _ => None,
        }
    }

    pub(super) fn code(self) -> u16 {
        match self {
            FileKind::Regular => 1,
            FileKind::Directory => 2,
        }
    }
}

impl DiskInode {
    /// An inode without content.
    pub(super) fn new(kind: FileKind, now_ns: u64) -> DiskInode {
        DiskInode {
            kind: kind.code(),
            links: 1,
            size_bytes: 0,
            accessed_ns: now_ns,
            modified_ns: now_ns,
            changed_ns: now_ns,
            created_ns: now_ns,
            ..DiskInode::free()
        }
    }

    pub(super) fn free() -> DiskInode {
        DiskInode {
            kind: 0,
            links: 0,
            reserved: 0,
            size_bytes: 0,
            accessed_ns: 0,
            modified_ns: 0,
            changed_ns: 0,
            created_ns: 0,
            reserved_words: [0; 2],
            direct: [0; DIRECT],
            leaves: [0; DIRECT_LEAVES],
            roots: [0; ROOTS],
        }
    }
}

impl DirEntryRecord {
    pub(super) fn new(inode: InodeNumber, kind: FileKind, name: &[u8]) -> DirEntryRecord {
        let mut record = DirEntryRecord {
            inode: inode.get(),
            kind: kind.code(),
            name_bytes: name.len() as u16,
            name: [0; NAME_BYTES_MAX],
        };
        record.name[..name.len()].copy_from_slice(name);
        record
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.name_bytes).min(NAME_BYTES_MAX)]
    }
}

/// Nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}
