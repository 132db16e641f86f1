//! What an overwrite costs that is all or nothing, and one in place: on two mounts, in rounds that alternate, beside bare memory.

use super::bed::{Bed, Program, Side};
use super::loops::order;
use super::program::{Operation, Order};
use super::{DirectOptions, first_processor};
use crate::aging::in_turn;
use crate::collector::Collector;
use crate::error::BenchError;
use crate::evaluation::{Figure, Series, Shape};
use crate::measure::{Pinned, Places, median, nanoseconds_each};
use crate::memory::{Page, raw_region};
use pmem::{DurabilityClass, Offset, Region};
use serde_json::{Map, json};

pub(super) const NAME: &str = "in_place";
/// Bytes of an overwrite.
const SIZES: [usize; 3] = [64, 512, 4096];
const LABELS: [&str; 3] = ["all or nothing", "in place", "bare memory"];

/// Measures and pushes the figure. It has no bar: which is right for whom the figures do not say.
pub(super) fn measure(collector: &mut Collector, options: &DirectOptions, bed: &Bed) {
    let is_wanted = options.only.is_empty() || options.only.iter().any(|name| name == NAME);
    if !is_wanted {
        return;
    }
    collector.tell("overwrites in place");
    match times(options, bed) {
        Ok(times) => push(collector, &times),
        Err(error) => {
            let topic = "absent: overwrites in place".to_owned();
            collector.details.insert(topic, json!(error.to_string()));
        }
    }
}

/// Nanoseconds of one overwrite, by size and label.
fn times(options: &DirectOptions, bed: &Bed) -> Result<Vec<[f64; 3]>, BenchError> {
    let other = Bed::in_place(options)?;
    let class = DurabilityClass::Volatile;
    let raw = raw_region(&options.directory, options.file_bytes, class)?;
    let _pin = Pinned::to(first_processor());
    SIZES
        .map(|bytes| of_size(options, [bed, &other], &raw, bytes))
        .into_iter()
        .collect()
}

fn of_size(
    options: &DirectOptions,
    beds: [&Bed; 2],
    raw: &Region,
    bytes: usize,
) -> Result<[f64; 3], BenchError> {
    let order = Order {
        bytes,
        ..order(options, Operation::Overwrite)
    };
    let name = format!("overwrite-{bytes}");
    let start = |bed: &Bed| {
        let program = bed.start(Side::Direct, &name, &order)?;
        match program.warm.is_direct() {
            true => Ok(program),
            false => Err(BenchError::NoDirectAccess),
        }
    };
    let mut programs = [start(beds[0])?, start(beds[1])?];
    let slice = options.slice_seconds(LABELS.len());
    let counts = [programs[0].count_for(slice)?, programs[1].count_for(slice)?];
    let mut page = Page::filled();
    let rounds = in_turn(options.rounds, LABELS.len(), |side, round| {
        match programs.get_mut(side) {
            Some(program) => Ok(program.run(counts[side])?.nanoseconds),
            None => raw_write(raw, &mut page, bytes, (round, counts[1])),
        }
    })?;
    programs.iter().try_for_each(Program::verify)?;
    Ok([0, 1, 2].map(|side: usize| median(&rounds[side])))
}

/// A streaming copy of so many bytes to bare memory, with its fence.
fn raw_write(
    raw: &Region,
    page: &mut Page,
    bytes: usize,
    (round, count): (u64, u64),
) -> Result<f64, BenchError> {
    let mut places = Places::new(round);
    let most = raw.length() / bytes as u64;
    nanoseconds_each(count, |number| {
        page.number(number);
        let at = Offset::new(places.below(most) * bytes as u64);
        raw.fence(raw.write_streaming(at, &page.0[..bytes]));
        Ok(())
    })
}

fn push(collector: &mut Collector, times: &[[f64; 3]]) {
    let rows = SIZES.iter().zip(times).map(|(bytes, times)| {
        let row = LABELS.iter().zip(times);
        let row: Map<_, _> = row
            .map(|(label, time)| (format!("{label}, ns"), json!(time)))
            .collect();
        (format!("{bytes} bytes"), json!(row))
    });
    let rows: Map<_, _> = rows.collect();
    collector
        .details
        .insert("overwrite_in_place".to_owned(), json!(rows));
    let series = LABELS.iter().enumerate().map(|(side, label)| Series {
        label: (*label).to_owned(),
        values: times.iter().map(|times| Some(times[side])).collect(),
    });
    collector.figures.push(Figure {
        name: "overwrite_in_place".to_owned(),
        title: "Overwrites at random places, all or nothing and in place".to_owned(),
        shape: Shape::Bars,
        x_label: "bytes",
        places: SIZES.map(|bytes| bytes.to_string()).to_vec(),
        y_label: "ns",
        series: series.collect(),
    });
}
