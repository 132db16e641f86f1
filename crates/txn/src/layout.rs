//! The bytes of a pool's header: superblocks, state block, segment table.
//!
//! ```text
//! block 0                  superblock, first copy          written by mkfs only
//! block 1                  state block                     checkpoint, clean mark, journals, root area
//! block 2 ..               segment table, 32 bytes each
//! block header_blocks − 1  superblock, second copy         written by mkfs only
//! block header_blocks ..   segments
//! ```

use crate::checksum::{crc32c, mix64};
use crate::device::SEAL_BYTES;
use pmem::{BLOCK_BYTES, BlockNumber, Offset};
use scatter::Extent;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of every pool.
pub const MAGIC: [u8; 8] = *b"PERDURE\x01";
/// Version of the format of a pool without a device.
pub const FORMAT_VERSION: u32 = 1;
/// Version of the same format with a device, which programs that know of none must not open.
pub const FORMAT_VERSION_WITH_DEVICE: u32 = 2;
/// Most segments that a pool can have (each is a mapping, and the kernel's map count is limited).
pub const SEGMENTS_MAX: u32 = 4096;
/// Fewest blocks of a segment: 64 KiB.
pub const SEGMENT_BLOCKS_MIN: u64 = 16;
/// Most blocks of a segment: 2 GiB, what the allocator's trees can count.
pub const SEGMENT_BLOCKS_MAX: u64 = 1 << 19;
const _: () = assert!(SEGMENT_BLOCKS_MAX <= scatter::MAX_BLOCKS_PER_SEGMENT);
/// Most journals that a pool can have.
pub const JOURNALS_MAX: u32 = 64;
/// Bytes of one entry of the segment table.
pub const SEGMENT_ENTRY_BYTES: u64 = 32;
/// Superblock flag: the pool was made with `--volatile` and promises nothing about power cuts.
pub const FLAG_VOLATILE: u32 = 1;
/// Superblock flag: the pool's files are the image of a memory that a log follows (class `log`).
pub const FLAG_LOG: u32 = 2;

/// Superblock flag: some data blocks may lie on a device.
pub const FLAG_DEVICE: u32 = 4;

/// The state block.
pub const STATE_BLOCK: BlockNumber = BlockNumber::new(1);
/// First block of the segment table.
pub const SEGMENT_TABLE_BLOCK: BlockNumber = BlockNumber::new(2);
/// In the state block: the sealed sequence number of the last checkpoint.
pub const CHECKPOINT_AT: u64 = 0;
/// In the state block: the sealed mark of a clean unmount (sequence number; 0 = mounted or crashed).
pub const CLEAN_AT: u64 = 64;
/// In the state block: how often the pool was mounted for writing with its home.
pub const HOME_MOUNTS_AT: u64 = 96;
/// In the state block: where a clean unmount saved the volatile state ([`SavedHeader`]).
pub const SAVED_AT: u64 = 128;
/// In the state block: two sealed words per journal, one for each half ([`HalfPlace`](crate::places::HalfPlace)).
pub const JOURNALS_AT: u64 = 1024;
/// In the state block: the area that belongs to the layer above (`fs` keeps its root inodes here).
pub const ROOT_AREA_AT: u64 = 2048;
/// Bytes of the root area.
pub const ROOT_AREA_BYTES: u64 = 2048;
const _: () = assert!(JOURNALS_AT + JOURNALS_MAX as u64 * 16 <= ROOT_AREA_AT);

/// A pool's superblock. Immutable after mkfs, stored twice.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`] or [`FORMAT_VERSION_WITH_DEVICE`].
    pub version: u32,
    /// CRC32C of this structure with this field zero.
    pub checksum: u32,
    /// Random identity of the pool.
    pub uuid: [u8; 16],
    /// When mkfs ran, nanoseconds since the epoch.
    pub created_ns: i64,
    /// Blocks of the header, both superblocks included.
    pub header_blocks: u64,
    /// Blocks of a segment; a power of two.
    pub segment_blocks: u64,
    /// Blocks of one journal (two halves).
    pub journal_blocks: u64,
    /// Number of segments.
    pub segments: u32,
    /// Number of journals.
    pub journals: u32,
    /// [`FLAG_VOLATILE`] or [`FLAG_LOG`], and [`FLAG_DEVICE`]; unknown bits, and both of the first
    /// two, are refused.
    pub flags: u32,
    /// Blocks of the device that the pool uses, with [`FLAG_DEVICE`]; else zero.
    pub device_blocks: u32,
    /// Random secret that the checks of journal records contain (`txn::places`). Whoever can read it can read the whole pool.
    pub journal_key: u64,
}

