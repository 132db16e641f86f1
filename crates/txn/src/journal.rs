//! Journals: where redo records are written.
//!
//! One journal per core, each in two halves. Records go to the active half, one after the other, each fenced before
//! the next begins, so that a half is a sequence of whole records with growing sequence numbers and at most one
//! torn record at its end. A checkpoint switches all journals to their other half at one moment (the *cut*); records of
//! one half are therefore all older or all newer than any checkpoint.

use crate::checkpoint::Checkpoints;
use crate::layout::Superblock;
use crate::places::HalfPlace;
use crate::record::{EntryHead, RecordBuilder};
use parking_lot::{Mutex, MutexGuard};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber, Durable, Flushed, LINE_BYTES, Offset, Region, WORD_BYTES};
use scatter::Extent;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Lines remembered to have been noted since the cut; small, because it only has to catch the lines that every
/// operation touches again (an inode's times, a directory's size).
const FILTER_LINES: usize = 64;
/// A half is nearly full when so many of eight parts of it are.
const NEARLY_FULL_OF_8: usize = 7;

/// Where records of one half go, and what their checks contain.
#[derive(Clone, Copy, Debug)]
struct Half {
    salt: u32,
    place: HalfPlace,
}

impl Half {
    fn new(place: HalfPlace, journal_key: u64) -> Half {
        Half {
            salt: place.salt(journal_key),
            place,
        }
    }
}

/// One journal.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Journal {
    halves: [Half; 2],
    half_bytes: usize,
    active: usize,
    position: usize,
    /// Bytes of records in the half that is not active.
    retired_bytes: usize,
    /// Cuts since the pool was opened.
    cuts: u64,
    touched: Vec<EntryHead>,
    filter: [u64; FILTER_LINES],
    freed: Vec<Extent>,
    /// The block whose data the newest live record checks.
    checked: Option<BlockNumber>,
}

/// Why a record may make its bulk data reachable (R4).
#[derive(Debug)]
pub(crate) enum DataOrder {
    /// The data was fenced before, or there is none.
    Durable(Durable),
    /// The data is on its way, and the record carries its checksum: one fence makes both durable, and recovery can tell whether it did.
    Checked(Flushed),
}

/// A journal held for one record, and the record's sequence number.
#[derive(Debug)]
pub(crate) struct Turn<'j> {
    region: &'j Region,
    journal: MutexGuard<'j, Journal>,
    checkpoint_wanted: &'j CheckpointWanted,
    sequence: u64,
}

/// All journals, held for one record.
pub(crate) struct TurnOfAll<'j> {
    pub(crate) turn: Turn<'j>,
    _others: Vec<MutexGuard<'j, Journal>>,
}

impl Turn<'_> {
    /// The record's number.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether a record of `bytes` fits; if not, a checkpoint is needed (and this turn must be given up for it).
    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.journal.has_room(bytes)
    }

    /// Makes the closed `record` durable, then applies it in place. `freed` blocks become free at the next checkpoint (R1).
    #[inline]
    pub(crate) fn commit(&mut self, record: &mut RecordBuilder, data: DataOrder, freed: &[Extent]) {
        self.commit_then(record, data, freed, || ());
    }

    /// [`commit`](Self::commit), with something to do when the record is durable and not yet applied.
    #[inline]
    pub(crate) fn commit_then(
        &mut self,
        record: &mut RecordBuilder,
        data: DataOrder,
        freed: &[Extent],
        when_durable: impl FnOnce(),
    ) {
        let journal = &mut *self.journal;
        if deliberate::is(Bug::SwapApplyAndCommit) {
            journal.apply(self.region, record);
        }
        journal.checked = match data {
            DataOrder::Durable(_) => None,
            DataOrder::Checked(_) => record.checked_block(),
        };
        let salt = journal.halves[journal.active].salt;
        journal.append(self.region, record.finish(self.sequence, salt), data);
        if journal.is_nearly_full() {
            self.checkpoint_wanted.0.store(true, Ordering::Relaxed);
        }
        when_durable();
        journal.apply(self.region, record);
        journal.freed.extend_from_slice(freed);
    }
}

/// A half without live records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetiredHalf {
    pub(crate) half: u32,
    pub(crate) place: HalfPlace,
    /// Blocks that records were written to before the last cut.
    pub(crate) blocks_written: u64,
}

/// How far the records of a journal go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Cuts before the active half.
    pub(crate) cuts: u64,
    /// Where the active half is.
    pub(crate) active: Offset,
    /// Bytes of records in it.
    pub(crate) active_bytes: usize,
    /// Where the half before it is.
    pub(crate) other: Offset,
    /// Bytes of records in that.
    pub(crate) other_bytes: usize,
}

/// What a journal hands over at the cut of a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    /// Ranges that records changed in place and nobody flushed yet.
    pub(crate) touched: Vec<EntryHead>,
    /// Blocks that records freed.
    pub(crate) freed: Vec<Extent>,
}

