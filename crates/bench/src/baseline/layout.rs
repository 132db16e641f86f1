//! Where everything lies on the medium.
//!
//! ```text
//! block 0      superblock, journal positions, inode of the inode table, head of the truncate list
//! block 1 …    journal
//! behind it    everything else, allocated block by block: inode table, directories, block maps, data
//! ```
//!
//! Numbers are little-endian. Block number 0 means "none": the superblock is nobody's data.

use std::fmt;

use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};

use super::error::Corruption;

/// Bytes of a block as a file offset sees them.
pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// "PMFS-POL": this is not PMFS's own format.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"PMFS-POL");

/// Superblock: magic, blocks of the region, blocks of the journal, blocks per unit of the inode table.
pub(super) const MAGIC_AT: Offset = Offset::new(0);
pub(super) const REGION_BLOCKS_AT: Offset = Offset::new(8);
pub(super) const JOURNAL_BLOCKS_AT: Offset = Offset::new(16);
pub(super) const TABLE_UNIT_BLOCKS_AT: Offset = Offset::new(24);

/// The journal's positions share a line, as in PMFS.
pub(super) const JOURNAL_HEAD_AT: Offset = Offset::new(64);
pub(super) const JOURNAL_TAIL_AT: Offset = Offset::new(72);

/// The inode that holds all others.
pub(super) const TABLE_INODE_AT: Offset = Offset::new(128);

/// Number of the first inode of the truncate list, or 0.
pub(super) const TRUNCATE_HEAD_AT: Offset = Offset::new(256);

/// The journal begins behind the superblock.
pub(super) const JOURNAL_BLOCK: u64 = 1;
/// PMFS's default.
const JOURNAL_BLOCKS_MAX: u64 = (4 << 20) / BLOCK;
/// Room for a few dozen operations at a time in a region for tests.
const JOURNAL_BLOCKS_MIN: u64 = 4;
/// The journal of a small region is this part of it.
const JOURNAL_SHARE: u64 = 64;

/// From this size on PMFS makes its inode table of units of 2 MiB instead of blocks.
const LARGE_TABLE_FROM_BLOCKS: u64 = (512 << 20) / BLOCK;
const LARGE_TABLE_UNIT_BLOCKS: u64 = (2 << 20) / BLOCK;

/// Superblock, journal, inode table, root directory, and a little to work with.
pub(super) const REGION_BLOCKS_MIN: u64 = 16;

/// The sizes that follow from the region's.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Geometry {
    pub(super) region_blocks: u64,
    pub(super) journal_blocks: u64,
    /// Blocks by which the inode table grows.
    pub(super) table_unit_blocks: u64,
}

impl Geometry {
    pub(super) fn of_new(region_bytes: u64) -> Geometry {
        let region_blocks = region_bytes / BLOCK;
        Geometry {
            region_blocks,
            journal_blocks: (region_blocks / JOURNAL_SHARE)
                .clamp(JOURNAL_BLOCKS_MIN, JOURNAL_BLOCKS_MAX),
            table_unit_blocks: if region_blocks >= LARGE_TABLE_FROM_BLOCKS {
                LARGE_TABLE_UNIT_BLOCKS
            } else {
                1
            },
        }
    }

    /// The first block that can be allocated.
    pub(super) fn first_block(&self) -> u64 {
        JOURNAL_BLOCK + self.journal_blocks
    }

    /// Inodes in a unit of the inode table.
    pub(super) fn inodes_per_unit(&self) -> u64 {
        self.table_unit_blocks * BLOCK / INODE_BYTES
    }

    /// A block number from the medium, if it can be one.
    #[inline]
    pub(super) fn block(&self, word: u64) -> Result<Option<BlockNumber>, Corruption> {
        match word {
            0 => Ok(None),
            number if number >= self.first_block() && number < self.region_blocks => {
                Ok(Some(BlockNumber::new(number)))
            }
            number => Err(Corruption::Block { number }),
        }
    }
}

/// Number of an inode: its position in the inode table.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct InodeNumber(u64);

