//! Transactions: the write half of the seam between `fs` and where blocks live.
//!
//! * `interface`: the trait [`Transaction`].
//! * this file: its implementation for [`PmemStore`].

mod interface;

pub use interface::{CommitError, Transaction};

use crate::device::{DeviceFault, DevicePart};
use crate::homes::HomeOffset;
use crate::journal::{DataOrder, Journals, Turn};
use crate::record::{DataCheck, NOTE_BYTES, RecordBuilder};
use crate::store::{Metadata, PmemStore, PoolState};
use device::{DeviceBlock, Runs, Twin};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber, DurabilityClass, Durable, Flushed, Offset};
use scatter::{Allocator, DomainId, Extent, Extents, OutOfSpace, Purpose, Request, Unit};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Checkpoints that a request takes at most before it is told that there is no room.
const RECLAIMS_MAX: u32 = 16;
/// The same for an overwrite: it frees as much as it takes, so only other overwrites delay it.
const RECLAIMS_FOR_OVERWRITE_MAX: u32 = 1024;

thread_local! {
    /// The buffer of this thread's next transaction, so that it allocates no memory. One inside another gets a new one.
    static RECORD: Cell<RecordBuilder> = const { Cell::new(RecordBuilder::without_memory()) };
    static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
}
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(0);

/// A small number for this thread: picks its journal and its allocation group.
#[inline]
pub fn thread_slot() -> usize {
    SLOT.with(|slot| {
        if slot.get() == usize::MAX {
            slot.set(NEXT_SLOT.fetch_add(1, Ordering::Relaxed));
        }
        slot.get()
    })
}

/// Gives this thread the number `slot`: that of another one, so that a test meets other threads' journals and still repeats.
pub fn use_slot(slot: usize) {
    SLOT.set(slot);
}

/// Bulk data that a transaction has written.
#[derive(Debug)]
enum Data {
    None,
    /// Little enough for the record to carry its checksum: one fence suffices.
    Checked(Flushed),
    /// Has to be durable before the record is written.
    Unchecked(Flushed),
}

/// Extents given back that a record names for the log at most: it only saves copies.
const FREED_NOTES_MAX: usize = 4;

/// A transaction of [`PmemStore`].
///
/// Prefetches each line when it is told of the change: the record is applied after its fence, where
/// every cache miss would be waited for.
#[derive(Debug)]
pub struct PmemTransaction<'s> {
    store: &'s PmemStore,
    record: RecordBuilder,
    data: Data,
    turn: Option<Turn<'s>>,
    moved: Option<(u64, BlockNumber)>,
    /// Where bulk data was written, for the log that follows the memory.
    written: SmallVec<[(Offset, u64); 4]>,
    concerned: SmallVec<[u64; 4]>,
    allocated: SmallVec<[Extent; 4]>,
    freed: SmallVec<[Extent; 4]>,
    /// Of hardly any transaction.
    device: Option<Box<DevicePart<'s>>>,
    committed: bool,
}

impl<'s> PmemTransaction<'s> {
    pub(crate) fn new(store: &'s PmemStore) -> PmemTransaction<'s> {
        let mut record = RECORD.take();
        record.clear();
        PmemTransaction {
            store,
            record,
            data: Data::None,
            turn: None,
            moved: None,
            written: SmallVec::new(),
            concerned: SmallVec::new(),
            allocated: SmallVec::new(),
            freed: SmallVec::new(),
            device: None,
            committed: false,
        }
    }

    fn journals(&self) -> &'s Journals {
        self.store.journals()
    }

    /// A deliberate mistake: the low half goes around the log.
    #[cold]
    fn store_in_halves(&mut self, at: Offset, word: u64) {
        let bytes = word.to_le_bytes();
        let region = self.store.region();
        region.fence(region.store(at, &bytes[..4]).flush());
        self.record.store(at + 4, &bytes[4..]);
    }

