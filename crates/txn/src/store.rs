//! The seam between `fs` and where blocks live.
//!
//! `fs` is written against [`Store`] and [`Transaction`]. [`PmemStore`] keeps everything in one region;
//! a tiered store (homes on a disk) and a replicated one (data on storage units) fit behind the same traits.

mod kept;
mod open;

pub use kept::Kept;

use crate::checkpoint::write_checkpoint;
use crate::checksum::{Seal, seal};
use crate::directory::PoolDirectory;
use crate::disk::Logger;
use crate::domain::{Domain, Domains, Ledger};
use crate::error::Corruption;
use crate::homes::Homes;
use crate::journal::Journals;
use crate::layout::{CLEAN_AT, Geometry, ROOT_AREA_AT, STATE_BLOCK, Superblock};
use crate::lock::Lock;
use crate::lost::LostRecords;
use crate::places::read_places;
use crate::pool::Mode;
use crate::read_speed::ReadSpeed;
use crate::recovery::Replay;
use crate::saved;
use crate::sharing::SeenBlocks;
use crate::transaction::{PmemTransaction, Transaction};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber, DurabilityClass, Offset, Region};
use scatter::{Allocator, DomainId, Extent, Options, Rebuild, SegmentNumber};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use zerocopy::FromBytes;

/// Copies whole blocks out.
pub type BlockReader = Box<dyn Fn(BlockNumber, &mut [u8; BLOCK_BYTES]) + Send>;

