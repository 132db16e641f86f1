//! The experiment `ops`: single operations of the library against bare memory and tmpfs, of the mount against an empty FUSE server.
//!
//! Rows that need the same files are measured together. Whatever fails takes only its own rows along.

pub(crate) mod bed;
mod data;
mod million;
mod mount;
mod names;
mod threads;

use crate::error::BenchError;
use crate::evaluation::check_rows;
use crate::machine::Machine;
use crate::measure::{Rounds, Work};
use crate::report::{Better, Latencies, Report, Row};
use pmem::MediaModel;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

    fn wants(&self, names: &[&str]) -> bool {
        self.only.is_empty()
            || names
                .iter()
                .any(|name| self.only.iter().any(|only| only == name))
    }
}

/// What a row is, before it is measured.
struct Plan {
    name: &'static str,
    unit: &'static str,
    against: &'static str,
    bar: f64,
    better: Better,
    fences_bar: Option<f64>,
}

const fn at_most(name: &'static str, unit: &'static str, against: &'static str, bar: f64) -> Plan {
    Plan {
        name,
        unit,
        against,
        bar,
        better: Better::Lower,
        fences_bar: None,
    }
}

const fn fenced(name: &'static str, against: &'static str, bar: f64, fences: f64) -> Plan {
    Plan {
        name,
        unit: "ns",
        against,
        bar,
        better: Better::Lower,
        fences_bar: Some(fences),
    }
}

const fn at_least(name: &'static str, against: &'static str, bar: f64) -> Plan {
    Plan {
        name,
        unit: "ops/s",
        against,
        bar,
        better: Better::Higher,
        fences_bar: None,
    }
}

const PLANS: [Plan; 14] = [
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
    at_most(
        "overwrite_64b",
        "ns",
        "64 B store + flush + fence, random",
        3.5,
    ),
    at_most(
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
    at_most("open_close", "ns", "open, close on tmpfs", 0.6),
    at_most(
        "dir_1m_create",
        "ns",
        "the same in directories of 1,000 names",
        1.5,
    ),
    at_most(
        "dir_1m_lookup",
        "ns",
        "the same in a directory of 1,000 names",
        1.5,
    ),
    at_most("recovery", "s", "1 s for each million files", 1.0),
    at_least("threads_overwrite", "one thread", 1.7),
    at_least("threads_create", "one thread", 1.7),
    at_most(
        "idle_memory",
        "MiB",
        "1 MiB: the ratio is the size itself",
        64.0,
    ),
    at_most("fuse_read_4k", "ns", "empty FUSE server", 1.25),
    at_most("fuse_write_4k", "ns", "empty FUSE server", 1.25),
];

/// What measuring a row gave.
#[derive(Debug, Default)]
struct Measured {
    value: f64,
    against_value: f64,
    ratio: f64,
    best_value: Option<f64>,
    ratio_range: Option<[f64; 2]>,
    work: Option<Work>,
    latencies: Option<Latencies>,
    against_latencies: Option<Latencies>,
    note: Option<String>,
}

impl Measured {
    fn of(rounds: &Rounds, better: Better) -> Measured {
        let [least, ratio, greatest] = rounds.ratios();
        Measured {
            value: rounds.ours(),
            against_value: rounds.theirs(),
            ratio,
            best_value: Some(rounds.best(better == Better::Higher)),
            ratio_range: Some([least, greatest]),
            ..Measured::default()
        }
    }

    /// Times, of which less is better.
    fn times(rounds: &Rounds) -> Measured {
        Measured::of(rounds, Better::Lower)
    }
}

/// What has been measured so far.
struct Session<'o> {
    options: &'o OpsOptions,
    results: BTreeMap<&'static str, Result<Measured, BenchError>>,
    hash: u64,
}

