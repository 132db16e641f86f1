//! Transactional caches in persistent memory above a disk: the part that the designs differ in.
//!
//! | module | content |
//! | --- | --- |
//! | `tinca` | Tinca's policies |
//! | `spindle` | Spindle as published |
//! | `area` | cached blocks and their entries, which both have: look-ups, misses, replacement |
//! | `order` | least recently used, and least counter |
//! | `disk` | reads, writes and flushes of the disk |

mod area;
mod disk;
mod entries;
mod order;
mod spindle;
mod tinca;

use std::fmt;
use std::ops::{AddAssign, Range};

use device::{DeviceBlock, DeviceError};
use pmem::{BLOCK_BYTES, LINE_BYTES, Region};

pub use spindle::{CommitPoints, Spindle};
pub use tinca::Tinca;

/// The bytes of a block.
pub type Block = [u8; BLOCK_BYTES];

/// A cache in persistent memory that makes lists of blocks durable together.
///
/// Any number of threads may call it. The caller orders a read and a commit of the same block.
pub trait TransactionalCache: Send + Sync + fmt::Debug {
    /// Returns the name of the design for reports.
    fn label(&self) -> &'static str;

    /// Returns the number of blocks of the disk.
    fn disk_blocks(&self) -> u64;

    /// Returns how much a transaction may hold.
    fn limits(&self) -> Limits;

    /// Reads parts of blocks. Missing blocks are read from the disk together and are cached.
    ///
    /// # Errors
    /// The disk could not read a missing block. The cache has not changed.
    fn read(&self, kind: Kind, requests: &mut [BlockRead<'_>]) -> Result<(), DeviceError>;

    /// Makes a transaction durable. After a power cut all of it is there, or nothing.
    ///
    /// # Errors
    /// The disk failed while room was made. Nothing of the transaction is durable, and it can be
    /// committed again.
    ///
    /// # Panics
    /// If the transaction is larger than [`limits`](Self::limits) allows.
    fn commit(&self, transaction: &Transaction<'_>) -> Result<(), DeviceError>;

    /// Returns what the cache has done since it was opened.
    fn counts(&self) -> Counts;

    /// Returns the memory of the cache.
    fn region(&self) -> &Region;

    /// Compares what is in memory with the entries in the region. No other call may run meanwhile.
    ///
    /// # Errors
    /// The first disagreement.
    fn verify(&self) -> Result<(), CacheCorruption>;
}

/// A part of a block to be read.
#[derive(Debug)]
pub struct BlockRead<'b> {
    /// The block of the disk.
    pub block: DeviceBlock,
    /// Offset in the block in bytes.
    pub at: usize,
    /// The destination. It ends within the block.
    pub into: &'b mut [u8],
}

/// The content of a block.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Kind {
    /// Bytes of a file.
    Data,
    /// Inodes, bitmaps, block maps, directories.
    Metadata,
}

/// Blocks that change together.
#[derive(Debug, Default)]
pub struct Transaction<'t> {
    /// Data blocks with their whole content.
    pub data: Vec<(DeviceBlock, &'t Block)>,
    /// Metadata blocks.
    pub metadata: Vec<MetadataBlock<'t>>,
    /// Blocks that are free after this transaction: their copies are worth nothing.
    pub freed: &'t [DeviceBlock],
}

/// A metadata block that a transaction changes.
#[derive(Copy, Clone, Debug)]
pub struct MetadataBlock<'t> {
    /// The block of the disk.
    pub block: DeviceBlock,
    /// Its whole content after the transaction.
    pub content: &'t Block,
    /// The lines that differ from the content before.
    pub changed: Lines,
    /// The block was free before: its old content is worth nothing.
    pub is_new: bool,
}

/// Lines of 64 bytes of one block.
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub struct Lines(u64);

impl Lines {
    /// All lines of a block.
    pub const ALL: Lines = Lines(u64::MAX);

    /// Adds the lines of a range of bytes.
    pub fn add(&mut self, bytes: Range<usize>) {
        for line in bytes.start / LINE_BYTES..bytes.end.div_ceil(LINE_BYTES) {
            self.0 |= 1 << line;
        }
    }

    /// Returns which of `count` consecutive lines from `first` on are in the set, as bits.
    pub(super) fn within(self, first: usize, count: usize) -> u64 {
        self.0 >> first & ((1 << count) - 1)
    }
}

/// How much a transaction may hold, of both kinds at once.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Limits {
    /// Data blocks.
    pub data_blocks: usize,
    /// Metadata blocks.
    pub metadata_blocks: usize,
}

/// The work of a cache since it was opened.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Block reads that were answered from the region.
    pub hits: u64,
    /// Block reads that went to the disk.
    pub misses: u64,
    /// Blocks that were replaced.
    pub evictions: u64,
    /// Blocks read from the disk.
    pub disk_blocks_read: u64,
    /// Blocks written to the disk.
    pub disk_blocks_written: u64,
    /// Flushes of the disk.
    pub disk_flushes: u64,
    /// Transactions.
    pub commits: u64,
    /// Data blocks of all transactions.
    pub data_blocks: u64,
    /// Metadata blocks of all transactions.
    pub metadata_blocks: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.evictions += other.evictions;
        self.disk_blocks_read += other.disk_blocks_read;
        self.disk_blocks_written += other.disk_blocks_written;
        self.disk_flushes += other.disk_flushes;
        self.commits += other.commits;
        self.data_blocks += other.data_blocks;
        self.metadata_blocks += other.metadata_blocks;
    }
}

/// How many blocks are written before one flush of the disk when room is made.
///
/// The designs replace single blocks. Larger numbers make them faster on disks whose flush is slow.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Replacement {
    /// Blocks that are replaced together, at least 1.
    pub victims_per_flush: usize,
}

impl Default for Replacement {
    fn default() -> Replacement {
        Replacement {
            victims_per_flush: 1,
        }
    }
}

/// The region holds what no cache writes.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheCorruption {
    /// The region was formatted by another design, for another size, or not at all.
    #[error("the region holds no cache of this design and size: format it first")]
    NotFormatted,
    /// An entry leads to a block that is none, or beyond the disk.
    #[error("the cache entry {slot} makes no sense")]
    Entry {
        /// Its index.
        slot: u32,
    },
    /// Two entries have one disk block, or one block of the region.
    #[error("disk block {block} or its copy is in two cache entries")]
    Twice {
        /// The block of the disk.
        block: u64,
    },
    /// The ring between head and tail is not one that a commit leaves.
    #[error("the ring buffer makes no sense")]
    Ring,
    /// Free blocks, entries in memory and entries in the region disagree.
    #[error("the cache entries in memory are not those in the region ({what})")]
    Memory {
        /// The compared parts.
        what: &'static str,
    },
}

/// A region or a disk is too small for a cache.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("a region of {bytes} bytes is too small for the cache: give at least {least_bytes}")]
pub struct TooSmall {
    /// The region's length.
    pub bytes: u64,
    /// The least length.
    pub least_bytes: u64,
}
