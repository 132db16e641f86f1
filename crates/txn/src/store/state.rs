//! The state of a pool: free space, durability, whether it is mounted.

use super::PmemStore;
use crate::checkpoint::write_checkpoint;
use crate::checksum::{Seal, seal};
use crate::disk::Logger;
use crate::domain::Ledger;
use crate::error::Corruption;
use crate::layout::{CLEAN_AT, STATE_BLOCK};
use crate::lost::LostRecords;
use crate::places::read_places;
use crate::pool::Mode;
use crate::saved;
use pmem::DurabilityClass;
use scatter::{Allocator, Extent, Options, Rebuild};
use std::sync::Arc;

/// The state of a pool: free space, durability, whether it is mounted.
pub trait PoolState: Send + Sync + 'static {
    /// Whether flushed and fenced data is durable.
    fn class(&self) -> DurabilityClass;
    /// The log that follows the memory, of class `log`; `None` if there is none, or the pool is
    /// only read.
    fn logger(&self) -> Option<&Logger>;
    /// Starts rebuilding the allocator; the store has marked its own blocks.
    ///
    /// # Errors
    ///
    /// The store's own blocks cannot be set aside: two journals overlap, or lie in a segment
    /// without an owner.
    fn rebuild(&self) -> Result<Rebuild, Corruption>;
    /// Installs the rebuilt allocator. Transactions can allocate from now on.
    fn install(&self, rebuild: Rebuild, options: Options);
    /// The allocator.
    fn allocator(&self) -> &Allocator;
    /// Retires all committed records and frees the blocks that they gave back.
    fn checkpoint(&self);
    /// Takes a checkpoint if the next one is near. A caller does so before it takes locks, to spare
    /// other threads the wait: a checkpoint that a commit needs is taken under the operation's
    /// locks, and takes as long as some hundred operations.
    fn relieve(&self);
    /// Blocks without an owner that the next checkpoint makes free; a checkpoint that runs counts
    /// them as used.
    fn pending_blocks(&self) -> u64;
    /// Whether nothing may be written.
    fn is_read_only(&self) -> bool;
    /// Durable records that opening the pool did not apply.
    fn lost_records(&self) -> &[LostRecords];
    /// The state that the last clean unmount saved; `None` after a crash or if it does not check
    /// out.
    fn saved_state(&self) -> Option<Vec<u8>>;
    /// Makes the pool count as crashed unless [`close`](Self::close) is called.
    fn mark_mounted(&self);
    /// Retires everything, saves `state` and marks the pool clean.
    fn close(&self, state: &[u8]);
}

impl PoolState for PmemStore {
    fn class(&self) -> DurabilityClass {
        self.region.class()
    }

    #[inline]
    fn logger(&self) -> Option<&Logger> {
        self.logger.as_ref()
    }

    fn rebuild(&self) -> Result<Rebuild, Corruption> {
        let geometry = scatter::Geometry {
            first_block: self.geometry.first_block(),
            blocks_per_segment: self.geometry.segment_blocks,
            segments: self.geometry.segments,
            groups: self.superblock.journals,
        };
        let rebuild = Rebuild::new(
            geometry,
            &self.domains.segment_domains(),
            &self.domains.segment_wear(),
        );
        let places = read_places(&self.region, &self.superblock)?;
        for (index, place) in places.as_flattened().iter().enumerate() {
            // An unmarked half would be handed out as free space.
            rebuild
                .mark(place.extent(&self.superblock))
                .map_err(|error| {
                    Corruption::new(format!("journal {}", index / 2), error.to_string())
                })?;
        }
        if let Some(seals) = self.superblock.seals() {
            let marked = rebuild.mark(seals);
            marked.map_err(|error| Corruption::new("seals of the device", error.to_string()))?;
        }
        Ok(rebuild)
    }

    fn install(&self, rebuild: Rebuild, options: Options) {
        let allocator = rebuild.finish(options, Box::new(Ledger(Arc::clone(&self.domains))));
        let installed = self.allocator.set(allocator);
        debug_assert!(installed.is_ok(), "the allocator is installed once");
    }

    #[inline]
    fn allocator(&self) -> &Allocator {
        self.allocator
            .get()
            .expect("the allocator is installed before the first transaction")
    }

    fn checkpoint(&self) {
        self.reclaim();
        self.reclaim_device();
    }

    #[inline]
    fn relieve(&self) {
        if self.journals.claim_checkpoint() {
            self.retire_records();
            self.reclaim_device();
        }
    }

    fn pending_blocks(&self) -> u64 {
        self.journals.pending_blocks()
    }

    fn is_read_only(&self) -> bool {
        self.mode == Mode::ReadOnly
    }

    fn lost_records(&self) -> &[LostRecords] {
        &self.lost
    }

    fn saved_state(&self) -> Option<Vec<u8>> {
        if self.replay.was_clean {
            saved::load(&self.region, &self.geometry)
        } else {
            None
        }
    }

    fn mark_mounted(&self) {
        let at = STATE_BLOCK.offset() + CLEAN_AT;
        self.region.fence(self.region.store_u64(at, 0).flush());
        self.logger.iter().for_each(Logger::is_mounted);
    }

    fn close(&self, state: &[u8]) {
        // Journals stay: `state` says which blocks are in use, theirs included.
        let release = |freed: &[Extent]| {
            self.release(freed);
        };
        let has_log = |sequence| self.wait_for_log(sequence);
        self.journals
            .checkpoint(self.journals.checkpointed(), None, has_log, release);
        self.domains.save_wear(&self.allocator().wear());
        // Without room for the image the next mount rebuilds it.
        let is_saved = saved::save(&self.region, self.allocator(), state);
        if is_saved {
            let sequence = self.journals.sequence();
            write_checkpoint(&self.region, sequence);
            let at = STATE_BLOCK.offset() + CLEAN_AT;
            let clean = seal(sequence, Seal::Clean, 0);
            self.region.fence(self.region.store_u64(at, clean).flush());
        }
        if let Some(logger) = &self.logger
            && logger.close(&self.superblock, is_saved)
        {
            self.domains
                .held()
                .empty(|segment| self.seen.were_left(&self.blocks_of(segment)));
        }
    }
}
