//! The experiment `log`: pools of class `log`, which are durable by a log on an ordinary disk,
//! beside the file system that they lie on.
//!
//! That file system is a journaled ext4 with default mount options on a loop device. Its image is a
//! file on the disk that is measured, and every pool but those for the recovery lies on it. All
//! sides of a row run in one process, in rounds that alternate; the server of a mount is another
//! process.
//!
//! | module | rows |
//! | --- | --- |
//! | `files` | system calls on a mount: append_fdatasync, create_fsync, untar |
//! | `applications` | programs on a mount: redis, RocksDB, sqlite |
//! | `postgres` | pgbench on a mount |
//! | `library` | single operations of the library: sync_vs_raw, overwrite_fsync_policy, log_bytes |
//! | `group` | many threads: group_16 |
//! | `checkpoint` | checkpoint_p99 |
//! | `recovery` | recovery |

mod applications;
mod bed;
mod checkpoint;
mod files;
mod group;
mod library;
mod postgres;
mod raw;
pub(crate) mod recovery;
pub(crate) mod tree;

use crate::collector::{Collector, Plan, check_rows};
use crate::error::BenchError;
use crate::evaluation::Evaluation;
use crate::memory::require_room;
use crate::report::Setting;
use bed::Bed;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How to measure.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Directory on the disk that is measured. Images and pools are made in it and removed again.
    pub directory: PathBuf,
    /// Bytes of the image with ext4, and of the one with xfs.
    pub loop_bytes: u64,
    /// Bytes of the pool that is mounted.
    pub pool_bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Bytes of the log of each pool that the library opens, but for the full one of the recovery.
    pub library_log_bytes: u64,
    /// Bytes of a file that is overwritten.
    pub file_bytes: u64,
    /// Threads of `group_16`.
    pub threads: usize,
    /// Files of the tree that is unpacked.
    pub files: usize,
    /// Blocks that a checkpoint has to write.
    pub checkpoint_blocks: u64,
    /// Bytes of log that a recovery reads.
    pub recovery_bytes: u64,
    /// Bytes of data in the image of that pool; a larger image has four times as many.
    pub recovery_file_bytes: u64,
    /// Length of a measurement: of all rounds of a row, or of all runs of a program on one side.
    pub seconds: f64,
    /// Rounds of a loop.
    pub rounds: usize,
    /// Rounds of a program, and of a recovery.
    pub program_runs: usize,
    /// Whether xfs is measured, too, if it can be had.
    pub has_xfs: bool,
    /// Whether images are written once before they are used.
    pub writes_images: bool,
    /// Rows to measure, by name; all if empty.
    pub only: Vec<String>,
    /// Told what begins.
    pub progress: Option<fn(&str)>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            directory: PathBuf::from("/var/tmp"),
            loop_bytes: 2 << 30,
            pool_bytes: 1 << 30,
            log_bytes: 256 << 20,
            library_log_bytes: 256 << 20,
            file_bytes: 64 << 20,
            threads: 16,
            files: 3000,
            checkpoint_blocks: 2048,
            recovery_bytes: 1 << 30,
            recovery_file_bytes: 512 << 20,
            seconds: 5.0,
            rounds: 9,
            program_runs: 5,
            has_xfs: true,
            writes_images: true,
            only: Vec::new(),
            progress: None,
        }
    }
}

impl LogOptions {
    /// Measures for so long. In a short time, as small as the smoke test: the figures say little.
    #[must_use]
    pub fn lasting(self, seconds: f64) -> LogOptions {
        const SHORT: f64 = 0.5;
        if seconds >= SHORT {
            return LogOptions { seconds, ..self };
        }
        LogOptions {
            directory: self.directory,
            seconds,
            only: self.only,
            progress: self.progress,
            ..LogOptions::smoke()
        }
    }

    /// So small that it runs with every test; the figures mean nothing.
    #[must_use]
    pub fn smoke() -> LogOptions {
        LogOptions {
            loop_bytes: 512 << 20,
            pool_bytes: 96 << 20,
            log_bytes: 128 << 20,
            library_log_bytes: 16 << 20,
            file_bytes: 2 << 20,
            files: 50,
            checkpoint_blocks: 64,
            recovery_bytes: 8 << 20,
            recovery_file_bytes: 4 << 20,
            seconds: 0.01,
            rounds: 1,
            program_runs: 1,
            has_xfs: false,
            writes_images: false,
            ..LogOptions::default()
        }
    }

