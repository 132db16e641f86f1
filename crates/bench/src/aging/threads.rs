//! Throughput over the number of threads (Fig. 9), and the bar about two of them.

use super::throughput::{Both, PATIENCE, series};
use super::{AgingOptions, Bed, in_turn, library, pair};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::evaluation::{Figure, Shape};
use crate::measure::{median, processors};
use crate::memory::require_room;
use crate::ops::bed::work_directory;
use crate::target::{Library, Target};
use std::time::Duration;
use tempfile::TempDir;

/// Fig. 9, and the bar.
pub(super) fn measure(
    collector: &mut Collector,
    options: &AgingOptions,
    both: &Both,
    bar: Option<&'static str>,
) -> Result<(), BenchError> {
    over_threads(collector, options, both)?;
    bar.map_or(Ok(()), |bar| two(collector, options, both, bar))
}

fn over_threads(
    collector: &mut Collector,
    options: &AgingOptions,
    both: &Both,
) -> Result<(), BenchError> {
    let counts = &options.threads;
    let sides = in_turn(options.rounds, 2 * counts.len(), |side, round| {
        let (threads, duration) = (counts[side / 2], options.duration());
        let outcome = match side % 2 {
            0 => both.ours.run(threads, duration, round)?,
            _ => both.theirs.run(threads, duration, round)?,
        };
        Ok(outcome.rate)
    })?;
    let of_side = |parity: usize| {
        let rates = sides.iter().skip(parity).step_by(2);
        rates.map(|rates| Some(median(rates))).collect()
    };
    collector.figures.push(Figure {
        name: format!("fig9_{}", both.ours.set.personality()),
        title: format!("Fig. 9: {}, over the number of threads", both.label()),
        shape: Shape::Lines,
        x_label: "threads",
        places: counts.iter().map(usize::to_string).collect(),
        y_label: "operations/s",
        series: vec![
            series("Perdure", of_side(0)),
            series("PMFS's policies", of_side(1)),
        ],
    });
    Ok(())
}

/// Two threads beside one.
///
/// One thread has each of the two processors in turn, because a machine shared with others may have a fast one and a slow one. What two threads
/// could reach in these minutes if they had nothing in common is told by two that work on a pool each.
fn two(
    collector: &mut Collector,
    options: &AgingOptions,
    both: &Both,
    bar: &'static str,
) -> Result<(), BenchError> {
    let processors = processors();
    let [first, second] = [0, 1].map(|place| processors[place % processors.len()]);
    let (place, other) = another(options, &both.ours)?;
    let duration = options.duration();
    let sides = in_turn(options.rounds, 5, |side, round| match side {
        0 => both.ours.rate_on(&[first, second], duration, round),
        1 => one_in_turn(&both.ours, [first, second], duration, round),
        2 => std::thread::scope(|scope| {
            let beside = scope.spawn(|| other.rate_on(&[second], duration, round));
            let here = both.ours.rate_on(&[first], duration, round);
            let panicked = |_| BenchError::Panic("beside another pool".to_owned());
            Ok(here? + beside.join().map_err(panicked)??)
        }),
        3 => both.theirs.rate_on(&[first, second], duration, round),
        _ => one_in_turn(&both.theirs, [first, second], duration, round),
    })?;
    other.target.close()?;
    drop(place);
    let [apart, theirs] =
        [(2, 1), (3, 4)].map(|(two, one)| pair(&sides[two], &sides[one]).ratios()[1]);
    let note = format!("on two pools, nothing in common: {apart:.2}; PMFS's policies: {theirs:.2}");
    let rounds = pair(&sides[0], &sides[1]);
    collector.row(bar, || Ok(Found::of(&rounds).noted(note)));
    Ok(())
}

/// Operations per second of one thread that has each processor in turn.
fn one_in_turn<T: Target>(
    bed: &Bed<T>,
    processors: [usize; 2],
    duration: Duration,
    round: u64,
) -> Result<f64, BenchError> {
    let [first, second] = processors.map(|processor| bed.rate_on(&[processor], duration, round));
    Ok((first? + second?) / 2.0)
}

/// A pool of its own with the same file set, in use for as long.
fn another(
    options: &AgingOptions,
    bed: &Bed<Library>,
) -> Result<(TempDir, Bed<Library>), BenchError> {
    require_room(&options.directory, options.pool_bytes)?;
    let place = work_directory(&options.directory)?;
    let (personality, files) = (bed.set.personality(), bed.set.files());
    let mean_bytes = AgingOptions::mean_bytes(options.pool_bytes, files);
    let target = library(place.path(), options.pool_bytes, &options.media)?;
    let bed = Bed::make(target, personality, files, mean_bytes, PATIENCE)?;
    Ok((place, bed))
}