const _: () = {
    assert!(size_of::<Superblock>() == 88);
    assert!(std::mem::offset_of!(Superblock, journal_key) == 80);
    assert!(std::mem::offset_of!(Superblock, checksum) == 12);
    assert!(std::mem::offset_of!(Superblock, header_blocks) == 40);
    assert!(std::mem::offset_of!(Superblock, segments) == 64);
};

/// Why a superblock was not accepted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SuperblockFault {
    /// The magic bytes are missing.
    #[error("no Perdure pool here (magic bytes missing)")]
    NotAPool,
    /// Another version of the format.
    #[error(
        "format version {found}, this program reads versions up to {FORMAT_VERSION_WITH_DEVICE}"
    )]
    OtherVersion {
        /// Version found.
        found: u32,
    },
    /// The version is another one, and the checksum does not match: another format, or damage.
    #[error("version {found} and a checksum that does not match")]
    DoubtfulVersion {
        /// Version found.
        found: u32,
    },
    /// The checksum does not match the bytes.
    #[error("superblock checksum does not match")]
    Checksum,
    /// The checksum matches but a field makes no sense.
    #[error("superblock field {0} is out of range")]
    Field(&'static str),
}

impl Superblock {
    /// The checksum that these fields should carry.
    pub fn expected_checksum(&self) -> u32 {
        let mut copy = *self;
        copy.checksum = 0;
        crc32c(copy.as_bytes())
    }

    /// Checks magic, version, checksum and the range of every field.
    pub fn validate(&self) -> Result<(), SuperblockFault> {
        if self.magic != MAGIC {
            return Err(SuperblockFault::NotAPool);
        }
        // The version decides how the rest is read, so it is judged before the checksum.
        let found = self.version;
        if ![FORMAT_VERSION, FORMAT_VERSION_WITH_DEVICE].contains(&found) {
            return Err(match self.checksum == self.expected_checksum() {
                true => SuperblockFault::OtherVersion { found },
                false => SuperblockFault::DoubtfulVersion { found },
            });
        }
        if self.checksum != self.expected_checksum() {
            return Err(SuperblockFault::Checksum);
        }
        let field = |ok: bool, name| {
            if ok {
                Ok(())
            } else {
                Err(SuperblockFault::Field(name))
            }
        };
        field((1..=SEGMENTS_MAX).contains(&self.segments), "segments")?;
        field((1..=JOURNALS_MAX).contains(&self.journals), "journals")?;
        field(
            self.segment_blocks.is_power_of_two()
                && (SEGMENT_BLOCKS_MIN..=SEGMENT_BLOCKS_MAX).contains(&self.segment_blocks),
            "segment_blocks",
        )?;
        field(
            self.header_blocks == header_blocks(self.segments, self.segment_blocks),
            "header_blocks",
        )?;
        field(
            (2..=self.segment_blocks).contains(&self.journal_blocks),
            "journal_blocks",
        )?;
        field(self.journal_blocks.is_multiple_of(2), "journal_blocks")?;
        let class = self.flags & !FLAG_DEVICE;
        field([0, FLAG_VOLATILE, FLAG_LOG].contains(&class), "flags")?;
        let has_device = self.flags & FLAG_DEVICE != 0;
        let knows_device = self.version == FORMAT_VERSION_WITH_DEVICE;
        field(has_device == knows_device, "flags")?;
        field(has_device == (self.device_blocks > 0), "device_blocks")?;
        let room = self.segment_blocks * u64::from(self.segments);
        let seals = seal_blocks(self.device_blocks);
        field(seals <= room / 2, "device_blocks")
    }

    /// The segments in which [`seals`](Self::seals) lie.
    pub fn seal_segments(&self) -> Range<u32> {
        let first = self.geometry().first_block().get();
        let segment_of = |block: u64| ((block - first) / self.segment_blocks) as u32;
        match self.seals() {
            Some(seals) => segment_of(seals.start.get())..self.segments,
            None => 0..0,
        }
    }

    /// Where the checksums of the device's blocks lie: at the end of the region. `None` without a
    /// device.
    pub fn seals(&self) -> Option<Extent> {
        let blocks = seal_blocks(self.device_blocks);
        (blocks > 0).then(|| Extent {
            start: BlockNumber::new(self.geometry().total_blocks() - blocks),
            blocks: blocks as u32,
        })
    }

    /// Whether the pool was made with `--volatile`.
    pub fn is_volatile(&self) -> bool {
        self.flags & FLAG_VOLATILE != 0
    }

    /// Whether a log on a disk makes the pool durable.
    pub fn is_logged(&self) -> bool {
        self.flags & FLAG_LOG != 0
    }

    /// The geometry that the fields describe.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            header_blocks: self.header_blocks,
            segment_blocks: self.segment_blocks,
            segments: self.segments,
        }
    }
}

