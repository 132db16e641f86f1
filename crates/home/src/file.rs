//! A home that is open.

use crate::HomeError;
use crate::batch::{Batch, Direction, Piece, Rings};
use crate::create::{Access, open};
use crate::header::{DATA_AT, HEADERS_AT, HomeHeader};
use device::{Device, DeviceError, ReadRequest, Run, Token, WriteRequest};
use parking_lot::Mutex;
use pmem::BLOCK_BYTES;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use wal::{AlignedBuffer, Disk, FileDisk, UNIT_BYTES};
use zerocopy::IntoBytes;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// One for all homes: a token of a home that was lost must not fit a write of its successor.
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(0);

/// The header that counts, and which of the two places it is at.
#[derive(Clone, Copy, Debug)]
struct Newest {
    header: HomeHeader,
    slot: usize,
}

/// The home of a pool, locked for this process.
#[derive(Debug)]
pub struct FileHome {
    disk: FileDisk,
    path: PathBuf,
    newest: Mutex<Newest>,
    blocks: u64,
    rings: Rings,
    writing: Mutex<HashMap<u64, Batch>>,
}

impl FileHome {
    /// Opens and locks the home of a pool: alone if this process `writes`, else with others that
    /// read. Nothing is written.
    ///
    /// # Errors
    ///
    /// [`HomeError`]: it is missing, in use, damaged, of another version or another pool.
    pub fn open(path: &Path, pool: &[u8; 16], writes: bool) -> Result<FileHome, HomeError> {
        let access = match writes {
            true => Access::Write,
            false => Access::Read,
        };
        let file = open(path, access)?;
        let disk = FileDisk::over(file, path.to_owned()).map_err(HomeError::io("open", path))?;
        let mut newest: Option<Newest> = None;
        for (slot, at) in HEADERS_AT.into_iter().enumerate() {
            let mut unit = unit();
            if at + UNIT_BYTES as u64 <= disk.length_bytes() {
                let read = disk.read(at, &mut unit);
                read.map_err(HomeError::io("read", path))?;
            }
            let is_newer = |header: &HomeHeader| {
                newest.is_none_or(|other| header.generation > other.header.generation)
            };
            if let Some(header) = HomeHeader::parse(&unit).filter(is_newer) {
                newest = Some(Newest { header, slot });
            }
        }
        let newest = newest.ok_or_else(|| HomeError::NotAHome {
            path: path.to_owned(),
        })?;
        let header = newest.header;
        header.require(path, pool)?;
        let room = disk.length_bytes().saturating_sub(DATA_AT) / BLOCK;
        if room < header.blocks {
            return Err(HomeError::TooSmall {
                path: path.to_owned(),
                bytes: disk.length_bytes(),
                least: DATA_AT + header.blocks * BLOCK,
            });
        }
        Ok(FileHome {
            disk,
            path: path.to_owned(),
            blocks: header.blocks,
            newest: Mutex::new(newest),
            rings: Rings::default(),
            writing: Mutex::default(),
        })
    }

    /// How often it was mounted for writing.
    pub fn generation(&self) -> u64 {
        self.newest.lock().header.generation
    }

    /// Fails unless home and memory are of the same time. The home counts a mount first, so that it
    /// is ahead by one if the power failed between the two.
    ///
    /// # Errors
    ///
    /// [`HomeError::OtherTime`].
    pub fn require_generation(&self, memory: u64) -> Result<(), HomeError> {
        let home = self.generation();
        if home == memory || home == memory + 1 {
            return Ok(());
        }
        Err(HomeError::OtherTime {
            path: self.path.clone(),
            older_or_newer: if home < memory { "older" } else { "newer" },
            home,
            memory,
        })
    }

