//! Opening a pool that may be damaged, for checking and repairing it.
//!
//! Whatever is missing of the files is replaced by zeros, so that the rest can be looked at: in memory for a check, in the
//! files for a repair.

use crate::descriptors::DescriptorRoom;
use crate::directory::PoolDirectory;
use crate::disk::{self, salvage::Repairable};
use crate::error::OpenError;
use crate::layout::{Geometry, Superblock};
use crate::lock::Lock;
use crate::pool::{self, Head, Mode, segment_file};
use crate::sharing::{Given, holders};
use pmem::{Access, BLOCK_BYTES, DurabilityClass, MapError, Part, Region};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A pool that was opened in whatever state it is.
#[derive(Debug)]
pub struct SalvagedPool {
    region: Arc<Region>,
    files: Vec<File>,
    incomplete_files: Vec<PathBuf>,
    is_device: bool,
    /// Of class `log`, for a repair.
    logged: Option<Repairable>,
    _lock: Lock,
    _room: DescriptorRoom,
}

impl SalvagedPool {
    /// All of the pool's bytes; a private copy unless the pool was opened for repair.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Files that were missing or too short.
    pub fn incomplete_files(&self) -> &[PathBuf] {
        &self.incomplete_files
    }

    /// Waits until all changes are on the disk; on persistent memory they are already.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn sync(&self) -> Result<(), OpenError> {
        if self.is_device {
            return Ok(());
        }
        if let Some(logged) = &self.logged {
            return logged.write(&self.region);
        }
        self.files
            .iter()
            .try_for_each(File::sync_all)
            .map_err(|source| OpenError::Io {
                path: PathBuf::from("pool"),
                action: "wait for the disk",
                source,
            })
    }
}

/// Opens and locks the pool at `path`: a private copy, or for `repair` the pool itself.
///
/// A repair maps the files for ordinary shared access if they are not on persistent memory: [`SalvagedPool::sync`] makes it
/// durable then.
///
/// # Errors
///
/// [`OpenError`], but none for a missing or short file of segments or for one damaged superblock; for a repair
/// [`OpenError::SegmentsHad`].
pub fn open(path: &Path, repair: bool) -> Result<SalvagedPool, OpenError> {
    let mode = if repair {
        Mode::ReadWrite
    } else {
        Mode::ReadOnly
    };
    let Head {
        file: head,
        path: head_path,
        directory,
        superblock,
        lock,
        given,
    } = pool::open_head(path, mode)?;
    let geometry = superblock.geometry();
    if let Some(directory) = directory
        .as_ref()
        .filter(|_| given == Given::Segments && repair)
    {
        nobody_has_segments(directory, &geometry)?;
    }
    let room = DescriptorRoom::new(geometry.segments);
    if let Some(directory) = directory.as_ref().filter(|_| superblock.is_logged()) {
        let (region, logged) = disk::salvage::open(directory, &superblock, mode)?;
        return Ok(SalvagedPool {
            region: Arc::new(region),
            files: Vec::new(),
            incomplete_files: Vec::new(),
            is_device: false,
            logged,
            _lock: lock,
            _room: room,
        });
    }
    let mut files = Files {
        repair: directory.clone().filter(|_| repair),
        is_repair: repair,
        files: Vec::new(),
        paths: Vec::new(),
        lengths: Vec::new(),
        incomplete: Vec::new(),
    };
    match &directory {
        None => files.push(head, head_path, geometry.total_bytes()),
        Some(directory) => files.add_all(directory, head, &geometry, mode)?,
    }
    let region = files.map(&superblock)?;
    Ok(SalvagedPool {
        region: Arc::new(region),
        files: files.files,
        incomplete_files: files.incomplete,
        is_device: directory.is_none(),
        logged: None,
        _lock: lock,
        _room: room,
    })
}

/// A repair takes blocks from wherever they are free, for anybody: so no process may have segments meanwhile.
fn nobody_has_segments(pool: &PoolDirectory, geometry: &Geometry) -> Result<(), OpenError> {
    let had = pool::segments_had(pool, geometry);
    match had.first() {
        None => Ok(()),
        Some(&first) => Err(OpenError::SegmentsHad {
            path: pool.path().to_path_buf(),
            count: had.len(),
            processes: who_has(pool, &segment_file(first)),
        }),
    }
}

