//! Throughput over the number of files (Fig. 8), and with a million files.

use super::{AgingOptions, Bed, in_turn, library, pair, short, threads};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::evaluation::{Figure, Series, Shape};
use crate::measure::median;
use crate::memory::require_room;
use crate::ops::bed::work_directory;
use crate::personality::{Flowop, Outcome, Personality};
use crate::target::{Baseline, Library, Target};
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

/// A million files need at least a block each, and what belongs to them.
const MANY_POOL_FACTOR: u64 = 3;
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// Bars of a personality: at 32K files, at 8K, at a million, and for threads.
fn bars(personality: Personality) -> [Option<&'static str>; 4] {
    match personality {
        Personality::Fileserver => [None, None, None, Some("threads_fileserver")],
        Personality::Webproxy => [
            Some("webproxy_32k"),
            Some("webproxy_8k"),
            Some("webproxy_1m"),
            Some("threads_webproxy"),
        ],
        Personality::Webserver => [None, None, None, Some("threads_webserver")],
        Personality::Varmail => [
            Some("varmail_32k"),
            Some("varmail_8k"),
            Some("varmail_1m"),
            Some("threads_varmail"),
        ],
    }
}

/// Measures all personalities, one after the other.
pub(super) fn measure(collector: &mut Collector, options: &AgingOptions) {
    for &personality in &options.personalities {
        let names: Vec<&'static str> = bars(personality).into_iter().flatten().collect();
        collector.group(&names, |collector| one(collector, options, personality));
    }
}

/// Medians over the numbers of files: ours, theirs.
#[derive(Default)]
struct Curve {
    places: Vec<String>,
    ours: Vec<Option<f64>>,
    theirs: Vec<Option<f64>>,
}

fn one(
    collector: &mut Collector,
    options: &AgingOptions,
    personality: Personality,
) -> Result<(), BenchError> {
    let [at_32k, at_8k, at_1m, threads_bar] = bars(personality);
    let mut counts = options.files.clone();
    counts.sort_unstable();
    let mut curve = Curve::default();
    // Kept for the million, which is compared with it.
    let mut few = None;
    for (place, &files) in counts.iter().enumerate() {
        curve.places.push(short(files));
        if options.is_many(files) {
            let measured = many(collector, options, personality, files, few.take(), at_1m);
            curve.ours.push(measured?);
            curve.theirs.push(None);
            continue;
        }
        // The least number of files has the threads and the bar at 8K, the next one the bar at 32K.
        let bar = [at_8k, at_32k].get(place).copied().flatten();
        let wants_threads = place == 0 && collector.wants(threads_bar.unwrap_or(""));
        let wants_many = place == 0 && at_1m.is_some_and(|name| collector.wants(name));
        let wants_bar = bar.is_some_and(|name| collector.wants(name));
        let wants_figure = options.only.is_empty();
        if !(wants_bar || wants_threads || wants_many || wants_figure) {
            curve.ours.push(None);
            curve.theirs.push(None);
            continue;
        }
        let both = Both::make(collector, options, personality, files)?;
        let compared = if wants_bar || wants_figure {
            Some(both.compare(collector, options, bar)?)
        } else {
            None
        };
        curve.ours.push(compared.map(|(ours, _)| ours));
        curve.theirs.push(compared.map(|(_, theirs)| theirs));
        if wants_threads {
            threads::measure(collector, options, &both, threads_bar)?;
        }
        if wants_many {
            few = Some((both.place, both.ours));
        }
    }
    if curve.ours.iter().any(Option::is_some) {
        collector.figures.push(Figure {
            name: format!("fig8_{personality}"),
            title: format!(
                "Fig. 8: {personality}, {} threads, over the number of files",
                options.threads_max()
            ),
            shape: Shape::Lines,
            x_label: "files",
            places: curve.places,
            y_label: "operations/s",
            series: vec![
                series("Perdure", curve.ours),
                series("PMFS's policies", curve.theirs),
            ],
        });
    }
    Ok(())
}

pub(super) fn series(label: &str, values: Vec<Option<f64>>) -> Series {
    Series {
        label: label.to_owned(),
        values,
    }
}

/// Both sides with the same file set.
pub(super) struct Both {
    pub(super) ours: Bed<Library>,
    pub(super) theirs: Bed<Baseline>,
    // After the pool in it.
    place: TempDir,
}

impl Both {
    fn make(
        collector: &Collector,
        options: &AgingOptions,
        personality: Personality,
        files: usize,
    ) -> Result<Both, BenchError> {
        collector.tell(&format!("{personality} with {files} files"));
        require_room(&options.directory, 2 * options.pool_bytes)?;
        let place = work_directory(&options.directory)?;
        let mean_bytes = AgingOptions::mean_bytes(options.pool_bytes, files);
        let ours = library(place.path(), options.pool_bytes, &options.media)?;
        let class = ours.pool().class();
        let theirs = Baseline::format(
            &options.directory,
            options.pool_bytes,
            class,
            &options.media,
        )?;
        Ok(Both {
            ours: Bed::make(ours, personality, files, mean_bytes, PATIENCE)?,
            theirs: Bed::make(theirs, personality, files, mean_bytes, PATIENCE)?,
            place,
        })
    }

