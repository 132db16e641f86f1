//! The log, as a server tells of it, of a pool of class `log`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The log of a pool of class `log`, since the mount.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogStatus {
    /// When calls are durable: `call`, or `fsync:` and a time.
    pub durability: String,
    /// Bytes of the log's ring.
    pub ring_bytes: u64,
    /// Bytes of it that a recovery would read.
    pub used_bytes: u64,
    /// Durable writes of the log.
    pub syncs: u64,
    /// The same, a second, on average since the mount.
    pub syncs_per_second: f64,
    /// Bytes of changes and data that were logged.
    pub logged_bytes: u64,
    /// Bytes of large data that went straight to their place in the image, and not into the log.
    #[serde(default)]
    pub placed_bytes: u64,
    /// The same as `logged_bytes`, for a write on average.
    pub batch_bytes: u64,
    /// Median time of a durable write, in microseconds.
    pub sync_p50_us: f64,
    /// Its 99th percentile.
    pub sync_p99_us: f64,
    /// The longest.
    pub sync_max_us: f64,
    /// Writes in flight that pay on this disk.
    pub writes_in_flight: usize,
    /// Calls that waited because the log was late.
    #[serde(default)]
    pub late_calls: u64,
    /// Seconds that they waited in all.
    #[serde(default)]
    pub late_seconds: f64,
    /// Times that the image on the disk caught up.
    pub checkpoints: u64,
    /// Seconds since the last time; nothing before the first.
    pub checkpoint_age_seconds: Option<f64>,
    /// Bytes that the image does not have yet.
    pub dirty_bytes: u64,
    /// Bytes of memory that are not loaded from the image, or not reserved, yet.
    #[serde(default)]
    pub unloaded_bytes: u64,
    /// Accesses that have waited until their block was loaded.
    #[serde(default)]
    pub load_waits: u64,
    /// Seconds of a recovery at a gibibyte a second, besides blocks of the image that it needs.
    pub recovery_seconds: f64,
    /// Why nothing becomes durable any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl LogStatus {
    /// Of a log that is open for so long.
    pub fn new(status: &txn::DiskLogStatus, uptime: Duration) -> LogStatus {
        LogStatus {
            durability: status.durability.to_string(),
            ring_bytes: status.ring_bytes,
            used_bytes: status.used_bytes,
            syncs: status.batches,
            syncs_per_second: status.batches as f64 / uptime.as_secs_f64().max(1e-3),
            logged_bytes: status.payload_bytes,
            placed_bytes: status.placed_bytes,
            batch_bytes: status.payload_bytes / status.batches.max(1),
            sync_p50_us: status.sync_p50_us,
            sync_p99_us: status.sync_p99_us,
            sync_max_us: status.sync_max_us,
            writes_in_flight: status.depth,
            late_calls: status.late_calls,
            late_seconds: status.late_seconds,
            checkpoints: status.checkpoints,
            checkpoint_age_seconds: status.checkpoint_age_seconds,
            dirty_bytes: status.dirty_blocks * pmem::BLOCK_BYTES as u64,
            unloaded_bytes: status.unloaded_bytes,
            load_waits: status.load_waits,
            recovery_seconds: status.used_bytes as f64 / f64::from(1 << 30),
            failure: status.failure.clone(),
        }
    }
}
