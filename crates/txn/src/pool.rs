//! A pool's files: a directory with `super` and one file per segment, or one device-DAX node.

mod logged;

use crate::descriptors::DescriptorRoom;
use crate::directory::{Foreign, PoolDirectory, open_device};
use crate::disk::{self, LogOptions};
use crate::error::{FormatError, OpenError};
use crate::format::{FormatOptions, write_header};
use crate::layout::{Geometry, HEADER_BLOCKS_MAX, SegmentEntry, Superblock};
use crate::lock::{Lock, lock};
use crate::lost::Damage;
use crate::removal::remove;
use crate::sharing::{
    self, Content, Given, SegmentFiles, Usage, lift_left_seal, usage, were_given,
};
use crate::superblocks::choose;
use pmem::{Access, BLOCK_BYTES, DurabilityClass, Offset, Part, Region};
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub use logged::{finish, needs_log};

/// How a pool is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Shared mapping; this process owns the pool.
    ReadWrite,
    /// Private mapping: nothing reaches the medium. Several readers may share a pool.
    ReadOnly,
}

/// Name of the header file.
pub const SUPER_FILE: &str = "super";
/// In a pool's directory: its home, or a link to it.
pub const HOME_FILE: &str = "home";
/// Name of the file that names the owner's process.
pub const OWNER_FILE: &str = "owner.pid";
/// Name of the socket on which the owner's process answers questions.
pub const CONTROL_SOCKET: &str = "control";

/// The mode of a pool's files, which hold the content of all users' files.
const FILE_MODE: u32 = 0o600;

/// Name of a segment's file.
pub fn segment_file(segment: u32) -> String {
    format!("segment-{segment:04}")
}

/// The files of a pool, opened.
struct Files {
    paths: Vec<PathBuf>,
    files: Vec<File>,
    room: DescriptorRoom,
}

pub(crate) fn io_error(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_path_buf();
    move |source| match source.downcast::<Foreign>() {
        Ok(foreign) => OpenError::Foreign(foreign),
        Err(source) => OpenError::Io {
            path,
            action,
            source,
        },
    }
}

/// The part of a pool that holds its superblock, opened and locked.
pub(crate) struct Head {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// `None` for a device.
    pub(crate) directory: Option<Arc<PoolDirectory>>,
    pub(crate) superblock: Superblock,
    pub(crate) lock: Lock,
    pub(crate) given: Given,
}

/// Opens and locks the pool at `path`, stops the processes that a killed server has left behind, and finds the superblock.
pub(crate) fn open_head(path: &Path, mode: Mode) -> Result<Head, OpenError> {
    let metadata = fs::metadata(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing {
            path: path.to_path_buf(),
        },
        _ => io_error(path, "look at it")(source),
    })?;
    if metadata.file_type().is_char_device() {
        return device_head(path, mode);
    }
    if !metadata.is_dir() {
        let reason = "it is neither a directory nor a device-DAX node".to_string();
        return Err(OpenError::NotAPool {
            path: path.to_path_buf(),
            reason,
        });
    }
    let directory = Arc::new(PoolDirectory::open(path).map_err(io_error(path, "open"))?);
    let head_path = directory.path_of(SUPER_FILE);
    let head = open_file(&directory, SUPER_FILE, mode).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::NotAPool {
            path: path.to_path_buf(),
            reason: format!("it has no file `{SUPER_FILE}`"),
        },
        _ => io_error(&head_path, "open")(source),
    })?;
    let checked = directory.check_file(OWNER_FILE);
    checked.map_err(io_error(&directory.path_of(OWNER_FILE), "look at it"))?;
    let checked = directory.check_socket(CONTROL_SOCKET);
    checked.map_err(io_error(&directory.path_of(CONTROL_SOCKET), "look at it"))?;
    let lock = lock(path, &head, mode, Some(&directory))?;
    let given = sharing::stop_former(&directory)?;
    let superblock = file_superblock(path, &head)?;
    Ok(Head {
        file: head,
        path: head_path,
        directory: Some(directory),
        superblock,
        lock,
        given,
    })
}