    /// Counts a mount, durably, and returns the count, which is larger than `memory`, the memory's
    /// count of before. That follows.
    ///
    /// # Errors
    ///
    /// [`HomeError::Io`]: the count is the old one, or the new one.
    pub fn count_mount(&self, memory: u64) -> Result<u64, HomeError> {
        let mut newest = self.newest.lock();
        let mut header = newest.header;
        // After a power failure between this count and the memory's the same count is written
        // again: the home is never ahead by more than one.
        header.generation = match header.generation > memory + 1 {
            true => header.generation + 1,
            false => memory + 1,
        };
        let header = header.sealed();
        let mut unit = unit();
        unit[..size_of::<HomeHeader>()].copy_from_slice(header.as_bytes());
        // The newest header stays whole whatever becomes of this write.
        let slot = 1 - newest.slot;
        let written = self.disk.write(HEADERS_AT[slot], &unit);
        let written = written.and_then(|()| self.disk.flush());
        written.map_err(HomeError::io("write", &self.path))?;
        *newest = Newest { header, slot };
        Ok(header.generation)
    }

    fn failed(error: io::Error) -> DeviceError {
        use rustix::io::Errno;
        let gone = [Errno::NXIO, Errno::NODEV, Errno::NOMEDIUM];
        let code = error.raw_os_error();
        match gone.iter().any(|errno| Some(errno.raw_os_error()) == code) {
            true => DeviceError::Missing,
            false => DeviceError::Failed(error.to_string()),
        }
    }

    fn contains(&self, first: u64, blocks: u64) -> Result<(), DeviceError> {
        let end = first.checked_add(blocks);
        match end.is_some_and(|end| end <= self.blocks) {
            true => Ok(()),
            false => Err(DeviceError::Failed(format!(
                "block {first} lies behind the end of the home"
            ))),
        }
    }
}

/// A buffer of one unit.
fn unit() -> AlignedBuffer {
    let mut unit = AlignedBuffer::new();
    unit.resize(UNIT_BYTES);
    unit
}

/// Adds a block at the end of the buffer; blocks next to each other are one piece.
fn add(pieces: &mut Vec<Piece>, at: u64, start: usize, bytes: usize) {
    match pieces.last_mut() {
        Some(last) if last.at + last.bytes as u64 == at => last.bytes += bytes,
        _ => pieces.push(Piece { at, start, bytes }),
    }
}

impl Device for FileHome {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_unstable_by_key(|&index| requests[index].block);
        let mut pieces = Vec::new();
        for (position, &index) in order.iter().enumerate() {
            let block = requests[index].block;
            self.contains(block.get(), 1)?;
            add(
                &mut pieces,
                DATA_AT + block.byte(),
                position * BLOCK_BYTES,
                BLOCK_BYTES,
            );
        }
        let mut buffer = AlignedBuffer::with_capacity(requests.len() * BLOCK_BYTES);
        buffer.resize(requests.len() * BLOCK_BYTES);
        let batch = self
            .rings
            .begin(&self.disk, Direction::Read, buffer, &pieces);
        let buffer = self
            .rings
            .wait(&self.disk, batch)
            .map_err(FileHome::failed)?;
        let blocks = buffer.as_chunks::<BLOCK_BYTES>().0;
        for (&index, content) in order.iter().zip(blocks) {
            *requests[index].into = *content;
        }
        Ok(())
    }

    fn write(&self, requests: &[WriteRequest<'_>]) -> Result<Token, DeviceError> {
        let bytes = requests.iter().map(|request| request.bytes.len()).sum();
        let mut buffer = AlignedBuffer::with_capacity(bytes);
        let mut pieces = Vec::new();
        for request in requests {
            let length = request.bytes.len();
            self.contains(request.start.get(), length as u64 / BLOCK)?;
            add(
                &mut pieces,
                DATA_AT + request.start.byte(),
                buffer.len(),
                length,
            );
            buffer.extend_from_slice(request.bytes);
        }
        let batch = self
            .rings
            .begin(&self.disk, Direction::Write, buffer, &pieces);
        let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        self.writing.lock().insert(token, batch);
        Ok(Token(token))
    }

    fn wait(&self, token: Token) -> Result<(), DeviceError> {
        let batch = self.writing.lock().remove(&token.0);
        let Some(batch) = batch else {
            return Err(DeviceError::Failed("nobody has begun this write".into()));
        };
        let written = self.rings.wait(&self.disk, batch);
        written.map(drop).map_err(FileHome::failed)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.disk.flush().map_err(FileHome::failed)
    }

    fn trim(&self, _runs: &[Run]) {
        // A file keeps its blocks, so that it never finds its disk full; devices level their wear
        // without this.
    }
}

#[cfg(test)]
mod tests;
