//! Reads the ring in large pieces in a second thread, ahead of the replay.

use crate::ring::Ring;
use crate::{AlignedBuffer, Disk, LogError, UNIT_BYTES};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

/// Pieces that are read and not replayed yet.
const PIECES_AHEAD: usize = 3;
/// The first piece is small, because most logs end early; each next one is twice as long.
const FIRST_BYTES: u64 = 128 << 10;
const PIECE_BYTES_MAX: u64 = 4 << 20;

type Piece = Result<AlignedBuffer, LogError>;

/// The bytes of the ring from a position on, one lap at most.
pub(crate) struct Units {
    pieces: Receiver<Piece>,
    spare: Sender<AlignedBuffer>,
    /// The piece that is being read, and the place in it.
    current: AlignedBuffer,
    at: usize,
    /// A batch that lies in more than one piece.
    joined: AlignedBuffer,
    /// Position of the next byte.
    position: u64,
}

impl Units {
    /// Starts to read at a position.
    pub(crate) fn from<'scope>(
        scope: &'scope Scope<'scope, '_>,
        disk: &'scope dyn Disk,
        ring: Ring,
        position: u64,
    ) -> Units {
        let (full, pieces) = sync_channel(PIECES_AHEAD);
        let (spare, empty) = channel();
        if ring.bytes <= FIRST_BYTES {
            // Two pieces at most, and maybe an error: all of it fits.
            read_lap(disk, ring, position, &full, &empty);
        } else {
            scope.spawn(move || read_lap(disk, ring, position, &full, &empty));
        }
        Units {
            pieces,
            spare,
            current: AlignedBuffer::new(),
            at: 0,
            joined: AlignedBuffer::new(),
            position,
        }
    }

    /// Position of the next unit.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next unit, which stays the next one; none behind the lap.
    pub(crate) fn peek(&mut self) -> Result<Option<&[u8]>, LogError> {
        if self.at == self.current.len() && !self.next_piece()? {
            return Ok(None);
        }
        Ok(Some(&self.current[self.at..self.at + UNIT_BYTES]))
    }

    /// The next `bytes` bytes, whole units; none if the lap ends before.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<Option<&[u8]>, LogError> {
        if bytes <= self.current.len() - self.at {
            let from = self.at;
            self.at += bytes;
            self.position += bytes as u64;
            return Ok(Some(&self.current[from..self.at]));
        }
        self.joined.clear();
        while self.joined.len() < bytes {
            if self.at == self.current.len() && !self.next_piece()? {
                return Ok(None);
            }
            let end = self.current.len().min(self.at + bytes - self.joined.len());
            self.joined.extend_from_slice(&self.current[self.at..end]);
            self.position += (end - self.at) as u64;
            self.at = end;
        }
        Ok(Some(&self.joined))
    }

    fn next_piece(&mut self) -> Result<bool, LogError> {
        let Ok(piece) = self.pieces.recv() else {
            return Ok(false);
        };
        let old = std::mem::replace(&mut self.current, piece?);
        self.at = 0;
        // The thread has ended if it has read all.
        let _ = self.spare.send(old);
        Ok(true)
    }
}

/// Reads a lap from a position on, until it is read, a read fails, or nobody takes the pieces any
/// more.
fn read_lap(
    disk: &dyn Disk,
    ring: Ring,
    start: u64,
    full: &SyncSender<Piece>,
    empty: &Receiver<AlignedBuffer>,
) {
    let (mut position, mut wanted) = (start, FIRST_BYTES);
    while position < start + ring.bytes {
        let bytes = wanted
            .min(ring.until_wrap(position))
            .min(start + ring.bytes - position);
        let mut piece = empty.try_recv().unwrap_or_default();
        piece.resize(bytes as usize);
        let failure = read_piece(disk, ring.place(position), &mut piece);
        if !piece.is_empty() && full.send(Ok(piece)).is_err() {
            return;
        }
        if let Err(error) = failure {
            // A send that fails: the replay has ended before the damaged place.
            let _ = full.send(Err(error));
            return;
        }
        position += bytes;
        wanted = (wanted * 2).min(PIECE_BYTES_MAX);
    }
}

/// Reads a piece; if a read fails, the piece has the units before the damaged one: the log may end
/// there.
fn read_piece(disk: &dyn Disk, at: u64, piece: &mut AlignedBuffer) -> Result<(), LogError> {
    if disk.read(at, piece).is_ok() {
        return Ok(());
    }
    for from in (0..piece.len()).step_by(UNIT_BYTES) {
        let unit = &mut piece[from..from + UNIT_BYTES];
        if let Err(error) = disk.read(at + from as u64, unit) {
            piece.resize(from);
            return Err(LogError::Read {
                disk: disk.name(),
                at: at + from as u64,
                bytes: UNIT_BYTES,
                error: Arc::new(error),
            });
        }
    }
    Ok(())
}
