//! Large data goes straight to its place in the image, and not into the log.
//!
//! A fresh block is one that no durable state refers to, so its place on the disk may have anything
//! until the batch that publishes it is durable. Its data is durable there before that batch is
//! written. A replay must not store older bytes over it, so a block that an entry of the log
//! changed since the root is not fresh in this sense: its data goes into the log (L10).

use super::dirty::DirtyBlocks;
use super::logger::{LogFailed, LogFault, Shared};
use parking_lot::{Mutex, MutexGuard};
use pmem::BLOCK_BYTES;
use pmem::deliberate::{self, Bug};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wal::AlignedBuffer;

/// In a batch with so much data: with less, the second durable write costs more time than bytes
/// that are written twice.
const BATCH_BYTES_MIN: u64 = 1 << 20;
/// Of a small log, this part of the ring instead.
const PART_OF_RING: u64 = 64;
/// Runs of this part of that.
const RUNS_OF_BATCH: u64 = 16;

/// Data that goes to its place: where, and a copy of it.
#[derive(Debug)]
pub(super) struct PlacedRun {
    pub(super) at: u64,
    pub(super) data: AlignedBuffer,
}

/// The blocks that entries of the log may change, from the root on the disk on.
#[derive(Debug)]
pub(super) struct LoggedBlocks {
    /// In batches with so much data,
    pub(super) batch_bytes_min: u64,
    /// runs of so many fresh blocks go to their place.
    pub(super) blocks_min: u64,
    /// Besides the dirty blocks, those that the last two checkpoints took: entries that were
    /// marked before one took its blocks may lie behind its root, and lie before the next one's.
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Runs in ascending order.
    last: Vec<Range<u64>>,
    before: Vec<Range<u64>>,
}

impl LoggedBlocks {
    pub(super) fn new(ring_bytes: u64) -> LoggedBlocks {
        let batch_bytes_min = (ring_bytes / PART_OF_RING).min(BATCH_BYTES_MIN);
        LoggedBlocks {
            batch_bytes_min,
            blocks_min: (batch_bytes_min / RUNS_OF_BATCH / BLOCK_BYTES as u64).max(1),
            taken: Mutex::default(),
        }
    }

    /// A checkpoint takes the dirty blocks.
    pub(super) fn take(&self, dirty: &DirtyBlocks) -> Vec<Range<u64>> {
        let mut taken = self.taken.lock();
        let runs = dirty.take();
        taken.before = std::mem::replace(&mut taken.last, runs.clone());
        runs
    }

    /// The checkpoint has moved the root.
    pub(super) fn root_moved(&self) {
        self.taken.lock().before.clear();
    }

    /// No checkpoint takes blocks while this is held.
    pub(super) fn hold(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock()
    }
}

impl Taken {
    /// Whether an entry of the log may change this block.
    pub(super) fn is_logged(&self, dirty: &DirtyBlocks, block: u64) -> bool {
        let has = |runs: &[Range<u64>]| {
            let next = runs.partition_point(|run| run.end <= block);
            runs.get(next).is_some_and(|run| run.contains(&block))
        };
        let is_logged = dirty.has_block(block) || has(&self.last) || has(&self.before);
        is_logged && !deliberate::is(Bug::PlaceLoggedBlock)
    }
}

impl Shared {
    /// Writes data to its place; it is durable when this returns.
    pub(super) fn write_placed(&self, runs: &[PlacedRun]) -> Result<(), LogFailed> {
        if runs.is_empty() {
            return Ok(());
        }
        // An older log may have other content for these blocks: it lacks the records that gave
        // them back.
        let durable = self.log.durable_sequence();
        let stamped = self.image.change_stamp(|stamp| stamp.get_changes(durable));
        stamped
            .and_then(|()| self.image.write_runs(runs))
            .map_err(|error| self.fail(LogFault::Image(Arc::new(error))))?;
        let bytes: u64 = runs.iter().map(|run| run.data.len() as u64).sum();
        self.counts.placed_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmem::Offset;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    fn mark(dirty: &DirtyBlocks, block: u64) {
        dirty.mark(Offset::new(block * BLOCK), BLOCK);
    }

    /// An entry that was marked before a checkpoint took its blocks may lie behind the root that
    /// the checkpoint writes.
    #[test]
    fn a_block_is_logged_until_the_root_of_the_second_checkpoint_is_there() {
        let (logged, dirty) = (LoggedBlocks::new(64 << 20), DirtyBlocks::new(1 << 20));
        let is_logged = |block| logged.hold().is_logged(&dirty, block);
        mark(&dirty, 7);
        assert!(is_logged(7) && !is_logged(6) && !is_logged(8));
        logged.take(&dirty);
        assert!(is_logged(7), "while the image is written");
        logged.root_moved();
        assert!(is_logged(7), "the entry may lie behind the root");
        mark(&dirty, 9);
        logged.take(&dirty);
        assert!(is_logged(7) && is_logged(9), "the second root is not there");
        logged.root_moved();
        assert!(!is_logged(7) && is_logged(9));
    }

    #[test]
    fn small_logs_place_smaller_runs() {
        let blocks_min = |ring_bytes| LoggedBlocks::new(ring_bytes).blocks_min;
        assert_eq!((blocks_min(1 << 30), blocks_min(64 << 20)), (16, 16));
        assert_eq!((blocks_min(8 << 20), blocks_min(128 << 10)), (2, 1));
    }
}
