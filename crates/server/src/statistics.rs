//! Counters and latencies of requests.
//!
//! Each thread adds to its own shard with relaxed atomics, about 15 ns a request; whoever asks adds up the
//! shards. A sum read while requests run may miss the newest ones, never count one twice.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Threads beyond this number share shards.
const SHARDS: usize = 16;

/// Bucket `i` counts latencies below 2^i nanoseconds that are in no lower one; the last takes the rest (over 4 minutes).
const BUCKETS: usize = 39;

macro_rules! operations {
    ($($(#[$meta:meta])* $variant:ident => $name:literal),+ $(,)?) => {
        /// Kinds of request that are counted apart.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Operation { $($variant),+ }

        impl Operation {
            /// All kinds, in the order of their numbers.
            pub(crate) const ALL: &'static [Operation] = &[$(Operation::$variant),+];

            /// The name shown to users.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Operation::$variant => $name),+ }
            }
        }
    };
}

operations! {
    Lookup => "lookup",
    GetAttributes => "getattr",
    SetAttributes => "setattr",
    ReadLink => "readlink",
    MakeNode => "mknod",
    MakeDirectory => "mkdir",
    Unlink => "unlink",
    RemoveDirectory => "rmdir",
    Symlink => "symlink",
    Rename => "rename",
    Link => "link",
    Read => "read",
    Write => "write",
    Sync => "fsync",
    ReadDirectory => "readdir",
    ReadDirectoryPlus => "readdirplus",
    StatFs => "statfs",
    SetXattr => "setxattr",
    GetXattr => "getxattr",
    ListXattr => "listxattr",
    RemoveXattr => "removexattr",
    Allocate => "fallocate",
    Seek => "lseek",
    CopyRange => "copy_file_range",
}

const OPERATIONS: usize = Operation::ALL.len();

/// Counters of one kind of request in one shard.
struct Tally {
    errors: AtomicU64,
    nanoseconds: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// Aligned so that two shards never share a cache line, prefetched neighbour included.
#[repr(align(128))]
struct Shard {
    tallies: [Tally; OPERATIONS],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// All counters of one mount.
pub(crate) struct Statistics {
    shards: Box<[Shard]>,
}

impl Statistics {
    /// All zero.
    pub(crate) fn new() -> Statistics {
        let zero = || AtomicU64::new(0);
        let tally = |_| Tally {
            errors: zero(),
            nanoseconds: zero(),
            buckets: std::array::from_fn(|_| zero()),
        };
        let shard = || Shard {
            tallies: std::array::from_fn(tally),
            read_bytes: zero(),
            written_bytes: zero(),
        };
        Statistics {
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
        }
    }

    /// Counts one request.
    pub(crate) fn record(&self, operation: Operation, latency: Duration, failed: bool) {
        let tally = &self.shard().tallies[operation as usize];
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - nanoseconds.leading_zeros()) as usize;
        tally.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        tally.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        if failed {
            tally.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts bytes handed to readers.
    pub(crate) fn add_read_bytes(&self, bytes: usize) {
        self.shard()
            .read_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes made durable for writers.
    pub(crate) fn add_written_bytes(&self, bytes: usize) {
        self.shard()
            .written_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Adds up all shards.
    pub(crate) fn summary(&self) -> StatisticsSummary {
        let sum = |field: fn(&Shard) -> &AtomicU64| {
            self.shards
                .iter()
                .map(|shard| field(shard).load(Ordering::Relaxed))
                .sum()
        };
        StatisticsSummary {
            read_bytes: sum(|shard| &shard.read_bytes),
            written_bytes: sum(|shard| &shard.written_bytes),
            operations: Operation::ALL
                .iter()
                .map(|operation| self.summary_of(*operation))
                .filter(|summary| summary.count > 0)
                .collect(),
        }
    }

    fn summary_of(&self, operation: Operation) -> OperationStatistics {
        let tallies = || {
            self.shards
                .iter()
                .map(|shard| &shard.tallies[operation as usize])
        };
        let mut buckets = vec![0u64; BUCKETS];
        for tally in tallies() {
            for (sum, bucket) in buckets.iter_mut().zip(&tally.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
        }
        OperationStatistics {
            operation: operation.name().to_owned(),
            count: buckets.iter().sum(),
            errors: tallies()
                .map(|tally| tally.errors.load(Ordering::Relaxed))
                .sum(),
            nanoseconds: tallies()
                .map(|tally| tally.nanoseconds.load(Ordering::Relaxed))
                .sum(),
            p50_below_nanoseconds: quantile(&buckets, 0.50),
            p99_below_nanoseconds: quantile(&buckets, 0.99),
            buckets,
        }
    }

    fn shard(&self) -> &Shard {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        &self.shards[MINE.get()]
    }
}

/// Upper bound of the bucket in which the quantile lies; 0 if nothing was counted.
fn quantile(buckets: &[u64], quantile: f64) -> u64 {
    let total: u64 = buckets.iter().sum();
    let rank = (total as f64 * quantile).ceil() as u64;
    let mut seen = 0;
    for (index, count) in buckets.iter().enumerate() {
        seen += count;
        if seen >= rank && total > 0 {
            return bucket_limit_nanoseconds(index);
        }
    }
    0
}

/// Latencies in bucket `index` lie below this.
pub(crate) fn bucket_limit_nanoseconds(index: usize) -> u64 {
    1 << index
}

/// Sums since the mount.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatisticsSummary {
    /// Bytes handed to the kernel by READ requests. Reads from the kernel's page cache do not come here.
    pub read_bytes: u64,
    /// Bytes written by WRITE requests, durable all of them.
    pub written_bytes: u64,
    /// One element for each kind of request that occurred.
    pub operations: Vec<OperationStatistics>,
}

/// Sums of one kind of request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationStatistics {
    /// Name of the request: `lookup`, `write`, …
    pub operation: String,
    /// Requests answered.
    pub count: u64,
    /// Those among them answered with an error; a name that does not exist is none.
    pub errors: u64,
    /// Time inside the server, all requests together.
    pub nanoseconds: u64,
    /// Half of the requests took less.
    pub p50_below_nanoseconds: u64,
    /// 99 of 100 requests took less.
    pub p99_below_nanoseconds: u64,
    /// Requests that took at least 2^(i-1) and less than 2^i nanoseconds, at index i; the last element takes all longer ones.
    pub buckets: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_over_threads() {
        let statistics = Statistics::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        statistics.record(Operation::Write, Duration::from_nanos(700), false);
                        statistics.add_written_bytes(4096);
                    }
                    statistics.record(Operation::Write, Duration::from_micros(900), true);
                });
            }
        });
        let summary = statistics.summary();
        assert_eq!(summary.written_bytes, 4 * 1000 * 4096);
        let [write] = summary.operations.as_slice() else {
            panic!("only writes occurred")
        };
        assert_eq!(
            (write.operation.as_str(), write.count, write.errors),
            ("write", 4004, 4)
        );
        assert_eq!(write.nanoseconds, 4 * (1000 * 700 + 900_000));
        assert_eq!(write.p50_below_nanoseconds, 1024);
        assert_eq!(write.p99_below_nanoseconds, 1024);
    }

    #[test]
    fn takes_any_latency() {
        let statistics = Statistics::new();
        for latency in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            statistics.record(Operation::Seek, latency, false);
        }
        assert_eq!(statistics.summary().operations[0].count, 3);
    }

    #[test]
    fn numbers_follow_the_list() {
        for (index, operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(*operation as usize, index);
        }
    }
}
