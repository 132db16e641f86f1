//! The experiment `mount`: the FUSE mount over io_uring beside the mount over the kernel's classic
//! queue.
//!
//! Two pools in memory are mounted at once, each by a server process of its own, which is
//! `perdure mount` of this program. All sides of a row alternate in slices of one run. The kernel
//! decides whether FUSE may use io_uring, by a parameter of its module that must be on before.
//!
//! | module | rows |
//! | --- | --- |
//! | `fio` | fio past the page cache: randread_1, randwrite_1, randread_4, randwrite_4 |
//! | `names` | system calls on names: create_unlink, open_close, stat_cold |
//! | `sequential` | seq_1m_read, seq_1m_write |
//! | `source` | programs on a source tree: untar, rm_rf, git_status |
//! | `filebench` | filebench_fileserver and so on, with `_preload` under the library |
//! | `library` | the preload library: attach_next, small_write, small_read, sqlite_delete |
//! | `cold` | hot data beside a client of a slow device: hot_beside_cold, the same `_classic` |
//! | `processor` | the servers' processor time: idle_cpu, cpu_per_op |

mod bed;
pub(crate) mod cold;
mod filebench;
mod fio;
mod library;
mod names;
mod parameter;
mod processor;
mod real_filebench;
mod sequential;
mod server;
mod source;
pub(crate) mod worker;

use crate::collector::{Collector, Plan, check_rows};
use crate::error::BenchError;
use crate::evaluation::Evaluation;
use crate::report::Setting;
use bed::{Bed, LibraryBed};
use parameter::Parameter;
use std::path::PathBuf;

/// How to measure.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Directory in which pools are made and removed again.
    pub directory: PathBuf,
    /// The program `perdure`, which serves the mounts.
    pub program: PathBuf,
    /// The preload library.
    pub library: PathBuf,
    /// Allows io_uring for FUSE while the experiment runs, if the kernel does not allow it.
    pub enables_uring: bool,
    /// Bytes of each pool.
    pub pool_bytes: u64,
    /// Bytes of a file that is read and overwritten; a multiple of 1 MiB.
    pub file_bytes: u64,
    /// Names that are looked at.
    pub names: usize,
    /// Files of the source tree.
    pub tree_files: usize,
    /// Files of Filebench's set.
    pub set_files: usize,
    /// Their mean size in bytes.
    pub set_mean_bytes: u64,
    /// Threads that work on the set.
    pub set_threads: usize,
    /// Length of a measurement: of all slices of one side of a row.
    pub seconds: f64,
    /// Rounds of each row, in each of which every side has a slice; half as many of rows whose
    /// work has no given length.
    pub rounds: usize,
    /// Rows to measure, by name; all if empty.
    pub only: Vec<String>,
    /// Told what begins.
    pub progress: Option<fn(&str)>,
}

impl MountOptions {
    /// As the bars are meant, with this program and this library.
    #[must_use]
    pub fn new(program: PathBuf, library: PathBuf) -> MountOptions {
        MountOptions {
            directory: PathBuf::from("/dev/shm"),
            program,
            library,
            enables_uring: false,
            pool_bytes: 2 << 30,
            file_bytes: 64 << 20,
            names: 5000,
            tree_files: 30_000,
            set_files: 8192,
            set_mean_bytes: 16 << 10,
            set_threads: 8,
            seconds: 3.0,
            rounds: 15,
            only: Vec::new(),
            progress: None,
        }
    }

    /// Measures for so long, in so many rounds. In a short time one round by default, and a small
    /// amount of everything: the figures say little.
    #[must_use]
    pub fn lasting(self, seconds: f64, rounds: Option<usize>) -> MountOptions {
        const SHORT: f64 = 0.5;
        if seconds >= SHORT {
            let rounds = rounds.unwrap_or(self.rounds);
            return MountOptions {
                seconds,
                rounds,
                ..self
            };
        }
        MountOptions {
            pool_bytes: 256 << 20,
            file_bytes: 2 << 20,
            names: 50,
            tree_files: 60,
            set_files: 64,
            seconds,
            rounds: rounds.unwrap_or(1),
            ..self
        }
    }

    /// Seconds of one side of a round.
    fn slice_seconds(&self) -> f64 {
        self.seconds / self.rounds.max(1) as f64
    }

    /// Rounds of programs that work until they have done everything.
    fn program_rounds(&self) -> usize {
        self.rounds.div_ceil(2)
    }

    /// An amount of work for one slice, so many per second.
    fn amount(&self, per_second: f64) -> u64 {
        const LEAST: f64 = 20.0;
        (per_second * self.slice_seconds()).max(LEAST) as u64
    }
}

const CLASSIC: &str = "the same over the classic queue";
const WITHOUT: &str = "the same on the io_uring mount without the library";

/// The rate over io_uring is to be so many times that over the classic queue.
const fn faster(name: &'static str, unit: &'static str, bar: f64) -> Plan {
    Plan::at_least(name, unit, CLASSIC, bar, None)
}

