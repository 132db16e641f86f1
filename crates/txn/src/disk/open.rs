//! mkfs and recovery of pools of class `log`.

use super::batch::{self, BatchBuilder};
use super::dirty::DirtyBlocks;
use super::image::{Image, ImagePart, data_ranges};
use super::logger::{Logger, Shared};
use super::memory::{Memory, Stamp};
use super::policy::Durability;
use super::reader::Read;
use crate::checkpoint::write_checkpoint;
use crate::checksum::{Seal, unseal};
use crate::directory::PoolDirectory;
use crate::domain::Domains;
use crate::error::{Corruption, FormatError, OpenError};
use crate::journal::Journals;
use crate::layout::{
    CHECKPOINT_AT, CLEAN_AT, Geometry, SAVED_AT, STATE_BLOCK, SavedHeader, Superblock,
};
use crate::live::Live;
use crate::places::read_places;
use crate::pool::{Mode, SUPER_FILE, io_error, open_file, segment_file};
use crate::recovery;
use pmem::deliberate::{self, Bug};
use pmem::{Access, BLOCK_BYTES, BlockNumber, DurabilityClass, Offset, Region};
use rustix::fs::{FallocateFlags, fallocate};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wal::{AlignedBuffer, Disk, DiskSpeed, FileDisk, Log, LogError, OpenLog, Root};

/// Name of the log's file in the pool's directory.
pub const LOG_FILE: &str = "log";
/// Bytes that a thread reads at once.
const PIECE_BYTES: usize = 4 << 20;
/// The same of an image that is not worth a thread.
const SMALL_PIECE_BYTES: usize = 64 << 10;
/// In the log's root: the image is whole and the pool was unmounted cleanly.
const CLEAN: u64 = 1;
/// How long finding out the disk's speed may take.
const MEASURE_PATIENCE: Duration = Duration::from_millis(300);

/// A log that was replayed, and the parts of its logger.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) log: Log,
    pub(super) image: Image,
    pub(super) dirty: DirtyBlocks,
    /// Records that the memory has and the log does not.
    pub(super) tail: Vec<Read>,
    pub(super) durability: Durability,
    pub(super) speed: Option<DiskSpeed>,
}

/// Maps a pool's memory as of now: that of a killed server, or new memory with image and log. For
/// reading alone there is no log, and the memory's files are not kept.
pub(crate) fn map(
    pool: &Arc<PoolDirectory>,
    superblock: &Superblock,
    mode: Mode,
    durability: Durability,
) -> Result<(Region, Option<(Opened, Memory)>), OpenError> {
    let (path, log) = open_log(pool, superblock, mode)?;
    let image = open_image(pool, superblock, mode)?;
    let root = log.root();
    let left = has_left(superblock, &root, mode)?;
    let dirty = DirtyBlocks::new(superblock.geometry().total_bytes());
    if mode == Mode::ReadOnly {
        let region = match left {
            Some((memory, _)) => map_memory(&memory, Access::PrivateCopy)?,
            None => read_alone(&path, superblock, &log, &image)?,
        };
        return Ok((region, None));
    }
    let token = new_token();
    let (region, memory, log, tail) = match left {
        Some((memory, _)) => {
            memory.stamp(&Stamp::new(superblock, token, root.user))?;
            let region = map_memory(&memory, Access::ReadWrite)?;
            let (log, tail) = go_on(&path, superblock, &region, &dirty, log)?;
            (region, memory, log, tail)
        }
        None => {
            let memory = Memory::make(superblock)?;
            let region = map_memory(&memory, Access::ReadWrite)?;
            image
                .load(&region)
                .map_err(|error| io_error(&path, "read the image beside it")(error))?;
            let log = replay(&path, superblock, &region, &dirty, log)?;
            memory.stamp(&Stamp::new(superblock, token, root.user))?;
            (region, memory, log, Vec::new())
        }
    };
    begin_use(&log, token).map_err(|error| log_error(&path, error))?;
    let speed = wal::measure_depth(&log, MEASURE_PATIENCE).ok();
    let opened = Opened {
        log,
        image,
        dirty,
        tail,
        durability,
        speed,
    };
    Ok((region, Some((opened, memory))))
}

