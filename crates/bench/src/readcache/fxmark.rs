//! Three of FxMark's benchmarks, over the number of threads: DRBL, DRBM and DWAL.

use super::bed::System;
use super::slices::{read_one, require_right};
use super::systems::{Systems, series};
use super::{ReadCacheOptions, crew};
use crate::aging::in_turn;
use crate::collector::Collector;
use crate::error::BenchError;
use crate::evaluation::{Figure, Shape};
use crate::measure::{median, processors};
use crate::memory::Page;
use std::time::Duration;

/// A benchmark: what its threads do.
#[derive(Clone, Copy)]
enum Benchmark {
    /// Each reads a file of its own from start to end, again and again.
    Drbl,
    /// All read one hot block.
    Drbm,
    /// Each appends to a file of its own, and begins again when it has the size that it has for the others.
    Dwal,
}

/// Bandwidths of all three on all three systems.
pub(super) fn measure(
    collector: &mut Collector,
    options: &ReadCacheOptions,
) -> Result<(), BenchError> {
    let threads_max = options.threads.iter().copied().max().unwrap_or(1);
    let blocks = options.thread_file_blocks();
    let systems = Systems::new(options, threads_max, blocks)?;
    systems.warm(blocks)?;
    // The one that takes the content away comes last.
    let all = [
        (
            Benchmark::Drbl,
            "drbl",
            "DRBL: each thread reads a hot file of its own",
        ),
        (
            Benchmark::Drbm,
            "drbm",
            "DRBM: all threads read one hot block",
        ),
        (
            Benchmark::Dwal,
            "dwal",
            "DWAL: each thread appends to a file of its own, durably",
        ),
    ];
    for (benchmark, name, title) in all {
        collector.tell(name);
        let figure = over_threads(options, &systems, benchmark, name, title)?;
        collector.figures.push(figure);
    }
    Ok(())
}

fn over_threads(
    options: &ReadCacheOptions,
    systems: &Systems,
    benchmark: Benchmark,
    name: &str,
    title: &str,
) -> Result<Figure, BenchError> {
    let counts = &options.threads;
    let sides = in_turn(options.rounds, 3 * counts.len(), |side, _| {
        let threads = counts[side / 3];
        let megabytes = match side % 3 {
            0 => rate(options, &systems.direct, benchmark, threads),
            1 => rate(options, &systems.page_cache, benchmark, threads),
            _ => rate(options, &systems.read_cache, benchmark, threads),
        }?;
        Ok(megabytes * 1e6)
    })?;
    let of_system = |system: usize| {
        let its = sides.iter().skip(system).step_by(3);
        its.map(|rates| Some(median(rates))).collect()
    };
    Ok(Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        shape: Shape::Lines,
        x_label: "threads",
        places: counts.iter().map(usize::to_string).collect(),
        y_label: "bytes/s",
        series: series([0, 1, 2].map(of_system)),
    })
}

/// Megabytes per second of so many threads.
fn rate<S: System>(
    options: &ReadCacheOptions,
    (system, files): &(S, Vec<S::File>),
    benchmark: Benchmark,
    threads: usize,
) -> Result<f64, BenchError> {
    let processors = processors();
    let on: Vec<usize> = processors.iter().copied().cycle().take(threads).collect();
    let duration = Duration::from_secs_f64(options.seconds);
    let blocks = u64::from(options.thread_file_blocks());
    crew::run(&on, duration, |thread, batch, page| {
        let (file, blocks) = match benchmark {
            Benchmark::Drbl => (&files[thread], blocks),
            Benchmark::Drbm => (&files[0], 1),
            Benchmark::Dwal => return append(system, &files[thread], batch, blocks, page),
        };
        let mut read = |offset, into: &mut [u8]| system.read(file, offset, into);
        let mut wrong = 0;
        for request in crew::batch(batch) {
            wrong |= read_one((request % blocks) as u32, page, &mut read)?;
        }
        require_right(wrong)
    })
}

/// A batch of appends.
fn append<S: System>(
    system: &S,
    file: &S::File,
    batch: u64,
    blocks: u64,
    page: &mut Page,
) -> Result<(), BenchError> {
    for request in crew::batch(batch) {
        if request % blocks == 0 {
            system.clear(file)?;
        }
        page.number(request % blocks);
        system.append(file, &page.0)?;
    }
    Ok(())
}
