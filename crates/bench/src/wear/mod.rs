//! The experiment `wear`: where on the medium do the writes go? Fig. 7 of SanGuo (section IV.B).
//!
//! Counted by the region, not by a file system's own opinion: 64 bytes for every line that is flushed, and the bytes of non-temporal stores, from the first write after mkfs on;
//! making the file set counts too, as in the paper, whose unused intervals end where the set does. The segments of the pool are cut into 128 equal
//! intervals; what lies before them (superblocks, state, segment table) counts as part of the first. One thread runs the personalities, so that both sides do the same operations.
//!
//! *Data* are the bytes written into segments that belong to an owner or are mixed. The meter is told of every segment before it changes hands, so it knows of
//! each byte what it was.

mod meter;

use crate::aging::{SEED, library};
use crate::collector::{Collector, Found, Plan, check_rows};
use crate::error::BenchError;
use crate::evaluation::{Evaluation, Figure, Series, Shape};
use crate::memory::require_room;
use crate::ops::bed::work_directory;
use crate::personality::{FileSet, Personality, Stop, run};
use crate::report::Setting;
use crate::target::{Baseline, Target};
use meter::{INTERVALS, Meter, Spread, intervals};
use pmem::MediaModel;
use std::path::PathBuf;

/// Parts of the run that both sides do, each with a seed of its own.
const PARTS: u64 = 64;
/// Before these parts, and at the end, it is noted how much the peak interval has.
const LOOKS: [u64; 5] = [0, PARTS / 8, PARTS / 4, PARTS / 2, PARTS];
/// Parts of the long run in which about as much is written as the pool has.
const PARTS_PER_PASS: u64 = 64;

/// How to measure.
#[derive(Clone, Debug)]
pub struct WearOptions {
    /// Directory in which pools are made and removed again.
    pub directory: PathBuf,
    /// Bytes of a pool.
    pub pool_bytes: u64,
    /// Files of a set, together half as large as the pool.
    pub files: usize,
    /// Personalities to run.
    pub personalities: Vec<Personality>,
    /// The long run ends when so many times the pool's size was written.
    pub passes: f64,
    /// Bars to measure, by name; all if empty.
    pub only: Vec<String>,
    /// Told what begins.
    pub progress: Option<fn(&str)>,
}

impl Default for WearOptions {
    fn default() -> WearOptions {
        WearOptions {
            directory: PathBuf::from("/dev/shm"),
            pool_bytes: 4 << 30,
            files: 8192,
            personalities: Personality::ALL.to_vec(),
            passes: 4.0,
            only: Vec::new(),
            progress: None,
        }
    }
}

impl WearOptions {
    /// So small that it runs with every test; the figures mean nothing.
    #[must_use]
    pub fn smoke() -> WearOptions {
        WearOptions {
            pool_bytes: 64 << 20,
            files: 64,
            passes: 1.5,
            ..WearOptions::default()
        }
    }

    /// Turns of the run that both sides do: long enough that replaced files dominate, short enough for the side that scans directories.
    fn turns(&self, personality: Personality) -> u64 {
        let files = self.files as u64;
        match personality {
            Personality::Fileserver => 2 * files,
            Personality::Webproxy | Personality::Varmail => 100 * files,
            Personality::Webserver => 4 * files,
        }
    }
}

const BYTES: &str = "bytes";
const PEAK: &str = "peak interval of PMFS's policies, over ours";
const MEAN: &str = "mean interval";

const fn peak(name: &'static str, bar: f64) -> Plan {
    Plan::at_least(name, BYTES, PEAK, bar, Some(bar))
}

const fn level(name: &'static str, bar: f64) -> Plan {
    Plan::at_most(name, BYTES, MEAN, bar)
}

static PLANS: [Plan; 12] = [
    peak("peak_fileserver", 5.08),
    peak("peak_webproxy", 29.63),
    peak("peak_webserver", 1.65),
    peak("peak_varmail", 1.78),
    level("wear_data_fileserver", 1.1),
    level("wear_data_webproxy", 1.1),
    level("wear_data_webserver", 1.1),
    level("wear_data_varmail", 1.1),
    level("wear_all_fileserver", 1.5),
    level("wear_all_webproxy", 1.5),
    level("wear_all_webserver", 1.5),
    level("wear_all_varmail", 1.5),
];

