//! The device of a pool: where data blocks are that are not in the region (`docs/decisions/device.md`).
//!
//! * [`seals`]: the checksum of each of its blocks, kept in the region.
//! * [`part`]: what a transaction does with it.

mod part;
mod seals;

pub(crate) use part::DevicePart;
pub(crate) use seals::SEAL_BYTES;

use crate::disk::{Waits, Watch};
use crate::layout::Superblock;
use device::{
    Device, DeviceBlock, DeviceError, Flushes, Moment, Pin, ReadRequest, Readers, Rebuild, Run,
    Runs, Space,
};
use parking_lot::Mutex;
use pmem::Region;
use pmem::deliberate::{self, Bug};
use seals::Seals;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What a device did not do, and with which block. The operation that needed it fails with `EIO`, nothing of it happened, and the
/// pool goes on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("device {device}, block {block}: {error}")]
pub struct DeviceFault {
    /// The device's name.
    pub device: Arc<str>,
    /// The first block that is concerned.
    pub block: DeviceBlock,
    /// What it said.
    pub error: DeviceError,
}

/// Blocks that nobody owns any more, and since when.
#[derive(Clone, Copy, Debug)]
struct Freed {
    /// Number of the record that freed them.
    sequence: u64,
    moment: Moment,
    run: Run,
}

/// A pool's device, with its free space and those who read it.
pub struct PoolDevice {
    /// `None` if it is missing: the pool works without it, and its blocks cannot be read.
    device: Option<Arc<dyn Device>>,
    name: Arc<str>,
    blocks: u64,
    seals: Seals,
    space: OnceLock<Space>,
    readers: Readers,
    flushes: Flushes,
    /// Oldest first.
    pending: Mutex<VecDeque<Freed>>,
    watch: Watch,
}

impl DeviceFault {
    /// There is no device at all.
    pub(crate) fn of_none(block: DeviceBlock) -> DeviceFault {
        DeviceFault {
            device: "(none)".into(),
            block,
            error: DeviceError::Missing,
        }
    }
}

impl fmt::Debug for PoolDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = formatter.debug_struct("PoolDevice");
        all.field("name", &self.name).field("blocks", &self.blocks);
        all.finish_non_exhaustive()
    }
}

impl PoolDevice {
    /// The device that the superblock speaks of, which is missing as yet; `None` if it speaks of none.
    pub(crate) fn of(superblock: &Superblock, region: &Arc<Region>) -> Option<PoolDevice> {
        let seals = superblock.seals()?;
        Some(PoolDevice {
            device: None,
            name: "(missing)".into(),
            blocks: u64::from(superblock.device_blocks),
            seals: Seals::new(Arc::clone(region), seals.start),
            space: OnceLock::new(),
            readers: Readers::default(),
            flushes: Flushes::default(),
            pending: Mutex::default(),
            watch: Watch::default(),
        })
    }

    /// It is there.
    pub(crate) fn attach(&mut self, device: Arc<dyn Device>, name: &str) {
        (self.device, self.name) = (Some(device), name.into());
    }

    /// Has `waits` told of all waits for the device from now on; only the first call counts.
    pub fn watch_waits(&self, waits: Arc<dyn Waits>) {
        self.watch.set(waits);
    }

    /// What log lines call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Blocks that the pool uses of it.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether the pool may point to this block.
    #[inline]
    pub fn contains(&self, block: DeviceBlock) -> bool {
        block.get() < self.blocks
    }

