//! The pool's files on the disk, as one range of bytes: header and segments side by side, as in the
//! region.

use super::placed_data::PlacedRun;
use super::stamp::{ImageStamp, STAMP_AT, STAMP_BYTES};
use crate::layout::Superblock;
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, Offset, Region};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use wal::{AlignedBuffer, Disk};
use zerocopy::IntoBytes;

/// Bytes that a thread reads at once.
const PIECE_BYTES: usize = 4 << 20;
/// The same of an image that is not worth a thread.
const SMALL_PIECE_BYTES: usize = 64 << 10;

/// A file of the image, and where it lies in the region.
#[derive(Debug)]
pub(crate) struct ImagePart {
    pub(crate) first_byte: u64,
    pub(crate) disk: Arc<dyn Disk>,
    /// Ranges of the file that may be something else than zeros.
    pub(crate) data: Vec<Range<u64>>,
    /// The part was written since the last flush.
    is_written: AtomicBool,
}

impl ImagePart {
    pub(crate) fn new(first_byte: u64, disk: Arc<dyn Disk>, data: Vec<Range<u64>>) -> ImagePart {
        ImagePart {
            first_byte,
            disk,
            data,
            is_written: AtomicBool::new(false),
        }
    }

    /// The blocks of a range of the file, in the region.
    fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        let block = BLOCK_BYTES as u64;
        let start = self.first_byte + range.start / block * block;
        start..self.first_byte + range.end.next_multiple_of(block)
    }

    /// A flush that fails is not repeated before the part is written again, because its state is
    /// unknown then.
    fn flush(&self) -> io::Result<bool> {
        let is_written = self.is_written.swap(false, Ordering::AcqRel);
        if is_written {
            self.disk.flush()?;
        }
        Ok(is_written)
    }
}

/// Ranges of a file that the file system has data of. All of it, if the file system does not tell.
pub(crate) fn data_ranges(file: &File, length: u64) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < length {
        match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => {
                let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(length);
                ranges.push(start..end.min(length));
                at = end;
            }
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => return std::iter::once(0..length).collect(),
        }
    }
    ranges
}

/// A range of the image holds one of these.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Run {
    /// Anything.
    Data,
    /// Zeros, which need not be read.
    Zeros,
}

/// The image of a region.
#[derive(Debug)]
pub(crate) struct Image {
    /// In ascending order, without gaps.
    parts: Vec<ImagePart>,
    identity: [u8; 16],
    /// The block of the second superblock, which has the stamp.
    stamped_at: u64,
    stamped: Mutex<Stamped>,
}

/// The stamp, and the block around it as it was last read or written.
#[derive(Debug)]
struct Stamped {
    block: AlignedBuffer,
    stamp: ImageStamp,
    is_written: bool,
}

impl Stamped {
    /// The block with the present stamp.
    fn block(&mut self) -> &[u8] {
        let stamp = self.stamp.sealed();
        self.block[STAMP_AT..STAMP_AT + STAMP_BYTES].copy_from_slice(stamp.as_bytes());
        &self.block
    }
}

impl Image {
    /// The image of the pool with this superblock, with a stamp of a new pool.
    pub(crate) fn new(parts: Vec<ImagePart>, superblock: &Superblock) -> Image {
        let mut block = AlignedBuffer::new();
        block.resize(BLOCK_BYTES);
        Image {
            parts,
            identity: superblock.uuid,
            stamped_at: superblock.geometry().second_superblock().get(),
            stamped: Mutex::new(Stamped {
                block,
                stamp: ImageStamp::new(superblock.uuid),
                is_written: false,
            }),
        }
    }

    /// Reads the stamp: whether there is one.
    pub(super) fn read_stamp(&self) -> io::Result<bool> {
        let mut stamped = self.stamped.lock();
        self.read_parts(self.stamped_at, &mut stamped.block)?;
        let read = ImageStamp::read(&stamped.block, self.identity);
        stamped.is_written = read.is_some();
        stamped.stamp = read.unwrap_or(stamped.stamp);
        Ok(read.is_some())
    }