/// Where blocks live: loads at memory speed, changes by transactions.
///
/// Loads see the state after the last committed transaction; the caller's locks keep them apart from
/// transactions on the same object (R3).
pub trait Store: Send + Sync + 'static {
    /// The transactions of this store.
    type Transaction<'s>: Transaction
    where
        Self: 's;

    /// Starts a transaction.
    fn begin(&self) -> Self::Transaction<'_>;
    /// The 8 bytes of metadata at `at` (aligned).
    fn load_word(&self, at: Offset) -> u64;
    /// A structure of metadata at `at`.
    fn load<T: FromBytes>(&self, at: Offset) -> T;
    /// Copies metadata out.
    fn read(&self, at: Offset, into: &mut [u8]);
    /// Where the blocks are that transactions name by their index.
    fn homes(&self) -> &Homes;
    /// Whether the metadata at `at` equals `bytes`.
    fn equals(&self, at: Offset, bytes: &[u8]) -> bool;
    /// Hints that `at` will be loaded soon.
    fn prefetch(&self, at: Offset);
    /// Hints that what was read there is not needed again before somebody else writes it, past the caches.
    fn release(&self, at: Offset, length: usize);
    /// Copies bulk data out of a block.
    fn read_data(&self, block: BlockNumber, offset: usize, into: &mut [u8]);
    /// The same for a thread of its own, which may outlive a borrow; whole blocks. Ends before the store is closed.
    fn reader(&self) -> BlockReader;
    /// How fast a block is read here, against DRAM; `None` for a store that is known to be slow.
    fn read_speed(&self) -> Option<ReadSpeed>;
    /// Area of [`ROOT_AREA_BYTES`](crate::layout::ROOT_AREA_BYTES) that belongs to the layer above.
    fn root_area(&self) -> Offset;
    /// Where segments and blocks are.
    fn geometry(&self) -> Geometry;
    /// The number by which allocations name `domain`.
    fn domain_number(&self, domain: Domain) -> DomainId;
    /// A process is going to map the segment, if it may: who owns it, and goes on owning it until [`take_in`](Store::take_in). `None` if it is not one owner's, and then it is not
    /// handed out.
    fn hand_out(&self, segment: SegmentNumber) -> Option<Domain>;
    /// Before a process gets a segment that was handed out: no record is judged by what is in it any more, and what others than its owner have left there is overwritten, until so many `blocks` were
    /// looked at. Whether nothing is left, and how many blocks were looked at. If nothing is, it counts as given from here on: somebody may have its pages when nobody has it any more.
    fn prepare(&self, segment: SegmentNumber, blocks: u64) -> (bool, u64);
    /// The very file through which a segment that was handed out is mapped, each of whose blocks is there for good: a process that maps it too need not make sure of that, and if it `is_sealed` cannot take any away.
    /// `None` if the segments are no files.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn segment_file(&self, segment: SegmentNumber, is_sealed: bool) -> io::Result<Option<File>>;
    /// Whether processes can be kept from taking blocks of segments away.
    fn can_seal(&self) -> bool;
    /// The directory that the pool's files are in; `None` for a device or a region.
    fn directory(&self) -> Option<&Arc<PoolDirectory>>;
    /// The directory that the segments' files are in: of class `log` that of the memory.
    fn segments_directory(&self) -> Option<&Arc<PoolDirectory>>;
    /// A process that had the segment mapped is gone. `false` if somebody has it all the same, whom it may have given it to: then it goes on belonging to its owner until
    /// [`take_in_rest`](Store::take_in_rest) finds that nobody has.
    fn take_in(&self, segment: SegmentNumber) -> bool;
    /// Takes in those segments that only somebody unknown had, and nobody has any more. How many are left.
    fn take_in_rest(&self) -> usize;
    /// Returns what each user's segments keep from other users, root's too, by user.
    fn kept(&self) -> Vec<(u32, Kept)>;
    /// Has files of these users, and of no others, use segments that they have before fresh ones.
    fn spare_segments(&self, users: Vec<u32>);
    /// Free blocks that this user cannot have, because processes of others have their segments.
    fn held_from(&self, user: u32) -> u64;
    /// Blocks that somebody may still see after their files have let them go.
    fn seen_blocks(&self) -> &Arc<SeenBlocks>;
    /// Whether what is flushed and fenced is durable.
    fn class(&self) -> DurabilityClass;
    /// The log that follows the memory, of class `log`; `None` if there is none, or the pool is
    /// only read.
    fn logger(&self) -> Option<&Logger>;
    /// Starts rebuilding the allocator; the store has marked its own blocks.
    ///
    /// # Errors
    ///
    /// The store's own blocks cannot be set aside: two journals overlap, or lie in a segment that belongs to nobody.
    fn rebuild(&self) -> Result<Rebuild, Corruption>;
    /// Installs the rebuilt allocator. Transactions can allocate from now on.
    fn install(&self, rebuild: Rebuild, options: Options);
    /// The allocator.
    fn allocator(&self) -> &Allocator;
    /// Retires all committed records and frees the blocks that they gave back.
    fn checkpoint(&self);
    /// Takes a checkpoint if the next one is near. Who calls it before he takes locks spares others the wait: a checkpoint that
    /// a commit needs is taken under the operation's locks, and takes as long as some hundred operations.
    fn relieve(&self);
    /// Blocks that nobody owns any more and that the next checkpoint makes free; a checkpoint that runs counts them as used.
    fn pending_blocks(&self) -> u64;
    /// Whether nothing may be written.
    fn is_read_only(&self) -> bool;
    /// Durable records that opening the pool did not apply.
    fn lost_records(&self) -> &[LostRecords];
    /// What the last clean unmount saved; `None` after a crash or if it does not check out.
    fn saved_state(&self) -> Option<Vec<u8>>;
    /// From here on the pool counts as crashed unless [`close`](Store::close) is called.
    fn mark_mounted(&self);
    /// Retires everything, saves `state` and marks the pool clean.
    fn close(&self, state: &[u8]);
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

    #[inline]
    fn load_word(&self, at: Offset) -> u64 {
        self.region.load_u64(at)
    }

    #[inline]
    fn load<T: FromBytes>(&self, at: Offset) -> T {
        self.region.load(at)
    }

    #[inline]
    fn read(&self, at: Offset, into: &mut [u8]) {
        self.region.read(at, into);
    }

    #[inline]
    fn equals(&self, at: Offset, bytes: &[u8]) -> bool {
        self.region.equals(at, bytes)
    }

    #[inline]
    fn prefetch(&self, at: Offset) {
        self.region.prefetch(at);
    }

    #[inline]
    fn release(&self, at: Offset, length: usize) {
        self.region.release(at, length);
    }

    #[inline]
    fn read_data(&self, block: BlockNumber, offset: usize, into: &mut [u8]) {
        debug_assert!(offset + into.len() <= BLOCK_BYTES);
        match <&mut [u8; BLOCK_BYTES]>::try_from(&mut *into) {
            Ok(whole) => self.region.read_block(block.offset(), whole),
            Err(_) => self.region.read(block.offset() + offset as u64, into),
        }
    }

    #[inline]
    fn homes(&self) -> &Homes {
        &self.homes
    }

    fn reader(&self) -> BlockReader {
        let region = Arc::clone(&self.region);
        let first = self.geometry.first_block();
        let end = BlockNumber::new(self.geometry.total_bytes() / BLOCK_BYTES as u64);
        Box::new(move |block, into| {
            if (first..end).contains(&block) {
                region.read(block.offset(), into);
            }
        })
    }

    fn read_speed(&self) -> Option<ReadSpeed> {
        Some(ReadSpeed::measure(&self.region, &self.geometry))
    }

    fn root_area(&self) -> Offset {
        STATE_BLOCK.offset() + ROOT_AREA_AT
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn domain_number(&self, domain: Domain) -> DomainId {
        self.domains.number(domain)
    }

    fn hand_out(&self, segment: SegmentNumber) -> Option<Domain> {
        if !self.domains.held().hold(segment) {
            return None;
        }
        let owner = self.allocator().hold(segment);
        let domain = owner.map(|owner| self.domains.domain(owner));
        let domain = domain.filter(|domain| matches!(domain, Domain::Owner { .. }));
        let domain = domain.filter(|domain| self.shows_own_content(segment, *domain));
        if domain.is_none() {
            self.take_in(segment);
        }
        domain
    }

    fn prepare(&self, segment: SegmentNumber, blocks: u64) -> (bool, u64) {
        if self
            .logger
            .as_ref()
            .is_some_and(|it| !it.is_loaded(segment.0))
        {
            return (false, 0);
        }
        let is_there = |block| self.segment_of(block) == Some(segment);
        // Of class `log` the process cannot change it.
        if self.logger.is_none()
            && self.journals.checks_any(is_there)
            && !deliberate::is(Bug::TrustHeldData)
        {
            self.checkpoint();
        }
        let (is_clear, looked_at) = self.allocator().clear(segment, blocks);
        if is_clear {
            self.domains.held().give(segment);
        }
        (is_clear, looked_at)
    }

    fn segment_file(&self, segment: SegmentNumber, is_sealed: bool) -> io::Result<Option<File>> {
        if self.region.class() == DurabilityClass::Dax {
            let first =
                self.geometry.first_block() + u64::from(segment.0) * self.geometry.segment_blocks;
            let length = self.geometry.segment_bytes() as usize;
            self.region.make_present(first.offset(), length)?;
        }
        let held = self.domains.held();
        if is_sealed {
            held.seal(segment)?;
        }
        held.file(segment)
    }

    fn can_seal(&self) -> bool {
        self.domains.held().can_seal()
    }

    fn directory(&self) -> Option<&Arc<PoolDirectory>> {
        self.directory.as_ref()
    }

    fn segments_directory(&self) -> Option<&Arc<PoolDirectory>> {
        self.memory.as_ref().or(self.directory.as_ref())
    }

    fn take_in(&self, segment: SegmentNumber) -> bool {
        let is_free = self.domains.held().let_go(segment);
        if is_free {
            self.allocator().let_go(segment);
        }
        is_free
    }

    fn take_in_rest(&self) -> usize {
        let held = self.domains.held();
        for segment in held.look_again() {
            self.allocator().let_go(segment);
        }
        held.lingering()
    }

    fn kept(&self) -> Vec<(u32, Kept)> {
        self.count_kept()
    }

    fn spare_segments(&self, users: Vec<u32>) {
        self.domains.spare_segments(users);
    }

    fn held_from(&self, user: u32) -> u64 {
        let is_own = |domain| matches!(self.domains.domain(domain), Domain::Owner { uid, .. } if uid == user);
        self.allocator().held_from(is_own)
    }

    fn seen_blocks(&self) -> &Arc<SeenBlocks> {
        &self.seen
    }

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
    }

    #[inline]
    fn relieve(&self) {
        if self.journals.claim_checkpoint() {
            self.retire_records();
        }
    }

    fn pending_blocks(&self) -> u64 {
        self.journals.pending_blocks()
    }

    fn lost_records(&self) -> &[LostRecords] {
        &self.lost
    }

    fn is_read_only(&self) -> bool {
        self.mode == Mode::ReadOnly
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
