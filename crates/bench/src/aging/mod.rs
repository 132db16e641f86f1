//! The experiment `aging`: is a file system as fast with many files and after years of use as on its first day?
//!
//! * Fig. 8 and 9 of SanGuo (section IV.C): the personalities over the number of files and of threads, beside the published baseline, each on a pool
//!   half of which the file set takes. Measuring begins after every file was replaced about twice, because files that are deleted and
//!   made anew hold only what was appended since: the set that was filled in at the start is not the one that a long run works on.
//! * A million files, on a pool that has room for them.
//! * An aged pool beside a fresh one that holds the same files.
//! * Removing a directory of a million names.
//! * The personalities on our library, our mount, tmpfs, and ext4 on a loop device.

mod aged;
mod beside;
mod generator;
pub(crate) mod loop_device;
mod removal;
mod threads;
mod throughput;

use crate::collector::{Collector, Plan, check_rows};
use crate::error::BenchError;
use crate::evaluation::Evaluation;
use crate::measure::Rounds;
use crate::ops::bed::{create_pool, work_directory};
use crate::personality::{FileSet, Outcome, Personality, Stop, run, run_on};
use crate::report::Setting;
use crate::target::{Library, Target};
use pmem::MediaModel;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) const SEED: u64 = 2017;

/// How to measure.
#[derive(Clone, Debug)]
pub struct AgingOptions {
    /// Directory in which pools are made and removed again.
    pub directory: PathBuf,
    /// Bytes of a pool; for a million files it is three times as large.
    pub pool_bytes: u64,
    /// Laid over the pools.
    pub media: MediaModel,
    /// Numbers of files of Fig. 8. The greatest is compared with the least on our side only if it is [`MANY_FILES`](Self::MANY_FILES) or more.
    pub files: Vec<usize>,
    /// Personalities to run.
    pub personalities: Vec<Personality>,
    /// Numbers of threads of Fig. 9. All else runs with the greatest.
    pub threads: Vec<usize>,
    /// Rounds of each measurement.
    pub rounds: usize,
    /// Seconds of each side of a round.
    pub seconds: f64,
    /// How many times its capacity an aged pool has turned over.
    pub turnovers: u64,
    /// Names in the large directory that is removed, and in the small ones beside.
    pub names: [u64; 2],
    /// Only the personalities, in this directory of any file system.
    pub target: Option<PathBuf>,
    /// Bars to measure, by name; all if empty.
    pub only: Vec<String>,
    /// Told what begins.
    pub progress: Option<fn(&str)>,
}

impl Default for AgingOptions {
    fn default() -> AgingOptions {
        AgingOptions {
            directory: PathBuf::from("/dev/shm"),
            pool_bytes: 4 << 30,
            media: MediaModel::dram(),
            files: vec![8192, 32_768, 1_000_000],
            personalities: Personality::ALL.to_vec(),
            threads: vec![1, 2, 4, 8],
            rounds: 7,
            seconds: 0.5,
            turnovers: 10,
            names: [1_000_000, 10_000],
            target: None,
            only: Vec::new(),
            progress: None,
        }
    }
}

impl AgingOptions {
    /// From this number of files on, the pool is larger and the published baseline, which takes hours, stays out.
    pub const MANY_FILES: usize = 250_000;

    /// So small that it runs with every test; the figures mean nothing.
    #[must_use]
    pub fn smoke() -> AgingOptions {
        AgingOptions {
            pool_bytes: 128 << 20,
            files: vec![100, 400, 1000],
            rounds: 1,
            seconds: 0.02,
            turnovers: 1,
            names: [2000, 200],
            threads: vec![1, 2],
            ..AgingOptions::default()
        }
    }

    /// Bytes that the files of a set have on average: together half of the pool.
    fn mean_bytes(pool_bytes: u64, files: usize) -> u64 {
        pool_bytes / 2 / files as u64
    }

