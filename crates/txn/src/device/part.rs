//! One transaction's use of the device. It is apart from the transaction, so that a transaction
//! without a device costs nothing.

use super::seals::Seals;
use super::{DeviceFault, PoolDevice};
use crate::record::RecordBuilder;
use device::{DeviceBlock, Run, Runs, Token, WriteRequest, WrittenSince};
use pmem::BLOCK_BYTES;
use pmem::deliberate::{self, Bug};
use smallvec::SmallVec;

/// A write that was begun.
#[derive(Debug)]
struct Begun {
    token: Token,
    start: DeviceBlock,
}

/// Device blocks taken, written and given back.
#[derive(Debug)]
pub(crate) struct DevicePart<'s> {
    device: &'s PoolDevice,
    taken: Runs,
    freed: SmallVec<[Run; 2]>,
    begun: SmallVec<[Begun; 2]>,
    /// Since when a flush has to be good; `None` if every write is durable.
    unflushed: Option<(WrittenSince, DeviceBlock)>,
}

impl<'s> DevicePart<'s> {
    pub(crate) fn new(device: &'s PoolDevice) -> DevicePart<'s> {
        DevicePart {
            device,
            taken: Runs::new(),
            freed: SmallVec::new(),
            begun: SmallVec::new(),
            unflushed: None,
        }
    }

    /// Takes fresh blocks; `None` if there are not so many.
    pub(crate) fn take(&mut self, blocks: u32) -> Option<Runs> {
        let runs = self.device.take(blocks)?;
        self.taken.extend_from_slice(&runs);
        Some(runs)
    }

    /// Begins to write blocks that were taken, and seals them in the record.
    pub(crate) fn write(
        &mut self,
        start: DeviceBlock,
        bytes: &[u8],
        record: &mut RecordBuilder,
    ) -> Result<(), DeviceFault> {
        let device = self.device.device(start)?;
        let now = self.device.flushes.now();
        self.unflushed.get_or_insert((now, start));
        let token = device.write(&[WriteRequest { start, bytes }]);
        let token = token.map_err(|error| self.device.fault(start, error))?;
        self.begun.push(Begun { token, start });
        let blocks = bytes.as_chunks::<BLOCK_BYTES>().0;
        let seals: SmallVec<[u8; 256]> = blocks.iter().flat_map(|one| Seals::of(one)).collect();
        record.store(self.device.seals.at(start), &seals);
        Ok(())
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
    pub(crate) fn is_pending(&self) -> bool {
        !self.begun.is_empty() || self.unflushed.is_some()
    }

    /// Notes that the record `sequence` is durable: taken blocks have an owner, freed ones have
    /// none.
    pub(crate) fn committed(&mut self, sequence: u64) {
        self.taken.clear();
        let freed = std::mem::take(&mut self.freed);
        self.device.free_later(sequence, &freed);
    }

    /// Gives the taken blocks back, as soon as no write can land there any more.
    pub(crate) fn abort(&mut self) {
        // Errors do not matter: no record points to the blocks.
        self.unflushed = None;
        let _ = self.redeem();
        self.device.give_back(&std::mem::take(&mut self.taken));
    }
}