    /// Whether a row is measured that compares file systems.
    fn compares_file_systems(&self) -> bool {
        let compares = |name: &str| {
            PLANS
                .iter()
                .any(|plan| plan.name == name && plan.against == EXT4)
        };
        self.only.is_empty() || self.only.iter().any(|name| compares(name))
    }

    /// Seconds of one side of a round.
    fn slice_seconds(&self, sides: usize) -> f64 {
        self.seconds / (self.rounds * sides).max(1) as f64
    }

    /// An amount of work for one run of a program, so many per second of its share of the time.
    fn amount(&self, per_second: f64) -> u64 {
        const LEAST: f64 = 20.0;
        (per_second * self.seconds / self.program_runs as f64).max(LEAST) as u64
    }

    /// Bytes of a pool for the library: a file, and room for blocks that replace others.
    fn small_pool_bytes(&self) -> u64 {
        const LEAST_BYTES: u64 = 64 << 20;
        LEAST_BYTES.max(4 * self.file_bytes)
    }
}

/// Operations per second of a loop that takes about so long. The time in which the thread was ready
/// to run but had no processor does not count.
fn rate_for(
    seconds: f64,
    mut operation: impl FnMut() -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    const LEAST: u64 = 3;
    let (watch, begin) = (crate::measure::Stopwatch::of_thread(), Instant::now());
    let length = Duration::from_secs_f64(seconds);
    let mut count = 0;
    while count < LEAST || begin.elapsed() < length {
        operation()?;
        count += 1;
    }
    Ok(count as f64 * 1e9 / watch.nanoseconds())
}

const EXT4: &str = "the same on ext4";
const VOLATILE: &str = "the same on a volatile pool";

const fn at_least(name: &'static str, unit: &'static str, against: &'static str, bar: f64) -> Plan {
    Plan::at_least(name, unit, against, bar, None)
}

static PLANS: [Plan; 14] = [
    at_least("append_fdatasync", "appends/s", EXT4, 2.0),
    at_least("create_fsync", "files/s", EXT4, 1.6),
    Plan::at_most("sync_vs_raw", "us", "O_DIRECT|O_DSYNC write of 4 KiB", 1.25),
    at_least(
        "group_16",
        "writes/s",
        "the best of raw writes, fdatasync, group commit",
        0.85,
    ),
    Plan::at_most("overwrite_fsync_policy", "ns", VOLATILE, 1.3),
    Plan::at_most("untar", "s", VOLATILE, 1.15),
    at_least("redis_always", "requests/s", EXT4, 1.6),
    at_least("rocksdb_fillsync", "writes/s", EXT4, 1.6),
    at_least("sqlite_delete", "transactions/s", EXT4, 1.4),
    at_least("pgbench", "transactions/s", EXT4, 0.85),
    at_least("sqlite_wal", "transactions/s", EXT4, 0.85),
    Plan::at_most("log_bytes", "B", "what the operation may log", 1.0),
    Plan::at_most("checkpoint_p99", "us", "without a checkpoint", 1.5),
    Plan::at_most("recovery", "s/GiB", "1 s for each GiB of log", 1.0),
];

/// Runs the experiment. Bars that fail say so in the report, and those that need what is not there.
///
/// # Errors
///
/// A row has another name, or the directory has no room: nothing was measured.
pub fn run_log(options: &LogOptions) -> Result<Evaluation, BenchError> {
    let mut setting = Setting::here("log", "disk");
    check_rows(&options.only, &PLANS.each_ref().map(|plan| plan.name))?;
    let options = &LogOptions {
        has_xfs: options.has_xfs && options.compares_file_systems(),
        ..options.clone()
    };
    let file_systems = 1 + u64::from(options.has_xfs);
    require_room(&options.directory, file_systems * options.loop_bytes)?;
    setting.add("loop_bytes", options.loop_bytes);
    setting.add("pool_bytes", options.pool_bytes);
    setting.add("log_bytes", options.log_bytes);
    setting.add("library_log_bytes", options.library_log_bytes);
    setting.add("file_bytes", options.file_bytes);
    setting.add("seconds", options.seconds);
    setting.add("rounds", options.rounds);
    setting.add("program_runs", options.program_runs);
    let mut collector = Collector::new(&PLANS, &options.only, options.progress);
    collector.tell("file systems");
    let bed = Bed::make(options)?;
    for measure in [
        library::measure,
        group::measure,
        checkpoint::measure,
        files::measure,
        applications::measure,
        postgres::measure,
    ] {
        measure(&mut collector, options, &bed);
    }
    drop(bed);
    recovery::measure(&mut collector, options);
    Ok(collector.evaluation(setting))
}