impl Journal {
    fn new(places: [HalfPlace; 2], superblock: &Superblock) -> Journal {
        Journal {
            halves: places.map(|place| Half::new(place, superblock.journal_key)),
            half_bytes: superblock.half_bytes(),
            active: 0,
            position: 0,
            retired_bytes: 0,
            cuts: 0,
            touched: Vec::new(),
            filter: [0; FILTER_LINES],
            freed: Vec::new(),
            checked: None,
        }
    }

    /// Switches to the other half and hands over what the checkpoint has to deal with.
    pub(crate) fn cut(&mut self) -> Retired {
        self.active ^= 1;
        self.cuts += 1;
        self.retired_bytes = std::mem::take(&mut self.position);
        self.filter = [0; FILTER_LINES];
        self.checked = None;
        // The next half will hold about as much.
        let touched = Vec::with_capacity(self.touched.len());
        let freed = Vec::with_capacity(self.freed.len());
        Retired {
            touched: std::mem::replace(&mut self.touched, touched),
            freed: std::mem::replace(&mut self.freed, freed),
        }
    }

    /// The half that no record goes to now.
    pub(crate) fn retired_half(&self) -> RetiredHalf {
        let half = self.active ^ 1;
        RetiredHalf {
            half: half as u32,
            place: self.halves[half].place,
            blocks_written: self.retired_bytes.div_ceil(BLOCK_BYTES) as u64,
        }
    }

    /// How far records go now, in both halves.
    pub(crate) fn reach(&self) -> Reach {
        let [active, other] = [self.active, self.active ^ 1].map(|half| self.halves[half].place);
        Reach {
            cuts: self.cuts,
            active: active.start.offset(),
            active_bytes: self.position,
            other: other.start.offset(),
            other_bytes: self.retired_bytes,
        }
    }

    /// Moves that half. Its new place is durable, and nothing in it is alive.
    pub(crate) fn move_retired(&mut self, place: HalfPlace, journal_key: u64) {
        self.halves[self.active ^ 1] = Half::new(place, journal_key);
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.position + bytes <= self.half_bytes
    }

    fn is_nearly_full(&self) -> bool {
        self.position >= self.half_bytes / 8 * NEARLY_FULL_OF_8
    }

    /// Writes one record and waits until it is durable, and with it the data that it checks: the commit point of a transaction.
    fn append(&mut self, region: &Region, bytes: &[u8], data: DataOrder) {
        let at = self.halves[self.active].place.start.offset() + self.position as u64;
        let mut written = region.write_streaming(at, bytes);
        match data {
            DataOrder::Durable(durable) => durable.assert_of(region),
            DataOrder::Checked(flushed) => written.join(flushed),
        }
        if !deliberate::is(Bug::SkipRecordFence) {
            region.fence(written);
        }
        self.position += bytes.len();
    }

    /// Applies a durable record in place, by ordinary stores that stay in the cache until the checkpoint.
    fn apply(&mut self, region: &Region, record: &RecordBuilder) {
        for (head, entry) in record.entries() {
            match entry.payload {
                Some(payload) => match payload.as_array() {
                    Some(&word) if entry.at.is_aligned(WORD_BYTES as u64) => {
                        region
                            .store_u64(entry.at, u64::from_le_bytes(word))
                            .leave_to_checkpoint();
                    }
                    _ => region.store(entry.at, payload).leave_to_checkpoint(),
                },
                None => region
                    .fill_zero(entry.at, entry.length as u64)
                    .leave_to_checkpoint(),
            }
            self.note(head);
        }
    }

    fn note(&mut self, head: EntryHead) {
        let line = head.at().get() / LINE_BYTES as u64;
        let last = (head.at().get() + head.length() as u64 - 1) / LINE_BYTES as u64;
        if line == last {
            let slot = &mut self.filter[line as usize % FILTER_LINES];
            if *slot == line {
                return;
            }
            *slot = line;
        }
        self.touched.push(head);
    }
}

/// The newest sequence number, on lines of its own: every commit writes it, and what lay beside it would be lost to the other
/// processors each time.
#[derive(Debug)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Set when the active half of a journal is nearly full. Every change asks, and hardly one answers: on lines of its own, so that all processors keep it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CheckpointWanted(AtomicBool);

/// All journals of a pool, and the counter that orders their records.
#[derive(Debug)]
pub struct Journals {
    region: Arc<Region>,
    pub(crate) journals: Vec<Mutex<Journal>>,
    sequence: Counter,
    checkpoint_wanted: CheckpointWanted,
    pub(crate) checkpoint: Mutex<Checkpoints>,
    /// Number of the record that the last cut waits for the log to have; the largest if none does.
    pub(crate) awaited: AtomicU64,
    superblock: Superblock,
}

