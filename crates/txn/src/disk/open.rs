//! mkfs and recovery of pools of class `log`.

use super::batch;
use super::dirty::DirtyBlocks;
use super::files::{PoolFiles, has_enough, has_possible_end, open_image};
use super::image::Image;
use super::loader::{Loader, Loading};
use super::logger::{Logger, Shared};
use super::memory::{Memory, Stamp};
use super::policy::{Durability, LogOptions};
use super::reader::Read;
use super::replay::{replay, settle};
use super::tail::Tail;
use super::{CLEAN, LOG_FILE, is_inside};
use crate::directory::PoolDirectory;
use crate::domain::Domains;
use crate::error::{Corruption, FormatError, OpenError};
use crate::journal::Journals;
use crate::layout::{SAVED_AT, STATE_BLOCK, SavedHeader, Superblock};
use crate::live::Live;
use crate::lost::Damage;
use crate::places::read_places;
use crate::pool::{Mode, io_error};
use crate::recovery;
use pmem::{Access, BLOCK_BYTES, BlockNumber, DurabilityClass, Offset, Region};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wal::{AlignedBuffer, DiskSpeed, FileDisk, Log, LogError, OpenLog, Replayed, Root};

/// How long finding out the disk's speed may take.
const MEASURE_PATIENCE: Duration = Duration::from_millis(300);

/// A log that was replayed, and the parts of its logger.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) log: Log,
    pub(super) image: Arc<Image>,
    /// Of memory that is loaded while it is used.
    pub(super) loader: Option<Arc<Loader>>,
    pub(super) dirty: DirtyBlocks,
    pub(super) durability: Durability,
    pub(super) speed: Option<DiskSpeed>,
    /// Held while the memory is in use.
    pub(super) memory: Option<File>,
}

/// Maps a pool's memory as of now: that of a killed server, or new memory with image and log. For
/// reading alone there is no log, and the memory's files are not kept.
pub(crate) fn map(
    pool: &Arc<PoolDirectory>,
    superblock: &Superblock,
    mode: Mode,
    (damage, options): (Damage, LogOptions),
) -> Result<(Region, Option<(Opened, Memory)>), OpenError> {
    let (files, left) = open_files(pool, superblock, mode, damage)?;
    let root = files.log.root();
    if mode == Mode::ReadOnly {
        let region = match left {
            Some(left) => look_at_left(left, superblock, &files.image)?,
            None => read_alone(superblock, &files)?,
        };
        return Ok((region, None));
    }
    let dirty = DirtyBlocks::new(superblock.geometry().total_bytes());
    let (births, token) = (files.births, new_token());
    let (path, image, log) = (files.path, Arc::new(files.image), files.log);
    let stamp = Stamp::new(superblock, token, root.user);
    let (memory, (region, loader), log) = match left {
        Some((memory, old)) => {
            let stamp = stamp.with_holes(old.has_holes());
            memory.stamp(&stamp)?;
            let mapped = map_left(&memory, stamp, superblock, &image, options.loading)?;
            let log = go_on(&path, superblock, &mapped.0, &dirty, (log, &image))?;
            (memory, mapped, log)
        }
        None => {
            let memory = Memory::make(superblock)?;
            let made = fill((&memory, stamp), superblock, &path, &image, options.loading);
            let filled = made.and_then(|mapped| {
                let to = (&mapped.0, mapped.1.as_deref());
                let log = replay(&path, superblock, to, &dirty, (log, &image))?;
                Ok((mapped, log))
            });
            let (mapped, log) = filled.inspect_err(|_| Memory::remove(superblock))?;
            memory.stamp(&stamp.with_holes(mapped.1.is_some()))?;
            (memory, mapped, log)
        }
    };
    begin_use(&log, &image, token, births).map_err(|error| error.over(&path))?;
    let speed = wal::measure_depth(&log, MEASURE_PATIENCE).ok();
    let opened = Opened {
        log,
        image,
        loader,
        dirty,
        durability: options.durability,
        speed,
        memory: None,
    };
    Ok((region, Some((opened, memory))))
}

