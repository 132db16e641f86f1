//! The experiment `ops`: single operations of the library against bare memory and tmpfs, of the mount against an empty FUSE server.
//!
//! Rows that need the same files are measured together. Whatever fails takes only its own rows along.

pub(crate) mod bed;
mod data;
mod million;
mod mount;
mod names;
mod threads;

use crate::collector::{Collector, Found, Plan, check_rows};
use crate::error::BenchError;
use crate::measure::Rounds;
use crate::report::{Better, Report, Setting};
use pmem::MediaModel;
use std::path::PathBuf;

/// How to measure.
#[derive(Clone, Debug)]
pub struct OpsOptions {
    /// Directory in which pools are made and removed again.
    pub directory: PathBuf,
    /// Bytes of a pool. Half of it is the file whose blocks are read and written.
    pub pool_bytes: u64,
    /// Laid over the pool and over the memory that it is compared with.
    pub media: MediaModel,
    /// Rounds of each row.
    pub rounds: usize,
    /// Operations in a round.
    pub operations: u64,
    /// Names in the large directory.
    pub names: u64,
    /// Measure latencies too.
    pub verbose: bool,
    /// Rows to measure, by name; all if empty.
    pub only: Vec<String>,
    /// Told what begins.
    pub progress: Option<fn(&str)>,
}

impl Default for OpsOptions {
    fn default() -> OpsOptions {
        OpsOptions {
            directory: PathBuf::from("/dev/shm"),
            pool_bytes: 2 << 30,
            media: MediaModel::dram(),
            rounds: 15,
            operations: 20_000,
            names: 1_000_000,
            verbose: false,
            only: Vec::new(),
            progress: None,
        }
    }
}

impl OpsOptions {
    /// So small that it runs with every test; the figures mean nothing.
    #[must_use]
    pub fn smoke() -> OpsOptions {
        OpsOptions {
            pool_bytes: 64 << 20,
            rounds: 2,
            operations: 100,
            names: 3_000,
            verbose: true,
            ..OpsOptions::default()
        }
    }
}

const fn fenced(name: &'static str, against: &'static str, bar: f64, fences: f64) -> Plan {
    Plan {
        fences_bar: Some(fences),
        ..Plan::at_most(name, "ns", against, bar)
    }
}

const fn faster(name: &'static str, against: &'static str, bar: f64) -> Plan {
    Plan::at_least(name, "ops/s", against, bar, None)
}

static PLANS: [Plan; 14] = [
    fenced(
        "overwrite_4k",
        "4 KiB streaming copy + fence, random",
        1.5,
        2.0,
    ),
    fenced(
        "append_4k",
        "4 KiB streaming copy + fence, random",
        2.0,
        3.0,
    ),
    Plan::at_most(
        "overwrite_64b",
        "ns",
        "64 B store + flush + fence, random",
        3.5,
    ),
    Plan::at_most(
        "read_4k",
        "ns",
        "copy of 4 KiB out of the region, random",
        1.25,
    ),
    fenced(
        "create_unlink",
        "open(O_CREAT), close, unlink on tmpfs",
        0.6,
        4.0,
    ),
    Plan::at_most("open_close", "ns", "open, close on tmpfs", 0.6),
    Plan::at_most(
        "dir_1m_create",
        "ns",
        "the same in directories of 1,000 names",
        1.5,
    ),
    Plan::at_most(
        "dir_1m_lookup",
        "ns",
        "the same in a directory of 1,000 names",
        1.5,
    ),
    Plan::at_most("recovery", "s", "1 s for each million files", 1.0),
    faster("threads_overwrite", "one thread", 1.7),
    faster("threads_create", "one thread", 1.7),
    Plan::at_most(
        "idle_memory",
        "MiB",
        "1 MiB: the ratio is the size itself",
        64.0,
    ),
    Plan::at_most("fuse_read_4k", "ns", "empty FUSE server", 1.25),
    Plan::at_most("fuse_write_4k", "ns", "empty FUSE server", 1.25),
];

/// Times, of which less is better.
fn times(rounds: &Rounds) -> Found {
    Found::with_best(rounds, Better::Lower)
}

/// Runs the experiment. Rows that fail say so in the report.
///
/// # Errors
///
/// The sizes make no sense, or the directory cannot be used: nothing was measured.
pub fn run_ops(options: &OpsOptions) -> Result<Report, BenchError> {
    let mut setting = Setting::here("ops", options.media.name.as_str());
    check_rows(&options.only, &PLANS.each_ref().map(|plan| plan.name))?;
    bed::check(options)?;
    let mut collector = Collector::new(&PLANS, &options.only, options.progress);
    collector.group(&bed::ROWS, |collector| bed::measure(collector, options));
    collector.group(&million::ROWS, |collector| {
        million::measure(collector, options)
    });
    setting.add("pool_bytes", options.pool_bytes);
    setting.add("file_bytes", bed::file_bytes(options));
    setting.add("names", options.names);
    setting.add("rounds", options.rounds);
    setting.add("operations", options.operations);
    Ok(collector.report(setting))
}