/// A use of the pool begins: from here on the image is not that of a clean unmount.
pub(super) fn begin_use(log: &Log, token: u64) -> Result<(), LogError> {
    log.advance(Root {
        user: token & !CLEAN,
        ..log.root()
    })
}

impl Opened {
    /// The log's logger; `with_threads` that keep log and image.
    pub(crate) fn start(
        self,
        region: &Arc<Region>,
        journals: &Arc<Journals>,
        domains: &Arc<Domains>,
        with_threads: bool,
    ) -> Result<Logger, OpenError> {
        let shared = Shared::new(
            self.log,
            Arc::clone(region),
            (Arc::clone(journals), Arc::clone(domains)),
            (self.image, self.dirty),
            self.durability,
            self.speed,
            self.tail,
        );
        Logger::start(shared, with_threads).map_err(io_error(
            Path::new(LOG_FILE),
            "start the threads of the log",
        ))
    }
}

impl Logger {
    /// The pool was closed: the image becomes all of it. Returns whether the memory's names are
    /// gone.
    pub(crate) fn close(&self, superblock: &Superblock, is_saved: bool) -> bool {
        let shared = &self.shared;
        self.stop();
        let flag = if is_saved { CLEAN } else { 0 };
        let region = &shared.region;
        let header = superblock.geometry().header_blocks * BLOCK_BYTES as u64;
        shared.dirty.mark(Offset::new(0), header);
        let saved: SavedHeader = region.load(STATE_BLOCK.offset() + SAVED_AT);
        for [start, blocks] in saved.extents.iter().take(saved.extent_count as usize) {
            let at = BlockNumber::new(*start).offset();
            shared.dirty.mark(at, blocks * BLOCK_BYTES as u64);
        }
        let sequence = shared.journals.sequence();
        // No thread makes room any more.
        let saved = shared.wait_to_make_room(sequence).and_then(|()| {
            shared.checkpoint(|root| Root {
                user: root.user | flag,
                ..root
            })
        });
        match saved {
            Ok(()) => Memory::remove(superblock),
            // The next mount goes on with the memory.
            Err(error) => {
                tracing::error!(%error, "the pool was not unmounted cleanly");
                return false;
            }
        }
        true
    }
}

/// The log of a pool, and its path for messages.
pub(super) fn open_log(
    pool: &PoolDirectory,
    superblock: &Superblock,
    mode: Mode,
) -> Result<(PathBuf, OpenLog), OpenError> {
    let path = pool.path_of(LOG_FILE);
    let log = open_disk(pool, LOG_FILE, mode)?;
    let log = OpenLog::open(log, superblock.uuid).map_err(|error| log_error(&path, error))?;
    Ok((path, log))
}

/// The memory that a killed server has left, if it is that of the last use of the pool, as the
/// log's root says.
pub(super) fn has_left(
    superblock: &Superblock,
    root: &Root,
    mode: Mode,
) -> Result<Option<(Memory, Stamp)>, OpenError> {
    let left = match root.user & CLEAN {
        0 => Memory::find(superblock, mode)?,
        _ => None,
    };
    Ok(left.filter(|(_, stamp)| [stamp.token, stamp.former].contains(&root.user)))
}