    fn threads_max(&self) -> usize {
        self.threads.iter().copied().max().unwrap_or(1)
    }

    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Whether this number is measured on our side only.
    fn is_many(&self, files: usize) -> bool {
        let greatest = self.files.iter().max() == Some(&files);
        files >= AgingOptions::MANY_FILES || greatest && self.files.len() > 2
    }
}

const RATE: &str = "ops/s";
const PUBLISHED: &str = "PMFS's policies, 8 threads";
const FEW: &str = "ours with 8,192 files";
const ONE: &str = "one thread";
const FRESH: &str = "fresh pool with the same files";

static PLANS: [Plan; 15] = [
    Plan::at_least("webproxy_32k", RATE, PUBLISHED, 14.33, Some(14.33)),
    Plan::at_least("varmail_32k", RATE, PUBLISHED, 8.9, Some(8.9)),
    Plan::at_least("webproxy_8k", RATE, PUBLISHED, 2.36, Some(2.36)),
    Plan::at_least("varmail_8k", RATE, PUBLISHED, 2.1, Some(2.1)),
    Plan::at_least("webproxy_1m", RATE, FEW, 0.7, None),
    Plan::at_least("varmail_1m", RATE, FEW, 0.7, None),
    Plan::at_least("threads_fileserver", RATE, ONE, 1.7, None),
    Plan::at_least("threads_webproxy", RATE, ONE, 1.7, Some(1.7)),
    Plan::at_least("threads_webserver", RATE, ONE, 1.7, None),
    Plan::at_least("threads_varmail", RATE, ONE, 1.7, Some(1.484)),
    Plan::at_least("aged_overwrite_4k", "ns", FRESH, 0.9, None),
    Plan::at_least("aged_read_1m", "ns", FRESH, 0.9, None),
    Plan::at_least("aged_create", "ns", FRESH, 0.9, None),
    Plan::at_least(
        "aged_free_2m",
        "blocks",
        "all free blocks of the aged pool",
        0.5,
        None,
    ),
    Plan::at_most("rmdir_1m", "ns", "a name in a directory of 10,000", 1.3),
];

/// A file system with a file set that has been in use for a while.
pub(crate) struct Bed<T: Target> {
    pub(crate) target: T,
    pub(crate) set: FileSet,
}

impl<T: Target> Bed<T> {
    /// Fills the set in and wears it in.
    pub(crate) fn make(
        target: T,
        personality: Personality,
        files: usize,
        mean_bytes: u64,
        patience: Duration,
    ) -> Result<Bed<T>, BenchError> {
        let set = FileSet::plan(personality, files, mean_bytes, SEED);
        set.populate(&target)?;
        let bed = Bed { target, set };
        bed.wear_in(patience)?;
        Ok(bed)
    }

    /// Replaces every file of the first set at least once, twice on average; or, where files are only read, reads each once.
    fn wear_in(&self, patience: Duration) -> Result<(), BenchError> {
        const ROUNDS_MAX: u64 = 16;
        let threads = crate::measure::processors().len().max(1);
        let files = self.set.files() as u64;
        let begin = Instant::now();
        let turn = |turns, round| {
            let stop = Stop::Within(turns, patience.saturating_sub(begin.elapsed()));
            run(&self.target, &self.set, threads, stop, SEED + round).map(drop)
        };
        if !self.set.personality().replaces_files() {
            // Ten files are read in each turn.
            return turn(files / 10, 0);
        }
        let mut round = 0;
        while round < 2 || (self.set.first_files() > 0 && round < ROUNDS_MAX) {
            turn(files, round)?;
            round += 1;
            if begin.elapsed() >= patience {
                break;
            }
        }
        Ok(())
    }

    /// Runs it for a while.
    pub(crate) fn run(
        &self,
        threads: usize,
        duration: Duration,
        round: u64,
    ) -> Result<Outcome, BenchError> {
        let stop = Stop::After(duration);
        run(&self.target, &self.set, threads, stop, SEED + round)
    }

    /// The same, a thread on each of these processors: operations per second.
    pub(crate) fn rate_on(
        &self,
        processors: &[usize],
        duration: Duration,
        round: u64,
    ) -> Result<f64, BenchError> {
        let (stop, threads) = (Stop::After(duration), processors.len());
        let outcome = run_on(
            processors,
            &self.target,
            &self.set,
            threads,
            stop,
            SEED + round,
        )?;
        Ok(outcome.rate)
    }
}

