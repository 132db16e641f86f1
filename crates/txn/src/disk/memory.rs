//! The memory's files: a directory on tmpfs that is named after the pool and outlives a killed
//! server.

use super::image::{Image, data_ranges};
use super::loader::Files;
use crate::checksum::crc32c;
use crate::descriptors::DescriptorRoom;
use crate::directory::PoolDirectory;
use crate::error::OpenError;
use crate::layout::{Geometry, Superblock};
use crate::pool::{Mode, SUPER_FILE, io_error, segment_file};
use crate::sharing::{SegmentFiles, Usage, empty_file, usage, were_given};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, Offset, Part, Region};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, fstatfs, fstatvfs};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::AlignedBuffer;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Where Linux has memory that all processes can name.
const SHARED_MEMORY: &str = "/dev/shm";
const STAMP_FILE: &str = "stamp";
const MAGIC: [u8; 8] = *b"PERDMEM\x01";
/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;
/// What `statfs` calls tmpfs.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Says whose memory this is, and which use of the pool it belongs to. Written when the memory is
/// whole.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Stamp {
    magic: [u8; 8],
    uuid: [u8; 16],
    /// Of the use of the pool that has the memory, as in the log's root.
    pub(crate) token: u64,
    /// Of the use before: the log's root may have it still.
    pub(crate) former: u64,
    /// 1: holes of the segments are blocks of the image that were not loaded yet.
    holes: u32,
    checksum: u32,
}

const _: () = assert!(size_of::<Stamp>() == 48);

impl Stamp {
    pub(crate) fn new(superblock: &Superblock, token: u64, former: u64) -> Stamp {
        let mut stamp = Stamp {
            magic: MAGIC,
            uuid: superblock.uuid,
            token,
            former,
            holes: 0,
            checksum: 0,
        };
        stamp.checksum = crc32c(stamp.as_bytes());
        stamp
    }

    /// The same of memory that is loaded while it is used.
    pub(crate) fn with_holes(self, has_holes: bool) -> Stamp {
        let mut stamp = Stamp {
            holes: has_holes.into(),
            checksum: 0,
            ..self
        };
        stamp.checksum = crc32c(stamp.as_bytes());
        stamp
    }

    pub(crate) fn has_holes(&self) -> bool {
        self.holes != 0 && !deliberate::is(Bug::TakeHolesForZeros)
    }

    /// Servers before lazy loading know no memory with holes, and load the image again.
    fn is_of(&self, superblock: &Superblock) -> bool {
        let expected = Stamp::new(superblock, self.token, self.former);
        let expected = expected.with_holes(self.holes == 1);
        self.as_bytes() == expected.as_bytes()
    }
}

/// The files of a memory directory: the header, then the segments.
#[derive(Debug)]
pub(crate) struct Memory {
    directory: PoolDirectory,
    files: Vec<(File, PathBuf, u64)>,
    room: DescriptorRoom,
    /// The stamp's file, locked as long as a server has the memory.
    stamp: File,
}

fn place_of(superblock: &Superblock) -> PathBuf {
    let name: String = superblock
        .uuid
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Path::new(SHARED_MEMORY).join(format!("perdure-{name}"))
}

fn names(geometry: &Geometry) -> impl Iterator<Item = (String, u64)> + use<> {
    let header = (
        SUPER_FILE.to_owned(),
        geometry.header_blocks * BLOCK_BYTES as u64,
    );
    let segment_bytes = geometry.segment_bytes();
    let segments = (0..geometry.segments).map(move |index| (segment_file(index), segment_bytes));
    std::iter::once(header).chain(segments)
}

