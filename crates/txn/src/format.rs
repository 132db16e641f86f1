//! mkfs: the header and the journals of a new pool.

use crate::checkpoint::write_checkpoint;
use crate::domain::{Domain, Domains};
use crate::error::FormatError;
use crate::layout::{
    FLAG_DEVICE, FLAG_LOG, FLAG_VOLATILE, FORMAT_VERSION, FORMAT_VERSION_WITH_DEVICE, JOURNALS_MAX,
    MAGIC, SEGMENT_BLOCKS_MAX, SEGMENT_BLOCKS_MIN, SEGMENTS_MAX, Superblock, header_blocks,
    seal_blocks,
};
use crate::places::{HalfName, HalfPlace};
use crate::sharing::Content;
use pmem::{BLOCK_BYTES, Flushed, HUGE_PAGE_BYTES, Offset, Region};
use std::path::Path;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Segments of a pool whose maker did not say, unless it is very small or very large.
const SEGMENTS_WANTED: u64 = 2048;
/// Of a journal, where a segment has room for it.
const JOURNAL_BYTES: u64 = 256 << 10;
const SEGMENT_BYTES_MAX: u64 = SEGMENT_BLOCKS_MAX * BLOCK_BYTES as u64;

/// Parameters of a new pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FormatOptions {
    /// Bytes of the whole pool, header included.
    pub size_bytes: u64,
    /// Bytes of a segment; a power of two from 64 KiB to 2 GiB, or 0: the least that gives 2,048 segments or fewer, from 2 MiB (a huge page) to 2 GiB.
    ///
    /// A segment is the unit in which owners, and data and metadata, share the medium: many small ones let all of them roam
    /// over all of it, but each is a file and a mapping.
    pub segment_bytes: u64,
    /// Number of journals; 0 = one per core.
    pub journals: u32,
    /// Bytes of a journal; a multiple of 8 KiB, at most a segment, or 0: 256 KiB, if a segment has so many.
    pub journal_bytes: u64,
    /// The pool promises nothing about power cuts (tests, emulation, replicated pools).
    pub volatile: bool,
    /// The pool's files are the image of a memory that a log follows: for ordinary disks.
    pub log: bool,
    /// Bytes of the log, or 0: an eighth of the pool, from 64 MiB to 1 GiB.
    pub log_bytes: u64,
    /// Blocks of a device that data may lie on, or 0: there is none.
    pub device_blocks: u32,
}

impl Default for FormatOptions {
    fn default() -> Self {
        FormatOptions {
            size_bytes: 1 << 30,
            segment_bytes: 0,
            journals: 0,
            journal_bytes: 0,
            volatile: false,
            log: false,
            log_bytes: 0,
            device_blocks: 0,
        }
    }
}

/// Of the log, unless its maker said how large.
const LOG_BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=1 << 30;
const LOG_BYTES_MIN: u64 = 1 << 20;

impl FormatOptions {
    /// A pool of 1 MiB with one journal of 16 KiB: small enough to try thousands of crash states a second.
    pub fn tiny() -> FormatOptions {
        FormatOptions {
            size_bytes: 1 << 20,
            segment_bytes: 64 << 10,
            journals: 1,
            journal_bytes: 16 << 10,
            volatile: true,
            log: false,
            log_bytes: 0,
            device_blocks: 0,
        }
    }

    fn actual_segment_bytes(&self) -> u64 {
        match self.segment_bytes {
            0 => self
                .size_bytes
                .div_ceil(SEGMENTS_WANTED)
                .checked_next_power_of_two()
                .unwrap_or(SEGMENT_BYTES_MAX)
                .clamp(HUGE_PAGE_BYTES as u64, SEGMENT_BYTES_MAX),
            bytes => bytes,
        }
    }

    fn actual_journal_bytes(&self) -> u64 {
        match self.journal_bytes {
            0 => JOURNAL_BYTES.min(self.actual_segment_bytes()),
            bytes => bytes,
        }
    }

    fn flags(&self) -> u32 {
        let class = match (self.volatile, self.log) {
            (true, _) => FLAG_VOLATILE,
            (false, true) => FLAG_LOG,
            (false, false) => 0,
        };
        match self.device_blocks {
            0 => class,
            _ => class | FLAG_DEVICE,
        }
    }

