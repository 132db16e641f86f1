//! What was looked at so far, by all threads.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 64;

/// Counts, and the hashes of all states seen.
#[derive(Debug)]
pub struct Tally {
    seen: [Mutex<HashSet<u64>>; SHARDS],
    workloads: AtomicU64,
    points: AtomicU64,
    tried: AtomicU64,
    distinct: AtomicU64,
    in_recovery: AtomicU64,
    on_disks: AtomicU64,
    on_device: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Workloads run.
    pub workloads: u64,
    /// Moments at which the power was cut.
    pub points: u64,
    /// Crash states, the same ones again included.
    pub tried: u64,
    /// Crash states that differ in image or in the trees that may be found in them; each was
    /// recovered and judged.
    pub distinct: u64,
    /// Those among them that a cut in a recovery left.
    pub in_recovery: u64,
    /// Those among them on the disks of a pool of class `log`.
    pub on_disks: u64,
    /// Those among them of a pool with data on a device.
    pub on_device: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            seen: std::array::from_fn(|_| Mutex::default()),
            workloads: AtomicU64::new(0),
            points: AtomicU64::new(0),
            tried: AtomicU64::new(0),
            distinct: AtomicU64::new(0),
            in_recovery: AtomicU64::new(0),
            on_disks: AtomicU64::new(0),
            on_device: AtomicU64::new(0),
        }
    }
}

impl Tally {
    /// The counts now.
    pub fn counts(&self) -> Counts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            workloads: load(&self.workloads),
            points: load(&self.points),
            tried: load(&self.tried),
            distinct: load(&self.distinct),
            in_recovery: load(&self.in_recovery),
            on_disks: load(&self.on_disks),
            on_device: load(&self.on_device),
        }
    }

    /// A workload was run.
    pub fn count_workload(&self) {
        self.workloads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_point(&self) {
        self.points.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether nobody has seen this state before; it counts as seen from now on.
    pub(crate) fn is_new(&self, hash: u64) -> bool {
        self.tried.fetch_add(1, Ordering::Relaxed);
        let new = self.seen[(hash >> 58) as usize % SHARDS]
            .lock()
            .insert(hash);
        self.distinct.fetch_add(u64::from(new), Ordering::Relaxed);
        new
    }

    /// The same for a state that a cut in a recovery left.
    pub(crate) fn is_new_in_recovery(&self, hash: u64) -> bool {
        let new = self.is_new(hash);
        self.in_recovery
            .fetch_add(u64::from(new), Ordering::Relaxed);
        new
    }

    /// The same for a state of a pool and its device.
    pub(crate) fn is_new_on_device(&self, hash: u64) -> bool {
        let new = self.is_new(hash);
        self.on_device.fetch_add(u64::from(new), Ordering::Relaxed);
        new
    }

    /// The same for a state of the disks of a pool of class `log`; a cut in a recovery may have
    /// left it.
    pub(crate) fn is_new_on_disks(&self, hash: u64, is_in_recovery: bool) -> bool {
        let new = match is_in_recovery {
            true => self.is_new_in_recovery(hash),
            false => self.is_new(hash),
        };
        self.on_disks.fetch_add(u64::from(new), Ordering::Relaxed);
        new
    }
}
