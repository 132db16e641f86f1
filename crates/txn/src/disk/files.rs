//! The pool's log and image on its disk, and a number that no copy of them has.
//!
//! While a pool is mounted its files change one after the other, so a copy that is made meanwhile
//! has them of different moments. Nothing in their bytes need tell. So the log's root has a number
//! made of the times at which the files were made, which no copy shares.

use super::image::{Image, ImagePart, data_ranges};
use super::stamp::Mixture;
use super::{CLEAN, LOG_FILE};
use crate::checksum::{SEALED_MAX, mix64};
use crate::directory::PoolDirectory;
use crate::error::{Corruption, OpenError};
use crate::layout::Superblock;
use crate::pool::{Mode, SUPER_FILE, io_error, open_file, segment_file};
use rustix::fs::{AtFlags, StatxFlags};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::{Disk, FileDisk, OpenLog, Replayed};

/// Log and image of a pool.
#[derive(Debug)]
pub(super) struct PoolFiles {
    /// Path of the log, for messages.
    pub(super) path: PathBuf,
    pub(super) log: OpenLog,
    pub(super) image: Image,
    /// A number that no copy of the files has; 0 if their file system knows none.
    pub(super) births: u64,
    has_stamp: bool,
}

impl PoolFiles {
    pub(super) fn open(
        pool: &PoolDirectory,
        superblock: &Superblock,
        mode: Mode,
    ) -> Result<PoolFiles, OpenError> {
        let path = pool.path_of(LOG_FILE);
        let log = open_disk(pool, LOG_FILE, mode)?;
        let mut births = log.birth;
        let log = OpenLog::open(log.disk, superblock.uuid).map_err(|error| OpenError::Log {
            path: path.clone(),
            error,
        })?;
        let image = open_image(pool, superblock, mode, &mut births)?;
        let read = image.read_stamp();
        let has_stamp = read.map_err(io_error(&path, "read the stamp of the image beside it"))?;
        Ok(PoolFiles {
            path,
            log,
            image,
            births: births.unwrap_or(0),
            has_stamp,
        })
    }

    /// Whether the files are copies that were made while the pool was mounted, or after a crash.
    pub(super) fn are_copies(&self) -> bool {
        let root = self.log.root();
        let are_known = self.births != 0 && root.files != 0;
        root.user & CLEAN == 0 && are_known && root.files != self.births
    }

    /// Whether the log has all that the image may have.
    pub(super) fn check_end(&self, replayed: &Replayed) -> Result<(), OpenError> {
        has_enough(&self.path, &self.image, replayed)
    }

    /// Whether log and image belong together, as far as the root can tell.
    pub(super) fn check_stamp(&self) -> Result<(), OpenError> {
        let fits = match self.has_stamp {
            true => self.image.stamp().fits(&self.log.root()),
            false => Err(Mixture::NoStamp),
        };
        fits.map_err(|mixture| OpenError::Mixed {
            path: self.path.clone(),
            mixture,
        })
    }
}

/// Whether a log that was read so far has all that the image may have.
pub(super) fn has_enough(path: &Path, image: &Image, replayed: &Replayed) -> Result<(), OpenError> {
    has_possible_end(path, replayed)?;
    let within = image.stamp().is_within(replayed.last_sequence);
    within.map_err(|mixture| OpenError::Mixed {
        path: path.to_path_buf(),
        mixture,
    })
}

/// Refuses numbers of records that no pool lives to see: later ones could not be sealed.
pub(super) fn has_possible_end(path: &Path, replayed: &Replayed) -> Result<(), OpenError> {
    match replayed.last_sequence > SEALED_MAX / 2 {
        true => {
            let fault = format!("record {} is impossible", replayed.last_sequence);
            Err(Corruption::new(path.display().to_string(), fault).into())
        }
        false => Ok(()),
    }
}

/// A file of the pool.
struct OpenedFile {
    disk: Arc<dyn Disk>,
    /// Ranges that may be something else than zeros.
    data: Vec<Range<u64>>,
    /// When it was made, in nanoseconds, if its file system knows.
    birth: Option<u64>,
}

fn birth(file: &File) -> Option<u64> {
    let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    let time = found.stx_btime;
    is_known.then(|| (time.tv_sec as u64).wrapping_mul(1_000_000_000) + u64::from(time.tv_nsec))
}

fn open_disk(pool: &PoolDirectory, name: &str, mode: Mode) -> Result<OpenedFile, OpenError> {
    let path = pool.path_of(name);
    let file = open_file(pool, name, mode).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::MissingSegment { path: path.clone() },
        _ => io_error(&path, "open")(source),
    })?;
    let length = file.metadata().map_or(0, |found| found.len());
    let data = data_ranges(&file, length);
    let birth = birth(&file);
    let disk = FileDisk::over(file, path.clone())
        .map_err(io_error(&path, "use it past the page cache"))?;
    Ok(OpenedFile {
        disk: Arc::new(disk),
        data,
        birth,
    })
}

/// Opens the files of the image, and adds when they were made.
pub(super) fn open_image(
    pool: &PoolDirectory,
    superblock: &Superblock,
    mode: Mode,
    births: &mut Option<u64>,
) -> Result<Image, OpenError> {
    let geometry = superblock.geometry();
    let mut first_byte = 0;
    let mut parts = Vec::new();
    let segments =
        (0..geometry.segments).map(|index| (segment_file(index), geometry.segment_bytes()));
    let header = (
        SUPER_FILE.to_owned(),
        geometry.second_superblock().get() + pmem::BLOCK_BYTES as u64,
    );
    for (name, expected) in std::iter::once(header).chain(segments) {
        let OpenedFile { disk, data, birth } = open_disk(pool, &name, mode)?;
        if disk.length_bytes() != expected {
            return Err(OpenError::Truncated {
                path: pool.path_of(&name),
                expected,
                found: disk.length_bytes(),
            });
        }
        *births = births
            .zip(birth)
            .map(|(all, birth)| mix64(all.rotate_left(5) ^ birth));
        parts.push(ImagePart {
            first_byte,
            disk,
            data,
        });
        first_byte += expected;
    }
    Ok(Image::new(parts, superblock))
}