    /// Bytes of the log's file.
    pub(crate) fn actual_log_bytes(&self) -> u64 {
        let bytes = match self.log_bytes {
            0 => (self.size_bytes / 8).clamp(*LOG_BYTES.start(), *LOG_BYTES.end()),
            bytes => bytes.max(LOG_BYTES_MIN),
        };
        bytes.next_multiple_of(BLOCK_BYTES as u64)
    }

    /// Refuses a pool that needs more memory than `most_bytes` while it is open. A pool with a log
    /// and a volatile one lie in memory as a whole.
    ///
    /// # Errors
    ///
    /// [`FormatError::Memory`], and as [`superblock`](Self::superblock).
    pub fn check_memory(&self, pool: &Path, most_bytes: u64) -> Result<(), FormatError> {
        let needed_bytes = self.superblock()?.geometry().total_bytes();
        match (self.log || self.volatile) && needed_bytes > most_bytes {
            true => Err(FormatError::Memory {
                path: pool.to_path_buf(),
                needed_bytes,
                memory_bytes: most_bytes,
            }),
            false => Ok(()),
        }
    }

    /// The superblock that these options lead to.
    ///
    /// # Errors
    ///
    /// A parameter out of range, a size too small or with too many segments.
    pub fn superblock(&self) -> Result<Superblock, FormatError> {
        let block = BLOCK_BYTES as u64;
        let segment = self.actual_segment_bytes();
        let journals = match self.journals {
            0 => cores().min(JOURNALS_MAX),
            journals => journals,
        };
        self.check_parameters(journals)?;
        let segments = self.checked_segments(journals)?;
        let mut superblock = Superblock {
            magic: MAGIC,
            version: match self.device_blocks {
                0 => FORMAT_VERSION,
                _ => FORMAT_VERSION_WITH_DEVICE,
            },
            checksum: 0,
            uuid: new_uuid(),
            created_ns: now_ns(),
            header_blocks: header_blocks(segments, segment / block),
            segment_blocks: segment / block,
            journal_blocks: self.actual_journal_bytes() / block,
            segments,
            journals,
            flags: self.flags(),
            device_blocks: self.device_blocks,
            journal_key: u64::from_le_bytes(random()),
        };
        superblock.checksum = superblock.expected_checksum();
        Ok(superblock)
    }

    /// Refuses a parameter that is out of range.
    fn check_parameters(&self, journals: u32) -> Result<(), FormatError> {
        let range = |ok: bool, name, value, expected| {
            if ok {
                Ok(())
            } else {
                Err(FormatError::Parameter {
                    name,
                    value,
                    expected,
                })
            }
        };
        let block = BLOCK_BYTES as u64;
        let segment = self.actual_segment_bytes();
        let segment_sizes = SEGMENT_BLOCKS_MIN * block..=SEGMENT_BLOCKS_MAX * block;
        let segment_ok = segment.is_power_of_two() && segment_sizes.contains(&segment);
        range(
            segment_ok,
            "segment size",
            segment,
            "a power of two from 64K to 2G",
        )?;
        range(
            journals <= JOURNALS_MAX,
            "number of journals",
            journals.into(),
            "1 to 64",
        )?;
        let journal = self.actual_journal_bytes();
        let journal_ok =
            journal.is_multiple_of(2 * block) && (2 * block..=segment).contains(&journal);
        range(
            journal_ok,
            "journal size",
            journal,
            "a multiple of 8K, at most one segment",
        )
    }

    /// Number of segments of the pool, or why its size does not work.
    fn checked_segments(&self, journals: u32) -> Result<u32, FormatError> {
        let maximum_bytes = u64::from(SEGMENTS_MAX) * SEGMENT_BLOCKS_MAX * BLOCK_BYTES as u64;
        if self.size_bytes > maximum_bytes {
            return Err(FormatError::TooLarge {
                size_bytes: self.size_bytes,
                maximum_bytes,
            });
        }
        let (segments, minimum_bytes) = self.segments(journals);
        if self.size_bytes < minimum_bytes {
            return Err(FormatError::TooSmall {
                size_bytes: self.size_bytes,
                minimum_bytes,
            });
        }
        u32::try_from(segments)
            .ok()
            .filter(|&count| count <= SEGMENTS_MAX)
            .ok_or_else(|| {
                let suggested = self
                    .size_bytes
                    .div_ceil(u64::from(SEGMENTS_MAX))
                    .next_power_of_two();
                FormatError::TooManySegments {
                    size_bytes: self.size_bytes,
                    segment_bytes: self.actual_segment_bytes(),
                    suggested_segment_bytes: suggested,
                }
            })
    }

