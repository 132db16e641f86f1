//! Records and the data that they publish become a batch of the log.
//!
//! A batch is a list of entries, each a head word and its payload, as in a record: absolute bytes,
//! in the order of the records' numbers. The data that a record publishes is copied from memory
//! behind the cut.

use super::dirty::DirtyBlocks;
use super::loader::Loader;
use super::placed_data::{LoggedBlocks, PlacedRun, Taken};
use super::reader::Read;
use crate::record::{self, EntryHead, notes};
use foldhash::fast::FixedState;
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region, WORD_BYTES};
use std::ops::Range;
use wal::{AlignedBuffer, BatchBuffer};

const BLOCK: u64 = BLOCK_BYTES as u64;

type HashSet<K> = hashbrown::HashSet<K, FixedState>;
type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// Builds one batch.
#[derive(Debug)]
pub(crate) struct BatchBuilder<'b> {
    region: &'b Region,
    dirty: &'b DirtyBlocks,
    buffer: BatchBuffer,
    /// Which data may go to its place; none, if there is no such list.
    logged: Option<&'b LoggedBlocks>,
    placed: Vec<PlacedRun>,
    /// Blocks whose data was copied.
    copied: HashSet<BlockNumber>,
    /// Blocks that records of the batch give back, and the last of these records.
    freed: HashMap<BlockNumber, u64>,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl<'b> BatchBuilder<'b> {
    /// All data goes into the batch.
    pub(crate) fn new(region: &'b Region, dirty: &'b DirtyBlocks, buffer: BatchBuffer) -> Self {
        BatchBuilder {
            region,
            dirty,
            buffer,
            logged: None,
            placed: Vec::new(),
            copied: HashSet::default(),
            freed: HashMap::default(),
            first: 0,
            last: 0,
        }
    }

    /// Large data goes to its place, but for blocks in this list.
    pub(super) fn place_fresh(self, logged: &'b LoggedBlocks) -> Self {
        BatchBuilder {
            logged: Some(logged),
            ..self
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

    /// Copies data that a record publishes, but for blocks that a later one gives back. Long runs
    /// of fresh blocks go to their place.
    fn copy_data(&mut self, at: Offset, bytes: u64, sequence: u64) {
        let logged = self
            .logged
            .filter(|logged| bytes >= logged.blocks_min * BLOCK);
        if self.freed.is_empty() && logged.is_none() {
            return self.copy(at, bytes);
        }
        let bytes_min = logged.map_or(0, |logged| logged.blocks_min * BLOCK);
        let taken = logged.map(LoggedBlocks::hold);
        let mut fresh = at..at;
        for (at, bytes) in by_block(at, bytes) {
            let freed = self.freed.get(&at.block());
            if freed.is_some_and(|&freed| freed > sequence) {
                continue;
            }
            match &taken {
                Some(taken) if bytes == BLOCK && self.is_fresh(taken, at) => {
                    if fresh.end != at {
                        self.place(&fresh, bytes_min);
                        fresh.start = at;
                    }
                    fresh.end = at + bytes;
                }
                _ => self.copy(at, bytes),
            }
        }
        self.place(&fresh, bytes_min);
    }

    fn is_fresh(&self, taken: &Taken, at: Offset) -> bool {
        !taken.is_logged(self.dirty, at.block().get()) && !self.copied.contains(&at.block())
    }

    /// A run of fresh blocks goes to its place if it is long enough.
    fn place(&mut self, run: &Range<Offset>, bytes_min: u64) {
        let bytes = run.end.get() - run.start.get();
        if bytes < bytes_min || bytes == 0 {
            return self.copy(run.start, bytes);
        }
        let mut data = AlignedBuffer::with_capacity(bytes as usize);
        data.resize(bytes as usize);
        self.region.read(run.start, &mut data);
        let blocks = run.start.block().get()..run.end.block().get();
        self.copied.extend(blocks.map(BlockNumber::new));
        let at = run.start.get();
        self.placed.push(PlacedRun { at, data });
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

    /// The batch, and the data that has to be at its place before it is written.
    pub(super) fn finish(self) -> (BatchBuffer, Vec<PlacedRun>) {
        (self.buffer, self.placed)
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

fn put_whole(loader: Option<&Loader>, at: Offset, bytes: &[u8]) -> bool {
    loader.is_some_and(|loader| loader.put_whole(at, bytes))
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
            // A block that was changed before is there.
            Some(bytes) if !dirty.has(entry.at) && put_whole(loader, entry.at, bytes) => {}
            Some(bytes) => region.store(entry.at, bytes).leave_to_checkpoint(),
            None => region
                .fill_zero(entry.at, entry.length as u64)
                .leave_to_checkpoint(),
        }
        dirty.mark(head.at(), head.length() as u64);
    }
    Ok(())
}