impl Journals {
    /// Takes over journals that hold no live record; `sequence` is the last number that is retired.
    pub(crate) fn new(
        region: Arc<Region>,
        superblock: &Superblock,
        places: &[[HalfPlace; 2]],
        sequence: u64,
    ) -> Journals {
        let journals = places
            .iter()
            .map(|&places| Mutex::new(Journal::new(places, superblock)));
        Journals {
            region,
            journals: journals.collect(),
            sequence: Counter(AtomicU64::new(sequence)),
            checkpoint_wanted: CheckpointWanted::default(),
            checkpoint: Mutex::new(Checkpoints::new(sequence)),
            awaited: AtomicU64::new(u64::MAX),
            superblock: *superblock,
        }
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Bytes of all journals.
    pub(crate) fn bytes(&self) -> u64 {
        2 * self.superblock.half_bytes() as u64 * self.journals.len() as u64
    }

    /// Largest record that fits, in bytes.
    pub fn record_bytes_max(&self) -> usize {
        self.superblock.half_bytes()
    }

    /// The newest sequence number given out.
    pub fn sequence(&self) -> u64 {
        self.sequence.0.load(Ordering::Acquire)
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Blocks that committed records gave back and that the next checkpoint makes free.
    pub(crate) fn pending_blocks(&self) -> u64 {
        let of_cut = blocks_of(self.checkpoint.lock().freed());
        let journals = self.journals.iter();
        of_cut
            + journals
                .map(|journal| blocks_of(&journal.lock().freed))
                .sum::<u64>()
    }

    /// Whether the active half of a journal is nearly full.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let mut journals = self.journals.iter();
        journals.any(|journal| journal.lock().is_nearly_full())
    }

    /// The log on a disk has all records up to `durable`: the next change retires those of the last
    /// cut, if it waits for no later one.
    pub(crate) fn log_reached(&self, durable: u64) {
        if self.awaited.load(Ordering::Relaxed) <= durable {
            self.checkpoint_wanted.0.store(true, Ordering::Relaxed);
        }
    }

    /// The same blocks, but for those of a checkpoint on its way and of locked journals: the caller
    /// may have one.
    pub(crate) fn pending(&self) -> Vec<Extent> {
        let mut all = Vec::new();
        if let Some(state) = self.checkpoint.try_lock() {
            all.extend_from_slice(state.freed());
        }
        let journals = self.journals.iter();
        for journal in journals.filter_map(|journal| journal.try_lock()) {
            all.extend_from_slice(&journal.freed);
        }
        all
    }

    /// Whether recovery would judge a record by the data of one of these blocks. Only the newest of a journal is ([`live`](crate::live)). Nobody who has a journal meanwhile is overlooked.
    pub(crate) fn checks_any(&self, is_one: impl Fn(BlockNumber) -> bool) -> bool {
        let mut journals = self.journals.iter();
        journals.any(|journal| journal.lock().checked.is_some_and(&is_one))
    }

    /// Takes a journal and the next sequence number.
    ///
    /// The caller holds every lock of the operation, so sequence numbers order conflicting operations as they happened (R3). A
    /// number that is not used in the end leaves a gap, which means nothing.
    #[inline]
    pub(crate) fn turn(&self, slot: usize) -> Turn<'_> {
        let journal = self.lock(slot);
        // Relaxed is enough: the locks of the operation order numbers of conflicting operations.
        let sequence = self.sequence.0.fetch_add(1, Ordering::Relaxed) + 1;
        Turn {
            region: &self.region,
            journal,
            checkpoint_wanted: &self.checkpoint_wanted,
            sequence,
        }
    }

    /// Whether a checkpoint is wanted. Only one caller is told, and takes it.
    #[inline]
    pub(crate) fn claim_checkpoint(&self) -> bool {
        let CheckpointWanted(flag) = &self.checkpoint_wanted;
        flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed)
    }

    /// All journals have begun a half anew; all are held.
    pub(crate) fn checkpoint_begun(&self) {
        self.checkpoint_wanted.0.store(false, Ordering::Relaxed);
    }

    /// Takes all journals and the next sequence number: nobody is between his turn and the end of his changes then. The record goes to journal `slot`.
    pub(crate) fn turn_of_all(&self, slot: usize) -> TurnOfAll<'_> {
        let own = slot % self.journals.len();
        // In index order, as the cut of a checkpoint does.
        let mut journals: Vec<_> = self.journals.iter().map(|journal| journal.lock()).collect();
        let journal = journals.swap_remove(own);
        TurnOfAll {
            turn: Turn {
                region: &self.region,
                journal,
                checkpoint_wanted: &self.checkpoint_wanted,
                sequence: self.sequence.0.fetch_add(1, Ordering::Relaxed) + 1,
            },
            _others: journals,
        }
    }

    /// A thread's own journal if it is not busy, else any that is not, else its own.
    fn lock(&self, slot: usize) -> MutexGuard<'_, Journal> {
        let count = self.journals.len();
        for step in 0..count {
            if let Some(guard) = self.journals[(slot + step) % count].try_lock() {
                return guard;
            }
        }
        self.journals[slot % count].lock()
    }
}

fn blocks_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.blocks)).sum()
}

/// A batch that never leaves this function: flushes `touched` ranges and fences once.
pub(crate) fn flush_ranges(region: &Region, touched: &[EntryHead]) {
    let mut batch = Flushed::nothing(region);
    for head in touched {
        let dirty = region.dirty(head.at(), head.length() as u64);
        if deliberate::is(Bug::SkipCheckpointFlush) {
            dirty.leave_to_checkpoint();
        } else {
            batch.join(dirty.flush());
        }
    }
    region.fence(batch);
}