/// Names of the bars of a personality: peak, data, all.
fn bars(personality: Personality) -> [&'static str; 3] {
    match personality {
        Personality::Fileserver => [
            "peak_fileserver",
            "wear_data_fileserver",
            "wear_all_fileserver",
        ],
        Personality::Webproxy => ["peak_webproxy", "wear_data_webproxy", "wear_all_webproxy"],
        Personality::Webserver => [
            "peak_webserver",
            "wear_data_webserver",
            "wear_all_webserver",
        ],
        Personality::Varmail => ["peak_varmail", "wear_data_varmail", "wear_all_varmail"],
    }
}

/// Runs the experiment. Bars that fail say so in the report.
///
/// # Errors
///
/// The sizes make no sense, or the directory cannot be used: nothing was measured.
pub fn run_wear(options: &WearOptions) -> Result<Evaluation, BenchError> {
    const POOL_BYTES_MIN: u64 = 64 << 20;
    let mut setting = Setting::here("wear", MediaModel::dram().name);
    check_rows(&options.only, &PLANS.each_ref().map(|plan| plan.name))?;
    if options.pool_bytes < POOL_BYTES_MIN {
        return Err(BenchError::TooSmall {
            pool_bytes: options.pool_bytes,
            least_bytes: POOL_BYTES_MIN,
        });
    }
    require_room(&options.directory, options.pool_bytes)?;
    setting.add("pool_bytes", options.pool_bytes);
    setting.add("files", options.files);
    setting.add("passes", options.passes);
    setting.add("intervals", INTERVALS);
    let concerns = |plan: &&'static Plan| {
        let mut known = options.personalities.iter();
        known.any(|personality| plan.name.ends_with(personality.name()))
    };
    let plans = PLANS.iter().filter(concerns);
    let mut collector = Collector::new(plans, &options.only, options.progress);
    for &personality in &options.personalities {
        let names = bars(personality);
        collector.group(&names, |collector| one(collector, options, personality));
    }
    Ok(collector.evaluation(setting))
}

/// One personality: ours, then the long run, then theirs.
fn one(
    collector: &mut Collector,
    options: &WearOptions,
    personality: Personality,
) -> Result<(), BenchError> {
    let [peak, data, all] = bars(personality);
    collector.tell(&format!("{personality} on the library"));
    let place = work_directory(&options.directory)?;
    let mut series = Vec::new();
    let (ours, ours_grew) = {
        let target = library(place.path(), options.pool_bytes, &MediaModel::dram())?;
        let store = target.pool().filesystem().store();
        store.region().record_wear();
        let meter = Meter::new(store);
        let mut set = plan(options, personality);
        set.populate(&target)?;
        let turns = options.turns(personality);
        let ours_grew = run_both(&target, &set, turns, || peak_of(meter.spread().all()))?;
        let ours = meter.spread();
        series.push(of_spread("Perdure", ours.all()));
        series.push(of_spread("Perdure, data", ours.data()));
        if collector.wants(data) || collector.wants(all) {
            collector.tell(&format!("{personality}, the long run"));
            let per_turn = ours.written() / turns.max(1);
            let pass = options.pool_bytes / PARTS_PER_PASS / per_turn.max(1) + 1;
            set.leave_out_reads_that_write_nothing();
            let end = (options.passes * options.pool_bytes as f64) as u64;
            let mut part = PARTS;
            while meter.spread().written() < end {
                turn(&target, &set, pass, part)?;
                part += 1;
            }
            let long = meter.spread();
            collector.row(data, || Ok(long.found_of_data()));
            collector.row(all, || Ok(long.found_of_all(meter.hottest())));
            series.push(of_spread("Perdure, long run", long.all()));
            series.push(of_spread("Perdure, long run, data", long.data()));
        }
        drop(meter);
        target.close()?;
        (ours, ours_grew)
    };
    drop(place);
    let mut growth_of_peaks = None;
    if collector.wants(peak) {
        collector.tell(&format!("{personality} on PMFS's policies"));
        let (theirs, theirs_grew) = baseline(options, personality, ours.class())?;
        collector.row(peak, || Ok(compare(&ours, &theirs)));
        series.insert(0, of_spread("PMFS's policies", &theirs));
        growth_of_peaks = Some(growth(options, personality, &ours_grew, &theirs_grew));
    }
    collector.figures.push(Figure {
        name: format!("fig7_{personality}"),
        title: format!("Fig. 7: {personality}, writes in {INTERVALS} intervals"),
        shape: Shape::Panels,
        x_label: "interval",
        places: (1..=INTERVALS).map(|number| number.to_string()).collect(),
        y_label: "bytes written",
        series,
    });
    collector.figures.extend(growth_of_peaks);
    Ok(())
}