fn who_has(pool: &PoolDirectory, name: &str) -> String {
    let found = pool.file(name, Mode::ReadOnly);
    match found
        .and_then(|file| holders(&file, name))
        .unwrap_or_default()
    {
        none if none.is_empty() => format!("who has {name}, and cannot be seen from here"),
        one if one.len() == 1 => format!("process {}", one[0]),
        several => format!("the processes {}", several.join(" and ")),
    }
}

/// The parts of a pool, made complete.
struct Files {
    /// The directory in which missing files are made; `None` for a check.
    repair: Option<Arc<PoolDirectory>>,
    is_repair: bool,
    files: Vec<File>,
    paths: Vec<PathBuf>,
    lengths: Vec<u64>,
    incomplete: Vec<PathBuf>,
}

impl Files {
    fn push(&mut self, file: File, path: PathBuf, length: u64) {
        self.files.push(file);
        self.paths.push(path);
        self.lengths.push(length);
    }

    fn add_all(
        &mut self,
        pool: &PoolDirectory,
        head: File,
        geometry: &Geometry,
        mode: Mode,
    ) -> Result<(), OpenError> {
        let head_bytes = geometry.header_blocks * BLOCK_BYTES as u64;
        self.add(Some(head), pool.path_of(pool::SUPER_FILE), head_bytes)?;
        for segment in 0..geometry.segments {
            let name = segment_file(segment);
            let file = match pool::open_file(pool, &name, mode) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(pool::io_error(&pool.path_of(&name), "open")(error)),
            };
            self.add(file, pool.path_of(&name), geometry.segment_bytes())?;
        }
        Ok(())
    }

    /// Adds a file, or a substitute for it.
    fn add(&mut self, file: Option<File>, path: PathBuf, length: u64) -> Result<(), OpenError> {
        let io_error = |action| pool::io_error(&path, action);
        let found = match &file {
            Some(file) => file.metadata().map_err(io_error("read its size"))?.len(),
            None => 0,
        };
        if let (Some(file), true) = (&file, found >= length) {
            let file = file.try_clone().map_err(io_error("open"))?;
            self.push(file, path, length);
            return Ok(());
        }
        self.incomplete.push(path.clone());
        let whole = match &self.repair {
            Some(pool) => {
                lengthened(pool, file, &path, length).map_err(io_error("make it complete"))?
            }
            None => substitute(file, length).map_err(io_error("copy it to memory"))?,
        };
        self.push(whole, path, length);
        Ok(())
    }

    fn map(&self, superblock: &Superblock) -> Result<Region, OpenError> {
        let parts: Vec<Part<'_>> = self
            .files
            .iter()
            .zip(&self.paths)
            .zip(&self.lengths)
            .map(|((file, path), &length)| Part {
                file,
                path,
                file_offset: 0,
                length,
            })
            .collect();
        if !self.is_repair {
            return Ok(Region::map(
                &parts,
                DurabilityClass::Volatile,
                Access::PrivateCopy,
            )?);
        }
        if superblock.is_volatile() {
            return Ok(Region::map(
                &parts,
                DurabilityClass::Volatile,
                Access::ReadWrite,
            )?);
        }
        match Region::map(&parts, DurabilityClass::Dax, Access::ReadWrite) {
            Err(MapError::NotPersistent { .. }) => Ok(Region::map(
                &parts,
                DurabilityClass::Volatile,
                Access::ReadWrite,
            )?),
            mapped => Ok(mapped?),
        }
    }
}

/// The file itself, created if need be, with all its blocks.
fn lengthened(
    pool: &PoolDirectory,
    file: Option<File>,
    path: &Path,
    length: u64,
) -> io::Result<File> {
    let file = match file {
        Some(file) => file,
        None => pool.create(path.file_name().unwrap_or_default())?,
    };
    fallocate(&file, FallocateFlags::empty(), 0, length)?;
    Ok(file)
}

/// A copy in memory, zeros where the file ends.
fn substitute(file: Option<File>, length: u64) -> io::Result<File> {
    let mut copy = File::from(memfd_create("perdure-missing", MemfdFlags::CLOEXEC)?);
    if let Some(mut file) = file {
        io::copy(&mut file, &mut copy)?;
    }
    copy.set_len(length)?;
    Ok(copy)
}
