//! Two threads: one makes room in memory, and one copies to the device. So eviction, which needs no
//! I/O, never waits for a write.

use crate::format::InodeNumber;
use crate::inode::table::InodeTable;
use crate::mounted::file_system::{Core, FileSystem};
use crate::mounted::tiering::Tiering;
use crate::tier::copy::BATCH_BYTES;
use crate::values::error::FsError;
use crate::values::types::TierMode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use txn::Store;

/// How often a thread without work looks for some.
const IDLE: Duration = Duration::from_millis(100);
/// Inodes that are looked at in one go after a mount.
const INODES_AT_ONCE: u64 = 4096;

/// One of the threads.
type Duty<S> = fn(&Core<S>, &Tiering) -> usize;

impl Tiering {
    pub(super) fn has_threads(&self) -> bool {
        self.options.mode == TierMode::Threads
    }
}

impl<S: Store> FileSystem<S> {
    /// Begins the threads of the tier, if there is one that has threads.
    pub(crate) fn begin_tier(&self) -> std::io::Result<()> {
        let Some(tier) = &self.core.tier else {
            return Ok(());
        };
        if !tier.has_threads() {
            self.core
                .find_files(tier, &mut InodeNumber::ROOT.get(), u64::MAX);
            return Ok(());
        }
        let mut threads = tier.threads.lock();
        let duties: [(&str, Duty<S>); 2] = [("room", Core::keep_room), ("copy", Core::keep_clean)];
        for (name, duty) in duties {
            let (core, tier) = (Arc::downgrade(&self.core), Arc::clone(tier));
            let thread = std::thread::Builder::new().name(format!("tier-{name}"));
            threads.push(thread.spawn(move || work(&core, &tier, duty))?);
        }
        Ok(())
    }

    /// Does what the tier has to do now, as if its dirty blocks were as old as they are at `now`.
    /// Returns how many blocks have moved or were looked at; 0 if there is nothing to do.
    ///
    /// For mounts with [`TierMode::Steps`].
    pub fn tier_step(&self, now: Instant) -> usize {
        match &self.core.tier {
            Some(tier) => self.core.step(tier, now, 0),
            None => 0,
        }
    }

    /// Copies everything that is dirty at this moment to the device, whatever its age.
    ///
    /// # Errors
    ///
    /// [`FsError::Device`] or [`FsError::NoSpace`]: the device failed, or is full; some blocks are
    /// clean.
    pub fn tier_flush(&self) -> Result<(), FsError> {
        let Some(tier) = &self.core.tier else {
            return Ok(());
        };
        let until = Instant::now();
        while self.core.copy_dirty(tier, until)? > 0 {}
        Ok(())
    }

    /// Has the threads copy everything that is dirty at this moment, whatever its age;
    /// [`TierStatus::is_flushing`](super::TierStatus) says when that is done. `false` without
    /// threads.
    pub fn begin_tier_flush(&self) -> bool {
        let tier = self.core.tier.as_ref().filter(|tier| tier.has_threads());
        let Some(tier) = tier else { return false };
        *tier.flush_until.lock() = Some(Instant::now());
        tier.has_work.notify_all();
        true
    }

    /// Evicts up to `blocks` clean blocks, and returns how many; for tests and measurements.
    pub fn tier_evict(&self, blocks: u64) -> u64 {
        match &self.core.tier {
            Some(tier) => self.core.evict(tier, blocks),
            None => 0,
        }
    }
}

fn work<S: Store>(core: &Weak<Core<S>>, tier: &Tiering, duty: Duty<S>) {
    while !tier.ends.load(Ordering::SeqCst) {
        let Some(core) = core.upgrade() else {
            return;
        };
        let done = duty(&core, tier);
        drop(core);
        if done == 0 {
            let mut bell = tier.bell.lock();
            if !tier.ends.load(Ordering::SeqCst) {
                tier.has_work.wait_for(&mut bell, IDLE);
            }
        }
    }
}

