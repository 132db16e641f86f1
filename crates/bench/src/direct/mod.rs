//! The experiment `direct`: unmodified programs whose reads and writes go past the kernel, beside tmpfs and beside the plain mount.
//!
//! Every row runs the same program on each side, in rounds that alternate: with the preload library on a mount of ours; without it on the same
//! mount; on tmpfs. The server is another process. Programs are this one in a loop ([`program`]), fio, redis, sqlite and RocksDB.
//! Beside the rows stands what the papers on Moneta and memory drives call software cost: how much of an access is the medium, and how much what lies
//! before it.
//!
//! Programs count their own reads and writes that went to the kernel, so a report shows whether there was direct access at all.

mod applications;
mod bed;
mod cost;
mod fio;
mod handover;
mod in_place;
mod loops;
mod maps;
mod processes;
pub(crate) mod program;
mod wake;

use crate::collector::{Collector, Found, Plan, check_rows};
use crate::error::BenchError;
use crate::evaluation::Evaluation;
use crate::measure::{Rounds, processors};
use crate::report::Setting;
use bed::Bed;
pub(crate) use bed::fill;
pub(crate) use fio::parse as fio_figures;
use serde_json::json;
use std::path::PathBuf;

/// How to measure.
#[derive(Clone, Debug)]
pub struct DirectOptions {
    /// Directory in which pools are made and removed again.
    pub directory: PathBuf,
    /// The library that programs are started with.
    pub library: PathBuf,
    /// Bytes of the pool that is mounted.
    pub pool_bytes: u64,
    /// Bytes of a loop's file.
    pub file_bytes: u64,
    /// Bytes of fio's file.
    pub fio_bytes: u64,
    /// Length of a measurement: of all rounds of a loop, of one run of fio. Other programs do as much work as takes about so long.
    pub seconds: f64,
    /// Rounds of each loop.
    pub rounds: usize,
    /// Runs of fio.
    pub runs: usize,
    /// Runs of each other program: shorter ones, and more of them, because what they wait for is mostly other processors.
    pub program_runs: usize,
    /// Operations of a loop before those that count.
    pub warm_up: u64,
    /// Rows to measure, by name, `in_place` and `mmap_read` among them, which have no bar; all, and the cost of software, if empty.
    pub only: Vec<String>,
    /// Told what begins.
    pub progress: Option<fn(&str)>,
}

impl DirectOptions {
    /// As the bars are meant, with this library.
    #[must_use]
    pub fn new(library: PathBuf) -> DirectOptions {
        DirectOptions {
            directory: PathBuf::from("/dev/shm"),
            library,
            pool_bytes: 2 << 30,
            file_bytes: 64 << 20,
            fio_bytes: 256 << 20,
            seconds: 2.0,
            rounds: 15,
            runs: 3,
            program_runs: 9,
            warm_up: 10_000,
            only: Vec::new(),
            progress: None,
        }
    }

    /// Measures for so long. In a short time, one run of each program and three rounds of each loop: the figures say little.
    #[must_use]
    pub fn lasting(self, seconds: f64) -> DirectOptions {
        const SHORT: f64 = 0.5;
        let (rounds, runs, program_runs) = match seconds < SHORT {
            true => (3, 1, 1),
            false => (self.rounds, self.runs, self.program_runs),
        };
        DirectOptions {
            seconds,
            rounds,
            runs,
            program_runs,
            ..self
        }
    }

    /// So small that it runs with every test; the figures mean nothing.
    #[must_use]
    pub fn smoke(library: PathBuf) -> DirectOptions {
        DirectOptions {
            pool_bytes: 256 << 20,
            file_bytes: 4 << 20,
            fio_bytes: 4 << 20,
            warm_up: 100,
            ..DirectOptions::new(library).lasting(0.01)
        }
    }

    /// Seconds of one side of a round.
    fn slice_seconds(&self, sides: usize) -> f64 {
        self.seconds / (self.rounds * sides).max(1) as f64
    }

    /// An amount of work, so many per second of what the user is ready to wait.
    fn amount(&self, per_second: f64) -> u64 {
        const LEAST: f64 = 20.0;
        (per_second * self.seconds).max(LEAST) as u64
    }
}