    /// From now on, until the pin is dropped, freed blocks stay as they are. Whoever reads takes it before he believes the
    /// pointers that he has.
    pub fn pin(&self) -> Pin<'_> {
        self.readers.pin()
    }

    /// Reads blocks that are written, and checks that they are what was written there.
    ///
    /// # Errors
    ///
    /// [`DeviceFault`] names the first block that cannot be read, or is not what was written.
    pub fn read(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceFault> {
        let Some(first) = requests.first().map(|request| request.block) else {
            return Ok(());
        };
        let device = self.device(first)?;
        let _waiting = self.watch.begin();
        if device.read(requests).is_err() {
            // Which of them it was, or a second try for all.
            for request in &mut *requests {
                let outcome = device.read(std::slice::from_mut(request));
                outcome.map_err(|error| self.fault(request.block, error))?;
            }
        }
        let is_sound = |request: &&ReadRequest<'_>| self.seals.fits(request.block, request.into);
        match requests.iter().find(|request| !is_sound(request)) {
            Some(other) if !deliberate::is(Bug::TrustDevice) => {
                Err(self.fault(other.block, DeviceError::OtherBytes))
            }
            _ => Ok(()),
        }
    }

    fn fault(&self, block: DeviceBlock, error: DeviceError) -> DeviceFault {
        DeviceFault {
            device: Arc::clone(&self.name),
            block,
            error,
        }
    }

    fn device(&self, block: DeviceBlock) -> Result<&dyn Device, DeviceFault> {
        let device = self.device.as_deref();
        device.ok_or_else(|| self.fault(block, DeviceError::Missing))
    }

    /// Nothing of it is known to be in use yet.
    pub fn rebuild(&self) -> Rebuild {
        Rebuild::new(self.blocks)
    }

    /// What is in use is known. Transactions can use the device from now on.
    pub fn install(&self, rebuild: Rebuild) {
        let installed = self.space.set(rebuild.finish());
        debug_assert!(installed.is_ok(), "the space is installed once");
    }

    /// The free space, one bit a block, without what waits to be free: for the state that a clean unmount saves.
    pub fn save(&self) -> Vec<u64> {
        self.space().save()
    }

    fn space(&self) -> &Space {
        self.space
            .get()
            .expect("the space is installed before the first transaction")
    }

    /// Blocks that nobody owns, those included that wait for a checkpoint or for readers.
    pub fn free_blocks(&self) -> u64 {
        let pending = self.pending.lock();
        let waiting: u64 = pending
            .iter()
            .map(|freed| u64::from(freed.run.blocks))
            .sum();
        self.space().free_blocks() + waiting
    }

    /// Takes blocks, without a look at those that wait to be free.
    fn take(&self, blocks: u32) -> Option<Runs> {
        self.space().allocate(blocks)
    }

    /// Blocks that nobody ever pointed to.
    fn give_back(&self, runs: &[Run]) {
        for run in runs {
            self.hand_back(*run);
        }
    }

    fn hand_back(&self, run: Run) {
        if let Err(error) = self.space().free(run) {
            // The medium named a block twice. Refusing the second free keeps its present owner safe.
            tracing::error!(device = %self.name, %error, "run `perdure fsck`");
        }
    }

    /// The record `sequence` frees these blocks.
    fn free_later(&self, sequence: u64, runs: &[Run]) {
        let mut pending = self.pending.lock();
        for &run in runs {
            let moment = self.readers.freed();
            pending.push_back(Freed {
                sequence,
                moment,
                run,
            });
        }
    }

    /// Returns when those are gone who may read blocks that were freed before.
    pub(crate) fn await_readers(&self) {
        let newest = self.pending.lock().iter().map(|freed| freed.moment).max();
        if let Some(moment) = newest {
            self.readers.wait(moment);
        }
    }

    /// Makes free what records up to `retired` have freed and nobody reads (R1, D4). Whether there was anything.
    pub(crate) fn reclaim(&self, retired: u64) -> bool {
        let mut ready = Vec::new();
        self.pending.lock().retain(|freed| {
            let is_ready = (freed.sequence <= retired
                || deliberate::is(Bug::ReuseBeforeCheckpoint))
                && (self.readers.are_gone(freed.moment) || deliberate::is(Bug::FreeBeforeReaders));
            if is_ready {
                ready.push(freed.run);
            }
            !is_ready
        });
        if let Some(device) = &self.device {
            device.trim(&ready);
        }
        self.give_back(&ready);
        !ready.is_empty()
    }
}
