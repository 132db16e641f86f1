//! Records and the data that they publish become a batch of the log.
//!
//! A batch is a list of entries, each a head word and its payload, as in a record: absolute bytes,
//! in the order of the records' numbers. The data that a record publishes is copied from memory
//! behind the cut.

use super::dirty::DirtyBlocks;
use super::reader::Read;
use crate::record::{self, EntryHead, notes};
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region, WORD_BYTES};
use std::collections::HashSet;
use wal::BatchBuffer;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Builds one batch.
#[derive(Debug)]
pub(crate) struct BatchBuilder<'b> {
    region: &'b Region,
    dirty: &'b DirtyBlocks,
    buffer: BatchBuffer,
    /// Blocks whose data was copied.
    copied: HashSet<BlockNumber>,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl<'b> BatchBuilder<'b> {
    pub(crate) fn new(region: &'b Region, dirty: &'b DirtyBlocks, buffer: BatchBuffer) -> Self {
        BatchBuilder {
            region,
            dirty,
            buffer,
            copied: HashSet::new(),
            first: 0,
            last: 0,
        }
    }

    /// Bytes of entries so far.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.buffer.payload_bytes()
    }

    /// Adds the changes of a record, and copies of the data that it publishes.
    pub(crate) fn add(&mut self, read: &Read) {
        let mut entries = record::entries(&read.bytes);
        for (head, entry) in entries.by_ref() {
            self.push(head, entry.payload);
        }
        for (at, bytes) in notes(entries.rest()) {
            self.copy(at, bytes);
        }
        if let Some(data) = record::data_check(&read.bytes) {
            self.copy(data.at, data.length as u64);
        }
        if self.first == 0 {
            self.first = read.sequence;
        }
        self.last = read.sequence;
    }

    /// Whether a record changes data in place that this batch has a copy of: the copy may have the
    /// change.
    pub(crate) fn is_changed_by(&self, read: &Read) -> bool {
        let mut entries = record::entries(&read.bytes);
        entries.any(|(_, entry)| {
            let last = entry.at + (entry.length as u64 - 1);
            (entry.at.block().get()..=last.block().get())
                .any(|block| self.copied.contains(&BlockNumber::new(block)))
        })
    }

    /// Copies bytes from memory as they are now.
    pub(crate) fn copy(&mut self, at: Offset, bytes: u64) {
        let end = at + bytes;
        let mut at = at;
        while at < end {
            let next = (at.block().offset() + BLOCK).min(end);
            let length = (next.get() - at.get()) as usize;
            let head = EntryHead::change(at, length);
            let payload = self.buffer.payload();
            payload.extend_from_slice(&head.word().to_le_bytes());
            let start = payload.len();
            payload.resize(start + length.next_multiple_of(WORD_BYTES));
            self.region.read(at, &mut payload[start..start + length]);
            self.copied.insert(at.block());
            self.dirty.mark(at, length as u64);
            at = next;
        }
    }

    fn push(&mut self, head: EntryHead, bytes: Option<&[u8]>) {
        let payload = self.buffer.payload();
        payload.extend_from_slice(&head.word().to_le_bytes());
        if let Some(bytes) = bytes {
            payload.extend_from_slice(bytes);
            payload.resize(payload.len().next_multiple_of(WORD_BYTES));
        }
        self.dirty.mark(head.at(), head.length() as u64);
    }

    pub(crate) fn finish(self) -> BatchBuffer {
        self.buffer
    }
}

/// Why a batch cannot be applied.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "an entry at byte {at} of the batch changes {length} bytes at {place:#x}, which is outside of the pool"
)]
pub(crate) struct BadEntry {
    at: usize,
    length: usize,
    place: u64,
}

/// Applies a batch to memory; marks what it changed. Any bytes are accepted: an entry outside of
/// the pool or in its superblocks is refused before anything is stored.
pub(crate) fn apply(
    region: &Region,
    dirty: &DirtyBlocks,
    is_inside: impl Fn(Offset, usize) -> bool,
    payload: &[u8],
) -> Result<(), BadEntry> {
    let mut used = 0;
    for (head, entry) in record::all_entries(payload) {
        if !is_inside(entry.at, entry.length) {
            return Err(BadEntry {
                at: used,
                length: entry.length,
                place: head.at().get(),
            });
        }
        used += WORD_BYTES
            + entry
                .payload
                .map_or(0, |bytes| bytes.len().next_multiple_of(WORD_BYTES));
    }
    if used != payload.len() {
        return Err(BadEntry {
            at: used,
            length: 0,
            place: 0,
        });
    }
    for (head, entry) in record::all_entries(payload) {
        match entry.payload {
            Some(bytes) => region.store(entry.at, bytes).leave_to_checkpoint(),
            None => region
                .fill_zero(entry.at, entry.length as u64)
                .leave_to_checkpoint(),
        }
        dirty.mark(head.at(), head.length() as u64);
    }
    Ok(())
}
