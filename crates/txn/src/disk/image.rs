//! The pool's files on the disk, as one range of bytes: header and segments side by side, as in the
//! region.

use pmem::BLOCK_BYTES;
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use wal::{AlignedBuffer, Disk};

/// A file of the image, and where it lies in the region.
#[derive(Debug)]
pub(crate) struct ImagePart {
    pub(crate) first_byte: u64,
    pub(crate) disk: Arc<dyn Disk>,
    /// Ranges of the file that may be something else than zeros.
    pub(crate) data: Vec<Range<u64>>,
    /// Whether it was written since the last flush.
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

    /// A flush that fails is not repeated before the part is written again: what was written is
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

/// The image of a region.
#[derive(Debug)]
pub(crate) struct Image {
    /// In ascending order, without gaps.
    parts: Vec<ImagePart>,
}

impl Image {
    pub(crate) fn new(parts: Vec<ImagePart>) -> Image {
        Image { parts }
    }

    /// Writes whole blocks, which may lie in several files. Durable after [`flush`](Self::flush).
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(at.is_multiple_of(BLOCK_BYTES as u64));
        self.for_each(at, bytes.len() as u64, |part, at, range| {
            part.is_written.store(true, Ordering::Release);
            part.disk.write(at, &bytes[range])
        })
    }

    /// Reads whole blocks.
    pub(crate) fn read(&self, at: u64, into: &mut AlignedBuffer) -> io::Result<()> {
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

    /// The blocks that may be something else than zeros, in pieces of at most `piece_bytes`.
    pub(crate) fn data_pieces(&self, piece_bytes: usize) -> Vec<Range<u64>> {
        let whole = |part: &ImagePart, range: &Range<u64>| {
            let block = BLOCK_BYTES as u64;
            let start = part.first_byte + range.start / block * block;
            start..part.first_byte + range.end.next_multiple_of(block)
        };
        let ranges = self
            .parts
            .iter()
            .flat_map(|part| part.data.iter().map(move |range| whole(part, range)));
        let cut_up = |range: Range<u64>| {
            let end = range.end;
            range
                .step_by(piece_bytes)
                .map(move |start| start..(start + piece_bytes as u64).min(end))
        };
        ranges.flat_map(cut_up).collect()
    }

    fn for_each(
        &self,
        at: u64,
        length: u64,
        mut act: impl FnMut(&ImagePart, u64, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        let mut index = self.parts.partition_point(|part| part.first_byte <= at) - 1;
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
}
