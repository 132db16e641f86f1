//! What `perdure stat` tells of a log.

use super::loader::Loader;
use super::logger::Logger;
use super::policy::Durability;
use std::sync::atomic::Ordering;

/// State and counts of a pool's log since the mount.
#[derive(Clone, Debug)]
pub struct DiskLogStatus {
    /// When calls are durable.
    pub durability: Durability,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Bytes of it that a recovery would read.
    pub used_bytes: u64,
    /// Batches written.
    pub batches: u64,
    /// Bytes of entries in them.
    pub payload_bytes: u64,
    /// Median of a durable write, in microseconds.
    pub sync_p50_us: f64,
    /// Its 99th percentile.
    pub sync_p99_us: f64,
    /// The longest.
    pub sync_max_us: f64,
    /// A durable write of 4 KiB when the pool was opened, in microseconds; `None` if there was no
    /// room to measure it.
    pub measured_sync_us: Option<f64>,
    /// Writes in flight that pay on this disk.
    pub depth: usize,
    /// Checkpoints of the image.
    pub checkpoints: u64,
    /// Seconds since the last one; `None` before the first.
    pub checkpoint_age_seconds: Option<f64>,
    /// Bytes that they wrote.
    pub image_bytes: u64,
    /// Bytes of data that went straight to their place in the image.
    pub placed_bytes: u64,
    /// Calls that waited because the log was late, and the seconds that they waited in all.
    pub late_calls: u64,
    /// See [`late_calls`](Self::late_calls).
    pub late_seconds: f64,
    /// Blocks that the image does not have yet.
    pub dirty_blocks: u64,
    /// Bytes of memory that are not loaded or not reserved yet.
    pub unloaded_bytes: u64,
    /// Accesses that have waited until their block was loaded.
    pub load_waits: u64,
    /// Why nothing becomes durable any more.
    pub failure: Option<String>,
}

impl Logger {
    fn loader(&self) -> Option<&Loader> {
        self.shared.loader.as_deref()
    }

    /// The pool is mounted: loading what is left needs the disk less than recovery did.
    pub(crate) fn is_mounted(&self) {
        if let Some(loader) = self.loader() {
            loader.is_mounted();
        }
    }

    /// Whether mappings of other processes show all of a segment: to them absent pages are zeros.
    pub(crate) fn is_loaded(&self, segment: u32) -> bool {
        self.loader().is_none_or(|loader| loader.is_loaded(segment))
    }

    /// A test that calls it has the rest loaded.
    #[doc(hidden)]
    pub fn rest(&self) -> impl Fn() + Send + Sync + use<> {
        let loader = self.shared.loader.clone();
        move || loader.iter().for_each(|loader| loader.begin())
    }

    /// State and counts.
    pub fn status(&self) -> DiskLogStatus {
        let shared = &self.shared;
        let counts = shared.log.statistics();
        let ended = shared.state().checkpoint_ended;
        DiskLogStatus {
            durability: shared.durability,
            ring_bytes: shared.log.ring_bytes(),
            used_bytes: shared.log.used_bytes(),
            batches: counts.batches,
            payload_bytes: counts.payload_bytes,
            sync_p50_us: counts.sync_p50_us,
            sync_p99_us: counts.sync_p99_us,
            sync_max_us: counts.sync_max_us,
            measured_sync_us: shared.speed.map(|speed| speed.sync_us),
            depth: shared.depth(),
            checkpoints: shared.counts.checkpoints.load(Ordering::Relaxed),
            checkpoint_age_seconds: ended.map(|ended| ended.elapsed().as_secs_f64()),
            image_bytes: shared.counts.image_bytes.load(Ordering::Relaxed),
            placed_bytes: shared.counts.placed_bytes.load(Ordering::Relaxed),
            late_calls: shared.counts.late_calls.load(Ordering::Relaxed),
            late_seconds: shared.counts.late_ns.load(Ordering::Relaxed) as f64 / 1e9,
            dirty_blocks: shared.dirty.count(),
            unloaded_bytes: self.loader().map_or(0, Loader::absent_bytes),
            load_waits: self.loader().map_or(0, Loader::answered),
            failure: shared.failure().map(|failure| failure.to_string()),
        }
    }
}