/// The processor that single loops run on.
fn first_processor() -> usize {
    processors().first().copied().unwrap_or(0)
}

/// Our side over the other; and how far the rounds were apart, without which a ratio on a shared machine says little.
pub(crate) fn with_spread(rounds: &Rounds, note: &str) -> Found {
    let [least, _, greatest] = rounds.ratios();
    let spread = format!("rounds from {least:.2} to {greatest:.2}");
    let note = match note.is_empty() {
        true => spread,
        false => format!("{spread}; {note}"),
    };
    Found::of(rounds).noted(note)
}

const TMPFS: &str = "the same on tmpfs";
const FUSE: &str = "the same on the mount without the library";

/// The greatest gain in bandwidth that the paper has for 4 KiB at random places, from leaving the operating system out.
const PAPER_GAIN: Option<f64> = Some(14.8);

pub(crate) static PLANS: [Plan; 15] = [
    Plan::at_most("overwrite_4k", "ns", TMPFS, 0.75),
    Plan::at_most(
        "overwrite_4k_vs_raw",
        "ns",
        "4 KiB streaming copy + fence, random",
        1.6,
    ),
    Plan::at_most("read_4k", "ns", TMPFS, 0.5),
    Plan::at_most("append_4k", "ns", TMPFS, 0.9),
    Plan::at_least("fio_randwrite", "IOPS", TMPFS, 1.25, None),
    Plan::at_least("fio_randread", "IOPS", TMPFS, 1.6, None),
    Plan::at_least("fio_randwrite_vs_fuse", "IOPS", FUSE, 14.8, PAPER_GAIN),
    Plan::at_least("fio_randread_vs_fuse", "IOPS", FUSE, 14.8, PAPER_GAIN),
    Plan {
        paper: Some(0.18),
        ..Plan::at_most(
            "permission_check",
            "us",
            "1 us: the ratio is the cost itself",
            0.02,
        )
    },
    Plan::at_most(
        "attach",
        "us",
        "1,000 us, what the design allows an attachment",
        1.0,
    ),
    Plan::at_least("redis_set", "requests/s", TMPFS, 1.0, None),
    Plan::at_least("sqlite_full", "transactions/s", FUSE, 2.0, None),
    Plan::at_least("rocksdb_fillsync", "writes/s", FUSE, 2.0, None),
    Plan::at_most("open_close_vs_fuse", "ns", FUSE, 1.2),
    Plan::at_least("processes_2", "writes/s", "one process", 1.7, None),
];

/// Runs the experiment. Bars that fail say so in the report, and those that need a program that is not installed.
///
/// # Errors
///
/// There is no room for the pool, or it cannot be mounted: nothing was measured.
pub fn run_direct(options: &DirectOptions) -> Result<Evaluation, BenchError> {
    let mut setting = Setting::here("direct", "dram");
    let figures = [in_place::NAME, maps::NAME];
    let known: Vec<_> = PLANS.iter().map(|plan| plan.name).chain(figures).collect();
    check_rows(&options.only, &known)?;
    setting.add("pool_bytes", options.pool_bytes);
    setting.add("file_bytes", options.file_bytes);
    setting.add("fio_bytes", options.fio_bytes);
    setting.add("seconds", options.seconds);
    setting.add("rounds", options.rounds);
    setting.add("runs", options.runs);
    setting.add("program_runs", options.program_runs);
    let mut collector = Collector::new(&PLANS, &options.only, options.progress);
    let bed = Bed::make(options)?;
    for measure in [
        loops::measure,
        processes::measure,
        fio::measure,
        applications::measure,
        in_place::measure,
        maps::measure,
    ] {
        measure(&mut collector, options, &bed);
        if let Err(error) = bed.clear() {
            let topic = "left behind".to_owned();
            collector.details.insert(topic, json!(error.to_string()));
        }
    }
    if options.only.is_empty() {
        collector.tell("cost of software");
        if let Err(error) = cost::measure(&mut collector, options, &bed) {
            let topic = "absent: cost of software".to_owned();
            collector.details.insert(topic, json!(error.to_string()));
        }
    }
    Ok(collector.evaluation(setting))
}