/// Log and image, and the memory that a killed server has left.
fn open_files(
    pool: &PoolDirectory,
    superblock: &Superblock,
    mode: Mode,
    damage: Damage,
) -> Result<(PoolFiles, Option<(Memory, Stamp)>), OpenError> {
    let files = PoolFiles::open(pool, superblock, mode)?;
    let are_copies = files.are_copies();
    if are_copies && damage == Damage::Refuse {
        let path = pool.path().to_path_buf();
        return Err(OpenError::Copied { path });
    }
    files.check_stamp()?;
    // The original's memory may be in use.
    let left = match are_copies {
        true => None,
        false => has_left(superblock, &files.log.root(), mode)?,
    };
    Ok((files, left))
}

/// A region, and the loader of its absent pages if there are any.
type Loaded = (Region, Option<Arc<Loader>>);

/// The memory of a killed server.
fn map_left(
    memory: &Memory,
    stamp: Stamp,
    superblock: &Superblock,
    image: &Arc<Image>,
    loading: Loading,
) -> Result<Loaded, OpenError> {
    let map = || map_memory(memory, Access::ReadWrite);
    let unloaded = match stamp.has_holes() {
        true => memory.unloaded(),
        false => Vec::new(),
    };
    if !unloaded.is_empty() && loading != Loading::First {
        memory.check_room()?;
        let region = map()?;
        let geometry = superblock.geometry();
        let started = memory.files_to_load(stamp).and_then(|files| {
            Loader::start(&region, image, (geometry, &unloaded), Some(files), loading)
        });
        match started {
            Ok(loader) => return Ok((region, Some(loader))),
            // Nothing of the region was touched.
            Err(error) => tracing::info!(%error, "the pool is loaded before it is used"),
        }
    }
    if stamp.has_holes() {
        memory.complete(image)?;
        memory.stamp(&stamp.with_holes(false))?;
    }
    Ok((map()?, None))
}

/// The image in new memory.
fn fill(
    (memory, stamp): (&Memory, Stamp),
    superblock: &Superblock,
    path: &Path,
    image: &Arc<Image>,
    loading: Loading,
) -> Result<Loaded, OpenError> {
    let region = map_memory(memory, Access::ReadWrite)?;
    let failed = |error| io_error(path, "read the image beside it")(error);
    let geometry = superblock.geometry();
    if loading != Loading::First {
        let segments: Vec<u32> = (0..geometry.segments).collect();
        let started = memory.files_to_load(stamp).and_then(|files| {
            Loader::start(&region, image, (geometry, &segments), Some(files), loading)
        });
        match started {
            Ok(loader) => {
                let header = 0..geometry.header_blocks * BLOCK_BYTES as u64;
                image.load_range(&region, header).map_err(failed)?;
                return Ok((region, Some(loader)));
            }
            Err(error) => tracing::info!(%error, "the pool is loaded before it is used"),
        }
    }
    memory.reserve_all()?;
    image.load(&region).map_err(failed)?;
    Ok((region, None))
}

/// Why a use of the pool cannot begin.
#[derive(Debug)]
pub(super) enum BeginFailed {
    Stamp(io::Error),
    Root(LogError),
}

impl BeginFailed {
    pub(super) fn over(self, path: &Path) -> OpenError {
        match self {
            BeginFailed::Stamp(error) => io_error(path, "stamp the image beside it")(error),
            BeginFailed::Root(error) => log_error(path, error),
        }
    }
}

/// A use of the pool begins: from here on the image is not that of a clean unmount. The stamp
/// accepts both roots, so it comes first.
pub(super) fn begin_use(
    log: &Log,
    image: &Image,
    token: u64,
    births: u64,
) -> Result<(), BeginFailed> {
    let root = log.root();
    let stamped = image.change_stamp(|stamp| stamp.begin_use(token, &root));
    stamped
        .and_then(|()| image.flush_stamp())
        .map_err(BeginFailed::Stamp)?;
    let root = Root {
        user: token & !CLEAN,
        files: births,
        ..root
    };
    log.advance(root).map_err(BeginFailed::Root)
}