/// The peaks over the length of the run that both sides do.
fn growth(options: &WearOptions, personality: Personality, ours: &[f64], theirs: &[f64]) -> Figure {
    let turns = options.turns(personality) as f64 / options.files as f64;
    let series = |label: &str, peaks: &[f64]| Series {
        label: label.to_owned(),
        values: peaks.iter().copied().map(Some).collect(),
    };
    let part = |part: &u64| format!("{}", turns * *part as f64 / PARTS as f64);
    Figure {
        name: format!("peak_over_turns_{personality}"),
        title: format!("{personality}: peak interval over the length of the run"),
        shape: Shape::Lines,
        x_label: "turns for each file",
        places: LOOKS.iter().map(part).collect(),
        y_label: "bytes written",
        series: vec![series("Perdure", ours), series("PMFS's policies", theirs)],
    }
}

fn peak_of(intervals: &[u64]) -> f64 {
    intervals.iter().copied().max().unwrap_or(0) as f64
}

fn of_spread(label: &str, intervals: &[u64]) -> Series {
    Series {
        label: label.to_owned(),
        values: intervals.iter().map(|bytes| Some(*bytes as f64)).collect(),
    }
}

fn plan(options: &WearOptions, personality: Personality) -> FileSet {
    let mean_bytes = options.pool_bytes / 2 / options.files as u64;
    FileSet::plan(personality, options.files, mean_bytes, SEED)
}

fn turn<T: Target>(target: &T, set: &FileSet, turns: u64, part: u64) -> Result<(), BenchError> {
    run(target, set, 1, Stop::Turns(turns), SEED + part).map(drop)
}

/// The part of the run that both sides do; `peak` tells how much the peak interval has at the [`LOOKS`].
fn run_both<T: Target>(
    target: &T,
    set: &FileSet,
    turns: u64,
    mut peak: impl FnMut() -> f64,
) -> Result<Vec<f64>, BenchError> {
    let mut peaks = Vec::new();
    for part in 0..PARTS {
        if LOOKS.contains(&part) {
            peaks.push(peak());
        }
        turn(target, set, turns / PARTS, part)?;
    }
    peaks.push(peak());
    Ok(peaks)
}

/// The same operations on the published baseline: bytes by interval, and how the peak grew.
fn baseline(
    options: &WearOptions,
    personality: Personality,
    class: pmem::DurabilityClass,
) -> Result<(Vec<u64>, Vec<f64>), BenchError> {
    let target = Baseline::format(
        &options.directory,
        options.pool_bytes,
        class,
        &MediaModel::dram(),
    )?;
    target.region().record_wear();
    let set = plan(options, personality);
    set.populate(&target)?;
    let written = || intervals(&target.region().wear(), 0);
    let peaks = run_both(&target, &set, options.turns(personality), || {
        peak_of(&written())
    })?;
    Ok((written(), peaks))
}

fn compare(ours: &Spread, theirs: &[u64]) -> Found {
    let (mine, other) = (peak_of(ours.all()), peak_of(theirs));
    let unused = theirs.iter().filter(|bytes| **bytes == 0).count();
    let note = format!(
        "peak of our data alone {:.1} MiB; {unused} intervals of the baseline were never written; in all {:.1} GiB on our side, {:.1} GiB on the other",
        peak_of(ours.data()) / f64::from(1 << 20),
        ours.written() as f64 / f64::from(1 << 30),
        theirs.iter().sum::<u64>() as f64 / f64::from(1 << 30),
    );
    Found {
        value: mine,
        against_value: other,
        ratio: other / mine,
        ..Found::default()
    }
    .noted(note)
}
