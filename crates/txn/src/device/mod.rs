//! The device of a pool: where data blocks are that are not in the region
//! (`docs/decisions/device.md`).
//!
//! * [`seals`]: the checksum of each of its blocks, kept in the region.
//! * [`part`]: writes to it, by a transaction or by the tier.

mod part;
mod seals;

pub(crate) use part::DevicePart;
pub use part::Outgoing;
pub(crate) use seals::SEAL_BYTES;

use crate::disk::{Waits, Watch};
use crate::layout::Superblock;
use device::{
    Device, DeviceBlock, DeviceError, Flushes, Moment, Pin, ReadRequest, Readers, Rebuild,
    Residents, Run, Runs, Space, Twin,
};
use parking_lot::Mutex;
use pmem::deliberate::{self, Bug};
use pmem::{BlockNumber, Region};
use scatter::Extent;
use seals::Seals;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A request that the device failed, with its block. The operation that needed it fails with `EIO`,
/// no part of it happened, and the pool goes on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("device {device}, block {block}: {error}")]
pub struct DeviceFault {
    /// The device's name.
    pub device: Arc<str>,
    /// The first block that is concerned.
    pub block: DeviceBlock,
    /// Its error.
    pub error: DeviceError,
}

/// Blocks without an owner, and since when.
#[derive(Clone, Copy, Debug)]
struct Freed {
    /// Number of the record that freed them.
    sequence: u64,
    moment: Moment,
    run: Run,
}

/// A pool's device, with its free space and its readers.
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
    /// Whether the last request said that the device is not there.
    is_missing: AtomicBool,
    /// Since a tier has begun.
    residents: OnceLock<Residents>,
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
    /// The device that the superblock names, missing until [`attach`](Self::attach); `None` if it
    /// names none.
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
            is_missing: AtomicBool::new(false),
            residents: OnceLock::new(),
        })
    }

    /// Attaches the device.
    pub(crate) fn attach(&mut self, device: Arc<dyn Device>, name: &str) {
        (self.device, self.name) = (Some(device), name.into());
    }

    /// Has `waits` told of all waits for the device from now on; only the first call counts.
    pub fn watch_waits(&self, waits: Arc<dyn Waits>) {
        self.watch.set(waits);
    }

    /// From now on the pool knows of each block of memory whether the device has the same content.
    pub fn begin_residents(&self, region_blocks: u64) -> &Residents {
        self.residents.get_or_init(|| Residents::new(region_blocks))
    }

    /// Knowledge of the blocks of memory; `None` without a tier.
    #[inline]
    pub fn residents(&self) -> Option<&Residents> {
        self.residents.get()
    }

    /// Whether a device is attached.
    pub fn is_attached(&self) -> bool {
        self.device.is_some()
    }

    /// Whether there is no device, or the last request said so.
    pub fn is_missing(&self) -> bool {
        self.device.is_none() || self.is_missing.load(Ordering::Relaxed)
    }

    fn note(&self, outcome: &Result<(), DeviceError>) {
        let is_missing = *outcome == Err(DeviceError::Missing);
        if is_missing != self.is_missing.load(Ordering::Relaxed) {
            self.is_missing.store(is_missing, Ordering::Relaxed);
        }
    }

    /// A block of memory has changed in place: its twin, if it has one, has old content. The change
    /// was made (T2), and `sequence` is a record's number that is not smaller than the change's.
    pub(crate) fn changed(&self, sequence: u64, block: BlockNumber) {
        if deliberate::is(Bug::EvictUnseen) {
            return;
        }
        self.forget(sequence, block);
    }

    fn forget(&self, sequence: u64, block: BlockNumber) {
        let twin = self.residents().and_then(|known| known.changed(block));
        if let Some(Twin { block, .. }) = twin {
            self.free_later(sequence, &[Run::one(block)]);
        }
    }

    /// A block that no pointer names is free when the records up to `sequence` are retired.
    pub(crate) fn free_twin(&self, sequence: u64, block: DeviceBlock) {
        self.free_later(sequence, &[Run::one(block)]);
    }

    /// Frees all twins at once: nobody uses the pool any more, and no record is alive.
    pub fn free_twins(&self) {
        let twins = self.residents().into_iter().flat_map(Residents::take_all);
        twins.for_each(|twin| self.hand_back(Run::one(twin.block)));
    }

    /// These blocks of memory have lost their owners, and will get others. The records that freed
    /// them are retired, but not always those up to `sequence`, which may name their twins.
    pub(crate) fn lost_owners(&self, sequence: u64, freed: &[Extent]) {
        let Some(residents) = self.residents() else {
            return;
        };
        if deliberate::is(Bug::KeepTwinOfFreed) {
            return;
        }
        for extent in freed {
            for block in (0..u64::from(extent.blocks)).map(|index| extent.start + index) {
                residents.forget_use(block);
                self.forget(sequence, block);
            }
        }
    }

    /// Tells the watcher of waits of one, which lasts until the result is dropped.
    pub fn waiting(&self) -> impl Drop + '_ {
        self.watch.begin()
    }

    /// Its name in log lines.
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

    /// Pins the present: blocks that are freed later keep their content until the pin is dropped. A
    /// reader takes the pin before it believes the pointers that it has.
    pub fn pin(&self) -> Pin<'_> {
        self.readers.pin()
    }

    /// Reads written blocks, and compares each with its seal.
    ///
    /// # Errors
    ///
    /// [`DeviceFault`] names the first block that cannot be read, or that does not fit its seal.
    pub fn read(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceFault> {
        let Some(first) = requests.first().map(|request| request.block) else {
            return Ok(());
        };
        let device = self.device(first)?;
        let _waiting = self.watch.begin();
        let outcome = device.read(requests);
        self.note(&outcome);
        if outcome.is_err() {
            // Finds the block that failed, or succeeds at the second try.
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

    /// Starts rebuilding the free space: no block is known to be in use yet.
    pub fn rebuild(&self) -> Rebuild {
        Rebuild::new(self.blocks)
    }

    /// Installs the rebuilt free space. Transactions can use the device from now on.
    pub fn install(&self, rebuild: Rebuild) {
        let installed = self.space.set(rebuild.finish());
        debug_assert!(installed.is_ok(), "the space is installed once");
    }

    /// Returns one bit a block, set for blocks in use and for those that wait to be free: for the
    /// state that a clean unmount saves.
    pub fn save(&self) -> Vec<u64> {
        self.space().save()
    }

    fn space(&self) -> &Space {
        self.space
            .get()
            .expect("the space is installed before the first transaction")
    }

    /// Blocks without an owner, including those that wait for a checkpoint or for readers.
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

    /// Frees blocks at once: no record points to them, and no reader needs them.
    fn give_back(&self, runs: &[Run]) {
        for run in runs {
            self.hand_back(*run);
        }
    }

    fn hand_back(&self, run: Run) {
        if let Err(error) = self.space().free(run) {
            // The medium named a block twice. Refusing the second free keeps its present owner
            // safe.
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

    /// Waits until all readers have left that may read blocks freed before.
    pub(crate) fn await_readers(&self) {
        let newest = self.pending.lock().iter().map(|freed| freed.moment).max();
        if let Some(moment) = newest {
            self.readers.wait(moment);
        }
    }

    /// Frees the blocks that records up to `retired` gave back and that no reader needs (R1, D4).
    /// Returns whether there were any.
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