/// A pool's memory is new: the log brings the image up to date.
pub(super) fn replay(
    path: &Path,
    superblock: &Superblock,
    region: &Region,
    dirty: &DirtyBlocks,
    log: OpenLog,
) -> Result<Log, OpenError> {
    let root = log.root();
    let mut fault = None;
    let mut apply = |payload: &[u8]| {
        let inside = |at, length| is_inside(&superblock.geometry(), at, length);
        if let Err(error) = batch::apply(region, dirty, inside, payload) {
            fault.get_or_insert(error);
        }
    };
    let mut backwards: Vec<Vec<u8>> = Vec::new();
    let log = log.replay(
        &mut |batch| match deliberate::is(Bug::ReplayBatchesBackwards) {
            true => backwards.push(batch.payload.to_vec()),
            false => apply(batch.payload),
        },
    );
    let log = log.map_err(|error| log_error(path, error))?;
    backwards.iter().rev().for_each(|payload| apply(payload));
    if let Some(fault) = fault {
        return Err(Corruption::new(path.display().to_string(), fault.to_string()).into());
    }
    let replayed = log.replayed();
    settle(region, &root, replayed.batches, replayed.last_sequence);
    Ok(log)
}

/// Image and log in private memory, for processes that only look.
pub(super) fn read_alone(
    path: &Path,
    superblock: &Superblock,
    log: &OpenLog,
    image: &Image,
) -> Result<Region, OpenError> {
    let bytes = superblock.geometry().total_bytes();
    let region = Region::anonymous_of(bytes, DurabilityClass::Log);
    image
        .load(&region)
        .map_err(|error| io_error(path, "read the image beside it")(error))?;
    let dirty = DirtyBlocks::new(bytes);
    let mut fault = None;
    let read = log.read(&mut |batch| {
        let inside = |at, length| is_inside(&superblock.geometry(), at, length);
        if let Err(error) = batch::apply(&region, &dirty, inside, batch.payload) {
            fault.get_or_insert(error);
        }
    });
    let replayed = read.map_err(|error| log_error(path, error))?;
    if let Some(fault) = fault {
        return Err(Corruption::new(path.display().to_string(), fault.to_string()).into());
    }
    settle(
        &region,
        &log.root(),
        replayed.batches,
        replayed.last_sequence,
    );
    Ok(region)
}

/// The state block describes the journals of the memory that wrote it: in this one all
/// journals are empty, and every record up to `sequence` is retired.
fn settle(region: &Region, root: &Root, batches: u64, last_sequence: u64) {
    let sequence = match batches {
        0 => root.sequence,
        _ => last_sequence,
    };
    let clean = unseal(
        region.load_u64(STATE_BLOCK.offset() + CLEAN_AT),
        Seal::Clean,
        0,
    );
    let checkpoint = unseal(
        region.load_u64(STATE_BLOCK.offset() + CHECKPOINT_AT),
        Seal::Checkpoint,
        0,
    );
    let is_clean = batches == 0 && root.user & CLEAN != 0 && clean == checkpoint;
    if is_clean {
        return;
    }
    let at = STATE_BLOCK.offset() + CLEAN_AT;
    region.fence(region.store_u64(at, 0).flush());
    write_checkpoint(region, sequence);
}

/// A killed server's memory has all that the log has, and maybe more.
pub(super) fn go_on(
    path: &Path,
    superblock: &Superblock,
    region: &Region,
    dirty: &DirtyBlocks,
    log: OpenLog,
) -> Result<(Log, Vec<Read>), OpenError> {
    let mut mark = |batch: &wal::Batch<'_>| {
        for (head, entry) in crate::record::all_entries(batch.payload) {
            if is_inside(&superblock.geometry(), entry.at, entry.length) {
                dirty.mark(head.at(), head.length() as u64);
            }
        }
    };
    let log = log
        .replay(&mut mark)
        .map_err(|error| log_error(path, error))?;
    let known = log.durable_sequence();
    let checkpoint = recovery::checkpoint_sequence(region)?;
    let places = read_places(region, superblock)?;
    let places: Vec<_> = places.as_flattened().iter().copied().map(Some).collect();
    let live = Live::read(region, superblock, &places, checkpoint).happened(region);
    let tail = live.into_iter().filter(|record| record.sequence > known);
    let tail = tail.map(|record| Read {
        sequence: record.sequence,
        bytes: record.into_bytes().into(),
    });
    let tail = log_tail(superblock, region, dirty, &log, tail.collect());
    Ok((log, tail.map_err(|error| log_error(path, error))?))
}