fn device_head(path: &Path, mode: Mode) -> Result<Head, OpenError> {
    let head = open_device(path, mode).map_err(io_error(path, "open"))?;
    let lock = lock(path, &head, mode, None)?;
    let superblock = device_superblock(path, &head, mode)?;
    Ok(Head {
        file: head,
        path: path.to_path_buf(),
        directory: None,
        superblock,
        lock,
        given: Given::Nothing,
    })
}

/// A pool that is open, locked and mapped.
pub(crate) struct Mapped {
    pub(crate) region: Region,
    pub(crate) superblock: Superblock,
    pub(crate) lock: Lock,
    /// `None` for a device.
    pub(crate) directory: Option<Arc<PoolDirectory>>,
    /// Of class `log`, open for writing: the directory of the memory, with the segments' files.
    pub(crate) memory: Option<Arc<PoolDirectory>>,
    /// The files of the segments, through which they are mapped. For writing; of a device there are none.
    pub(crate) segments: Option<SegmentFiles>,
    /// Segments that former servers have given to processes, and somebody has.
    pub(crate) had: Vec<u32>,
    /// Of a pool that is open for writing and has one.
    pub(crate) log: Option<disk::open::Opened>,
}

/// Opens, locks and maps the pool at `path`.
pub(crate) fn map(
    path: &Path,
    mode: Mode,
    volatile: bool,
    (damage, options): (Damage, LogOptions),
) -> Result<Mapped, OpenError> {
    let Head {
        file: head,
        path: head_path,
        directory,
        superblock,
        lock,
        given,
    } = open_head(path, mode)?;
    if let Some(directory) = directory.as_ref().filter(|_| superblock.is_logged()) {
        let how = (mode, damage, options);
        return logged::map(Arc::clone(directory), superblock, lock, given, how);
    }
    let geometry = superblock.geometry();
    let class = if volatile || superblock.is_volatile() {
        DurabilityClass::Volatile
    } else {
        DurabilityClass::Dax
    };
    let access = if mode == Mode::ReadWrite {
        Access::ReadWrite
    } else {
        Access::PrivateCopy
    };
    let had = match (given, mode, &directory) {
        (Given::Segments, Mode::ReadWrite, Some(directory)) => segments_had(directory, &geometry),
        _ => Vec::new(),
    };
    let files = match &directory {
        Some(directory) => open_segments(directory, head, &geometry, mode)?,
        None => Files {
            paths: vec![head_path],
            files: vec![head],
            room: DescriptorRoom::new(1),
        },
    };
    let device = directory.is_none();
    if !device && mode == Mode::ReadWrite {
        files.keep_private();
        files.shorten(&geometry);
        files.fill_holes(&geometry)?;
    }
    let region = files.map(&geometry, class, access, device)?;
    let segments = (!device && mode == Mode::ReadWrite).then(|| files.into_segments());
    Ok(Mapped {
        region,
        superblock,
        lock,
        directory,
        memory: None,
        segments,
        had,
        log: None,
    })
}

/// Segments that other processes have. Without any, the next opener need not ask.
pub(crate) fn segments_had(pool: &PoolDirectory, geometry: &Geometry) -> Vec<u32> {
    let is_had = |segment: &u32| {
        let file = pool.file(segment_file(*segment), Mode::ReadOnly);
        file.is_ok_and(|file| usage(&file) == Usage::Shared)
    };
    let had: Vec<u32> = (0..geometry.segments).filter(is_had).collect();
    if had.is_empty() {
        sharing::forget_given(pool);
    }
    had
}

/// Opens a file of the pool, also a segment that a killed server has left append-only.
pub(crate) fn open_file(pool: &PoolDirectory, name: &str, mode: Mode) -> io::Result<File> {
    match pool.file(name, mode) {
        Err(error)
            if is_refused(&error) && mode == Mode::ReadWrite && lift_left_seal(pool, name) =>
        {
            pool.file(name, mode)
        }
        opened => opened,
    }
}