    /// Number of whole segments that fit, and the least size that works with these parameters.
    fn segments(&self, journals: u32) -> (u64, u64) {
        let block = BLOCK_BYTES as u64;
        let segment = self.actual_segment_bytes();
        let mut segments = self.size_bytes / segment;
        let header = |segments: u64| {
            header_blocks(segments.min(SEGMENTS_MAX.into()) as u32, segment / block) * block
        };
        while segments > 0 && segments * segment + header(segments) > self.size_bytes {
            segments -= 1;
        }
        let per_segment = (segment / self.actual_journal_bytes()).max(1);
        let for_journals = u64::from(journals).div_ceil(per_segment);
        let for_seals = (seal_blocks(self.device_blocks) * block).div_ceil(segment);
        // Journals and seals, then at least two segments' worth of room for files, and as much as
        // the seals take.
        let least = for_journals + for_seals + for_seals.max(2);
        (segments, least * segment + header(least))
    }
}

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

fn now_ns() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as i64)
}

fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    // Errors, which there are none on kernels of this century, leave zeros: still a valid pool.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}

fn new_uuid() -> [u8; 16] {
    let mut uuid: [u8; 16] = random();
    uuid[6] = (uuid[6] & 0x0f) | 0x40;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    uuid
}

/// Writes a new pool's header and empty journals. The superblocks come last, so that an interrupted mkfs
/// leaves no pool.
///
/// The region's other bytes may be anything; nothing of them is reachable. If they are zeros, as those of new files, the `content` of its segments is [`Content::Nobodys`], else [`Content::Anybodys`].
pub fn write_header(region: Region, superblock: &Superblock, content: Content) -> Region {
    let geometry = superblock.geometry();
    let region = Arc::new(region);
    let header_bytes = geometry.header_blocks as usize * BLOCK_BYTES;
    region.fence(region.zero_streaming(Offset::new(0), header_bytes as u64));
    let domains = Domains::new(Arc::clone(&region), geometry);
    if content != Content::Anybodys {
        domains.write_content(0..superblock.segments, content);
    }
    let mut batch = Flushed::nothing(&region);
    for name in HalfName::all(superblock.journals) {
        let place = first_place(superblock, name);
        batch.join(region.store_u64(name.word_at(), place.word(name)).flush());
        let segment = (place.start.get() - geometry.header_blocks) / geometry.segment_blocks;
        domains.write_assignment(segment as u32, Some(Domain::Metadata));
    }
    region.fence(batch);
    for segment in superblock.seal_segments() {
        domains.write_assignment(segment, Some(Domain::Metadata));
    }
    write_checkpoint(&region, 0);
    let mut superblocks = region.store(Offset::new(0), superblock.as_bytes()).flush();
    superblocks.join(
        region
            .store(geometry.second_superblock(), superblock.as_bytes())
            .flush(),
    );
    region.fence(superblocks);
    drop(domains);
    Arc::into_inner(region).expect("nobody else holds the region")
}

/// Where mkfs puts journals: one after the other from segment 0 on, none across a segment's end. They move on from there.
fn first_place(superblock: &Superblock, name: HalfName) -> HalfPlace {
    let geometry = superblock.geometry();
    let per_segment = geometry.segment_blocks / superblock.journal_blocks;
    let journal = u64::from(name.journal);
    let (segment, slot) = (journal / per_segment, journal % per_segment);
    let block = segment * geometry.segment_blocks
        + slot * superblock.journal_blocks
        + u64::from(name.half) * superblock.half_blocks();
    HalfPlace {
        start: geometry.first_block() + block,
        generation: 0,
    }
}