impl InodeNumber {
    /// The root directory.
    pub const ROOT: InodeNumber = InodeNumber(1);

    pub(super) const fn new(number: u64) -> InodeNumber {
        InodeNumber(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for InodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Bytes of an inode.
pub(super) const INODE_BYTES: u64 = 128;
/// Bytes at the front of an inode that change with an operation: one log entry holds them.
pub(super) const RECORD_BYTES: usize = 48;

/// Where in an inode the words lie that are stored one by one.
pub(super) const SIZE_IN_INODE: u64 = 16;
pub(super) const TIMES_IN_INODE: u64 = 24;
/// The second line of an inode is its link in the truncate list: the next inode, and the size it is cut to.
pub(super) const NEXT_IN_INODE: u64 = 64;
pub(super) const CUT_IN_INODE: u64 = 72;

const _: () = assert!(JOURNAL_TAIL_AT.get() / 64 == JOURNAL_HEAD_AT.get() / 64);
const _: () = assert!(TABLE_INODE_AT.get() + INODE_BYTES <= TRUNCATE_HEAD_AT.get());
const _: () = assert!(RECORD_BYTES as u64 <= NEXT_IN_INODE && CUT_IN_INODE + 8 <= INODE_BYTES);

/// What an inode is.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum FileType {
    /// A file with bytes.
    Regular,
    /// A directory.
    Directory,
}

impl FileType {
    pub(super) fn from_code(code: u8) -> Option<FileType> {
        match code {
            1 => Some(FileType::Regular),
            2 => Some(FileType::Directory),
            _ => None,
        }
    }

    pub(super) fn code(self) -> u8 {
        match self {
            FileType::Regular => 1,
            FileType::Directory => 2,
        }
    }
}

/// The part of an inode that changes: its first 48 bytes.
///
/// ```text
/// 0  type u8 (0 = free inode) | height of the block map u8 | links u16 | zero u32
/// 8  root of the block map: a block of data at height 0, else a node
/// 16 size in bytes
/// 24 changed u32 | modified u32     seconds since 1970, as PMFS has them
/// 32 created u32 | deleted u32
/// 40 blocks of data
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Record {
    /// `None`: the inode is free.
    pub(super) file_type: Option<FileType>,
    pub(super) height: u8,
    pub(super) links: u16,
    pub(super) root: Option<BlockNumber>,
    pub(super) size_bytes: u64,
    pub(super) changed: u32,
    pub(super) modified: u32,
    pub(super) created: u32,
    pub(super) deleted: u32,
    pub(super) data_blocks: u64,
}

impl Record {
    /// An inode that exists and has no content.
    pub(super) fn new(file_type: FileType, links: u16, now: u32) -> Record {
        Record {
            file_type: Some(file_type),
            height: 0,
            links,
            root: None,
            size_bytes: 0,
            changed: now,
            modified: now,
            created: now,
            deleted: 0,
            data_blocks: 0,
        }
    }

    /// What remains of a removed inode.
    pub(super) fn freed(&self, now: u32) -> Record {
        Record {
            file_type: None,
            height: 0,
            links: 0,
            root: None,
            size_bytes: 0,
            data_blocks: 0,
            deleted: now,
            ..*self
        }
    }

    pub(super) fn load(
        region: &Region,
        geometry: &Geometry,
        at: Offset,
    ) -> Result<Record, Corruption> {
        let word = |index: u64| region.load_u64(at + index * 8);
        let [code, height, links_low, links_high, ..] = word(0).to_le_bytes();
        let corrupt = Corruption::Inode { at };
        let file_type = match code {
            0 => None,
            code => Some(FileType::from_code(code).ok_or(corrupt)?),
        };
        let (times, ends) = (word(3), word(4));
        let record = Record {
            file_type,
            height,
            links: u16::from_le_bytes([links_low, links_high]),
            root: geometry.block(word(1))?,
            size_bytes: word(2),
            changed: times as u32,
            modified: (times >> 32) as u32,
            created: ends as u32,
            deleted: (ends >> 32) as u32,
            data_blocks: word(5),
        };
        let is_directory = file_type == Some(FileType::Directory);
        match height > HEIGHT_MAX
            || record.size_bytes > FILE_BYTES_MAX
            || (is_directory && !record.size_bytes.is_multiple_of(BLOCK))
        {
            true => Err(Corruption::Inode { at }),
            false => Ok(record),
        }
    }

    pub(super) fn bytes(&self) -> [u8; RECORD_BYTES] {
        let links = self.links.to_le_bytes();
        let code = self.file_type.map_or(0, FileType::code);
        let words = [
            u64::from_le_bytes([code, self.height, links[0], links[1], 0, 0, 0, 0]),
            self.root.map_or(0, BlockNumber::get),
            self.size_bytes,
            self.times_word(),
            u64::from(self.created) | u64::from(self.deleted) << 32,
            self.data_blocks,
        ];
        let mut bytes = [0; RECORD_BYTES];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        bytes
    }

    /// Both times that a write sets, which one store changes.
    pub(super) fn times_word(&self) -> u64 {
        u64::from(self.changed) | u64::from(self.modified) << 32
    }

    /// Notes a change of the content.
    pub(super) fn touch(&mut self) {
        let now = now_seconds();
        self.changed = now;
        self.modified = now;
    }

    /// Blocks that the size covers, holes included.
    pub(super) fn size_blocks(&self) -> u64 {
        self.size_bytes.div_ceil(BLOCK)
    }
}

/// Pointers in a node of a block map, as a power of two.
pub(super) const FANOUT_BITS: u32 = 9;
/// Pointers in a node of a block map.
pub(super) const FANOUT: u64 = 1 << FANOUT_BITS;
/// Levels of nodes above the data, at most.
pub(super) const HEIGHT_MAX: u8 = 3;
/// What a block map of that height can hold.
pub(super) const FILE_BYTES_MAX: u64 = BLOCK << (FANOUT_BITS * HEIGHT_MAX as u32);

const _: () = assert!(FANOUT * 8 == BLOCK);

/// Seconds since 1970, from the clock that kernels stamp files with.
pub(super) fn now_seconds() -> u32 {
    rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse).tv_sec as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_was_stored() {
        let region = Region::anonymous(1 << 20);
        let geometry = Geometry::of_new(region.length());
        let record = Record {
            file_type: Some(FileType::Directory),
            height: 2,
            links: 300,
            root: Some(BlockNumber::new(77)),
            size_bytes: 3 * BLOCK,
            changed: 1,
            modified: 2,
            created: 3,
            deleted: 4,
            data_blocks: 5,
        };
        let at = Offset::new(8192);
        region.store(at, &record.bytes()).leave_to_checkpoint();
        assert_eq!(Record::load(&region, &geometry, at), Ok(record));
        assert_eq!(region.load_u64(at + SIZE_IN_INODE), record.size_bytes);
        assert_eq!(region.load_u64(at + TIMES_IN_INODE), record.times_word());
    }

    #[test]
    fn nonsense_is_refused() {
        let region = Region::anonymous(1 << 20);
        let geometry = Geometry::of_new(region.length());
        let at = Offset::new(8192);
        for (word, value) in [
            (0, 3),
            (0, 0x0401),
            (1, 256),
            (1, 2),
            (2, FILE_BYTES_MAX + 1),
        ] {
            region.fill_zero(at, INODE_BYTES).leave_to_checkpoint();
            region.store_u64(at + word * 8, value).leave_to_checkpoint();
            assert!(
                Record::load(&region, &geometry, at).is_err(),
                "{word}: {value}"
            );
        }
    }

    #[test]
    fn the_journal_is_pmfs_s_where_there_is_room() {
        let large = Geometry::of_new(4 << 30);
        assert_eq!(large.journal_blocks * BLOCK, 4 << 20);
        assert_eq!(large.inodes_per_unit(), 16_384);
        let tiny = Geometry::of_new(1 << 20);
        assert_eq!((tiny.journal_blocks, tiny.table_unit_blocks), (4, 1));
    }
}