pub(crate) fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn file_superblock(pool: &Path, head: &File) -> Result<Superblock, OpenError> {
    let length = head
        .metadata()
        .map_err(io_error(pool, "read its size"))?
        .len();
    let read = |at: u64| {
        let mut superblock = Superblock::new_zeroed();
        let bytes = superblock.as_mut_bytes();
        head.read_exact_at(bytes, at).map(|()| superblock)
    };
    let second_at = length.saturating_sub(BLOCK_BYTES as u64);
    let copy = |at| read(at).unwrap_or_else(|_| Superblock::new_zeroed());
    choose(pool, copy(0), copy(second_at))
}

/// The superblock of a pool in memory.
///
/// The second copy is looked for in every place where it can be, so that it serves when the first is lost.
///
/// # Errors
///
/// Neither copy is valid; the error says why.
pub fn read_superblock(region: &Region) -> Result<Superblock, OpenError> {
    let least = header_bytes_min();
    if region.length() < least {
        return Err(OpenError::Truncated {
            path: "region".into(),
            expected: least,
            found: region.length(),
        });
    }
    let first: Superblock = region.load(Offset::new(0));
    if first.validate().is_ok() {
        return Ok(first);
    }
    let second = second_copies(region.length())
        .map(|at| region.load::<Superblock>(Offset::new(at)))
        .find(|copy| copy.validate().is_ok())
        .unwrap_or_else(Superblock::new_zeroed);
    choose(Path::new("region"), first, second)
}

/// Bytes of the smallest header: nothing shorter can be a pool.
const fn header_bytes_min() -> u64 {
    4 * BLOCK_BYTES as u64
}

/// Every place where the second superblock of a pool of this length can be.
fn second_copies(length: u64) -> impl Iterator<Item = u64> {
    (3..HEADER_BLOCKS_MAX)
        .map(|block| block * BLOCK_BYTES as u64)
        .take_while(move |at| at + BLOCK_BYTES as u64 <= length)
}

fn device_superblock(path: &Path, device: &File, mode: Mode) -> Result<Superblock, OpenError> {
    read_superblock(&device_header(path, device, mode)?)
}

/// The start of a device, long enough for any header.
fn device_header(path: &Path, device: &File, mode: Mode) -> Result<Region, OpenError> {
    // A device-DAX node cannot be read, only mapped.
    let length = HEADER_BLOCKS_MAX * BLOCK_BYTES as u64;
    let length = length.next_multiple_of(2 << 20);
    let access = if mode == Mode::ReadWrite {
        Access::ReadWrite
    } else {
        Access::PrivateCopy
    };
    let part = Part {
        file: device,
        path,
        file_offset: 0,
        length,
    };
    Ok(Region::map(&[part], DurabilityClass::Dax, access)?)
}

/// The superblock and the segment table of a pool that another process may have open: nothing is locked.
///
/// Superblocks never change. An entry of the table changes by 8-byte stores and carries its own check, so one that is read
/// in the middle of a change can be told.
///
/// # Errors
///
/// The pool cannot be read or has no valid superblock; the error names the file.
pub fn read_header(pool: &Path) -> Result<(Superblock, Vec<SegmentEntry>), OpenError> {
    let is_device = is_device(pool);
    let (path, file) = if is_device {
        let file = open_device(pool, Mode::ReadOnly).map_err(io_error(pool, "open"))?;
        (pool.to_path_buf(), file)
    } else {
        let directory = PoolDirectory::open(pool).map_err(io_error(pool, "open"))?;
        let path = directory.path_of(SUPER_FILE);
        let file = directory.file(SUPER_FILE, Mode::ReadOnly);
        (path.clone(), file.map_err(io_error(&path, "open"))?)
    };
    let region = if is_device {
        device_header(&path, &file, Mode::ReadOnly)?
    } else {
        let length = file.metadata().map_err(io_error(&path, "read"))?.len();
        let length = length.min(HEADER_BLOCKS_MAX * BLOCK_BYTES as u64) as usize;
        let mut bytes = vec![0; length.next_multiple_of(BLOCK_BYTES)];
        file.read_exact_at(&mut bytes[..length], 0)
            .map_err(io_error(&path, "read"))?;
        Region::from_image(bytes)
    };
    let superblock = read_superblock(&region)?;
    let geometry = superblock.geometry();
    let mut entries = vec![SegmentEntry::new_zeroed(); geometry.segments as usize];
    let (at, length) = (geometry.segment_entry(0), entries.as_bytes().len() as u64);
    if region.length() < at.get() + length {
        return Err(OpenError::Truncated {
            path,
            expected: at.get() + length,
            found: region.length(),
        });
    }
    region.read(at, entries.as_mut_bytes());
    Ok((superblock, entries))
}

