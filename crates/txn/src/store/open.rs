//! Opening a pool.

use super::{PmemStore, Store};
use crate::device::PoolDevice;
use crate::disk::LogOptions;
use crate::disk::open::Opened;
use crate::domain::Domains;
use crate::error::OpenError;
use crate::homes::Homes;
use crate::journal::Journals;
use crate::layout::{HOME_MOUNTS_AT, STATE_BLOCK, Superblock};
use crate::lock::Lock;
use crate::lost::{Damage, LostRecords, before_opening};
use crate::places::read_places;
use crate::pool::{self, Mapped, Mode};
use crate::recovery;
use crate::transaction::{CommitError, Transaction};
use device::Device;
use pmem::{DurabilityClass, Region};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

impl PmemStore {
    /// Opens a pool: locks it, checks its header, maps it and replays its journals.
    ///
    /// A pool made with `--volatile` opens as such. Any other must be on persistent memory unless
    /// `volatile` asks otherwise.
    /// With [`Mode::ReadOnly`] the mapping is private, and not even the replay reaches the medium.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names the file and the remedy. Nothing was written then.
    pub fn open(pool: &Path, mode: Mode, volatile: bool) -> Result<PmemStore, OpenError> {
        let options = LogOptions::default();
        PmemStore::open_with(pool, mode, volatile, Damage::Refuse, options)
    }

    /// As [`open`](Self::open), and refuses or drops damaged records. A pool of class `log` is
    /// opened with these `options`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(
        pool: &Path,
        mode: Mode,
        volatile: bool,
        damage: Damage,
        options: impl Into<LogOptions>,
    ) -> Result<PmemStore, OpenError> {
        let Mapped {
            region,
            superblock,
            lock,
            directory,
            memory,
            segments,
            had,
            log,
        } = pool::map(pool, mode, volatile, (damage, options.into()))?;
        let lost = before_opening(pool, &region, &superblock, mode, damage)?;
        let mut store = PmemStore::over(Arc::new(region), superblock, mode, Some(lock), lost)?;
        (store.directory, store.memory) = (directory, memory);
        if let Some(log) = log {
            store.start_log(log, true)?;
        }
        if let Some(segments) = segments {
            let is_dax = store.region.class() == DurabilityClass::Dax;
            store.domains.held().watch(segments, &had, is_dax);
        }
        Ok(store)
    }

    /// Opens the pool in `region`, which has no files: an emulated or private one. With an `Arc`
    /// of it a caller can open the pool again after this store is gone.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_region(region: impl Into<Arc<Region>>, mode: Mode) -> Result<PmemStore, OpenError> {
        let region = region.into();
        let superblock = pool::read_superblock(&region)?;
        let expected = superblock.geometry().total_bytes();
        if region.length() < expected {
            return Err(OpenError::Truncated {
                path: "region".into(),
                expected,
                found: region.length(),
            });
        }
        let lost = before_opening(
            "region".as_ref(),
            &region,
            &superblock,
            mode,
            Damage::Refuse,
        )?;
        PmemStore::over(region, superblock, mode, None, lost)
    }

    /// Batches of the log begin. Journals stay where they are: a place that moved would be in no
    /// record, and memory does not wear.
    fn start_log(&mut self, log: Opened, with_threads: bool) -> Result<(), OpenError> {
        self.keeps_journals.store(true, Ordering::Relaxed);
        self.logger = Some(log.start(&self.region, &self.journals, &self.domains, with_threads)?);
        Ok(())
    }

    /// Opens the pool in memory that a log without threads follows.
    pub(crate) fn open_logged(
        region: Arc<Region>,
        superblock: Superblock,
        mode: Mode,
        log: Opened,
    ) -> Result<PmemStore, OpenError> {
        let mut store = PmemStore::over(region, superblock, mode, None, Vec::new())?;
        store.start_log(log, false)?;
        Ok(store)
    }

    fn over(
        region: Arc<Region>,
        superblock: Superblock,
        mode: Mode,
        lock: Option<Lock>,
        lost: Vec<LostRecords>,
    ) -> Result<PmemStore, OpenError> {
        let geometry = superblock.geometry();
        let replay = recovery::replay(&region, &superblock)?;
        if mode == Mode::ReadWrite && !replay.was_clean {
            recovery::forget_torn(&region, &superblock)?;
        }
        let places = read_places(&region, &superblock)?;
        let journals = Journals::new(Arc::clone(&region), &superblock, &places, replay.sequence);
        let journals = Arc::new(journals);
        let domains = Domains::new(Arc::clone(&region), geometry);
        let (records, clean) = (replay.records, replay.was_clean);
        tracing::debug!(records, clean, "pool opened");
        Ok(PmemStore {
            superblock,
            geometry,
            journals,
            domains,
            homes: Homes::default(),
            allocator: OnceLock::new(),
            device: PoolDevice::of(&superblock, &region),
            region,
            seen: Arc::default(),
            mode,
            keeps_journals: AtomicBool::new(false),
            replay,
            directory: None,
            memory: None,
            logger: None,
            lost,
            _lock: lock,
        })
    }
}

impl PmemStore {
    /// Attaches the pool's device. A pool without it works as well, but cannot read the blocks on
    /// it.
    ///
    /// # Errors
    ///
    /// [`OpenError::Device`]: the pool has no device, or this one is too small.
    pub fn with_device(
        mut self,
        device: Arc<dyn Device>,
        name: &str,
    ) -> Result<PmemStore, OpenError> {
        let found_blocks = device.blocks();
        match &mut self.device {
            Some(mine) if found_blocks >= mine.blocks() => mine.attach(device, name),
            mine => {
                return Err(OpenError::Device {
                    device: name.into(),
                    found_blocks,
                    expected_blocks: mine.as_ref().map_or(0, PoolDevice::blocks),
                });
            }
        }
        Ok(self)
    }

    /// How often the pool was mounted for writing together with the disk below it.
    pub fn home_mounts(&self) -> u64 {
        let at = STATE_BLOCK.offset() + HOME_MOUNTS_AT;
        self.region.load_u64(at)
    }

    /// Counts mounts with the disk below: one transaction.
    ///
    /// # Errors
    ///
    /// [`CommitError`]; the count is as it was.
    pub fn count_home_mounts(&self, mounts: u64) -> Result<(), CommitError> {
        let mut transaction = self.begin();
        transaction.store_word(STATE_BLOCK.offset() + HOME_MOUNTS_AT, mounts);
        transaction.commit()
    }

    /// Gives the region back, e.g. to open it again. `None` if something still refers to it.
    pub fn into_region(self) -> Option<Region> {
        let PmemStore {
            region,
            journals,
            domains,
            allocator,
            device,
            ..
        } = self;
        drop((journals, domains, allocator, device));
        Arc::into_inner(region)
    }
}