    /// The turn taken before, or a new one, in a journal with room for the record.
    #[inline]
    fn turn_with_room(&mut self) -> Turn<'s> {
        let bytes = self.record.padded_bytes();
        loop {
            let turn = match self.turn.take() {
                Some(turn) => turn,
                None => self.journals().turn(thread_slot()),
            };
            if turn.has_room(bytes) {
                return turn;
            }
            drop(turn);
            self.store.reclaim();
        }
    }

    /// Takes blocks after a checkpoint, which needs all journals, also the one held here.
    ///
    /// Other threads may take what the checkpoint frees. So there is no room only when a checkpoint
    /// found nothing and no record was committed since.
    #[cold]
    fn take_freed<R>(
        &mut self,
        purpose: Purpose,
        take: impl Fn(&Allocator) -> Result<R, OutOfSpace>,
    ) -> Result<R, OutOfSpace> {
        self.turn = None;
        let attempts_max = match purpose {
            Purpose::Overwrite => RECLAIMS_FOR_OVERWRITE_MAX,
            _ => RECLAIMS_MAX,
        };
        let mut attempts = 0;
        loop {
            let sequence = self.journals().sequence();
            let is_any_freed = self.store.reclaim();
            let outcome = take(self.store.allocator());
            attempts += 1;
            let may_have_room = is_any_freed || self.journals().sequence() != sequence;
            if outcome.is_ok() || !may_have_room || attempts == attempts_max {
                return outcome;
            }
        }
    }

    /// This transaction's use of the device; `None` if the pool has none.
    #[cold]
    fn device_part(&mut self) -> Option<&mut DevicePart<'s>> {
        if self.device.is_none() {
            let part = DevicePart::new(self.store.pool_device()?);
            self.device = Some(Box::new(part));
        }
        self.device.as_deref_mut()
    }

    /// Makes everything on the device durable before the record, while no journal is held (D1, D3).
    #[cold]
    #[inline(never)]
    fn redeem_part(&mut self) -> Result<(), DeviceFault> {
        match &mut self.device {
            Some(part) if part.is_pending() => {
                self.turn = None;
                part.redeem()
            }
            _ => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn device_committed(&mut self, sequence: u64) {
        if let Some(part) = &mut self.device {
            part.committed(sequence);
        }
    }

    #[inline]
    fn tell_log(&self, sequence: u64) {
        if let Some(logger) = self.store.logger() {
            logger.note_changes(sequence, &self.concerned, self.record.data_bytes());
        }
    }

    /// There is nothing to undo any more.
    #[inline]
    fn end(&mut self) {
        self.committed = true;
        RECORD.set(std::mem::take(&mut self.record));
    }

    /// Commits a move: with all journals held, copies the block as it is now, and makes copy, pointer and the end of the old place one record.
    #[cold]
    fn commit_move(&mut self, index: u64, to: BlockNumber) -> Result<(), CommitError> {
        let (region, homes) = (self.store.region(), self.store.homes());
        let from = homes
            .block(index)
            .expect("who moves a home knows that it exists");
        self.record.check_data(DataCheck {
            at: to.offset(),
            length: BLOCK_BYTES,
            checksum: 0,
        });
        self.record.close(homes);
        let bytes = self.record.padded_bytes();
        let mut all = loop {
            let all = self.journals().turn_of_all(thread_slot());
            if all.turn.has_room(bytes) {
                break all;
            }
            drop(all);
            self.store.checkpoint();
        };
        let mut content = [0; BLOCK_BYTES];
        region.read(from.offset(), &mut content);
        let (written, checksum) = region.write_streaming_checksummed(to.offset(), &content);
        self.record.complete_data_check(checksum);
        // Before the record is applied, which invalidates the old place: a reader there sees the
        // move.
        let relocate = || homes.relocate(index, to);
        let data = DataOrder::Checked(written);
        all.turn
            .commit_then(&mut self.record, data, &self.freed, relocate);
        self.tell_log(all.turn.sequence());
        self.end();
        drop(all);
        Ok(())
    }

    /// Whether the record would be judged by data that a process can change, which has its segment mapped: it could make recovery take an operation back on which others were built. (Relaxed reads: a process
    /// gets a segment when it is held, and when each journal was looked at since.)
    /// In class `log` no process can, and the log finds the data by its check.
    #[inline]
    fn checks_held_data(&self) -> bool {
        let store = self.store;
        store.domains().held().were_any()
            && store.logger().is_none()
            && !deliberate::is(Bug::TrustHeldData)
            && self
                .record
                .checked_block()
                .is_some_and(|block| store.is_held(block))
    }

    /// Data that the record was to check gets a fence of its own after all: a process was given its segment just now.
    #[cold]
    fn fence_now(&mut self, data: DataOrder) -> DataOrder {
        self.record.forget_data_of_closed();
        match data {
            DataOrder::Checked(written) => DataOrder::Durable(self.store.region().fence(written)),
            durable @ DataOrder::Durable(_) => durable,
        }
    }

    /// The data gets a fence of its own.
    fn uncheck_data(&mut self) {
        self.record.forget_data();
        self.data = match std::mem::replace(&mut self.data, Data::None) {
            Data::Checked(data) => Data::Unchecked(data),
            other => other,
        };
    }

    /// Remembers data for the log. Neighbours are one run.
    #[inline]
    fn note_written(&mut self, at: Offset, bytes: usize) {
        match self.written.last_mut() {
            Some((start, length)) if *start + *length == at => *length += bytes as u64,
            _ => self.written.push((at, bytes as u64)),
        }
    }

    /// The record names its data for the log, unless its data check does, and blocks that it frees.
    fn name_data(&mut self) {
        if let Data::Unchecked(_) = self.data {
            for (at, bytes) in std::mem::take(&mut self.written) {
                self.record.note_data(at, bytes);
            }
        }
        if self.store.logger().is_some() {
            for extent in self.freed.iter().take(FREED_NOTES_MAX) {
                let bytes = u64::from(extent.blocks) * BLOCK_BYTES as u64;
                self.record.note_freed(extent.start.offset(), bytes);
            }
        }
    }

    /// Sees to it that recovery never believes the record without its data (R4).
    #[inline]
    fn order_data(&mut self) -> DataOrder {
        let region = self.store.region();
        match std::mem::replace(&mut self.data, Data::None) {
            Data::None => DataOrder::Durable(Durable::nothing(region)),
            Data::Checked(_) | Data::Unchecked(_) if deliberate::is(Bug::SkipDataFence) => {
                DataOrder::Durable(Durable::nothing(region))
            }
            Data::Checked(data) => DataOrder::Checked(data),
            Data::Unchecked(data) => DataOrder::Durable(region.fence(data)),
        }
    }
}

impl Transaction for PmemTransaction<'_> {
    #[inline]
    fn store(&mut self, at: Offset, bytes: &[u8]) {
        self.store.region().prefetch(at);
        self.record.store(at, bytes);
    }

    #[inline]
    fn store_at_home(&mut self, home: HomeOffset, bytes: &[u8]) {
        self.record.store_at_home(home, bytes);
    }

    fn move_home(&mut self, index: u64, to: BlockNumber) {
        debug_assert!(matches!(self.data, Data::None), "a move has no other data");
        self.moved = Some((index, to));
    }

    #[inline]
    fn store_word(&mut self, at: Offset, word: u64) {
        if deliberate::is(Bug::TornPointer) {
            return self.store_in_halves(at, word);
        }
        self.store.region().prefetch(at);
        self.record.store_word(at, word);
    }

    fn zero(&mut self, at: Offset, length: usize) {
        self.record.zero(at, length);
    }

    fn allocate(
        &mut self,
        domain: DomainId,
        blocks: u32,
        purpose: Purpose,
    ) -> Result<Extents, OutOfSpace> {
        let request = Request {
            domain,
            blocks,
            unit: Unit::Block4K,
            purpose,
            home: thread_slot(),
        };
        let extents = match self.store.allocator().allocate(&request) {
            Ok(extents) => extents,
            Err(_) => self.take_freed(purpose, |allocator| allocator.allocate(&request))?,
        };
        self.allocated.extend_from_slice(&extents);
        Ok(extents)
    }

    #[inline]
    fn allocate_one(
        &mut self,
        domain: DomainId,
        purpose: Purpose,
    ) -> Result<BlockNumber, OutOfSpace> {
        let home = thread_slot();
        let block = match self.store.allocator().allocate_one(domain, purpose, home) {
            Ok(block) => block,
            Err(_) => self.take_freed(purpose, |allocator| {
                allocator.allocate_one(domain, purpose, home)
            })?,
        };
        self.allocated.push(Extent {
            start: block,
            blocks: 1,
        });
        Ok(block)
    }

    #[inline]
    fn write_fresh(&mut self, block: BlockNumber, offset: usize, bytes: &[u8]) {
        debug_assert!(offset + bytes.len() <= BLOCK_BYTES);
        let region = self.store.region();
        let at = block.offset() + offset as u64;
        if region.class() == DurabilityClass::Log {
            self.note_written(at, bytes.len());
        }
        if deliberate::is(Bug::SkipDataFlush) {
            region.store(at, bytes).leave_to_checkpoint();
            return;
        }
        self.data = match std::mem::replace(&mut self.data, Data::None) {
            Data::None => {
                let (written, checksum) = region.write_streaming_checksummed(at, bytes);
                if !deliberate::is(Bug::SkipDataFence) {
                    self.record.check_data(DataCheck {
                        at,
                        length: bytes.len(),
                        checksum,
                    });
                }
                Data::Checked(written)
            }
            Data::Checked(before) | Data::Unchecked(before) => {
                let mut written = region.write_streaming(at, bytes);
                self.record.forget_data();
                written.join(before);
                Data::Unchecked(written)
            }
        };
    }

    #[inline]
    fn take_turn(&mut self) {
        if self.turn.is_none() {
            self.turn = Some(self.journals().turn(thread_slot()));
        }
    }

    #[inline]
    fn concerns(&mut self, object: u64) {
        if self.store.logger().is_some() {
            self.concerned.push(object);
        }
    }

    fn free(&mut self, extent: Extent) {
        match self.freed.last_mut() {
            // Neighbours are merged: a truncated file mostly frees runs.
            Some(last) if last.start.get() + u64::from(last.blocks) == extent.start.get() => {
                last.blocks += extent.blocks;
            }
            _ => self.freed.push(extent),
        }
    }

    #[cold]
    fn allocate_device(&mut self, blocks: u32) -> Option<Runs> {
        let store = self.store;
        if let Some(runs) = self.device_part()?.take(blocks) {
            return Some(runs);
        }
        self.turn = None;
        store.checkpoint();
        if let Some(runs) = self.device_part()?.take(blocks) {
            return Some(runs);
        }
        // No reader waits for this transaction, which holds no lock yet.
        store.pool_device()?.await_readers();
        store.reclaim_device();
        self.device_part()?.take(blocks)
    }

    #[cold]
    fn write_device(&mut self, start: DeviceBlock, bytes: &[u8]) -> Result<(), DeviceFault> {
        self.turn = None;
        match &mut self.device {
            Some(part) => part.write(start, bytes, &mut self.record),
            None => Err(DeviceFault::of_none(start)),
        }
    }

    fn redeem(&mut self) -> Result<(), DeviceFault> {
        self.redeem_part()
    }

    fn changes_in_place(&mut self, block: BlockNumber) {
        if let Some(part) = self.device_part() {
            part.changes_in_place(block);
        }
    }

    #[cold]
    fn adopt_device(&mut self, twins: &[Twin]) {
        self.device_part();
        if let Some(part) = &self.device {
            part.adopt(twins, &mut self.record);
        }
    }

    #[cold]
    fn free_device(&mut self, block: DeviceBlock) {
        if let Some(part) = self.device_part() {
            part.free(block);
        }
    }

    fn record_bytes(&self) -> (usize, usize) {
        let notes = self.written.len() + self.freed.len().min(FREED_NOTES_MAX);
        (
            self.record.padded_bytes() + notes * NOTE_BYTES,
            self.journals().record_bytes_max(),
        )
    }

    fn commit(&mut self) -> Result<(), CommitError> {
        debug_assert!(!self.committed, "a transaction is committed once");
        let (bytes, maximum) = self.record_bytes();
        if bytes > maximum {
            return Err(CommitError::TooLarge { bytes, maximum });
        }
        if self.device.is_some() {
            self.redeem_part()?;
        } else if self.record.is_empty() && self.freed.is_empty() {
            self.end();
            return Ok(());
        }
        if self.record.changes_checked_data() || self.checks_held_data() {
            self.uncheck_data();
        }
        self.name_data();
        if let Some((index, to)) = self.moved {
            return self.commit_move(index, to);
        }
        // Everything that can be computed is computed before the fence, while the data drains.
        let homes = self.store.homes();
        let version = homes.version();
        self.record.close(homes);
        let mut data = self.order_data();
        if deliberate::is(Bug::DoubleFree) {
            // Now, and at the checkpoint again, when the block may have a new owner.
            self.store.release(&self.freed);
        }
        if deliberate::is(Bug::ReuseBeforeCheckpoint) {
            self.store.release(&std::mem::take(&mut self.freed));
        }
        let mut turn = self.turn_with_room();
        if self.checks_held_data() {
            data = self.fence_now(data);
        }
        // Nothing moves as long as a journal is held.
        if homes.version() != version && !deliberate::is(Bug::ForgetMove) {
            self.record.close_again(homes);
        }
        turn.commit(&mut self.record, data, &self.freed);
        if self.device.is_some() {
            self.device_committed(turn.sequence());
        }
        self.tell_log(turn.sequence());
        self.end();
        // Last, because the lock waits for the fence: work before it costs nothing.
        drop(turn);
        Ok(())
    }
}

impl Drop for PmemTransaction<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.turn = None;
            if let Data::Checked(data) | Data::Unchecked(data) =
                std::mem::replace(&mut self.data, Data::None)
            {
                // Words still on their way must not land after the block's next owner has written.
                self.store.region().fence(data);
            }
            for extent in &self.allocated {
                // Nobody was told of these blocks, so they are free at once.
                let freed = self.store.allocator().free(*extent);
                debug_assert!(
                    freed.is_ok(),
                    "a block taken by this transaction is allocated"
                );
            }
            self.device = None;
            RECORD.set(std::mem::take(&mut self.record));
        }
    }
}

#[cfg(test)]
mod tests;