fn open_segments(
    pool: &PoolDirectory,
    head: File,
    geometry: &Geometry,
    mode: Mode,
) -> Result<Files, OpenError> {
    let room = DescriptorRoom::new(geometry.segments);
    let mut paths = vec![pool.path_of(SUPER_FILE)];
    let mut files = vec![head];
    for segment in 0..geometry.segments {
        let name = segment_file(segment);
        let path = pool.path_of(&name);
        let file = open_file(pool, &name, mode).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => OpenError::MissingSegment { path: path.clone() },
            _ => io_error(&path, "open")(source),
        })?;
        paths.push(path);
        files.push(file);
    }
    Ok(Files { paths, files, room })
}

impl Files {
    /// Takes away what processes have written behind the end of segments: it only takes room.
    fn shorten(&self, geometry: &Geometry) {
        for (file, path) in self.files.iter().zip(&self.paths).skip(1) {
            let is_longer = |found: fs::Metadata| found.len() > geometry.segment_bytes();
            if file.metadata().is_ok_and(is_longer)
                && let Err(error) = file.set_len(geometry.segment_bytes())
            {
                tracing::warn!(path = %path.display(), %error, "the file is longer than the segment in it");
            }
        }
    }

    /// Fills the holes that processes have made in segments after the last server: to touch one if there is no room would end this process.
    fn fill_holes(&self, geometry: &Geometry) -> Result<(), OpenError> {
        for (file, path) in self.files.iter().zip(&self.paths).skip(1) {
            if were_given(file) {
                let whole = fallocate(file, FallocateFlags::empty(), 0, geometry.segment_bytes());
                whole.map_err(|error| io_error(path, "fill holes in it")(error.into()))?;
            }
        }
        Ok(())
    }

    /// Takes from others what earlier builds have let them do: with a descriptor that is good for nothing (`O_PATH`), and that nobody counts, a file can be opened again by whoever its mode lets.
    fn keep_private(&self) {
        for (file, path) in self.files.iter().zip(&self.paths) {
            let Ok(metadata) = file.metadata() else {
                continue;
            };
            if metadata.mode() & !FILE_MODE & 0o777 == 0 {
                continue;
            }
            if let Err(error) = file.set_permissions(fs::Permissions::from_mode(FILE_MODE)) {
                tracing::warn!(path = %path.display(), %error, "others may read the pool's file, whatever the modes of the files in it; chmod 600 it");
            }
        }
    }

    /// The files of a directory's segments, once they are mapped.
    fn into_segments(self) -> SegmentFiles {
        SegmentFiles {
            files: self.files.into_iter().skip(1).collect(),
            _room: self.room,
        }
    }

    fn map(
        &self,
        geometry: &Geometry,
        class: DurabilityClass,
        access: Access,
        device: bool,
    ) -> Result<Region, OpenError> {
        let mut parts = Vec::with_capacity(self.files.len());
        for (index, (file, path)) in self.files.iter().zip(&self.paths).enumerate() {
            let length = match (device, index) {
                (true, _) => geometry.total_bytes(),
                (false, 0) => geometry.header_blocks * BLOCK_BYTES as u64,
                (false, _) => geometry.segment_bytes(),
            };
            parts.push(Part {
                file,
                path,
                file_offset: 0,
                length,
            });
        }
        Region::map(&parts, class, access).map_err(|error| match error {
            pmem::MapError::Truncated {
                path,
                expected,
                found,
            } => OpenError::Truncated {
                path,
                expected,
                found,
            },
            error => OpenError::Map(error),
        })
    }
}

