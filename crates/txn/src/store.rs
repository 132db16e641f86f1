//! The seam between `fs` and where blocks live.
//!
//! `fs` is written against [`Store`] and [`Transaction`]. [`PmemStore`] keeps metadata and hot data in one region; other data may lie
//! on a [`device::Device`]: a disk below the pool, or nodes on other machines.

mod data;
mod kept;
mod metadata;
mod open;
mod segments;
mod state;

pub use data::{BlockReader, Data};
pub use kept::Kept;
pub use metadata::Metadata;
pub use segments::Segments;
pub use state::PoolState;

use crate::device::PoolDevice;
use crate::directory::PoolDirectory;
use crate::disk::Logger;
use crate::domain::{Domain, Domains};
use crate::homes::Homes;
use crate::journal::Journals;
use crate::layout::{Geometry, Superblock};
use crate::lock::Lock;
use crate::lost::LostRecords;
use crate::pool::Mode;
use crate::recovery::Replay;
use crate::sharing::SeenBlocks;
use crate::transaction::{PmemTransaction, Transaction};
use pmem::deliberate::{self, Bug};
use pmem::{BlockNumber, DurabilityClass, Region};
use scatter::{Allocator, Extent, SegmentNumber};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What `fs` is written against: [`Metadata`], [`Data`], [`Segments`], [`PoolState`], and changes by transactions.
pub trait Store: Metadata + Data + Segments + PoolState {
    /// The transactions of this store.
    type Transaction<'s>: Transaction
    where
        Self: 's;

    /// Starts a transaction.
    fn begin(&self) -> Self::Transaction<'_>;
}

/// A pool in one region of memory.
#[derive(Debug)]
pub struct PmemStore {
    region: Arc<Region>,
    superblock: Superblock,
    geometry: Geometry,
    journals: Arc<Journals>,
    domains: Arc<Domains>,
    homes: Homes,
    allocator: OnceLock<Allocator>,
    device: Option<PoolDevice>,
    seen: Arc<SeenBlocks>,
    mode: Mode,
    /// Whether journals stay where they are.
    keeps_journals: AtomicBool,
    replay: Replay,
    directory: Option<Arc<PoolDirectory>>,
    /// Of class `log`, if it is open for writing: where the segments' files are.
    memory: Option<Arc<PoolDirectory>>,
    lost: Vec<LostRecords>,
    /// Of class `log`, if it is open for writing. Before the lock: its threads end first.
    logger: Option<Logger>,
    /// Held as long as the pool is open; `None` for a region without files.
    _lock: Option<Lock>,
}

