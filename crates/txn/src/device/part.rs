//! Writes to the device before a record: by a transaction, or by the tier, which copies blocks that
//! no record names yet.

use super::seals::Seals;
use super::{DeviceFault, PoolDevice};
use crate::record::RecordBuilder;
use device::{DeviceBlock, Run, Runs, Token, Twin, WriteRequest, WrittenSince};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber};
use smallvec::SmallVec;

/// A write that was begun.
#[derive(Debug)]
struct Begun {
    token: Token,
    start: DeviceBlock,
}

/// Blocks of the device that were taken, and writes to them that nobody has waited for. Dropping it
/// gives the blocks back.
#[derive(Debug)]
pub struct Outgoing<'d> {
    device: &'d PoolDevice,
    taken: Runs,
    begun: SmallVec<[Begun; 2]>,
    /// Since when a flush has to be good; `None` if every write is durable.
    unflushed: Option<(WrittenSince, DeviceBlock)>,
}

impl<'d> Outgoing<'d> {
    /// Nothing is taken yet.
    pub fn new(device: &'d PoolDevice) -> Outgoing<'d> {
        Outgoing {
            device,
            taken: Runs::new(),
            begun: SmallVec::new(),
            unflushed: None,
        }
    }

    /// Takes fresh blocks; `None` if there are not so many, but some may become free by a
    /// checkpoint.
    pub fn take(&mut self, blocks: u32) -> Option<Runs> {
        let runs = self.device.take(blocks)?;
        self.taken.extend_from_slice(&runs);
        Some(runs)
    }

    /// Begins to write blocks that were taken.
    ///
    /// # Errors
    ///
    /// The device did not begin.
    pub fn write(&mut self, start: DeviceBlock, bytes: &[u8]) -> Result<(), DeviceFault> {
        let device = self.device.device(start)?;
        let now = self.device.flushes.now();
        self.unflushed.get_or_insert((now, start));
        let token = device.write(&[WriteRequest { start, bytes }]);
        if let Err(error) = &token {
            self.device.note(&Err(error.clone()));
        }
        let token = token.map_err(|error| self.device.fault(start, error))?;
        self.begun.push(Begun { token, start });
        Ok(())
    }

    /// Waits until every write is durable (D1).
    ///
    /// # Errors
    ///
    /// A write or the flush failed. No write is under way then, and none of them counts.
    pub fn redeem(&mut self) -> Result<(), DeviceFault> {
        if deliberate::is(Bug::RecordBeforeToken) {
            return Ok(());
        }
        let _waiting = self.device.watch.begin();
        let mut outcome = Ok(());
        for Begun { token, start } in std::mem::take(&mut self.begun) {
            // All of them, also after an error: no write under way may land after the block's next
            // owner has written.
            let waited = self.device.device(start).and_then(|device| {
                let waited = device.wait(token);
                waited.map_err(|error| self.device.fault(start, error))
            });
            outcome = outcome.and(waited);
        }
        if let Some((since, start)) = self.unflushed.take()
            && !deliberate::is(Bug::SwapWithoutFlush)
        {
            let flushed = outcome.and_then(|()| {
                let device = self.device.device(start)?;
                let flushed = self.device.flushes.flush(device, since);
                self.device.note(&flushed);
                flushed.map_err(|error| self.device.fault(start, error))
            });
            outcome = flushed;
        }
        match deliberate::is(Bug::SwallowDeviceError) {
            true => Ok(()),
            false => outcome,
        }
    }

    /// Whether something has to be waited for before the record.
    fn is_pending(&self) -> bool {
        !self.begun.is_empty() || self.unflushed.is_some()
    }

    /// The taken blocks have an owner, but for the `unused` ones, which are free again. Nothing is
    /// under way.
    pub fn keep_but(&mut self, unused: &[DeviceBlock]) {
        self.taken = unused.iter().map(|&block| Run::one(block)).collect();
    }
}

impl Drop for Outgoing<'_> {
    fn drop(&mut self) {
        // Errors do not matter: nobody believes that the blocks hold something. But no write may
        // land there any more.
        self.unflushed = None;
        let _ = self.redeem();
        self.device.give_back(&std::mem::take(&mut self.taken));
    }
}

/// One transaction's use of the device. It is apart from the transaction, so that a transaction
/// without a device costs nothing.
#[derive(Debug)]
pub(crate) struct DevicePart<'s> {
    outgoing: Outgoing<'s>,
    freed: SmallVec<[Run; 2]>,
    /// Blocks of memory that change in place.
    changed: SmallVec<[BlockNumber; 2]>,
}

impl<'s> DevicePart<'s> {
    pub(crate) fn new(device: &'s PoolDevice) -> DevicePart<'s> {
        DevicePart {
            outgoing: Outgoing::new(device),
            freed: SmallVec::new(),
            changed: SmallVec::new(),
        }
    }

    /// Takes fresh blocks; `None` if there are not so many.
    pub(crate) fn take(&mut self, blocks: u32) -> Option<Runs> {
        self.outgoing.take(blocks)
    }

    /// Begins to write blocks that were taken, and seals them in the record.
    pub(crate) fn write(
        &mut self,
        start: DeviceBlock,
        bytes: &[u8],
        record: &mut RecordBuilder,
    ) -> Result<(), DeviceFault> {
        self.outgoing.write(start, bytes)?;
        let blocks = bytes.as_chunks::<BLOCK_BYTES>().0;
        let seals: SmallVec<[u8; 256]> = blocks.iter().flat_map(|one| Seals::of(one)).collect();
        record.store(self.outgoing.device.seals.at(start), &seals);
        Ok(())
    }

    /// Seals blocks in the record, which were written before, and are durable. One entry for each
    /// run.
    pub(crate) fn adopt(&self, twins: &[Twin], record: &mut RecordBuilder) {
        let follows = |one: &Twin, next: &Twin| one.block.get() + 1 == next.block.get();
        for run in twins.chunk_by(follows) {
            let seals: SmallVec<[u8; 256]> = run
                .iter()
                .flat_map(|twin| twin.checksum.to_le_bytes())
                .collect();
            record.store(self.outgoing.device.seals.at(run[0].block), &seals);
        }
    }

    /// Notes a block of memory that changes in place.
    pub(crate) fn changes_in_place(&mut self, block: BlockNumber) {
        self.changed.push(block);
    }

    /// Gives a block back when the transaction is retired.
    pub(crate) fn free(&mut self, block: DeviceBlock) {
        match self.freed.last_mut() {
            Some(last) if last.indexes().end == block.get() => last.blocks += 1,
            _ => self.freed.push(Run::one(block)),
        }
    }

    /// Waits until every write is durable (D1).
    pub(crate) fn redeem(&mut self) -> Result<(), DeviceFault> {
        self.outgoing.redeem()
    }

    /// Whether something has to be waited for before the record.
    pub(crate) fn is_pending(&self) -> bool {
        self.outgoing.is_pending()
    }

    /// Notes that the record `sequence` is durable: taken blocks have an owner, freed ones have
    /// none.
    pub(crate) fn committed(&mut self, sequence: u64) {
        self.outgoing.keep_but(&[]);
        let freed = std::mem::take(&mut self.freed);
        let device = self.outgoing.device;
        device.free_later(sequence, &freed);
        // The record is applied by now (T2).
        for block in self.changed.drain(..) {
            device.changed(sequence, block);
        }
    }
}