/// Makes a new pool's files and writes its header. Returns the mapped region for the layer above to initialise.
///
/// # Errors
///
/// [`FormatError`]; files made so far are removed again.
pub fn create(path: &Path, options: &FormatOptions) -> Result<Region, FormatError> {
    let superblock = options.superblock()?;
    let geometry = superblock.geometry();
    let class = if options.volatile {
        DurabilityClass::Volatile
    } else {
        DurabilityClass::Dax
    };
    if superblock.is_logged() {
        return logged::create(path, &superblock);
    }
    if is_device(path) {
        let device = open_device(path, Mode::ReadWrite).map_err(format_io(path, "open"))?;
        let part = Part {
            file: &device,
            path,
            file_offset: 0,
            length: geometry.total_bytes(),
        };
        let region = Region::map(&[part], DurabilityClass::Dax, Access::ReadWrite)?;
        return Ok(write_header(region, &superblock, Content::Anybodys));
    }
    let directory = make_directory(path)?;
    let made = create_files(&directory, &geometry).and_then(|files| {
        let region = files
            .map(&geometry, class, Access::ReadWrite, false)
            .map_err(|error| match error {
                OpenError::Map(error) => FormatError::Map(error),
                error => FormatError::Initialise(error.to_string()),
            })?;
        Ok(write_header(region, &superblock, Content::Nobodys))
    });
    if made.is_err() {
        let _ = remove(&directory);
    }
    made
}

fn make_directory(path: &Path) -> Result<PoolDirectory, FormatError> {
    PoolDirectory::make(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => FormatError::Exists {
            path: path.to_path_buf(),
        },
        _ => format_io(path, "make the pool's directory")(source),
    })
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device())
}

fn format_io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> FormatError {
    let path = path.to_path_buf();
    move |source| FormatError::Io {
        path,
        action,
        source,
    }
}

fn create_files(directory: &PoolDirectory, geometry: &Geometry) -> Result<Files, FormatError> {
    let pool = directory.path();
    let space = fstatvfs(directory.handle())
        .map_err(|error| format_io(pool, "read the free space")(error.into()))?;
    let free_bytes = space.f_bavail * space.f_frsize;
    let size_bytes = geometry.total_bytes();
    if free_bytes < size_bytes {
        return Err(FormatError::NoSpace {
            path: pool.to_path_buf(),
            size_bytes,
            free_bytes,
        });
    }
    let mut files = Files {
        paths: Vec::new(),
        files: Vec::new(),
        room: DescriptorRoom::new(geometry.segments),
    };
    let header = (
        SUPER_FILE.to_string(),
        geometry.header_blocks * BLOCK_BYTES as u64,
    );
    let segments =
        (0..geometry.segments).map(|segment| (segment_file(segment), geometry.segment_bytes()));
    for (name, length) in std::iter::once(header).chain(segments) {
        let path = directory.path_of(&name);
        let file = directory.create(name);
        let file = file.map_err(format_io(&path, "create"))?;
        pmem::use_huge_pages(&file, length).map_err(format_io(&path, "give a length to"))?;
        // Reserved now: a store into a hole of a full disk would end the process.
        fallocate(&file, FallocateFlags::empty(), 0, length).map_err(|error| match error {
            rustix::io::Errno::NOSPC => FormatError::NoSpace {
                path: pool.to_path_buf(),
                size_bytes,
                free_bytes,
            },
            error => format_io(&path, "reserve space for")(error.into()),
        })?;
        files.paths.push(path);
        files.files.push(file);
    }
    Ok(files)
}

/// Whether the bytes at the start of a file are those of a pool's superblock (any version).
pub fn is_pool(path: &Path) -> bool {
    let mut bytes = [0; size_of::<Superblock>()];
    let head = PoolDirectory::open(path)
        .and_then(|directory| directory.file(SUPER_FILE, Mode::ReadOnly))
        .and_then(|file| file.read_exact_at(&mut bytes, 0));
    head.is_ok()
        && Superblock::read_from_bytes(&bytes)
            .is_ok_and(|superblock| superblock.magic == crate::layout::MAGIC)
}