    /// The stamp as it was last read or changed.
    pub(super) fn stamp(&self) -> ImageStamp {
        self.stamped.lock().stamp
    }

    /// Changes the stamp and writes it. A copy of the files must not have a later write without it;
    /// a power failure may lose it, because log and image are of one moment then.
    pub(super) fn change_stamp(&self, change: impl FnOnce(&mut ImageStamp)) -> io::Result<()> {
        let mut stamped = self.stamped.lock();
        let before = stamped.stamp;
        change(&mut stamped.stamp);
        if stamped.is_written && stamped.stamp == before {
            return Ok(());
        }
        stamped.is_written = false;
        self.write_parts(self.stamped_at, stamped.block())?;
        stamped.is_written = true;
        Ok(())
    }

    /// Makes the stamp durable.
    pub(super) fn flush_stamp(&self) -> io::Result<()> {
        self.for_each(self.stamped_at, BLOCK_BYTES as u64, |part, _, _| {
            part.disk.flush()
        })
    }

    /// Writes whole blocks, which may lie in several files. Durable after [`flush`](Self::flush).
    /// The stamp stays.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(at.is_multiple_of(BLOCK_BYTES as u64));
        if !self.has_stamp(at, bytes) {
            return self.write_parts(at, bytes);
        }
        let (before, rest) = bytes.split_at((self.stamped_at - at) as usize);
        let (block, behind) = rest.split_at(BLOCK_BYTES);
        self.write_parts(at, before)?;
        {
            let mut stamped = self.stamped.lock();
            stamped.block.copy_from_slice(block);
            self.write_parts(self.stamped_at, stamped.block())?;
            stamped.is_written = true;
        }
        self.write_parts(self.stamped_at + BLOCK_BYTES as u64, behind)
    }

    /// The same; the blocks are durable when this returns, unless one of them has the stamp. A
    /// flush of many blocks holds up the log longer than a durable write of few.
    pub(super) fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.has_stamp(at, bytes) {
            return self.write(at, bytes);
        }
        self.for_each(at, bytes.len() as u64, |part, at, range| {
            part.disk.write_durable(at, &bytes[range])
        })
    }

    fn has_stamp(&self, at: u64, bytes: &[u8]) -> bool {
        (at..at + bytes.len() as u64).contains(&self.stamped_at)
    }

    fn write_parts(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.for_each(at, bytes.len() as u64, |part, at, range| {
            part.is_written.store(true, Ordering::Release);
            part.disk.write(at, &bytes[range])
        })
    }

    /// Writes whole blocks, none of which has the stamp; they are durable when this returns.
    pub(super) fn write_runs(&self, runs: &[PlacedRun]) -> io::Result<()> {
        if let [run] = runs {
            return self.write_durable(run.at, &run.data);
        }
        let mut written = Vec::new();
        for run in runs {
            self.for_each(run.at, run.data.len() as u64, |part, at, range| {
                if !written.contains(&part.first_byte) {
                    written.push(part.first_byte);
                }
                part.disk.write(at, &run.data[range])
            })?;
        }
        // Not the flush of a checkpoint, which another thread may wait for.
        written.iter().try_for_each(|&at| {
            self.for_each(at, BLOCK_BYTES as u64, |part, _, _| part.disk.flush())
        })
    }

    /// Reads whole blocks. The stamp is no part of memory: it reads as zeros.
    pub(crate) fn read(&self, at: u64, into: &mut AlignedBuffer) -> io::Result<()> {
        self.read_parts(at, into)?;
        if (at..at + into.len() as u64).contains(&self.stamped_at) {
            let start = (self.stamped_at - at) as usize + STAMP_AT;
            into[start..start + STAMP_BYTES].fill(0);
        }
        Ok(())
    }

    fn read_parts(&self, at: u64, into: &mut AlignedBuffer) -> io::Result<()> {
        let length = into.len() as u64;
        self.for_each(at, length, |part, at, range| {
            part.disk.read(at, &mut into[range])
        })
    }

    /// Makes durable what was written. `pause` is called after each file that had to be flushed.
    pub(crate) fn flush(&self, mut pause: impl FnMut(Instant)) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| {
            let begin = Instant::now();
            if part.flush()? {
                pause(begin);
            }
            Ok(())
        })
    }

    /// The blocks of a range of whole blocks that may be something else than zeros, in pieces of
    /// at most `piece_bytes`.
    pub(super) fn pieces_of(&self, within: Range<u64>, piece_bytes: usize) -> Vec<Range<u64>> {
        let first = self
            .parts
            .partition_point(|part| part.first_byte <= within.start);
        let parts = self.parts[first.saturating_sub(1)..].iter();
        let parts = parts.take_while(|part| part.first_byte < within.end);
        let ranges = parts.flat_map(|part| part.data.iter().map(|range| part.blocks_of(range)));
        let ranges = ranges
            .map(|range| range.start.max(within.start)..range.end.min(within.end))
            .filter(|range| !range.is_empty());
        let cut_up = |range: Range<u64>| {
            let end = range.end;
            range
                .step_by(piece_bytes)
                .map(move |start| start..(start + piece_bytes as u64).min(end))
        };
        ranges.flat_map(cut_up).collect()
    }

    /// Finds what the image has around a byte: at least its block, within a window.
    pub(super) fn run_around(&self, at: u64, window: Range<u64>) -> (Run, Range<u64>) {
        let part = &self.parts[self.part_of(at)];
        let end = part.first_byte + part.disk.length_bytes();
        let window = window.start.max(part.first_byte)..window.end.min(end);
        // Blocks that the range before has a part of count to it.
        let next = part
            .data
            .partition_point(|range| part.blocks_of(range).end <= at);
        match part.data.get(next).map(|range| part.blocks_of(range)) {
            Some(data) if data.start <= at => {
                let range = data.start.max(window.start)..data.end.min(window.end);
                (Run::Data, range)
            }
            data => {
                let before = next.checked_sub(1).map(|before| &part.data[before]);
                let start = before.map_or(0, |range| part.blocks_of(range).end);
                let end = data.map_or(u64::MAX, |data| data.start);
                let range = start.max(window.start)..end.min(window.end);
                (Run::Zeros, range)
            }
        }
    }

    /// Name of the file that has a byte, for messages.
    pub(super) fn name_at(&self, at: u64) -> String {
        self.parts[self.part_of(at)].disk.name()
    }

    fn part_of(&self, at: u64) -> usize {
        self.parts.partition_point(|part| part.first_byte <= at) - 1
    }

    fn for_each(
        &self,
        at: u64,
        length: u64,
        mut act: impl FnMut(&ImagePart, u64, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        let mut index = self.part_of(at);
        while done < length {
            let part = &self.parts[index];
            let inside = at + done - part.first_byte;
            let bytes = (part.disk.length_bytes() - inside).min(length - done);
            act(part, inside, done as usize..(done + bytes) as usize)?;
            done += bytes;
            index += 1;
        }
        Ok(())
    }

    /// Reads all of the image that is not zero into memory, which is zeros.
    pub(crate) fn load(&self, region: &Region) -> io::Result<()> {
        self.load_range(region, 0..u64::MAX)
    }

    /// The same of a range of whole blocks.
    pub(super) fn load_range(&self, region: &Region, range: Range<u64>) -> io::Result<()> {
        self.load_blocks(region, range, |_, block| *block != [0; BLOCK_BYTES])
    }

    /// Reads the image into memory that holds anything.
    pub(crate) fn load_over(&self, region: &Region) -> io::Result<()> {
        self.load_blocks(region, 0..u64::MAX, |at, block| !region.equals(at, block))
    }

    fn load_blocks(
        &self,
        region: &Region,
        range: Range<u64>,
        is_wanted: impl Fn(Offset, &[u8]) -> bool + Sync,
    ) -> io::Result<()> {
        let mut pieces = self.pieces_of(range.clone(), PIECE_BYTES);
        let is_small = pieces.len() <= 1;
        let piece_bytes = if is_small {
            pieces = self.pieces_of(range, SMALL_PIECE_BYTES);
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
