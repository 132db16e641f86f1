//! Records and the data that they publish become a batch of the log.
//!
//! A batch is a list of entries, each a head word and its payload, as in a record: absolute bytes,
//! in the order of the records' numbers. The data that a record publishes is copied from memory
//! behind the cut.

use super::dirty::DirtyBlocks;
use super::loader::Loader;
use super::reader::Read;
use crate::record::{self, EntryHead, notes};
use foldhash::fast::FixedState;
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region, WORD_BYTES};
use wal::BatchBuffer;

const BLOCK: u64 = BLOCK_BYTES as u64;

type HashSet<K> = hashbrown::HashSet<K, FixedState>;
type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// Builds one batch.
#[derive(Debug)]
pub(crate) struct BatchBuilder<'b> {
    region: &'b Region,
    dirty: &'b DirtyBlocks,
    buffer: BatchBuffer,
    /// Blocks whose data was copied.
    copied: HashSet<BlockNumber>,
    /// Blocks that records of the batch give back, and the last of these records.
    freed: HashMap<BlockNumber, u64>,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl<'b> BatchBuilder<'b> {
    pub(crate) fn new(region: &'b Region, dirty: &'b DirtyBlocks, buffer: BatchBuffer) -> Self {
        BatchBuilder {
            region,
            dirty,
            buffer,
            copied: HashSet::default(),
            freed: HashMap::default(),
            first: 0,
            last: 0,
        }
    }

    /// How many bytes the entries have so far.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.buffer.payload_bytes()
    }

    /// Adds records. Data that one publishes in a block that a later one gives back is not copied:
    /// the block is used again only when the batch is durable (L4).
    pub(crate) fn add_all(&mut self, reads: &[Read]) {
        reads.iter().for_each(|read| self.note_freed(read));
        reads.iter().for_each(|read| self.add(read));
    }

    /// The batch has this record: an earlier one may publish data in blocks that it gives back.
    fn note_freed(&mut self, read: &Read) {
        let mut entries = record::entries(&read.bytes);
        entries.by_ref().for_each(drop);
        for note in notes(entries.rest()).filter(|note| note.is_freed) {
            let first = note.at.block().get();
            for block in first..first + note.bytes / BLOCK {
                self.freed.insert(BlockNumber::new(block), read.sequence);
            }
        }
    }

    /// Adds the changes of a record, and copies of the data that it publishes.
    pub(crate) fn add(&mut self, read: &Read) {
        let mut entries = record::entries(&read.bytes);
        for (head, entry) in entries.by_ref() {
            self.push(head, entry.payload);
        }
        for note in notes(entries.rest()).filter(|note| !note.is_freed) {
            self.copy_data(note.at, note.bytes, read.sequence);
        }
        if let Some(data) = record::data_check(&read.bytes) {
            self.copy_data(data.at, data.length as u64, read.sequence);
        }
        if self.first == 0 {
            self.first = read.sequence;
        }
        self.last = read.sequence;
    }

    /// Most bytes that a record adds.
    pub(crate) fn bytes_of(read: &Read) -> u64 {
        let mut entries = record::entries(&read.bytes);
        entries.by_ref().for_each(drop);
        let data: u64 = notes(entries.rest())
            .filter(|note| !note.is_freed)
            .map(|note| note.bytes)
            .sum();
        let checked = record::data_check(&read.bytes).map_or(0, |data| data.length as u64);
        read.bytes.len() as u64 + data + checked
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

    /// Copies data that a record publishes, but for blocks that a later one gives back.
    fn copy_data(&mut self, at: Offset, bytes: u64, sequence: u64) {
        if self.freed.is_empty() {
            return self.copy(at, bytes);
        }
        for (at, bytes) in by_block(at, bytes) {
            let freed = self.freed.get(&at.block());
            if freed.is_none_or(|&freed| freed <= sequence) {
                self.copy(at, bytes);
            }
        }
    }

    /// Copies bytes from memory as they are now.
    pub(crate) fn copy(&mut self, at: Offset, bytes: u64) {
        for (at, length) in by_block(at, bytes) {
            let length = length as usize;
            let head = EntryHead::change(at, length);
            let payload = self.buffer.payload();
            payload.extend_from_slice(&head.word().to_le_bytes());
            let start = payload.len();
            payload.resize(start + length.next_multiple_of(WORD_BYTES));
            self.region.read(at, &mut payload[start..start + length]);
            self.copied.insert(at.block());
            self.dirty.mark(at, length as u64);
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

/// A range of bytes, cut at the borders of blocks.
fn by_block(at: Offset, bytes: u64) -> impl Iterator<Item = (Offset, u64)> {
    let end = at + bytes;
    let next = move |&at: &Offset| Some((at.block().offset() + BLOCK).min(end));
    std::iter::successors(Some(at), next)
        .take_while(move |&at| at < end)
        .map(move |at| (at, (at.block().offset() + BLOCK).min(end).get() - at.get()))
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
/// the pool or in its superblocks is refused before anything is stored. Where pages may be absent a
/// loader need not read blocks that are overwritten whole.
pub(crate) fn apply(
    (region, loader): (&Region, Option<&Loader>),
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
            Some(bytes) if loader.is_some_and(|loader| loader.put_whole(entry.at, bytes)) => {}
            Some(bytes) => region.store(entry.at, bytes).leave_to_checkpoint(),
            None => region
                .fill_zero(entry.at, entry.length as u64)
                .leave_to_checkpoint(),
        }
        dirty.mark(head.at(), head.length() as u64);
    }
    Ok(())
}