impl Session<'_> {
    /// Measures a row if it is wanted; an error or a panic is its result.
    fn row(
        &mut self,
        name: &'static str,
        measure: impl FnOnce(&mut u64) -> Result<Measured, BenchError>,
    ) {
        if !self.options.wants(&[name]) {
            return;
        }
        self.tell(name);
        let hash = &mut self.hash;
        let result = guarded(|| measure(hash));
        self.results.insert(name, result);
    }

    /// Does what several rows need; an error is the result of all rows that were not reached.
    fn group(
        &mut self,
        names: &[&'static str],
        measure: impl FnOnce(&mut Self) -> Result<(), BenchError>,
    ) {
        if !self.options.wants(names) {
            return;
        }
        if let Err(error) = guarded(|| measure(self)) {
            let text = error.to_string();
            for name in names.iter().filter(|name| self.options.wants(&[name])) {
                let failed = || Err(BenchError::Setup(text.clone()));
                self.results.entry(name).or_insert_with(failed);
            }
        }
    }

    fn tell(&self, what: &str) {
        if let Some(progress) = self.options.progress {
            progress(what);
        }
    }

    fn rows(mut self) -> (Vec<Row>, u64) {
        let plans = PLANS.iter().filter(|plan| self.options.wants(&[plan.name]));
        let rows = plans.map(|plan| {
            let missing = || Err(BenchError::Setup("it was not reached".to_owned()));
            plan.row(self.results.remove(plan.name).unwrap_or_else(missing))
        });
        (rows.collect(), self.hash)
    }
}

/// Turns a panic into an error.
pub(crate) fn guarded<T>(measure: impl FnOnce() -> Result<T, BenchError>) -> Result<T, BenchError> {
    catch_unwind(AssertUnwindSafe(measure)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| {
            payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
        });
        Err(BenchError::Panic(
            text.unwrap_or_else(|| "without a message".to_owned()),
        ))
    })
}

impl Plan {
    fn row(&self, result: Result<Measured, BenchError>) -> Row {
        let (measured, error) = match result {
            Ok(measured) => (Some(measured), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let known = measured.as_ref();
        let work = known.and_then(|measured| measured.work);
        Row {
            name: self.name,
            value: known.map(|measured| measured.value),
            unit: self.unit,
            against: self.against,
            against_value: known.map(|measured| measured.against_value),
            ratio: known.map(|measured| measured.ratio),
            bar: self.bar,
            better: self.better,
            flushes: work.map(|work| work.flushes),
            fences: work.map(|work| work.fences),
            lines: work.map(|work| work.lines),
            fences_bar: self.fences_bar,
            best_value: known.and_then(|measured| measured.best_value),
            ratio_range: known.and_then(|measured| measured.ratio_range),
            latencies: known.and_then(|measured| measured.latencies),
            against_latencies: known.and_then(|measured| measured.against_latencies),
            note: measured.and_then(|measured| measured.note),
            error,
        }
    }
}

/// Runs the experiment. Rows that fail say so in the report.
///
/// # Errors
///
/// The sizes make no sense, or the directory cannot be used: nothing was measured.
pub fn run_ops(options: &OpsOptions) -> Result<Report, BenchError> {
    let machine = Machine::this();
    check_rows(&options.only, &PLANS.each_ref().map(|plan| plan.name))?;
    bed::check(options)?;
    let mut session = Session {
        options,
        results: BTreeMap::new(),
        hash: 0,
    };
    session.group(&bed::ROWS, bed::measure);
    session.group(&million::ROWS, million::measure);
    let mut setup = Map::new();
    setup.insert("pool_bytes".to_owned(), json!(options.pool_bytes));
    setup.insert("file_bytes".to_owned(), json!(bed::file_bytes(options)));
    setup.insert("names".to_owned(), json!(options.names));
    setup.insert("rounds".to_owned(), json!(options.rounds));
    setup.insert("operations".to_owned(), json!(options.operations));
    let (rows, hash) = session.rows();
    let media = options.media.name.clone();
    Ok(Report {
        experiment: "ops",
        media,
        machine,
        setup,
        hash: format!("{hash:016x}"),
        rows,
    })
}