/// Blocks of the region that the checksums of so many blocks of a device take.
pub const fn seal_blocks(device_blocks: u32) -> u64 {
    (device_blocks as u64 * SEAL_BYTES).div_ceil(BLOCK_BYTES as u64)
}

/// Blocks of a huge page (2 MiB).
const HUGE_PAGE_BLOCKS: u64 = 512;

/// Blocks that the header of a pool with `segments` segments of `segment_blocks` blocks takes.
///
/// Rounded up to whole huge pages (or segments, if they are smaller), so that every segment starts at an address where
/// huge mappings are possible.
pub const fn header_blocks(segments: u32, segment_blocks: u64) -> u64 {
    let needed = 3 + (segments as u64 * SEGMENT_ENTRY_BYTES).div_ceil(BLOCK_BYTES as u64);
    let alignment = if segment_blocks < HUGE_PAGE_BLOCKS {
        segment_blocks
    } else {
        HUGE_PAGE_BLOCKS
    };
    needed.next_multiple_of(alignment)
}

/// Most blocks that a header can take.
pub const HEADER_BLOCKS_MAX: u64 = header_blocks(SEGMENTS_MAX, HUGE_PAGE_BLOCKS);

/// Where things are in a pool's address space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Blocks of the header.
    pub header_blocks: u64,
    /// Blocks of a segment.
    pub segment_blocks: u64,
    /// Number of segments.
    pub segments: u32,
}

impl Geometry {
    /// First block of segment 0.
    pub fn first_block(&self) -> BlockNumber {
        BlockNumber::new(self.header_blocks)
    }

    /// Blocks of the whole pool, header included.
    pub fn total_blocks(&self) -> u64 {
        self.header_blocks + self.segment_blocks * u64::from(self.segments)
    }

    /// Bytes of the whole pool, header included.
    pub fn total_bytes(&self) -> u64 {
        self.total_blocks() * BLOCK_BYTES as u64
    }

    /// Bytes of one segment.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_blocks * BLOCK_BYTES as u64
    }

    /// Whether `block` lies in a segment (and so can hold metadata or data).
    pub fn contains(&self, block: BlockNumber) -> bool {
        (self.header_blocks..self.total_blocks()).contains(&block.get())
    }

    /// Where the second copy of the superblock lies.
    pub fn second_superblock(&self) -> Offset {
        BlockNumber::new(self.header_blocks - 1).offset()
    }

    /// Where the table entry of `segment` lies.
    pub fn segment_entry(&self, segment: u32) -> Offset {
        SEGMENT_TABLE_BLOCK.offset() + u64::from(segment) * SEGMENT_ENTRY_BYTES
    }
}

/// Entry of the segment table.
///
/// `owner` is made durable first, then `seal`: the entry changes hands by one 8-byte store.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SegmentEntry {
    /// `uid << 32 | gid` of an owner domain, else 0.
    pub owner: u64,
    /// 0 = free, else kind (8 bits), mode class (8 bits) and a 48-bit check over all of it.
    pub seal: u64,
    /// Sealed count of blocks written in this segment since mkfs, as of the last clean unmount.
    pub wear: u64,
    /// Sealed: who has written in this segment. 0 = it may be anybody.
    pub content: u64,
}

const _: () = assert!(size_of::<SegmentEntry>() as u64 == SEGMENT_ENTRY_BYTES);

impl SegmentEntry {
    /// The `seal` word for these values.
    pub fn seal_word(segment: u32, kind: u8, class: u8, owner: u64) -> u64 {
        let head = u64::from(kind) | (u64::from(class) << 8);
        let check =
            mix64(mix64(owner ^ head) ^ u64::from(segment).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        head | (check << 16)
    }
}

/// Where a clean unmount saved the volatile state: a blob in free blocks.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SavedHeader {
    /// Bytes of the blob.
    pub length: u64,
    /// CRC32C of the blob.
    pub blob_checksum: u32,
    /// Number of extents used.
    pub extent_count: u32,
    /// Extents: first block and number of blocks.
    pub extents: [[u64; 2]; SAVED_EXTENTS_MAX],
    /// CRC32C of this header with this field zero.
    pub checksum: u32,
    /// Zero.
    pub reserved: u32,
}

/// Most extents of a saved blob.
pub const SAVED_EXTENTS_MAX: usize = 48;
const _: () = assert!(SAVED_AT + size_of::<SavedHeader>() as u64 <= JOURNALS_AT);

impl SavedHeader {
    /// The checksum that this header should carry.
    pub fn expected_checksum(&self) -> u32 {
        let mut copy = *self;
        copy.checksum = 0;
        crc32c(copy.as_bytes())
    }
}