impl<S: Store> Core<S> {
    /// Makes room, and brings in what readers want.
    fn keep_room(&self, tier: &Tiering) -> usize {
        let room = self.room();
        tier.is_tight
            .store(tier.levels.is_tight(room), Ordering::Relaxed);
        let demand = tier.demand.swap(0, Ordering::Relaxed);
        let wanted = tier.levels.to_evict(room).max(demand);
        let mut done = 0;
        if wanted > 0 {
            done = self.evict(tier, wanted) as usize;
            // Freed blocks can be used behind a checkpoint (R1).
            self.store.checkpoint();
            tier.has_room.notify_all();
        }
        if !tier.levels.is_full(room) {
            done += self.bring_wanted_in(tier);
        }
        done
    }

    /// Copies what is due.
    fn keep_clean(&self, tier: &Tiering) -> usize {
        let now = Instant::now();
        if tier.is_resting(now) {
            return 0;
        }
        let found = self.find_more_files(tier);
        self.count_metadata(tier);
        let room = self.room();
        let is_pressed = tier.levels.is_too_dirty(room) || tier.levels.is_full(room);
        let flush = *tier.flush_until.lock();
        let until = match is_pressed {
            true => Some(now),
            false => flush.max(now.checked_sub(tier.options.dirty_age)),
        };
        let copied = until.map_or(Ok(0), |until| self.copy_dirty(tier, until));
        if flush.is_some() && copied == Ok(0) && found == 0 {
            tier.end_flush(flush);
        }
        let copied = copied.unwrap_or(0);
        if copied > 0 && !is_pressed && flush.is_none() {
            tier.keep_rate(now);
        }
        found + copied
    }

    /// One step of both.
    pub(super) fn step(&self, tier: &Tiering, now: Instant, wanted: u64) -> usize {
        self.count_metadata(tier);
        let room = self.room();
        let until = match tier.levels.is_too_dirty(room) || wanted > 0 {
            true => Some(now),
            false => now.checked_sub(tier.options.dirty_age),
        };
        let copied = until.map_or(Ok(0), |until| self.copy_dirty(tier, until));
        let evicted = self.evict(tier, tier.levels.to_evict(room).max(wanted));
        if evicted > 0 {
            self.store.checkpoint();
        }
        copied.unwrap_or(0) + evicted as usize + self.bring_wanted_in(tier)
    }

    /// Looks at some of the files that were there before the mount.
    fn find_more_files(&self, tier: &Tiering) -> usize {
        let mut next = tier.next_inode.lock();
        let first = *next;
        self.find_files(tier, &mut next, INODES_AT_ONCE);
        (*next - first) as usize
    }

    fn find_files(&self, tier: &Tiering, next: &mut u64, count: u64) {
        let end = InodeTable::capacity(&self.store).min(next.saturating_add(count));
        let now = Instant::now();
        for number in (*next).max(InodeNumber::ROOT.get())..end {
            let raw = self.table.load(&self.store, InodeNumber::new(number));
            // The first user of a damaged file is told.
            if raw.is_ok_and(|raw| !raw.is_free() && raw.blocks > 0 && is_file(&raw)) {
                tier.files.lock().changed(number, now);
            }
        }
        *next = end.max(*next);
    }
}

fn is_file(raw: &crate::format::RawInode) -> bool {
    raw.file_type() == Some(crate::format::FileType::Regular)
}

impl Tiering {
    /// Pauses after a batch, so that no more than the rate goes to the device.
    fn keep_rate(&self, begun: Instant) {
        let rate = self.options.rate_max;
        if rate == 0 {
            return;
        }
        let until = begun + Duration::from_secs_f64(BATCH_BYTES as f64 / rate as f64);
        let mut bell = self.bell.lock();
        while !self.ends.load(Ordering::SeqCst) && Instant::now() < until {
            self.has_room.wait_until(&mut bell, until);
        }
    }

    /// A flush that began at `begun` has nothing left to do, unless another one has begun since.
    fn end_flush(&self, begun: Option<Instant>) {
        let mut until = self.flush_until.lock();
        if *until == begun {
            *until = None;
        }
    }

    /// Whether the device has failed in each attempt for so long.
    pub(super) fn has_failed_for(&self, time: Duration) -> bool {
        let failing = self.failing.lock();
        failing.since.is_some_and(|since| since.elapsed() >= time)
    }
}