impl PmemStore {
    /// The region that holds the pool.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The same, for who outlives a borrow.
    pub fn shared_region(&self) -> Arc<Region> {
        Arc::clone(&self.region)
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// What a durable write means on this pool.
    pub fn class(&self) -> DurabilityClass {
        self.region.class()
    }

    /// Records that opening the pool had to apply.
    pub fn recovered_records(&self) -> u64 {
        self.replay.records
    }

    /// Whether the pool was unmounted cleanly before it was opened.
    pub fn was_clean(&self) -> bool {
        self.replay.was_clean
    }

    /// From here on journals stay where they are: for a repair that does not know yet which blocks are free.
    pub fn keep_journals(&self) {
        self.keeps_journals.store(true, Ordering::Relaxed);
    }

    /// Domains and the segment table.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Sequence numbers of the newest record and of the last checkpoint.
    pub fn sequences(&self) -> (u64, u64) {
        (self.journals.sequence(), self.journals.checkpointed())
    }

    /// Returns when the log has all records up to `sequence`; also if it never will, because it has
    /// failed (L4, L6).
    fn wait_for_log(&self, sequence: u64) {
        if let Some(logger) = &self.logger
            && !deliberate::is(Bug::RetireBeforeLog)
        {
            logger.wait_for_room(sequence);
        }
    }

    pub(crate) fn journals(&self) -> &Journals {
        &self.journals
    }

    #[inline]
    pub(crate) fn pool_device(&self) -> Option<&PoolDevice> {
        self.device.as_ref()
    }

    /// Blocks of the device that the last checkpoint has made free can be used.
    pub(crate) fn reclaim_device(&self) {
        if let Some(device) = &self.device {
            device.reclaim(self.journals.checkpointed());
        }
    }

    /// The segment of a block; `None` if it lies in none.
    pub(crate) fn segment_of(&self, block: BlockNumber) -> Option<SegmentNumber> {
        let index = block.get().checked_sub(self.geometry.first_block().get())?;
        let segment = u32::try_from(index / self.geometry.segment_blocks).ok();
        segment.map(SegmentNumber)
    }

    /// Whether the segment of a block is held: a process has it, or is about to get it.
    pub(crate) fn is_held(&self, block: BlockNumber) -> bool {
        let segment = self.segment_of(block);
        segment.is_some_and(|segment| self.domains.held().is_held(segment))
    }

    fn blocks_of(&self, segment: SegmentNumber) -> Range<u64> {
        let blocks = self.geometry.segment_blocks;
        let first = self.geometry.first_block().get() + u64::from(segment.0) * blocks;
        first..first + blocks
    }

    /// Whether a segment holds nothing that processes of its owner must not see. Of class `log`
    /// that others' content was cleared says nothing: the image has it, and a power failure brings
    /// it back.
    fn shows_own_content(&self, segment: SegmentNumber, owner: Domain) -> bool {
        let content = || self.domains.entry(segment.0).content(segment.0);
        let is_sound = self.logger.is_none() || !content().is_kept_from(owner);
        is_sound || deliberate::is(Bug::ShowImageResidue)
    }

    /// Hands blocks back to the allocator, but for those that somebody may still see. Whether there were any.
    pub(crate) fn release(&self, freed: &[Extent]) -> bool {
        match self.seen.is_any() {
            false => self.hand_back(freed),
            true => self.hand_back(&self.seen.sort_out(freed)),
        }
    }

    /// A checkpoint, for who looks for room. Whether it may have made some: also if another thread has taken it meanwhile.
    pub(crate) fn reclaim(&self) -> bool {
        let seen = self.journals.checkpointed();
        let room = self.allocator.get();
        let room = room.filter(|_| !self.keeps_journals.load(Ordering::Relaxed));
        let mut is_any = None;
        let release = |freed: &[Extent]| is_any = Some(self.release(freed) || is_any == Some(true));
        let has_log = |sequence| self.wait_for_log(sequence);
        self.journals.checkpoint(seen, room, has_log, release);
        is_any.unwrap_or(true)
    }

    /// A journal is nearly full. Where a log follows the memory, the half is left without a wait.
    #[cold]
    fn retire_records(&self) {
        let Some(logger) = &self.logger else {
            self.reclaim();
            return;
        };
        let has_log =
            |sequence| logger.is_durable(sequence) || deliberate::is(Bug::RetireBeforeLog);
        self.journals.advance(has_log, |freed| {
            self.release(freed);
        });
    }

    fn hand_back(&self, freed: &[Extent]) -> bool {
        if let Some(device) = &self.device {
            device.lost_owners(self.journals.sequence(), freed);
        }
        let leaked = usize::from(deliberate::is(Bug::LeakBlock)).min(freed.len());
        self.allocator()
            .free_all(&freed[leaked..], |extent, error| {
                // The medium named a block twice. Refusing the second free keeps its present owner safe.
                tracing::error!(?extent, %error, "block freed twice; run `perdure fsck`");
            });
        !freed.is_empty()
    }
}

impl Store for PmemStore {
    type Transaction<'s> = PmemTransaction<'s>;

    #[inline]
    fn begin(&self) -> PmemTransaction<'_> {
        PmemTransaction::new(self)
    }
}
