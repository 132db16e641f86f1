//! Durable writes while the image catches up.

use super::LogOptions;
use super::bed::{Bed, LibraryPool};
use super::group::together;
use super::library::{FILE, filled};
use crate::collector::{Collector, Found};
use crate::direct::with_spread;
use crate::error::BenchError;
use crate::measure::{Places, Rounds};
use crate::memory::Page;
use perdure::{Durability, File, Pool};
use pmem::BLOCK_BYTES;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use txn::{Logger, PoolState};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Threads that change what a checkpoint is to write.
const THREADS: usize = 8;

pub(super) fn measure(collector: &mut Collector, options: &LogOptions, bed: &Bed) {
    collector.row("checkpoint_p99", || latencies(options, bed));
}

/// Nanoseconds of single writes.
#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    /// The time that so large a part of the writes does not exceed, in microseconds.
    fn quantile(&mut self, part: f64) -> f64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let at = (last as f64 * part).round() as usize;
        self.0.get(at).copied().unwrap_or(0) as f64 / 1e3
    }
}

/// In each round blocks are changed all over a file, then writes are measured until a checkpoint
/// has written these blocks, then as many writes without a checkpoint.
fn latencies(options: &LogOptions, bed: &Bed) -> Result<Found, BenchError> {
    let ours = LibraryPool::make(options, bed, Durability::Call)?;
    let (pool, bytes) = (&ours.pool, options.file_bytes);
    let file = filled(pool, FILE, bytes)?;
    let mut writes = Writes::of(&file, bytes);
    let (mut quiet, mut busy) = (Times::default(), Times::default());
    let (mut all_quiet, mut all_busy) = (Times::default(), Times::default());
    let (mut quiet_p99, mut busy_p99) = (Vec::new(), Vec::new());
    for round in 0..=options.rounds as u64 {
        change(pool, &file, options, round)?;
        during_checkpoint(pool, &mut writes, &mut busy)?;
        let count = busy.0.len();
        (0..count).try_for_each(|_| writes.once(&mut quiet))?;
        // The first round only warms up.
        if round > 0 {
            quiet_p99.push(quiet.quantile(0.99));
            busy_p99.push(busy.quantile(0.99));
            all_quiet.0.append(&mut quiet.0);
            all_busy.0.append(&mut busy.0);
        }
        (quiet, busy) = (Times::default(), Times::default());
    }
    let (middle, longest) = (all_quiet.quantile(0.5), all_busy.quantile(1.0));
    let note = format!(
        "{} writes beside checkpoints of {} blocks; median {:.0} and {middle:.0} us, longest {longest:.0} and {:.0} us, the former {:.1} times the median without a checkpoint (3 at most are wanted)",
        all_busy.0.len(),
        options.checkpoint_blocks,
        all_busy.quantile(0.5),
        all_quiet.quantile(1.0),
        longest / middle,
    );
    Ok(with_spread(&Rounds::new(busy_p99, quiet_p99), &note))
}

/// Changes blocks all over the file.
fn change(pool: &Pool, file: &File, options: &LogOptions, round: u64) -> Result<(), BenchError> {
    logger(pool)?
        .checkpoint()
        .map_err(|error| BenchError::Setup(error.to_string()))?;
    let blocks = options.file_bytes / BLOCK;
    let changed = options.checkpoint_blocks.min(blocks / 2);
    let next = AtomicU64::new(0);
    while next.load(Ordering::Relaxed) < changed {
        together(THREADS, 0.0, |_, _, page| {
            // Every second block: each is a write of its own.
            let block = (next.fetch_add(1, Ordering::Relaxed) * 2 + round) % blocks;
            Ok(file.write_at(&page.0, block * BLOCK).map(drop)?)
        })?;
    }
    Ok(())
}

fn logger(pool: &Pool) -> Result<&Logger, BenchError> {
    let logger = pool.filesystem().store().logger();
    logger.ok_or_else(|| BenchError::Setup("the pool has no log".to_owned()))
}

/// Writes until a checkpoint has ended.
fn during_checkpoint(
    pool: &Pool,
    writes: &mut Writes<'_>,
    times: &mut Times,
) -> Result<(), BenchError> {
    let logger = logger(pool)?;
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| {
            let ended = logger.checkpoint();
            has_ended.store(true, Ordering::Release);
            ended
        });
        let mut written = Ok(());
        while written.is_ok() && (times.0.is_empty() || !has_ended.load(Ordering::Acquire)) {
            written = writes.once(times);
        }
        let ended = checkpoint.join();
        let ended = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.map_err(|error| BenchError::Setup(error.to_string()))?;
        written
    })
}

/// Durable writes of one thread at random places.
struct Writes<'f> {
    file: &'f File,
    blocks: u64,
    places: Places,
    page: Box<Page>,
}

impl Writes<'_> {
    fn of(file: &File, bytes: u64) -> Writes<'_> {
        Writes {
            file,
            blocks: bytes / BLOCK,
            places: Places::new(3),
            page: Page::filled(),
        }
    }

    fn once(&mut self, times: &mut Times) -> Result<(), BenchError> {
        self.page.number(times.0.len() as u64);
        let at = self.places.below(self.blocks) * BLOCK;
        let begin = Instant::now();
        self.file.write_at(&self.page.0, at)?;
        times.0.push(begin.elapsed().as_nanos() as u64);
        Ok(())
    }
}