/// Records that only a killed server's memory has become durable before recovery retires
/// it in memory (L4): another kill would find it in no journal. All of it is one batch, because
/// data is as the last record left it (L2). Records without room in the ring are returned.
fn log_tail(
    superblock: &Superblock,
    region: &Region,
    dirty: &DirtyBlocks,
    log: &Log,
    tail: Vec<Read>,
) -> Result<Vec<Read>, LogError> {
    let [Some(first), Some(last)] = [tail.first(), tail.last()].map(|read| Some(read?.sequence))
    else {
        return Ok(tail);
    };
    let mut batch = BatchBuilder::new(region, dirty, log.buffer());
    tail.iter().for_each(|read| batch.will_add(read));
    tail.iter().for_each(|read| batch.add(read));
    let geometry = superblock.geometry();
    let [table, end] = [0, geometry.segments].map(|index| geometry.segment_entry(index));
    batch.copy(table, end.get() - table.get());
    match log.place(batch.finish(), first, last, true) {
        Ok(placed) => log.write(placed).map(|_| Vec::new()),
        Err(wal::Full(_)) => Ok(tail),
    }
}

fn is_inside(geometry: &Geometry, at: Offset, length: usize) -> bool {
    let Some(end) = at.get().checked_add(length as u64) else {
        return false;
    };
    let second = geometry.second_superblock();
    let is_header = at.get() >= BLOCK_BYTES as u64 && end <= second.get();
    let is_segment = at >= geometry.first_block().offset() && end <= geometry.total_bytes();
    is_header || is_segment
}

pub(super) fn map_memory(memory: &Memory, access: Access) -> Result<Region, OpenError> {
    Ok(Region::map(&memory.parts(), DurabilityClass::Log, access)?)
}

fn open_disk(pool: &PoolDirectory, name: &str, mode: Mode) -> Result<Arc<dyn Disk>, OpenError> {
    Ok(open_disk_and_data(pool, name, mode)?.0)
}

type DiskAndData = (Arc<dyn Disk>, Vec<Range<u64>>);

/// A file of the pool, and which ranges of it may be something else than zeros.
fn open_disk_and_data(
    pool: &PoolDirectory,
    name: &str,
    mode: Mode,
) -> Result<DiskAndData, OpenError> {
    let path = pool.path_of(name);
    let file = open_file(pool, name, mode).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::MissingSegment { path: path.clone() },
        _ => io_error(&path, "open")(source),
    })?;
    let length = file.metadata().map_or(0, |found| found.len());
    let data = data_ranges(&file, length);
    let disk = FileDisk::over(file, path.clone())
        .map_err(io_error(&path, "use it past the page cache"))?;
    Ok((Arc::new(disk), data))
}

pub(super) fn open_image(
    pool: &PoolDirectory,
    superblock: &Superblock,
    mode: Mode,
) -> Result<Image, OpenError> {
    let geometry = superblock.geometry();
    let mut first_byte = 0;
    let mut parts = Vec::new();
    let segments =
        (0..geometry.segments).map(|index| (segment_file(index), geometry.segment_bytes()));
    let header = (
        SUPER_FILE.to_owned(),
        geometry.header_blocks * BLOCK_BYTES as u64,
    );
    for (name, expected) in std::iter::once(header).chain(segments) {
        let (disk, data) = open_disk_and_data(pool, &name, mode)?;
        if disk.length_bytes() != expected {
            return Err(OpenError::Truncated {
                path: pool.path_of(&name),
                expected,
                found: disk.length_bytes(),
            });
        }
        parts.push(ImagePart::new(first_byte, disk, data));
        first_byte += expected;
    }
    Ok(Image::new(parts))
}

fn log_error(path: &Path, error: LogError) -> OpenError {
    OpenError::Log {
        path: path.to_path_buf(),
        error,
    }
}

/// Odd numbers are for clean unmounts.
pub(super) fn new_token() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_le_bytes(bytes) & !CLEAN
}