impl Memory {
    /// The memory that a killed server has left, with its stamp. `None` if there is none that is
    /// whole.
    pub(crate) fn find(
        superblock: &Superblock,
        mode: Mode,
    ) -> Result<Option<(Memory, Stamp)>, OpenError> {
        let place = place_of(superblock);
        let directory = match PoolDirectory::own(&place) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&place, "look at the pool's memory")(error)),
        };
        let mut stamp = Stamp::new_zeroed();
        let Ok(stamp_file) = directory.file(STAMP_FILE, mode) else {
            return Ok(None);
        };
        take(&stamp_file, &place, mode)?;
        let read = stamp_file.read_exact_at(stamp.as_mut_bytes(), 0);
        if read.is_err() || !stamp.is_of(superblock) || !is_tmpfs(&directory) {
            return Ok(None);
        }
        let mut memory = Memory::without_files(directory, stamp_file, superblock);
        for (name, length) in names(&superblock.geometry()) {
            let path = memory.directory.path_of(&name);
            match memory.directory.file(&name, mode) {
                Ok(file) if file.metadata().is_ok_and(|found| found.len() == length) => {
                    memory.files.push((file, path, length));
                }
                _ => return Ok(None),
            }
        }
        if mode == Mode::ReadWrite {
            memory.fill_holes()?;
        }
        Ok(Some((memory, stamp)))
    }

    fn without_files(directory: PoolDirectory, stamp: File, superblock: &Superblock) -> Memory {
        Memory {
            directory,
            files: Vec::new(),
            room: DescriptorRoom::new(superblock.geometry().segments),
            stamp,
        }
    }

    /// A server that was killed while it replaced pages that a process had may have left holes.
    fn fill_holes(&self) -> Result<(), OpenError> {
        for (file, path, length) in &self.files {
            if were_given(file) {
                let whole = fallocate(file, FallocateFlags::empty(), 0, *length);
                whole.map_err(|error| io_error(path, "fill holes in it")(error.into()))?;
            }
        }
        Ok(())
    }

    /// Segments that processes of a former server have.
    pub(crate) fn had(&self) -> Vec<u32> {
        let segments = self.files.iter().skip(1).zip(0..);
        segments
            .filter(|((file, ..), _)| usage(file) == Usage::Shared)
            .map(|(_, segment)| segment)
            .collect()
    }

    /// The directory, the files through which the segments are mapped, and the lock: as long as it
    /// is open, the memory counts as in use.
    pub(crate) fn into_segments(self) -> (Arc<PoolDirectory>, SegmentFiles, File) {
        let files = self.files.into_iter().skip(1);
        let segments = SegmentFiles {
            files: files.map(|(file, ..)| file).collect(),
            _room: self.room,
        };
        (Arc::new(self.directory), segments, self.stamp)
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Segments that may have blocks that were not loaded.
    pub(super) fn unloaded(&self) -> Vec<u32> {
        let segments = self.files.iter().skip(1).zip(0..);
        let segments = segments.filter(|((file, _, length), _)| !is_whole(file, *length));
        segments.map(|(_, segment)| segment).collect()
    }

    /// Loads what a killed server had not loaded, and reserves all memory. Nothing is mapped yet: a
    /// look at a hole in a mapping makes zeros of it.
    pub(super) fn complete(&self, image: &Image) -> Result<(), OpenError> {
        let mut first = 0;
        for (file, path, length) in &self.files {
            if !is_whole(file, *length) {
                let filled = fill_holes_from(file, first..first + length, image);
                filled.map_err(io_error(path, "load the image into it"))?;
                reserve(file, *length).map_err(|error| self.no_room(path, error))?;
            }
            first += length;
        }
        Ok(())
    }

    /// Reads memory with holes into private memory that has the image. Nothing is mapped.
    pub(super) fn read_over(&self, region: &Region) -> Result<(), OpenError> {
        let mut first = 0;
        let mut buffer = vec![0; READ_BYTES as usize];
        for (file, path, length) in &self.files {
            let ranges = match is_whole(file, *length) {
                true => std::iter::once(0..*length).collect(),
                false => data_ranges(file, *length),
            };
            for range in ranges {
                for at in range.clone().step_by(READ_BYTES as usize) {
                    let bytes = &mut buffer[..READ_BYTES.min(range.end - at) as usize];
                    let read = file.read_exact_at(bytes, at);
                    read.map_err(io_error(path, "read it"))?;
                    region
                        .store(Offset::new(first + at), bytes)
                        .leave_to_checkpoint();
                }
            }
            first += length;
        }
        Ok(())
    }

    /// The files of the segments, for a loader, and the mark that all is loaded.
    pub(super) fn files_to_load(&self, stamp: Stamp) -> io::Result<Files> {
        let segments = self.files.iter().skip(1);
        let segments = segments.map(|(file, ..)| file.try_clone());
        let segments = segments.collect::<io::Result<Vec<_>>>()?;
        // Not the descriptor that has the lock.
        let file = self.directory.file(STAMP_FILE, Mode::ReadWrite)?;
        Ok(Files {
            _room: DescriptorRoom::new(segments.len() as u32),
            segments,
            when_whole: Box::new(move || {
                if let Err(error) = file.write_all_at(stamp.with_holes(false).as_bytes(), 0) {
                    tracing::warn!(%error, "the pool's memory is not marked as loaded");
                }
            }),
        })
    }

    fn no_room(&self, path: &Path, error: Errno) -> OpenError {
        match error {
            Errno::NOSPC => {
                let absent =
                    |(file, _, length): &(File, PathBuf, u64)| length.saturating_sub(there(file));
                OpenError::NoMemory {
                    path: self.directory.path().to_path_buf(),
                    needed_bytes: self.files.iter().map(absent).sum(),
                    free_bytes: self.free_bytes().unwrap_or(0),
                }
            }
            error => io_error(path, "reserve memory for it")(error.into()),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let space = fstatvfs(self.directory.handle())?;
        Ok(space.f_bavail * space.f_frsize)
    }

    /// Refuses memory for which there is no room, as far as it is absent.
    pub(super) fn check_room(&self) -> Result<(), OpenError> {
        let absent = |(file, _, length): &(File, PathBuf, u64)| length.saturating_sub(there(file));
        let needed_bytes: u64 = self.files.iter().map(absent).sum();
        let place = self.directory.path();
        let free_bytes = self
            .free_bytes()
            .map_err(io_error(place, "read the free space"))?;
        match free_bytes < needed_bytes {
            true => Err(OpenError::NoMemory {
                path: place.to_path_buf(),
                needed_bytes,
                free_bytes,
            }),
            false => Ok(()),
        }
    }

    /// New memory, zeros, of which only the header is reserved. Old memory under the name goes.
    pub(crate) fn make(superblock: &Superblock) -> Result<Memory, OpenError> {
        let place = place_of(superblock);
        let old = PoolDirectory::own(&place);
        if let Ok(old) = old.and_then(|old| old.file(STAMP_FILE, Mode::ReadOnly)) {
            take(&old, &place, Mode::ReadWrite)?;
        }
        Memory::give_back(superblock);
        let directory = PoolDirectory::make(&place)
            .map_err(io_error(&place, "make a directory for the pool's memory"))?;
        let stamp = directory.create(STAMP_FILE);
        let stamp = stamp.map_err(io_error(&place, "make a stamp for the pool's memory"))?;
        take(&stamp, &place, Mode::ReadWrite)?;
        let mut memory = Memory::without_files(directory, stamp, superblock);
        let filled = memory.fill(superblock);
        if filled.is_err() {
            Memory::remove(superblock);
        }
        filled.map(|()| memory)
    }

    fn fill(&mut self, superblock: &Superblock) -> Result<(), OpenError> {
        let place = self.directory.path().to_path_buf();
        if !is_tmpfs(&self.directory) {
            let error = io::Error::new(
                io::ErrorKind::Unsupported,
                "it is not on tmpfs; mount one at /dev/shm",
            );
            return Err(io_error(&place, "keep the pool in memory there")(error));
        }
        for (number, (name, length)) in names(&superblock.geometry()).enumerate() {
            let path = self.directory.path_of(&name);
            let file = self.directory.create(&name);
            let file = file.map_err(io_error(&path, "make it"))?;
            let made = file.set_len(length);
            made.map_err(io_error(&path, "give it a length"))?;
            self.files.push((file, path, length));
            if number == 0 {
                self.reserve(self.files.len() - 1)?;
            }
        }
        self.check_room()
    }

    /// Reserves memory for all of it: an access to a page that is not there and cannot be had would
    /// end this process.
    pub(super) fn reserve_all(&self) -> Result<(), OpenError> {
        (1..self.files.len()).try_for_each(|number| self.reserve(number))
    }

    fn reserve(&self, number: usize) -> Result<(), OpenError> {
        let (file, path, length) = &self.files[number];
        pmem::use_huge_pages(file, *length).map_err(io_error(path, "give it a length"))?;
        reserve(file, *length).map_err(|error| self.no_room(path, error))
    }

    /// The memory is whole: a server that is killed from here on leaves it for the next one.
    pub(crate) fn stamp(&self, stamp: &Stamp) -> Result<(), OpenError> {
        let path = self.directory.path_of(STAMP_FILE);
        let written = self.stamp.write_all_at(stamp.as_bytes(), 0);
        written.map_err(io_error(&path, "write it"))
    }

    /// For mapping, side by side.
    pub(crate) fn parts(&self) -> Vec<Part<'_>> {
        let parts = self.files.iter();
        let parts = parts.map(|(file, path, length)| Part {
            file,
            path,
            file_offset: 0,
            length: *length,
        });
        parts.collect()
    }

    /// Removes memory that a former server has left. Its pages are freed although processes of that
    /// server may have segments mapped.
    pub(crate) fn give_back(superblock: &Superblock) {
        if let Ok(directory) = PoolDirectory::own(&place_of(superblock)) {
            for (name, length) in names(&superblock.geometry()) {
                if let Ok(file) = directory.file(&name, Mode::ReadWrite)
                    && usage(&file) == Usage::Shared
                {
                    empty_file(&file, length);
                }
            }
        }
        Memory::remove(superblock);
    }

    /// Removes the memory of a pool, if there is any of this user's.
    pub(crate) fn remove(superblock: &Superblock) {
        let Ok(directory) = PoolDirectory::own(&place_of(superblock)) else {
            return;
        };
        // First, so that the rest does not look whole.
        let _ = directory.remove(STAMP_FILE);
        for name in directory.names().unwrap_or_default() {
            let _ = directory.remove(&name);
        }
        let _ = directory.remove_itself();
    }
}

