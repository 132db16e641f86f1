//! Rows about two threads that share nothing but the file system.

use super::OpsOptions;
use super::bed::{file_bytes, fill};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Pinned, Places, Stopwatch, alternate, processors};
use crate::memory::Page;
use crate::report::Better;
use perdure::{Dir, File, OpenOptions, Pool};
use pmem::BLOCK_BYTES;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const THREADS: usize = 2;
/// Operations between two looks at the clock.
const BURST: u64 = 32;

/// What one thread works on: no other thread has it.
trait Work: Sync {
    /// One operation.
    fn operate(&self, number: u64, places: &mut Places, page: &mut Page) -> Result<(), BenchError>;
    /// Undoes `count` operations, not measured.
    fn tidy(&self, count: u64) -> Result<(), BenchError>;
    /// Most operations in a run.
    fn limit(&self) -> u64;
}

struct Overwrite {
    file: File,
    blocks: u64,
}

impl Work for Overwrite {
    fn operate(&self, number: u64, places: &mut Places, page: &mut Page) -> Result<(), BenchError> {
        page.number(number);
        self.file
            .write_at(&page.0, places.below(self.blocks) * BLOCK_BYTES as u64)?;
        Ok(())
    }

    fn tidy(&self, _count: u64) -> Result<(), BenchError> {
        Ok(())
    }

    fn limit(&self) -> u64 {
        u64::MAX
    }
}

struct Create {
    directory: Dir,
    names: Vec<String>,
}

impl Work for Create {
    fn operate(
        &self,
        number: u64,
        _places: &mut Places,
        _page: &mut Page,
    ) -> Result<(), BenchError> {
        drop(File::create_new(
            &self.directory,
            &self.names[number as usize],
        )?);
        Ok(())
    }

    fn tidy(&self, count: u64) -> Result<(), BenchError> {
        for name in &self.names[..count as usize] {
            self.directory.remove_file(name)?;
        }
        Ok(())
    }

    fn limit(&self) -> u64 {
        self.names.len() as u64
    }
}

pub(super) fn measure(collector: &mut Collector, options: &OpsOptions, pool: &Pool) {
    collector.row("threads_overwrite", || {
        let works = (0..THREADS)
            .map(|thread| overwrite(options, pool, thread))
            .collect::<Result<Vec<_>, _>>()?;
        let measured = measure_work(options, &works);
        drop(works);
        for thread in 0..THREADS {
            pool.remove_file(private_name(thread))?;
        }
        measured
    });
    collector.row("threads_create", || {
        let works = (0..THREADS)
            .map(|thread| create(options, pool, thread))
            .collect::<Result<Vec<_>, _>>()?;
        let measured = measure_work(options, &works);
        drop(works);
        for thread in 0..THREADS {
            pool.remove_dir_all(private_name(thread))?;
        }
        measured
    });
}

fn private_name(thread: usize) -> String {
    format!("private-{thread}")
}

fn overwrite(options: &OpsOptions, pool: &Pool, thread: usize) -> Result<Overwrite, BenchError> {
    let name = private_name(thread);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(pool, name)?;
    let bytes = file_bytes(options) / 8 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    fill(&file, bytes)?;
    Ok(Overwrite {
        file,
        blocks: bytes / BLOCK_BYTES as u64,
    })
}

fn create(options: &OpsOptions, pool: &Pool, thread: usize) -> Result<Create, BenchError> {
    let name = private_name(thread);
    pool.create_dir(&name)?;
    let names = (0..options.operations)
        .map(|number| format!("message-{number:06}"))
        .collect();
    Ok(Create {
        directory: pool.open_dir(&name)?,
        names,
    })
}

/// Operations per second of two threads against those of one, the one being each thread in turn.
fn measure_work(options: &OpsOptions, works: &[impl Work]) -> Result<Found, BenchError> {
    let processors = processors();
    if processors.len() < THREADS {
        return Err(BenchError::Processors(processors.len()));
    }
    // About as long as a round of other rows.
    let duration = Duration::from_micros(options.operations);
    let run = |round: u64, threads: &[usize]| -> Result<f64, BenchError> {
        let barrier = Barrier::new(threads.len());
        let rates: Result<Vec<(f64, u64)>, BenchError> = std::thread::scope(|scope| {
            let start = |&thread: &usize| {
                let (barrier, work, processor) = (&barrier, &works[thread], processors[thread]);
                scope.spawn(move || rate(work, processor, barrier, duration, round))
            };
            let running: Vec<_> = threads.iter().map(start).collect();
            running
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .map_err(|_| BenchError::Panic("in a thread".to_owned()))?
                })
                .collect()
        });
        let rates = rates?;
        for (&thread, &(_, count)) in threads.iter().zip(&rates) {
            works[thread].tidy(count)?;
        }
        Ok(rates.iter().map(|(rate, _)| rate).sum())
    };
    let rounds = alternate(
        options.rounds,
        |round| run(round, &[0, 1]),
        |round| run(round, &[round as usize % THREADS]),
    )?;
    Ok(Found::with_best(&rounds, Better::Higher))
}

/// Operations per second of one thread, and how many they were.
fn rate(
    work: &impl Work,
    processor: usize,
    barrier: &Barrier,
    duration: Duration,
    round: u64,
) -> Result<(f64, u64), BenchError> {
    let _pin = Pinned::to(processor);
    let (mut places, mut page) = (Places::new(round), Page::filled());
    let limit = work.limit();
    barrier.wait();
    let (watch, begin) = (Stopwatch::of_thread(), Instant::now());
    let mut count = 0;
    while count + BURST <= limit && begin.elapsed() < duration {
        for _ in 0..BURST {
            work.operate(count, &mut places, &mut page)?;
            count += 1;
        }
    }
    Ok((count as f64 * 1e9 / watch.nanoseconds(), count))
}
