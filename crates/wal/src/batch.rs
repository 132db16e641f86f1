//! Batches in memory: a buffer that is filled, then placed in the log, then written.

use crate::header::{BatchHeader, HEADER_BYTES, batch_bytes};
use crate::writer::Shared;
use crate::{AlignedBuffer, LogError};
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Buffers that are kept for the next batches.
const KEPT_BUFFERS_MAX: usize = 16;
/// Bytes of all buffers that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Entries of a batch, behind room for its header.
#[derive(Debug, Default)]
pub struct Payload {
    bytes: AlignedBuffer,
}

impl Payload {
    fn new(mut bytes: AlignedBuffer) -> Payload {
        bytes.clear();
        bytes.resize(HEADER_BYTES);
        Payload { bytes }
    }

    /// Bytes of the entries.
    pub fn len(&self) -> usize {
        self.bytes.len() - HEADER_BYTES
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.resize(0);
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Sets the number of bytes; new ones are zeros.
    pub fn resize(&mut self, bytes: usize) {
        self.bytes.resize(HEADER_BYTES + bytes);
    }

    /// Fills the last unit with zeros.
    pub(crate) fn pad(&mut self) {
        self.bytes.resize(batch_bytes(self.len() as u64) as usize);
    }

    /// Takes the padding away.
    pub(crate) fn cut(&mut self, bytes: usize) {
        self.resize(bytes);
    }

    pub(crate) fn set_header(&mut self, header: &BatchHeader) {
        self.bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    }

    /// Header, entries and, after [`pad`](Payload::pad), padding.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.bytes
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }
}

impl DerefMut for Payload {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[HEADER_BYTES..]
    }
}

/// Buffers that no batch uses.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<AlignedBuffer>>);

impl Buffers {
    pub(crate) fn take(self: &Arc<Buffers>) -> BatchBuffer {
        let bytes = self.0.lock().pop().unwrap_or_default();
        BatchBuffer {
            payload: Payload::new(bytes),
            buffers: Arc::clone(self),
        }
    }

    fn put(&self, bytes: AlignedBuffer) {
        if bytes.capacity() == 0 {
            return;
        }
        let mut kept = self.0.lock();
        let all = kept.iter().map(AlignedBuffer::capacity).sum::<usize>() + bytes.capacity();
        if kept.len() < KEPT_BUFFERS_MAX && all <= KEPT_BYTES_MAX {
            kept.push(bytes);
        }
    }
}

/// A batch that is being filled. Its memory goes back to the log when it is dropped.
#[derive(Debug)]
pub struct BatchBuffer {
    payload: Payload,
    buffers: Arc<Buffers>,
}

impl BatchBuffer {
    /// The entries, to be appended to.
    pub fn payload(&mut self) -> &mut Payload {
        &mut self.payload
    }

    /// Bytes of the entries.
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }
}

impl Drop for BatchBuffer {
    fn drop(&mut self) {
        self.buffers.put(std::mem::take(&mut self.payload.bytes));
    }
}

/// The ring has no room for this batch now; a checkpoint makes room.
#[derive(Debug)]
pub struct Full(pub BatchBuffer);

/// A batch with its number and place in the log, not written yet. A batch that is dropped unwritten
/// ends the log: later batches would follow a gap.
#[derive(Debug)]
pub struct Placed {
    pub(crate) buffer: BatchBuffer,
    pub(crate) header: BatchHeader,
    pub(crate) shared: Arc<Shared>,
    pub(crate) is_settled: bool,
}

impl Placed {
    /// Number of the batch.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// Number of its first record.
    pub fn first_sequence(&self) -> u64 {
        self.header.first
    }

    /// Number of its last record.
    pub fn last_sequence(&self) -> u64 {
        self.header.last
    }

    /// Bytes on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.header.batch_bytes()
    }

    /// Header, entries and padding.
    pub(crate) fn whole(&self) -> &[u8] {
        self.buffer.payload.whole()
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if !self.is_settled {
            self.shared.latch(LogError::Abandoned {
                disk: self.shared.disk.name(),
                number: self.header.number,
            });
        }
    }
}
