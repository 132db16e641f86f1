//! Checkpoints: retiring records so that journals and freed blocks can be used again.

use crate::checksum::{Seal, seal};
use crate::journal::{Journals, Retired, flush_ranges};
use crate::layout::{CHECKPOINT_AT, STATE_BLOCK};
use pmem::Region;
use pmem::deliberate::{self, Bug};
use scatter::Extent;

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
    /// Retires every record committed so far and returns the blocks that they freed.
    ///
    /// 1. The cut: with all journals locked, W is the newest number and every record ≤ W is applied; journals
    ///    switch halves. Commits go on in the other halves from here.
    /// 2. Every range those records changed is flushed, then one fence.
    /// 3. W is made durable. Only now are the old halves dead and the freed blocks free (R1).
    ///
    /// A crash before 3 replays the records: applying them again changes nothing.
    pub(crate) fn checkpoint(&self, finished: u64) -> Vec<Extent> {
        let mut last = self.checkpoint.lock();
        if *last > finished {
            // Another thread did it while this one waited.
            return Vec::new();
        }
        let (sequence, retired) = self.cut();
        let region = self.region();
        if deliberate::is(Bug::CheckpointBeforeFlush) {
            write_checkpoint(region, sequence);
        }
        for journal in &retired {
            flush_ranges(region, &journal.touched);
        }
        write_checkpoint(region, sequence);
        *last = sequence;
        retired
            .into_iter()
            .flat_map(|journal| journal.freed)
            .collect()
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
        (sequence, retired)
    }
}