/// An empty pool in `place` as a target, its pages touched and the media model laid over it.
pub(crate) fn library(
    place: &Path,
    pool_bytes: u64,
    media: &MediaModel,
) -> Result<Library, BenchError> {
    let pool = create_pool(&place.join("pool"), pool_bytes)?;
    crate::memory::prepare(pool.filesystem().store().region(), media);
    Library::new(pool)
}

/// Runs the experiment. Bars that fail say so in the report.
///
/// # Errors
///
/// The sizes make no sense, or the directory cannot be used: nothing was measured.
pub fn run_aging(options: &AgingOptions) -> Result<Evaluation, BenchError> {
    let mut setting = Setting::here("aging", options.media.name.as_str());
    check_rows(&options.only, &PLANS.each_ref().map(|plan| plan.name))?;
    check(options)?;
    setting.add("pool_bytes", options.pool_bytes);
    setting.add("files", options.files.as_slice());
    setting.add("threads", options.threads.as_slice());
    setting.add("rounds", options.rounds);
    setting.add("seconds", options.seconds);
    let plans = match options.target {
        Some(_) => &[],
        None => &PLANS[..],
    };
    let personalities = &options.personalities;
    let concerns = |plan: &&'static Plan| {
        let mut others = Personality::ALL.into_iter();
        !others.any(|other| !personalities.contains(&other) && plan.name.contains(other.name()))
    };
    let plans = plans.iter().filter(concerns);
    let mut collector = Collector::new(plans, &options.only, options.progress);
    match &options.target {
        Some(directory) => beside::measure_target(&mut collector, options, directory)?,
        None => {
            throughput::measure(&mut collector, options);
            aged::measure(&mut collector, options);
            removal::measure(&mut collector, options);
            if options.only.is_empty() {
                beside::measure(&mut collector, options);
            }
        }
    }
    Ok(collector.evaluation(setting))
}

fn check(options: &AgingOptions) -> Result<(), BenchError> {
    const POOL_BYTES_MIN: u64 = 64 << 20;
    const BYTES_PER_FILE_MIN: u64 = 8192;
    let most = options
        .files
        .iter()
        .filter(|files| !options.is_many(**files));
    let most = most.max().copied().unwrap_or(0) as u64;
    let least_bytes = POOL_BYTES_MIN.max(most * BYTES_PER_FILE_MIN);
    if options.pool_bytes < least_bytes {
        return Err(BenchError::TooSmall {
            pool_bytes: options.pool_bytes,
            least_bytes,
        });
    }
    // To find out early whether the directory can be used at all.
    work_directory(&options.directory).map(drop)
}

/// Runs all sides in every round, each time beginning with another one, after a round that is not counted.
///
/// Returns the results by side.
pub(crate) fn in_turn(
    rounds: usize,
    sides: usize,
    mut measure: impl FnMut(usize, u64) -> Result<f64, BenchError>,
) -> Result<Vec<Vec<f64>>, BenchError> {
    let mut results = vec![Vec::new(); sides];
    for side in 0..sides {
        measure(side, 0)?;
    }
    for round in 0..rounds.max(1) {
        for place in 0..sides {
            let side = (place + round) % sides;
            results[side].push(measure(side, round as u64 + 1)?);
        }
    }
    Ok(results)
}

/// Two sides of such a result.
pub(crate) fn pair(ours: &[f64], theirs: &[f64]) -> Rounds {
    Rounds::new(ours.to_vec(), theirs.to_vec())
}

/// A number of files as it is said: 8K, 32K, 1M.
pub(crate) fn short(files: usize) -> String {
    match files {
        _ if files.is_multiple_of(1_000_000) => format!("{}M", files / 1_000_000),
        _ if files.is_multiple_of(1024) => format!("{}K", files / 1024),
        _ => files.to_string(),
    }
}
