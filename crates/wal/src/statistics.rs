//! Counts of a log: batches, bytes, durations of writes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Parts of a power of two: a bucket is at most an eighth of its value wide.
const PARTS: usize = 8;
/// Bits of a part's number.
const PART_BITS: u32 = PARTS.ilog2();
/// Longer times count as 2^40 ns, which is 18 minutes.
const BITS_MAX: u32 = 40;
const BUCKETS: usize = (BITS_MAX - PART_BITS + 1) as usize * PARTS;

/// Counts of a log since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogStatistics {
    /// Batches written.
    pub batches: u64,
    /// Bytes of their entries.
    pub payload_bytes: u64,
    /// Bytes on the disk: with headers and padding.
    pub disk_bytes: u64,
    /// Median duration of the write of a batch.
    pub sync_p50_us: f64,
    /// 99th percentile of the durations.
    pub sync_p99_us: f64,
    /// The longest write of a batch.
    pub sync_max_us: f64,
    /// Most batches that were on their way at the same time.
    pub most_in_flight: u64,
}

/// Times in buckets whose width grows with them.
#[derive(Debug)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max_ns: AtomicU64,
}

impl Histogram {
    fn new() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            max_ns: AtomicU64::new(0),
        }
    }

    fn add(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
    }

    /// The middle of the bucket with the time that `share` of all times do not exceed; 0 if there
    /// is none.
    fn quantile_ns(&self, share: f64) -> f64 {
        let counts = self.buckets.each_ref().map(|count| count.load(Relaxed));
        let all: u64 = counts.iter().sum();
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let mut passed = 0;
        for (index, count) in counts.iter().enumerate() {
            passed += count;
            if passed >= rank {
                return middle_ns(index).min(self.max_ns.load(Relaxed) as f64);
            }
        }
        0.0
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << BITS_MAX) - 1);
    if ns < PARTS as u64 {
        return ns as usize;
    }
    let power = ns.ilog2();
    let part = (ns >> (power - PART_BITS)) as usize % PARTS;
    (power - PART_BITS + 1) as usize * PARTS + part
}

fn middle_ns(bucket: usize) -> f64 {
    if bucket < PARTS {
        return bucket as f64;
    }
    let width = 1_u64 << (bucket / PARTS - 1);
    (width * (PARTS + bucket % PARTS) as u64) as f64 + width as f64 / 2.0
}

/// Counters that all writers share.
#[derive(Debug)]
pub(crate) struct Counters {
    batches: AtomicU64,
    payload_bytes: AtomicU64,
    disk_bytes: AtomicU64,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
    times: Histogram,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            batches: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
            disk_bytes: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            most_in_flight: AtomicU64::new(0),
            times: Histogram::new(),
        }
    }

    /// Counts a write that begins.
    pub(crate) fn begin(&self) {
        let now = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.most_in_flight.fetch_max(now, Relaxed);
    }

    /// Counts a write that ended.
    pub(crate) fn end(
        &self,
        took: Duration,
        payload_bytes: u64,
        disk_bytes: u64,
        is_written: bool,
    ) {
        self.in_flight.fetch_sub(1, Relaxed);
        if is_written {
            self.batches.fetch_add(1, Relaxed);
            self.payload_bytes.fetch_add(payload_bytes, Relaxed);
            self.disk_bytes.fetch_add(disk_bytes, Relaxed);
            self.times
                .add(took.as_nanos().try_into().unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn read(&self) -> LogStatistics {
        LogStatistics {
            batches: self.batches.load(Relaxed),
            payload_bytes: self.payload_bytes.load(Relaxed),
            disk_bytes: self.disk_bytes.load(Relaxed),
            sync_p50_us: self.times.quantile_ns(0.5) / 1000.0,
            sync_p99_us: self.times.quantile_ns(0.99) / 1000.0,
            sync_max_us: self.times.max_ns.load(Relaxed) as f64 / 1000.0,
            most_in_flight: self.most_in_flight.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_a_bucket_that_is_an_eighth_wide_at_most() {
        let mut last = 0;
        for ns in (0..4096)
            .chain((12..44).flat_map(|power| [(1 << power) - 1, 1 << power, 3 << (power - 1)]))
        {
            let bucket = bucket(ns);
            assert!(bucket < BUCKETS, "{ns}");
            if ns < 4096 {
                assert!(bucket >= last, "buckets grow with the times: {ns}");
                last = bucket;
            }
            if ns < 1 << BITS_MAX {
                let error = (middle_ns(bucket) - ns as f64).abs();
                assert!(error <= ns as f64 / 8.0, "{ns}: {error}");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let counters = Counters::new();
        assert_eq!(counters.read().sync_p50_us, 0.0);
        for us in 1..=1000 {
            counters.begin();
            counters.end(Duration::from_micros(us), 10, 4096, true);
        }
        counters.begin();
        counters.begin();
        counters.end(Duration::from_secs(5), 10, 4096, false);
        let read = counters.read();
        assert!((440.0..560.0).contains(&read.sync_p50_us), "{read:?}");
        assert!((870.0..=1000.0).contains(&read.sync_p99_us), "{read:?}");
        assert_eq!(
            (read.sync_max_us, read.batches, read.most_in_flight),
            (1000.0, 1000, 2)
        );
    }
}