impl Opened {
    /// Holds the memory's lock as long as the log is open.
    pub(crate) fn keep(&mut self, lock: File) {
        self.memory = Some(lock);
    }

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
            (self.image, self.loader, self.dirty),
            self.durability,
            self.speed,
        );
        Logger::start(shared, self.memory, with_threads).map_err(io_error(
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
        if let Some(loader) = &shared.loader {
            loader.stop();
        }
        let flag = if is_saved { CLEAN } else { 0 };
        let region = &shared.region;
        let header = superblock.geometry().header_blocks * BLOCK_BYTES as u64;
        shared.dirty.mark(Offset::new(0), header);
        if is_saved {
            let saved: SavedHeader = region.load(STATE_BLOCK.offset() + SAVED_AT);
            for [start, blocks] in saved.extents.iter().take(saved.extent_count as usize) {
                let at = BlockNumber::new(*start).offset();
                shared.dirty.mark(at, blocks * BLOCK_BYTES as u64);
            }
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

/// The memory of a killed server, for processes that only look.
pub(super) fn look_at_left(
    (memory, stamp): (Memory, Stamp),
    superblock: &Superblock,
    image: &Image,
) -> Result<Region, OpenError> {
    if !stamp.has_holes() {
        return map_memory(&memory, Access::PrivateCopy);
    }
    // A look into a hole of a mapping, also of a private one, would make zeros of it.
    let bytes = superblock.geometry().total_bytes();
    let region = Region::anonymous_of(bytes, DurabilityClass::Log);
    let read = image.load(&region);
    read.map_err(io_error(memory.path(), "read the image for it"))?;
    memory.read_over(&region)?;
    Ok(region)
}

/// Image and log in private memory, for processes that only look.
pub(super) fn read_alone(superblock: &Superblock, files: &PoolFiles) -> Result<Region, OpenError> {
    let (region, replayed) = read_both(superblock, files)?;
    files.check_end(&replayed)?;
    Ok(region)
}

/// The same, also if the log does not have all that the image may have.
pub(super) fn read_both(
    superblock: &Superblock,
    files: &PoolFiles,
) -> Result<(Region, Replayed), OpenError> {
    let PoolFiles {
        path, log, image, ..
    } = files;
    let bytes = superblock.geometry().total_bytes();
    let region = Region::anonymous_of(bytes, DurabilityClass::Log);
    image
        .load(&region)
        .map_err(|error| io_error(path, "read the image beside it")(error))?;
    let dirty = DirtyBlocks::new(bytes);
    let mut fault = None;
    let read = log.read(&mut |batch| {
        let inside = |at, length| is_inside(&superblock.geometry(), at, length);
        if let Err(error) = batch::apply((&region, None), &dirty, inside, batch.payload) {
            fault.get_or_insert(error);
        }
    });
    let replayed = read.map_err(|error| log_error(path, error))?;
    if let Some(fault) = fault {
        return Err(Corruption::new(path.display().to_string(), fault.to_string()).into());
    }
    has_possible_end(path, &replayed)?;
    settle(
        &region,
        &log.root(),
        replayed.batches,
        replayed.last_sequence,
    );
    Ok((region, replayed))
}

/// A killed server's memory has all that the log has, and maybe more.
pub(super) fn go_on(
    path: &Path,
    superblock: &Superblock,
    region: &Region,
    dirty: &DirtyBlocks,
    (log, image): (OpenLog, &Image),
) -> Result<Log, OpenError> {
    let mut mark = |batch: &wal::Batch<'_>| {
        for (head, entry) in crate::record::all_entries(batch.payload) {
            if is_inside(&superblock.geometry(), entry.at, entry.length) {
                dirty.mark(head.at(), head.length() as u64);
            }
        }
    };
    let log = log
        .replay_if(&mut mark, |replayed| has_enough(path, image, replayed))
        .map_err(|error| log_error(path, error))??;
    let known = log.durable_sequence();
    let checkpoint = recovery::checkpoint_sequence(region)?;
    let places = read_places(region, superblock)?;
    let places: Vec<_> = places.as_flattened().iter().copied().map(Some).collect();
    let live = Live::read(region, superblock, &places, checkpoint).happened(region);
    let tail = live.into_iter().filter(|record| record.sequence > known);
    let tail = tail.map(|record| Read::new(record.sequence, record.into_bytes().into()));
    let save = Tail {
        path,
        superblock,
        region,
        dirty,
        log: &log,
        image,
    };
    save.save(tail.collect())?;
    Ok(log)
}

pub(super) fn map_memory(memory: &Memory, access: Access) -> Result<Region, OpenError> {
    Ok(Region::map(&memory.parts(), DurabilityClass::Log, access)?)
}

pub(super) fn log_error(path: &Path, error: LogError) -> OpenError {
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
    let image = open_image(pool, superblock, Mode::ReadWrite, &mut None);
    let image = image.map_err(|error| failed(&error))?;
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
    let mut buffer = AlignedBuffer::with_capacity(BLOCK_BYTES);
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
