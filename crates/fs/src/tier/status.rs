//! The report of the tier for users.

use crate::format::BLOCK;
use crate::mounted::file_system::FileSystem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use txn::Store;

/// How the tier is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TierState {
    /// Nothing is due.
    Ok,
    /// Dirty blocks are being copied.
    Copying,
    /// Writers wait for the device.
    Slowed,
    /// The device fails; it is tried again.
    Failing,
    /// The device is not there. Data in memory works.
    Missing,
}

impl std::fmt::Display for TierState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            TierState::Ok => "ok",
            TierState::Copying => "destaging",
            TierState::Slowed => "slowed",
            TierState::Failing => "failing",
            TierState::Missing => "missing",
        })
    }
}

/// The tier of a mount, in bytes since the mount.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// How it is.
    pub state: TierState,
    /// Name of the device.
    pub home: String,
    /// Bytes of memory for metadata and data.
    pub memory_bytes: u64,
    /// Bytes of memory that are free.
    pub free_bytes: u64,
    /// Bytes of memory that the device has as well.
    pub clean_bytes: u64,
    /// Bytes of data that only the memory has at most, and that are lost if the memory dies now:
    /// metadata that lies among data counts as well.
    pub dirty_bytes: u64,
    /// For how long the oldest of them are dirty, at most.
    pub oldest_dirty: Option<Duration>,
    /// Bytes of the device.
    pub home_bytes: u64,
    /// Bytes of the device that are free.
    pub home_free_bytes: u64,
    /// Bytes copied to the device.
    pub copied_bytes: u64,
    /// Bytes evicted from memory.
    pub evicted_bytes: u64,
    /// Bytes brought back.
    pub brought_in_bytes: u64,
    /// Blocks that were read from the device for a caller.
    pub cold_reads: u64,
    /// Attempts to write to the device that failed.
    pub failures: u64,
    /// Calls that had to wait for room.
    pub pauses: u64,
    /// Whether everything that was dirty at some moment is being copied.
    pub is_flushing: bool,
    /// Time that the device needs for a block, lately.
    pub block_time: Duration,
}

impl<S: Store> FileSystem<S> {
    /// How the tier is; `None` without one, or if the mount is read-only.
    pub fn tier_status(&self) -> Option<TierStatus> {
        let core = &*self.core;
        let (device, _) = core.tiered()?;
        let tier = core.tier.as_ref()?;
        let room = core.room();
        let oldest = tier.files.lock().oldest();
        let bytes = |count: &AtomicU64| count.load(Ordering::Relaxed) * BLOCK;
        let counters = &tier.counters;
        let state = if device.is_missing() {
            TierState::Missing
        } else if tier.failing.lock().attempts > 0 {
            TierState::Failing
        } else if tier.is_tight.load(Ordering::Relaxed) && room.clean < room.blocks / 10 {
            TierState::Slowed
        } else if oldest.is_some_and(|since| since.elapsed() >= tier.options.dirty_age)
            || tier.levels.is_too_dirty(room)
        {
            TierState::Copying
        } else {
            TierState::Ok
        };
        Some(TierStatus {
            state,
            home: device.name().to_owned(),
            memory_bytes: room.blocks * BLOCK,
            free_bytes: room.free * BLOCK,
            clean_bytes: room.clean * BLOCK,
            dirty_bytes: room.dirty * BLOCK,
            oldest_dirty: oldest.map(|since| since.elapsed()),
            home_bytes: device.blocks() * BLOCK,
            home_free_bytes: device.free_blocks() * BLOCK,
            copied_bytes: bytes(&counters.copied),
            evicted_bytes: bytes(&counters.evicted),
            brought_in_bytes: bytes(&counters.brought_in),
            cold_reads: counters.cold_reads.load(Ordering::Relaxed),
            failures: counters.failures.load(Ordering::Relaxed),
            pauses: counters.pauses.load(Ordering::Relaxed),
            is_flushing: tier.flush_until.lock().is_some(),
            block_time: tier.pace(),
        })
    }
}
