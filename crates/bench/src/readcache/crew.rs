//! Threads that do requests of 4 KiB for a while, each on a processor.

use super::slices::megabytes_per_second;
use crate::error::BenchError;
use crate::measure::{Pinned, Stopwatch};
use crate::memory::Page;
use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Requests between two looks at the clock.
const BATCH: u64 = 64;

/// The requests of a batch, numbered from the thread's first.
pub(super) fn batch(number: u64) -> Range<u64> {
    number * BATCH..(number + 1) * BATCH
}

/// Runs a thread on each of these processors, which does `work` batch after batch, told its number, the batch's number, and a page of its
/// own. Megabytes per second of all of them.
///
/// As long as the processors are different ones, the time that a thread waits for its processor does not count.
pub(super) fn run(
    processors: &[usize],
    duration: Duration,
    work: impl Fn(usize, u64, &mut Page) -> Result<(), BenchError> + Sync,
) -> Result<f64, BenchError> {
    let barrier = Barrier::new(processors.len());
    std::thread::scope(|scope| {
        let start = |(thread, &processor): (usize, &usize)| {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                let _pin = Pinned::to(processor);
                let mut page = Page::filled();
                barrier.wait();
                one(duration, |number| work(thread, number, &mut page))
            })
        };
        let running: Vec<_> = processors.iter().enumerate().map(start).collect();
        let panicked = |_| BenchError::Panic("in a thread that does requests".to_owned());
        let rates = running
            .into_iter()
            .map(|thread| thread.join().map_err(panicked)?);
        rates.sum()
    })
}

/// Megabytes per second of one thread.
fn one(
    duration: Duration,
    mut work: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let begin = Instant::now();
    let watch = Stopwatch::of_thread();
    let mut batches = 0;
    while batches == 0 || begin.elapsed() < duration {
        work(batches)?;
        batches += 1;
    }
    let request_ns = watch.nanoseconds() / (batches * BATCH) as f64;
    Ok(megabytes_per_second(request_ns))
}
