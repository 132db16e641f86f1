//! Checkpoints: retiring records so that journals and freed blocks can be used again.

use crate::checksum::{Seal, seal};
use crate::journal::{Journals, Retired, RetiredHalf, flush_ranges};
use crate::layout::{CHECKPOINT_AT, STATE_BLOCK};
use crate::places::HalfName;
use pmem::deliberate::{self, Bug};
use pmem::{BlockNumber, Flushed, Region};
use scatter::{Allocator, DomainId, Extent, Lifetime, Purpose, Request, Unit};

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
    /// 5. What is free now is released, before anybody who waited for this checkpoint goes on: he looks for room next.
    ///
    /// A crash before 3 replays the records: applying them again changes nothing. A crash in 4 finds each half at its old or its new place,
    /// empty.
    pub(crate) fn checkpoint(
        &self,
        finished: u64,
        allocator: Option<&Allocator>,
        has_log: impl FnOnce(u64),
        release: impl FnOnce(&[Extent]),
    ) {
        let mut last = self.checkpoint.lock();
        if *last > finished {
            // Another thread did it while this one waited.
            return;
        }
        let (sequence, retired) = self.cut();
        let region = self.region();
        if deliberate::is(Bug::CheckpointBeforeFlush) {
            write_checkpoint(region, sequence);
        }
        for journal in &retired {
            flush_ranges(region, &journal.touched);
        }
        has_log(sequence);
        write_checkpoint(region, sequence);
        *last = sequence;
        let mut freed: Vec<Extent> = retired
            .into_iter()
            .flat_map(|journal| journal.freed)
            .collect();
        if let Some(allocator) = allocator {
            self.move_retired(allocator, &mut freed);
        }
        release(&freed);
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
        *self.checkpoint.lock()
    }

    fn cut(&self) -> (u64, Vec<Retired>) {
        // Journals are always locked in index order here, and commit holds only one lock: no deadlock.
        let mut guards: Vec<_> = self.journals.iter().map(|journal| journal.lock()).collect();
        let sequence = self.sequence();
        let retired = guards.iter_mut().map(|journal| journal.cut()).collect();
        self.checkpoint_begun();
        (sequence, retired)
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
