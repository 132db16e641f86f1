//! The disk below a pool, as a server tells of it.

use serde::{Deserialize, Serialize};

/// The tier of a mount: memory above, a home below. Sums are since the mount.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierStatus {
    /// `ok`, `destaging`, `slowed`, `failing` or `missing`.
    pub state: String,
    /// The home.
    pub home: String,
    /// Bytes of the home that the pool uses.
    pub home_bytes: u64,
    /// Free bytes of them.
    pub home_free_bytes: u64,
    /// Bytes of memory for metadata and data.
    pub memory_bytes: u64,
    /// Free bytes of them.
    pub memory_free_bytes: u64,
    /// Bytes of memory that the home has as well.
    pub clean_bytes: u64,
    /// Bytes that only the memory has, and that are lost if the memory dies now.
    pub dirty_bytes: u64,
    /// For how long the oldest of them are dirty at most, in seconds; nothing without any.
    pub oldest_dirty_seconds: Option<f64>,
    /// Whether everything is being copied because of `perdure tier flush`.
    pub flushing: bool,
    /// Bytes copied to the home.
    pub copied_bytes: u64,
    /// Bytes of memory that were given back because the home has them.
    pub evicted_bytes: u64,
    /// Bytes that came back into memory.
    pub brought_in_bytes: u64,
    /// Blocks that were read from the home for a caller.
    pub cold_reads: u64,
    /// Attempts to copy that failed.
    pub failures: u64,
    /// Calls that waited for room in memory.
    pub pauses: u64,
    /// Microseconds that the home needs for a block, lately.
    pub block_us: f64,
}

impl From<fs::TierStatus> for TierStatus {
    fn from(status: fs::TierStatus) -> TierStatus {
        TierStatus {
            state: status.state.to_string(),
            home: status.home,
            home_bytes: status.home_bytes,
            home_free_bytes: status.home_free_bytes,
            memory_bytes: status.memory_bytes,
            memory_free_bytes: status.free_bytes,
            clean_bytes: status.clean_bytes,
            dirty_bytes: status.dirty_bytes,
            oldest_dirty_seconds: status.oldest_dirty.map(|age| age.as_secs_f64()),
            flushing: status.is_flushing,
            copied_bytes: status.copied_bytes,
            evicted_bytes: status.evicted_bytes,
            brought_in_bytes: status.brought_in_bytes,
            cold_reads: status.cold_reads,
            failures: status.failures,
            pauses: status.pauses,
            block_us: status.block_time.as_secs_f64() * 1e6,
        }
    }
}