    pub(super) fn label(&self) -> String {
        let set = &self.ours.set;
        format!("{} with {} files", set.personality(), set.files())
    }

    /// Ours beside theirs with all threads: medians.
    fn compare(
        &self,
        collector: &mut Collector,
        options: &AgingOptions,
        bar: Option<&'static str>,
    ) -> Result<(f64, f64), BenchError> {
        let (threads, duration) = (options.threads_max(), options.duration());
        let mut last = [None, None];
        let sides = in_turn(options.rounds, 2, |side, round| {
            let outcome = match side {
                0 => self.ours.run(threads, duration, round)?,
                _ => self.theirs.run(threads, duration, round)?,
            };
            let rate = outcome.rate;
            last[side] = Some(outcome);
            Ok(rate)
        })?;
        // Sizes only: several threads may have appended to one file.
        self.ours.set.verify(&self.ours.target, false)?;
        self.theirs.set.verify(&self.theirs.target, false)?;
        for (side, outcome) in ["ours", "theirs"].iter().zip(&last) {
            let detail = outcome.as_ref().map_or(Value::Null, describe);
            let topic = format!("last round: {}, {side}", self.label());
            collector.details.insert(topic, detail);
        }
        let rounds = pair(&sides[0], &sides[1]);
        if let Some(bar) = bar {
            let replaced = self.ours.set.mean_version();
            let note = format!("each file was made anew {replaced:.1} times on average by the end");
            collector.row(bar, || Ok(Found::of(&rounds).noted(note)));
        }
        Ok((rounds.ours(), rounds.theirs()))
    }
}

/// What a round was made of.
fn describe(outcome: &Outcome) -> Value {
    let of_kind = outcome.latencies().into_iter();
    let latencies = of_kind.map(|(kind, latencies)| (kind.to_owned(), json!(latencies)));
    let counts = Flowop::ALL.iter().zip(outcome.counts);
    let counts = counts.filter(|(_, count)| *count > 0);
    let counts = counts.map(|(kind, count)| (kind.name().to_owned(), json!(count)));
    json!({
        "operations": outcome.operations,
        "counts": Value::Object(counts.collect()),
        "latencies": Value::Object(latencies.collect()),
    })
}

/// Our side with a million files beside our side with few; the median, if it was measured.
fn many(
    collector: &mut Collector,
    options: &AgingOptions,
    personality: Personality,
    files: usize,
    few: Option<(TempDir, Bed<Library>)>,
    bar: Option<&'static str>,
) -> Result<Option<f64>, BenchError> {
    let (Some(bar), Some((few_place, few))) = (bar, few) else {
        return Ok(None);
    };
    if !collector.wants(bar) {
        return Ok(None);
    }
    collector.tell(&format!("{personality} with {files} files"));
    let pool_bytes = MANY_POOL_FACTOR * options.pool_bytes;
    require_room(&options.directory, pool_bytes)?;
    let place = work_directory(&options.directory)?;
    // Half of a pool of four times a block for each file would be two blocks each; the plan is one on average.
    let mean_bytes = AgingOptions::mean_bytes(pool_bytes, files).min(4096);
    let target = library(place.path(), pool_bytes, &options.media)?;
    let many = Bed::make(target, personality, files, mean_bytes, PATIENCE)?;
    let threads = options.threads_max();
    let sides = in_turn(options.rounds, 2, |side, round| {
        let bed = [&many, &few][side];
        Ok(bed.run(threads, options.duration(), round)?.rate)
    })?;
    let rounds = pair(&sides[0], &sides[1]);
    let note = format!(
        "{files} files on a pool of {} GiB; each was made anew {:.1} times on average by the end",
        pool_bytes >> 30,
        many.set.mean_version(),
    );
    collector.row(bar, || Ok(Found::of(&rounds).noted(note)));
    for bed in [many, few] {
        bed.target.close()?;
    }
    drop((place, few_place));
    Ok(Some(rounds.ours()))
}

/// What a bed is about, for those that have no baseline beside.
pub(super) fn rate_of<T: Target>(bed: &Bed<T>, options: &AgingOptions) -> Result<f64, BenchError> {
    let threads = options.threads_max();
    let rates = in_turn(options.rounds, 1, |_, round| {
        Ok(bed.run(threads, options.duration(), round)?.rate)
    })?;
    Ok(median(&rates[0]))
}