/// The rate with the library is to be at least that without it.
const fn no_slower(name: &'static str, unit: &'static str) -> Plan {
    Plan::at_least(name, unit, WITHOUT, 1.0, None)
}

const ALONE: &str = "the same without the client of cold data";
const OPERATIONS: &str = "operations/s";

static PLANS: [Plan; 28] = [
    faster("randread_1", "IOPS", 1.4),
    faster("randwrite_1", "IOPS", 1.4),
    faster("randread_4", "IOPS", 2.4),
    faster("randwrite_4", "IOPS", 2.4),
    faster("create_unlink", "files/s", 2.0),
    faster("open_close", "files/s", 2.0),
    faster("stat_cold", "files/s", 2.0),
    faster("seq_1m_read", "MiB/s", 0.97),
    faster("seq_1m_write", "MiB/s", 0.97),
    faster("untar", "files/s", 1.6),
    faster("git_status", "files/s", 1.6),
    faster("rm_rf", "files/s", 1.6),
    faster("filebench_fileserver", OPERATIONS, 1.8),
    faster("filebench_webproxy", OPERATIONS, 1.8),
    faster("filebench_webserver", OPERATIONS, 1.8),
    faster("filebench_varmail", OPERATIONS, 1.8),
    no_slower("filebench_fileserver_preload", OPERATIONS),
    no_slower("filebench_webproxy_preload", OPERATIONS),
    no_slower("filebench_webserver_preload", OPERATIONS),
    no_slower("filebench_varmail_preload", OPERATIONS),
    Plan::at_most("attach_next", "us", "40 us for a further file", 1.0),
    Plan::at_most("small_write", "us", WITHOUT, 1.0),
    Plan::at_most("small_read", "us", WITHOUT, 1.0),
    no_slower("sqlite_delete", "transactions/s"),
    Plan::at_most("idle_cpu", "ms/s", "no processor time", 0.0),
    Plan::at_most("cpu_per_op", "us", CLASSIC, 1.0),
    Plan::at_least("hot_beside_cold", "IOPS", ALONE, 0.9, None),
    Plan::at_least("hot_beside_cold_classic", "IOPS", ALONE, 0.9, None),
];

/// Whether a row is about a pool with a slow device.
fn is_of_device(name: &str) -> bool {
    name.starts_with("hot_beside_cold")
}

/// Whether a row compares programs with the preload library, and not transports.
fn is_of_library(name: &str) -> bool {
    const OTHERS: [&str; 4] = ["attach_next", "small_write", "small_read", "sqlite_delete"];
    name.ends_with("_preload") || OTHERS.contains(&name)
}

/// Runs the experiment. Bars that fail say so in the report, and those that need what is not there.
///
/// # Errors
///
/// A row has another name, or the kernel does not allow FUSE over io_uring: nothing was measured.
pub fn run_mount(options: &MountOptions) -> Result<Evaluation, BenchError> {
    let mut setting = Setting::here("mount", "dram");
    check_rows(&options.only, &PLANS.each_ref().map(|plan| plan.name))?;
    let _parameter = Parameter::require(options.enables_uring)?;
    setting.add("pool_bytes", options.pool_bytes);
    setting.add("file_bytes", options.file_bytes);
    setting.add("names", options.names);
    setting.add("tree_files", options.tree_files);
    setting.add("set_files", options.set_files);
    setting.add("set_mean_bytes", options.set_mean_bytes);
    setting.add("set_threads", options.set_threads);
    setting.add("seconds", options.seconds);
    setting.add("rounds", options.rounds);
    let mut collector = Collector::new(&PLANS, &options.only, options.progress);
    let names = PLANS.iter().map(|plan| plan.name);
    let (device, names): (Vec<_>, Vec<_>) = names.partition(|name| is_of_device(name));
    let (library, transports): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| is_of_library(name));
    collector.group(&transports, |collector| {
        measure_transports(collector, options)
    });
    collector.group(&library, |collector| measure_library(collector, options));
    collector.group(&device, |collector| {
        cold::measure(collector, options);
        Ok(())
    });
    Ok(collector.evaluation(setting))
}

/// The rows that compare both transports.
fn measure_transports(collector: &mut Collector, options: &MountOptions) -> Result<(), BenchError> {
    collector.tell("two mounts");
    let bed = Bed::make(options)?;
    for measure in [
        fio::measure,
        names::measure,
        sequential::measure,
        filebench::measure,
        source::measure,
        // Idle mounts, after they had work.
        processor::measure,
    ] {
        measure(collector, options, &bed);
    }
    Ok(())
}

/// The rows of the preload library.
fn measure_library(collector: &mut Collector, options: &MountOptions) -> Result<(), BenchError> {
    collector.tell("a mount for the library");
    let bed = LibraryBed::make(options)?;
    for measure in [library::measure, filebench::measure_library] {
        measure(collector, options, &bed);
    }
    Ok(())
}
