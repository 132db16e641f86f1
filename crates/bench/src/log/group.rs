//! Many threads with durable writes.

use super::LogOptions;
use super::bed::{Bed, LibraryPool};
use super::library::filled;
use super::raw::{GroupCommit, RawFile};
use crate::aging::{in_turn, pair};
use crate::collector::{Collector, Found};
use crate::direct::with_spread;
use crate::error::BenchError;
use crate::measure::median;
use crate::memory::Page;
use perdure::{Durability, File};
use pmem::BLOCK_BYTES;
use std::time::{Duration, Instant};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The ways that ours is compared with, in the order in which they are measured after it.
const WAYS: [&str; 3] = ["O_DSYNC", "fdatasync", "group commit"];

pub(super) fn measure(collector: &mut Collector, options: &LogOptions, bed: &Bed) {
    collector.row("group_16", || group(options, bed));
}

/// Each thread overwrites its own places, durably.
fn group(options: &LogOptions, bed: &Bed) -> Result<Found, BenchError> {
    let threads = options.threads;
    let own_bytes = (options.file_bytes / threads as u64).max(64 << 10);
    let ours = LibraryPool::make(options, bed, Durability::Call)?;
    let make = |thread| filled(&ours.pool, &format!("file-{thread}"), own_bytes);
    let files: Vec<File> = (0..threads).map(make).collect::<Result<_, _>>()?;
    let raw = RawFile::make(bed.disk(), "raw", own_bytes * threads as u64)?;
    let own = |thread| RawFile::make(bed.disk(), &format!("raw-{thread}"), own_bytes);
    let own: Vec<RawFile> = (0..threads).map(own).collect::<Result<_, _>>()?;
    let direct: Vec<_> = own
        .iter()
        .map(|_| raw.durable())
        .collect::<Result<_, _>>()?;
    let buffered: Vec<_> = own
        .iter()
        .map(RawFile::buffered)
        .collect::<Result<_, _>>()?;
    let committed = GroupCommit::over(&raw)?;
    let own_blocks = own_bytes / BLOCK;
    let slice = options.slice_seconds(1 + WAYS.len());
    let rates = in_turn(options.rounds, 1 + WAYS.len(), |way, _| {
        together(threads, slice, |thread, number, page| {
            let block = number % own_blocks;
            match way {
                0 => Ok(files[thread].write_at(&page.0, block * BLOCK).map(drop)?),
                1 => raw.write(&direct[thread], page, thread as u64 * own_blocks + block),
                2 => {
                    own[thread].write(&buffered[thread], page, block)?;
                    own[thread].sync(&buffered[thread])
                }
                _ => committed.write(page),
            }
        })
    })?;
    let medians: Vec<f64> = rates.iter().map(|rates| median(rates)).collect();
    let best = (1..rates.len()).max_by(|&one, &other| medians[one].total_cmp(&medians[other]));
    let all = WAYS.iter().zip(&medians[1..]);
    let all: Vec<String> = all.map(|(way, rate)| format!("{way} {rate:.0}")).collect();
    Ok(with_spread(
        &pair(&rates[0], &rates[best.unwrap_or(1)]),
        &all.join(", "),
    ))
}

/// Operations per second of so many threads. An operation gets its thread's number and its own.
pub(super) fn together(
    threads: usize,
    seconds: f64,
    operation: impl Fn(usize, u64, &Page) -> Result<(), BenchError> + Sync,
) -> Result<f64, BenchError> {
    let length = Duration::from_secs_f64(seconds);
    let begin = Instant::now();
    let one = |thread: usize| {
        let mut page = Page::filled();
        let mut count = 0;
        while count == 0 || begin.elapsed() < length {
            page.number(count);
            operation(thread, count, &page)?;
            count += 1;
        }
        Ok::<u64, BenchError>(count)
    };
    let one = &one;
    let count = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        let mut sum = 0;
        for thread in started {
            sum += match thread.join() {
                Ok(count) => count?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
        }
        Ok::<u64, BenchError>(sum)
    })?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}
