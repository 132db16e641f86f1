//! Checkpoints: retiring records so that journals and freed blocks can be used again.

use crate::checksum::{Seal, seal};
use crate::journal::{Journals, Retired, RetiredHalf, flush_ranges};
use crate::layout::{CHECKPOINT_AT, STATE_BLOCK};
use crate::places::HalfName;
use pmem::deliberate::{self, Bug};
use pmem::{BlockNumber, Flushed, Region};
use scatter::{Allocator, DomainId, Extent, Lifetime, Purpose, Request, Unit};
use std::sync::atomic::Ordering;

/// How far records are retired.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// Number of the newest retired record.
    last: u64,
    /// Records that wait in the halves that are not active until the log on a disk has them.
    cut: Option<Cut>,
}

/// Records up to a number that can be retired as soon as they are durable elsewhere.
#[derive(Debug)]
struct Cut {
    sequence: u64,
    freed: Vec<Extent>,
}

impl Checkpoints {
    pub(crate) fn new(last: u64) -> Checkpoints {
        Checkpoints { last, cut: None }
    }

    /// Blocks that the records of the cut gave back.
    pub(crate) fn freed(&self) -> &[Extent] {
        self.cut.as_ref().map_or(&[], |cut| &cut.freed)
    }
}

/// Makes "records up to `sequence` are retired" durable: one sealed 8-byte store.
pub(crate) fn write_checkpoint(region: &Region, sequence: u64) {
    let word = seal(sequence, Seal::Checkpoint, 0);
    region.fence(
        region
            .store_u64(STATE_BLOCK.offset() + CHECKPOINT_AT, word)
            .flush(),
    );
}

impl Journals {
    /// Retires every record committed so far and hands the blocks that they freed to `release`.
    ///
    /// 1. The cut: with all journals locked, W is the newest number and every record ≤ W is applied; journals
    ///    switch halves. Commits go on in the other halves from here.
    /// 2. Every range those records changed is flushed, then one fence.
    ///    Where a log on a disk follows the memory, it has W too (`has_log`, L4).
    /// 3. W is made durable. Only now are the old halves dead and the freed blocks free (R1).
    ///
    /// 4. The dead halves get fresh places from `allocator`, if there is one.
    /// 5. Blocks that are free now are released before a thread that waited for this checkpoint goes on:
    ///    it looks for room next.
    ///
    /// A crash before 3 replays the records: applying them again changes nothing. A crash in 4 finds each half at its old or its new place,
    /// empty.
    pub(crate) fn checkpoint(
        &self,
        finished: u64,
        allocator: Option<&Allocator>,
        has_log: impl Fn(u64),
        mut release: impl FnMut(&[Extent]),
    ) {
        let mut state = self.checkpoint.lock();
        if state.last > finished {
            // Another thread did it while this one waited.
            return;
        }
        if let Some(cut) = state.cut.take() {
            self.awaited.store(u64::MAX, Ordering::Relaxed);
            has_log(cut.sequence);
            self.retire(&mut state, &cut);
            release(&cut.freed);
        }
        let mut cut = self.cut();
        has_log(cut.sequence);
        self.retire(&mut state, &cut);
        if let Some(allocator) = allocator {
            self.move_retired(allocator, &mut cut.freed);
        }
        release(&cut.freed);
    }

    /// The same in two steps and without a wait, where a log on a disk follows the memory: retires
    /// the records of the last cut if the log has them, then makes a new one if a journal is nearly
    /// full. Journals stay where they are.
    pub(crate) fn advance(
        &self,
        has_log: impl Fn(u64) -> bool,
        mut release: impl FnMut(&[Extent]),
    ) {
        let Some(mut state) = self.checkpoint.try_lock() else {
            return;
        };
        if let Some(cut) = state.cut.take_if(|cut| has_log(cut.sequence)) {
            self.awaited.store(u64::MAX, Ordering::Relaxed);
            self.retire(&mut state, &cut);
            release(&cut.freed);
        }
        if state.cut.is_none() && self.is_nearly_full() {
            let cut = self.cut();
            self.awaited.store(cut.sequence, Ordering::Relaxed);
            state.cut = Some(cut);
        }
    }

    /// Records of a cut are retired: the halves that they lie in are dead.
    fn retire(&self, state: &mut Checkpoints, cut: &Cut) {
        write_checkpoint(self.region(), cut.sequence);
        state.last = cut.sequence;
    }

    /// Moves halves that were just retired, so that journals wear the whole medium alike. The places that they leave are added to `freed`.
    ///
    /// Only while the checkpoint's lock is held: the next cut would make these halves active again. A half that nothing was written to is left
    /// alone. One for which there is no room stays where it is, but becomes another use of its place, because what it holds may look like records that
    /// follow the next ones.
    fn move_retired(&self, allocator: &Allocator, freed: &mut Vec<Extent>) {
        let (region, superblock) = (self.region(), self.superblock());
        let mut batch = Flushed::nothing(region);
        let mut moves = Vec::with_capacity(self.journals.len());
        for (index, journal) in self.journals.iter().enumerate() {
            let RetiredHalf {
                half,
                place,
                blocks_written,
            } = journal.lock().retired_half();
            if blocks_written == 0 {
                continue;
            }
            allocator.charge(place.start, blocks_written);
            let start = fresh_run(allocator, superblock.half_blocks() as u32, index);
            if start.is_some() {
                freed.push(place.extent(superblock));
            }
            let new = place.followed_by(start.unwrap_or(place.start));
            let name = HalfName {
                journal: index as u32,
                half,
            };
            let dirty = region.store_u64(name.word_at(), new.word(name));
            if deliberate::is(Bug::ForgetJournalPlace) {
                dirty.leave_to_checkpoint();
            } else {
                batch.join(dirty.flush());
            }
            moves.push((journal, new));
        }
        region.fence(batch);
        // Behind the fence, so that the next cut finds no place that is not durable.
        for (journal, place) in moves {
            journal.lock().move_retired(place, superblock.journal_key);
        }
    }

    /// Sequence number of the last finished checkpoint.
    pub(crate) fn checkpointed(&self) -> u64 {
        self.checkpoint.lock().last
    }

    /// Journals switch halves, and all that the records changed is flushed.
    fn cut(&self) -> Cut {
        // Journals are always locked in index order here, and commit holds only one lock: no deadlock.
        let mut guards: Vec<_> = self.journals.iter().map(|journal| journal.lock()).collect();
        let sequence = self.sequence();
        let retired: Vec<Retired> = guards.iter_mut().map(|journal| journal.cut()).collect();
        self.checkpoint_begun();
        drop(guards);
        if deliberate::is(Bug::CheckpointBeforeFlush) {
            write_checkpoint(self.region(), sequence);
        }
        for journal in &retired {
            flush_ranges(self.region(), &journal.touched);
        }
        let freed = retired.into_iter().flat_map(|journal| journal.freed);
        Cut {
            sequence,
            freed: freed.collect(),
        }
    }
}

/// `blocks` free blocks in a row for the journal of group `home`, beyond the reserve.
fn fresh_run(allocator: &Allocator, blocks: u32, home: usize) -> Option<BlockNumber> {
    let request = Request {
        domain: DomainId::METADATA,
        blocks,
        unit: Unit::Block4K,
        purpose: Purpose::Ordinary,
        home,
    };
    let extents = allocator.allocate_with(&request, Lifetime::Brief).ok()?;
    if let [extent] = extents[..] {
        return Some(extent.start);
    }
    for extent in extents {
        let freed = allocator.free(extent);
        debug_assert!(freed.is_ok(), "just allocated");
    }
    None
}