impl Image {
    /// Reads all of the image that is not zero into memory, which is zeros.
    pub(crate) fn load(&self, region: &Region) -> io::Result<()> {
        self.load_blocks(region, |_, block| *block != [0; BLOCK_BYTES])
    }

    /// Reads the image into memory that holds anything.
    pub(crate) fn load_over(&self, region: &Region) -> io::Result<()> {
        self.load_blocks(region, |at, block| !region.equals(at, block))
    }

    fn load_blocks(
        &self,
        region: &Region,
        is_wanted: impl Fn(Offset, &[u8]) -> bool + Sync,
    ) -> io::Result<()> {
        let mut pieces = self.data_pieces(PIECE_BYTES);
        let is_small = pieces.len() <= 1;
        let piece_bytes = if is_small {
            pieces = self.data_pieces(SMALL_PIECE_BYTES);
            SMALL_PIECE_BYTES
        } else {
            PIECE_BYTES
        };
        let next = AtomicUsize::new(0);
        let load_pieces = || {
            let mut buffer = AlignedBuffer::with_capacity(piece_bytes);
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                buffer.resize((piece.end - piece.start) as usize);
                self.read(piece.start, &mut buffer)?;
                for (index, block) in buffer.chunks(BLOCK_BYTES).enumerate() {
                    let at = Offset::new(piece.start + (index * BLOCK_BYTES) as u64);
                    if is_wanted(at, block) {
                        region.store(at, block).leave_to_checkpoint();
                    }
                }
            }
            Ok(())
        };
        if is_small {
            return load_pieces();
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(load_pieces)).collect();
            threads.into_iter().try_for_each(|thread| {
                let ended = thread.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }
}

/// mkfs is done in memory: writes the image of `region` to the pool's files, and an empty log of
/// `log_bytes` bytes.
pub(crate) fn write_new(
    pool: &PoolDirectory,
    region: &Region,
    superblock: &Superblock,
    log_bytes: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), FormatError> {
    let failed = |error: &dyn std::fmt::Display| FormatError::Initialise(error.to_string());
    let image = open_image(pool, superblock, Mode::ReadWrite).map_err(|error| failed(&error))?;
    write_image(&image, region, superblock).map_err(|error| failed(&error))?;
    let file = pool.create(LOG_FILE).map_err(|error| failed(&error))?;
    // In few extents, and a full disk is found now.
    fallocate(&file, FallocateFlags::empty(), 0, log_bytes).map_err(|error| failed(&error))?;
    let disk = FileDisk::over(file, pool.path_of(LOG_FILE)).map_err(|error| failed(&error))?;
    let sequence = recovery::checkpoint_sequence(region).map_err(|error| failed(&error))?;
    wal::format(&disk, superblock.uuid, sequence, progress).map_err(|error| failed(&error))
}

/// Writes header and used segments of a new pool, durably. Everything else of the image is zeros.
pub(super) fn write_image(
    image: &Image,
    region: &Region,
    superblock: &Superblock,
) -> io::Result<()> {
    let geometry = superblock.geometry();
    let used = |segment: &u32| {
        let entry: crate::layout::SegmentEntry = region.load(geometry.segment_entry(*segment));
        !matches!(entry.domain(*segment), Ok(None))
    };
    let header = 0..geometry.header_blocks;
    let segments = (0..geometry.segments).filter(used).map(|segment| {
        let first = geometry.header_blocks + u64::from(segment) * geometry.segment_blocks;
        first..first + geometry.segment_blocks
    });
    let mut buffer = AlignedBuffer::with_capacity(PIECE_BYTES);
    for blocks in std::iter::once(header).chain(segments) {
        for block in blocks {
            buffer.resize(BLOCK_BYTES);
            region.read(Offset::new(block * BLOCK_BYTES as u64), &mut buffer);
            if buffer.iter().any(|&byte| byte != 0) {
                image.write(block * BLOCK_BYTES as u64, &buffer)?;
            }
        }
    }
    image.flush(|_| ())
}