/// A pool and its copy have one identity, and so one place for their memory.
fn take(stamp: &File, place: &Path, mode: Mode) -> Result<(), OpenError> {
    let operation = match mode {
        Mode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        Mode::ReadOnly => FlockOperation::NonBlockingLockShared,
    };
    flock(stamp, operation).map_err(|error| match error {
        Errno::WOULDBLOCK => OpenError::MemoryInUse {
            path: place.to_path_buf(),
        },
        error => io_error(place, "lock")(error.into()),
    })
}

fn there(file: &File) -> u64 {
    file.metadata().map_or(0, |found| found.blocks() * 512)
}

/// Whether a file of memory has no absent page. One that a process was given was loaded before; its
/// holes are pages that were about to be replaced.
fn is_whole(file: &File, length: u64) -> bool {
    there(file) >= length || were_given(file)
}

fn reserve(file: &File, length: u64) -> rustix::io::Result<()> {
    fallocate(file, FallocateFlags::empty(), 0, length)
}

/// Holes of a file that is that range of the region get what the image has there.
fn fill_holes_from(file: &File, range: Range<u64>, image: &Image) -> io::Result<()> {
    let there = data_ranges(file, range.end - range.start);
    let mut buffer = AlignedBuffer::new();
    for piece in image.pieces_of(range.clone(), READ_BYTES as usize) {
        let inside = piece.start - range.start..piece.end - range.start;
        buffer.resize((piece.end - piece.start) as usize);
        image.read(piece.start, &mut buffer)?;
        for (index, block) in buffer.chunks(BLOCK_BYTES).enumerate() {
            let at = inside.start + (index * BLOCK_BYTES) as u64;
            let next = there.partition_point(|range| range.end <= at);
            let is_there = there.get(next).is_some_and(|range| range.start <= at);
            if !is_there {
                file.write_all_at(block, at)?;
            }
        }
    }
    Ok(())
}

fn is_tmpfs(directory: &PoolDirectory) -> bool {
    fstatfs(directory.handle()).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}
