//! Reads and writes that are under way together, through `io_uring` or one after the other.

use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use std::io;
use std::os::fd::AsRawFd;
use wal::{AlignedBuffer, Disk, FileDisk};

/// Requests that a ring has room for.
const ENTRIES: u32 = 256;
/// Largest request: longer ones are split, so that a disk with many queues works at all of them.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Rings that are kept for the next batch.
const RINGS_KEPT: usize = 16;

/// Which way a batch goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// A part of the buffer and its place on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) at: u64,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

/// Rings without work.
#[derive(Default)]
pub(crate) struct Rings {
    idle: Mutex<Vec<IoUring>>,
}

/// Requests under way. The buffer belongs to the kernel until all of them are done.
pub(crate) struct Batch {
    buffer: AlignedBuffer,
    pieces: Vec<Piece>,
    direction: Direction,
    ring: Option<IoUring>,
    /// Pieces that were handed to the ring.
    submitted: usize,
    /// Pieces that the ring has returned.
    returned: usize,
    failed: Option<io::Error>,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let idle = self.idle.lock().len();
        formatter
            .debug_struct("Rings")
            .field("idle", &idle)
            .finish()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = formatter.debug_struct("Batch");
        all.field("pieces", &self.pieces.len())
            .finish_non_exhaustive()
    }
}

impl Rings {
    fn take(&self) -> Option<IoUring> {
        let idle = self.idle.lock().pop();
        // A container may forbid it; then requests are made one after the other.
        idle.or_else(|| IoUring::new(ENTRIES).ok())
    }

    fn give_back(&self, ring: IoUring) {
        let mut idle = self.idle.lock();
        if idle.len() < RINGS_KEPT {
            idle.push(ring);
        }
    }

    /// Begins a batch. Its pieces lie in the buffer one behind the other.
    pub(crate) fn begin(
        &self,
        disk: &FileDisk,
        direction: Direction,
        buffer: AlignedBuffer,
        pieces: &[Piece],
    ) -> Batch {
        let pieces: Vec<Piece> = pieces.iter().flat_map(split).collect();
        let ring = match pieces.len() {
            1 => None,
            _ => self.take(),
        };
        let mut batch = Batch {
            buffer,
            pieces,
            direction,
            ring,
            submitted: 0,
            returned: 0,
            failed: None,
        };
        batch.advance(disk);
        batch
    }

    /// Waits until a batch is done, and returns its buffer.
    pub(crate) fn wait(&self, disk: &FileDisk, mut batch: Batch) -> io::Result<AlignedBuffer> {
        while batch.advance(disk) {
            batch.collect(disk, 1);
        }
        if let Some(ring) = batch.ring.take() {
            self.give_back(ring);
        }
        match batch.failed.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::replace(&mut batch.buffer, AlignedBuffer::new())),
        }
    }
}

/// Requests of a size that disks like.
fn split(piece: &Piece) -> impl Iterator<Item = Piece> + use<> {
    let piece = *piece;
    (0..piece.bytes)
        .step_by(REQUEST_BYTES_MAX)
        .map(move |done| Piece {
            at: piece.at + done as u64,
            start: piece.start + done,
            bytes: REQUEST_BYTES_MAX.min(piece.bytes - done),
        })
}

impl Batch {
    /// Hands the ring what it has room for. Returns whether something is under way.
    fn advance(&mut self, disk: &FileDisk) -> bool {
        let Some(ring) = &mut self.ring else {
            while self.submitted < self.pieces.len() {
                let piece = self.pieces[self.submitted];
                self.submitted += 1;
                self.returned += 1;
                let done = self.do_now(disk, piece, 0);
                self.note(done);
            }
            return false;
        };
        let fd = types::Fd(disk.file().as_raw_fd());
        while self.submitted < self.pieces.len()
            && self.submitted - self.returned < ENTRIES as usize
            && self.failed.is_none()
        {
            let piece = self.pieces[self.submitted];
            let bytes = piece.bytes as u32;
            let memory = &mut self.buffer[piece.start..][..piece.bytes];
            let entry = match self.direction {
                Direction::Read => opcode::Read::new(fd, memory.as_mut_ptr(), bytes)
                    .offset(piece.at)
                    .build(),
                Direction::Write => opcode::Write::new(fd, memory.as_ptr(), bytes)
                    .offset(piece.at)
                    .build(),
            };
            let entry = entry.user_data(self.submitted as u64);
            // SAFETY: the memory belongs to the batch, which neither moves nor frees nor uses it
            // until the ring has returned the request; dropping the batch waits for that.
            let pushed = unsafe { ring.submission().push(&entry) };
            if pushed.is_err() {
                break;
            }
            self.submitted += 1;
        }
        if self.returned < self.submitted
            && let Err(error) = ring.submit()
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.failed.get_or_insert(error);
        }
        self.returned < self.submitted
    }

    /// Waits for at least so many requests.
    fn collect(&mut self, disk: &FileDisk, least: usize) {
        let Some(ring) = &mut self.ring else { return };
        if let Err(error) = ring.submit_and_wait(least)
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.failed.get_or_insert(error);
        }
        let done: Vec<(u64, i32)> = ring
            .completion()
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        for (index, result) in done {
            self.returned += 1;
            let piece = self.pieces[index as usize];
            let done = match usize::try_from(result) {
                Err(_) => Err(io::Error::from_raw_os_error(-result)),
                Ok(bytes) if bytes == piece.bytes => Ok(()),
                // A part was done: the rest follows at once.
                Ok(bytes) => self.do_now(disk, piece, bytes),
            };
            self.note(done);
        }
    }

    /// Does what is left of a piece, without the ring.
    fn do_now(&mut self, disk: &FileDisk, piece: Piece, done: usize) -> io::Result<()> {
        // The disk takes whole units only.
        let done = done / wal::UNIT_BYTES * wal::UNIT_BYTES;
        let memory = &mut self.buffer[piece.start + done..piece.start + piece.bytes];
        let at = piece.at + done as u64;
        match self.direction {
            Direction::Read => disk.read(at, memory),
            Direction::Write => disk.write(at, memory),
        }
    }

    fn note(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let Some(mut ring) = self.ring.take() else {
            return;
        };
        while self.returned < self.submitted {
            if ring
                .submit_and_wait(1)
                .is_err_and(|error| error.kind() != io::ErrorKind::Interrupted)
            {
                // The kernel may write to the memory still: it stays.
                std::mem::forget(std::mem::replace(&mut self.buffer, AlignedBuffer::new()));
                return;
            }
            self.returned += ring.completion().count();
        }
    }
}
