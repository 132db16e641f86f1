//! The paper's figures 4 and 5, with one thread, on all three systems.

use super::bed::System;
use super::orders::{normal, sequential, steady, uniform};
use super::systems::{Systems, series};
use super::{ReadCacheOptions, SEED, hits::SKEW, slices};
use crate::aging::in_turn;
use crate::collector::Collector;
use crate::error::BenchError;
use crate::evaluation::{Figure, Shape};
use crate::measure::{Pinned, median};
use crate::memory::Page;
use pmem::BLOCK_BYTES;
use serde_json::json;

/// Fig. 4: mean latencies of sequential reads, then of sequential writes, from the first on: the file was just made and is not in the read
/// cache. It is in the page cache, because it was written through it; so that the read cache too need not wait for the machine's memory, another file was in it
/// and is gone.
pub(super) fn latencies(
    collector: &mut Collector,
    options: &ReadCacheOptions,
) -> Result<(), BenchError> {
    let blocks = options.file_blocks();
    let systems = Systems::new(options, 1, blocks)?;
    let cached = &systems.read_cache.0;
    cached.use_memory(blocks)?;
    let order = sequential(blocks, options.latency_requests);
    let _pin = Pinned::anywhere();
    let before = cached.hits_and_misses();
    let reads = means(options, &order, |system, part| match system {
        0 => read(&systems.direct, part),
        1 => read(&systems.page_cache, part),
        _ => read(&systems.read_cache, part),
    })?;
    let after = cached.hits_and_misses();
    let writes = means(options, &order, |system, part| match system {
        0 => write(&systems.direct, part),
        1 => write(&systems.page_cache, part),
        _ => write(&systems.read_cache, part),
    })?;
    let seconds = |system: usize| [reads[system], writes[system]].map(|mean| Some(mean / 1e9));
    let (hits, misses) = (after.0 - before.0, after.1 - before.1);
    let hit_ratio = hits as f64 / (hits + misses).max(1) as f64;
    let found = format!("{hit_ratio:.3} of the reads came from the read cache");
    collector
        .details
        .insert("figure 4".to_owned(), json!(found));
    collector.figures.push(Figure {
        name: "fig4".to_owned(),
        title: format!(
            "Fig. 4: mean latency of {} sequential requests of 4 KiB",
            order.len()
        ),
        shape: Shape::Bars,
        x_label: "request",
        places: vec!["read".to_owned(), "write, durable".to_owned()],
        y_label: "seconds",
        series: series([0, 1, 2].map(|system| seconds(system).to_vec())),
    });
    Ok(())
}

/// Mean nanoseconds of each system's requests; the systems take turns slice by slice.
fn means(
    options: &ReadCacheOptions,
    order: &[u32],
    slice: impl Fn(usize, &[u32]) -> Result<f64, BenchError>,
) -> Result<[f64; 3], BenchError> {
    let mut sums = [0.0; 3];
    for (number, part) in order.chunks(options.requests).enumerate() {
        for place in 0..3 {
            let system = (number + place) % 3;
            sums[system] += slice(system, part)? * part.len() as f64;
        }
    }
    Ok(sums.map(|sum| sum / order.len() as f64))
}

fn read<S: System>((system, files): &(S, Vec<S::File>), blocks: &[u32]) -> Result<f64, BenchError> {
    slices::read(blocks, &mut Page::filled(), |offset, into| {
        system.read(&files[0], offset, into)
    })
}

fn write<S: System>(
    (system, files): &(S, Vec<S::File>),
    blocks: &[u32],
) -> Result<f64, BenchError> {
    slices::write(blocks, &mut Page::filled(), |offset, data| {
        system.write(&files[0], offset, data)
    })
}

/// Fig. 5: read bandwidth of the hot file, sequentially and skewed; and over how skewed.
pub(super) fn bandwidths(
    collector: &mut Collector,
    options: &ReadCacheOptions,
) -> Result<(), BenchError> {
    let blocks = options.file_blocks();
    let count = options.order_length();
    let skewed = |part: u32| {
        let order = normal(blocks, 1.0 / f64::from(part), count, SEED);
        (format!("1/{part}"), order)
    };
    let orders = [
        ("sequential".to_owned(), sequential(blocks, count)),
        (
            "normal distribution".to_owned(),
            normal(blocks, SKEW, count, SEED),
        ),
        skewed(64),
        skewed(32),
        skewed(16),
        skewed(8),
        ("uniform".to_owned(), uniform(blocks, count, SEED)),
    ];
    let systems = Systems::new(options, 1, blocks)?;
    systems.warm(blocks)?;
    let _pin = Pinned::anywhere();
    let mut bandwidths = [Vec::new(), Vec::new(), Vec::new()];
    for (_, order) in &orders {
        let sides = in_turn(options.rounds, 3, |system, round| {
            let nanoseconds = steady(order, round, options.requests, |part| match system {
                0 => read(&systems.direct, part),
                1 => read(&systems.page_cache, part),
                _ => read(&systems.read_cache, part),
            })?;
            Ok(BLOCK_BYTES as f64 / nanoseconds * 1e9)
        })?;
        for (bandwidths, side) in bandwidths.iter_mut().zip(&sides) {
            bandwidths.push(Some(median(side)));
        }
    }
    let figure = |name: &str, title: &str, x_label, shape, range: std::ops::Range<usize>| {
        let places = orders[range.clone()].iter();
        Figure {
            name: name.to_owned(),
            title: title.to_owned(),
            shape,
            x_label,
            places: places.map(|(place, _)| place.clone()).collect(),
            y_label: "bytes/s",
            series: series([0, 1, 2].map(|system| bandwidths[system][range.clone()].to_vec())),
        }
    };
    collector.figures.extend([
        figure(
            "fig5",
            "Fig. 5: read bandwidth of a hot file",
            "order of requests",
            Shape::Bars,
            0..2,
        ),
        figure(
            "skew",
            "Read bandwidth of a hot file over the skew",
            "standard deviation, in parts of the file",
            Shape::Lines,
            2..orders.len(),
        ),
    ]);
    Ok(())
}
