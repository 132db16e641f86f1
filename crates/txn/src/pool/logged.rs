//! Pools of class `log`: their files are the image of a memory.

use super::{Mapped, Mode, create_files, format_io, is_device, make_directory, read_superblock};
use crate::directory::PoolDirectory;
use crate::disk::{self, LogOptions};
use crate::error::{FormatError, OpenError};
use crate::format::{FormatOptions, write_header};
use crate::layout::Superblock;
use crate::lock::Lock;
use crate::lost::Damage;
use crate::removal::remove;
use crate::sharing::{self, Content, Given};
use pmem::{Access, BLOCK_BYTES, DurabilityClass, Part, Region};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Maps the memory of an open pool.
pub(super) fn map(
    directory: Arc<PoolDirectory>,
    superblock: Superblock,
    lock: Lock,
    given: Given,
    (mode, damage, options): (Mode, Damage, LogOptions),
) -> Result<Mapped, OpenError> {
    let how = (damage, options);
    let (region, opened) = disk::open::map(&directory, &superblock, mode, how)?;
    let mut mapped = Mapped {
        region,
        superblock,
        lock,
        directory: Some(Arc::clone(&directory)),
        memory: None,
        segments: None,
        had: Vec::new(),
        log: None,
    };
    if let Some((mut log, memory)) = opened {
        if given == Given::Segments {
            mapped.had = memory.had();
        }
        if mapped.had.is_empty() {
            // As far as segments of this memory go, and others are gone.
            sharing::forget_given(&directory);
        }
        let (place, segments, lock) = memory.into_segments();
        log.keep(lock);
        (mapped.memory, mapped.segments) = (Some(place), Some(segments));
        mapped.log = Some(log);
    }
    Ok(mapped)
}

/// Whether a new pool at `path` needs a log to be durable: it would lie on a disk whose files
/// cannot be mapped durably. Memory that loses its content (tmpfs) needs none, because the log
/// would be lost with it.
pub fn needs_log(path: &Path) -> bool {
    if is_device(path) {
        return false;
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let flags =
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let Ok(probe) = rustix::fs::open(
        parent,
        flags,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    ) else {
        return false;
    };
    let probe = File::from(probe);
    if pmem::is_tmpfs(&probe) || probe.set_len(BLOCK_BYTES as u64).is_err() {
        return false;
    }
    let part = Part {
        file: &probe,
        path,
        file_offset: 0,
        length: BLOCK_BYTES as u64,
    };
    let mapped = Region::map(&[part], DurabilityClass::Dax, Access::ReadWrite);
    matches!(mapped, Err(pmem::MapError::NotPersistent { .. }))
}

/// The files of a pool of class `log` are its image: a new pool is made in memory, and [`finish`]
/// writes it there.
pub(super) fn create(path: &Path, superblock: &Superblock) -> Result<Region, FormatError> {
    let geometry = superblock.geometry();
    let directory = make_directory(path)?;
    let made = create_files(&directory, &geometry).map(|_files| {
        let region = Region::anonymous_of(geometry.total_bytes(), DurabilityClass::Log);
        write_header(region, superblock, Content::Nobodys)
    });
    if made.is_err() {
        let _ = remove(&directory);
    }
    made
}

/// Writes to the pool's files what was made in `region` for a pool of class `log`; of others it is
/// there already.
///
/// # Errors
///
/// [`FormatError`]; files made so far are removed again.
pub fn finish(
    path: &Path,
    region: &Region,
    options: &FormatOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), FormatError> {
    if region.class() != DurabilityClass::Log {
        return Ok(());
    }
    let failed = |error: OpenError| FormatError::Initialise(error.to_string());
    let superblock = read_superblock(region).map_err(failed)?;
    let directory = PoolDirectory::open(path).map_err(format_io(path, "open"))?;
    let log_bytes = options.actual_log_bytes();
    disk::open::write_new(&directory, region, &superblock, log_bytes, progress)
}
