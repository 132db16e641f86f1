//! Single operations of the library.

use super::bed::{Bed, LibraryPool};
use super::raw::RawFile;
use super::{LogOptions, rate_for};
use crate::aging::{in_turn, pair};
use crate::collector::{Collector, Found};
use crate::direct::with_spread;
use crate::error::BenchError;
use crate::measure::{Pinned, Places, Stopwatch, alternate, median};
use crate::memory::Page;
use perdure::{DiskLogStatus, Durability, File, OpenOptions, Pool};
use pmem::BLOCK_BYTES;
use std::time::{Duration, Instant};

const PIECE_BYTES: usize = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;
pub(super) const FILE: &str = "file";

pub(super) fn measure(collector: &mut Collector, options: &LogOptions, bed: &Bed) {
    collector.row("sync_vs_raw", || sync_vs_raw(options, bed));
    collector.row("overwrite_fsync_policy", || overwrite(options, bed));
    collector.row("log_bytes", || log_bytes(options, bed));
}

/// A file of so many bytes, none of which is a hole.
pub(super) fn filled(pool: &Pool, name: &str, bytes: u64) -> Result<File, BenchError> {
    let mut how = OpenOptions::new();
    let file = how.read(true).write(true).create(true).open(pool, name)?;
    let content = vec![0x5a; PIECE_BYTES];
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        file.write_at(&content, offset)?;
        pool.sync()?;
        wait_for_room(pool)?;
    }
    Ok(file)
}

/// Waits until less than half of the log is used: filling a file is not measured.
fn wait_for_room(pool: &Pool) -> Result<(), BenchError> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let begin = Instant::now();
    loop {
        let status = pool.log_status();
        let is_full = |status: &DiskLogStatus| status.used_bytes > status.ring_bytes / 2;
        if !status.as_ref().is_some_and(is_full) {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            let reason = "the pool's log stays full".to_owned();
            return Err(BenchError::Setup(reason));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Overwrites at random places of a file, never with the same content.
struct Overwrites<'f> {
    file: &'f File,
    blocks: u64,
    places: Places,
    page: Box<Page>,
    count: u64,
}

impl Overwrites<'_> {
    fn of(file: &File, bytes: u64) -> Overwrites<'_> {
        Overwrites {
            file,
            blocks: bytes / BLOCK,
            places: Places::new(1),
            page: Page::filled(),
            count: 0,
        }
    }

    #[inline]
    fn next(&mut self) -> Result<(), BenchError> {
        self.count += 1;
        self.page.number(self.count);
        let at = self.places.below(self.blocks) * BLOCK;
        self.file.write_at(&self.page.0, at)?;
        Ok(())
    }
}

/// A call that is durable when it returns, beside one durable write of the disk.
fn sync_vs_raw(options: &LogOptions, bed: &Bed) -> Result<Found, BenchError> {
    let bytes = options.file_bytes;
    let ours = LibraryPool::make(options, bed, Durability::Call)?;
    let file = filled(&ours.pool, FILE, bytes)?;
    let raw = RawFile::make(bed.disk(), "raw", bytes)?;
    let (durable, page) = (raw.durable()?, Page::filled());
    let mut overwrites = Overwrites::of(&file, bytes);
    let mut block = 0;
    let slice = options.slice_seconds(2);
    let microseconds = |rate: f64| 1e6 / rate;
    let rounds = alternate(
        options.rounds,
        |_| rate_for(slice, || overwrites.next()).map(microseconds),
        |_| {
            let once = || {
                block = (block + 1) % raw.blocks();
                raw.write(&durable, &page, block)
            };
            rate_for(slice, once).map(microseconds)
        },
    )?;
    Ok(with_spread(&rounds, &described(&ours.pool)))
}

/// Describes the writes of the log.
fn described(pool: &Pool) -> String {
    let Some(status) = pool.log_status() else {
        return "the pool has no log".to_owned();
    };
    format!(
        "the log's writes: median {:.0} us, p99 {:.0} us, {} in flight at most, {} checkpoints; {} calls waited {:.2} s because the log was late",
        status.sync_p50_us,
        status.sync_p99_us,
        status.depth,
        status.checkpoints,
        status.late_calls,
        status.late_seconds
    )
}

/// Overwrites of a burst: less than a log gets to write within the policy's bound.
const BURST: u64 = 512;
/// Blocks that the second kind of loop overwrites again and again.
const HOT_BLOCKS: u64 = 256;

/// Memory speed between the syncs: bursts with a sync after each, whose time does not count. In the
/// note without syncs: a few blocks that are overwritten again and again, and all of a file.
fn overwrite(options: &LogOptions, bed: &Bed) -> Result<Found, BenchError> {
    let bytes = options.file_bytes;
    let pools = [
        LibraryPool::make(options, bed, Durability::default())?,
        LibraryPool::volatile(options)?,
    ];
    let ours = filled(&pools[0].pool, FILE, bytes)?;
    let theirs = filled(&pools[1].pool, FILE, bytes)?;
    let hot_bytes = bytes.min(HOT_BLOCKS * BLOCK);
    let mut loops = [&ours, &theirs].map(|file| Overwrites::of(file, bytes));
    let mut hot = [&ours, &theirs].map(|file| Overwrites::of(file, hot_bytes));
    let _pin = Pinned::anywhere();
    // Bursts, a few blocks, and the whole file, each on both pools.
    let slice = options.slice_seconds(6);
    let times = in_turn(options.rounds, 6, |number, _| {
        let side = number % 2;
        pools[side].pool.sync()?;
        match number / 2 {
            0 => in_bursts(slice, &mut loops[side], &pools[side].pool),
            1 => continuously(slice, &mut hot[side]),
            _ => continuously(slice, &mut loops[side]),
        }
    })?;
    let note = format!(
        "bursts of {BURST}, synced between them; without syncs, {HOT_BLOCKS} blocks again and again {:.0} and {:.0} ns; a whole file of {} MiB, where the disk's bandwidth is the limit, {:.0} and {:.0} ns; {}",
        median(&times[2]),
        median(&times[3]),
        bytes >> 20,
        median(&times[4]),
        median(&times[5]),
        described(&pools[0].pool),
    );
    Ok(with_spread(&pair(&times[0], &times[1]), &note))
}

/// Nanoseconds of an overwrite; syncs do not count.
fn in_bursts(
    seconds: f64,
    overwrites: &mut Overwrites<'_>,
    pool: &Pool,
) -> Result<f64, BenchError> {
    let begin = Instant::now();
    let (mut nanoseconds, mut count) = (0.0, 0);
    while count == 0 || begin.elapsed().as_secs_f64() < seconds {
        pool.sync()?;
        let watch = Stopwatch::of_thread();
        for _ in 0..BURST {
            overwrites.next()?;
        }
        nanoseconds += watch.nanoseconds();
        count += BURST;
    }
    Ok(nanoseconds / count as f64)
}

/// Nanoseconds of an overwrite without a pause.
fn continuously(seconds: f64, overwrites: &mut Overwrites<'_>) -> Result<f64, BenchError> {
    let begin = Instant::now();
    let watch = Stopwatch::of_thread();
    let mut count = 0;
    while count == 0 || begin.elapsed().as_secs_f64() < seconds {
        for _ in 0..BURST {
            overwrites.next()?;
        }
        count += BURST;
    }
    Ok(watch.nanoseconds() / count as f64)
}

/// Bytes that operations log, each beside what it may log. The row has the worst of them.
fn log_bytes(options: &LogOptions, bed: &Bed) -> Result<Found, BenchError> {
    const COUNT: u64 = 64;
    let bytes = options.file_bytes;
    let ours = LibraryPool::make(options, bed, Durability::Call)?;
    let pool = &ours.pool;
    let file = filled(pool, FILE, bytes)?;
    let page = Page::filled();
    let small = &page.0[..64];
    let mut places = Places::new(2);
    let mut overwrites = Overwrites::of(&file, bytes);
    let measured = [
        (
            "64 B write",
            512.0,
            logged(pool, COUNT, |_| {
                let at = places.below(bytes / 64) * 64;
                Ok(file.write_at(small, at).map(drop)?)
            })?,
        ),
        (
            "create",
            1024.0,
            logged(pool, COUNT, |number| {
                let name = format!("created-{number}");
                let mut how = OpenOptions::new();
                how.write(true).create_new(true).open(pool, &name)?;
                Ok(())
            })?,
        ),
        (
            "4 KiB overwrite",
            4400.0,
            logged(pool, COUNT, |_| overwrites.next())?,
        ),
    ];
    let over = |(_, limit, bytes): &(&str, f64, f64)| bytes / limit;
    let worst = measured
        .iter()
        .max_by(|one, other| over(one).total_cmp(&over(other)))
        .copied()
        .unwrap_or_default();
    let all = measured.map(|(name, limit, bytes)| format!("{name} {bytes:.0} of {limit:.0} B"));
    Ok(Found {
        value: worst.2,
        against_value: worst.1,
        ratio: over(&worst),
        ..Found::default()
    }
    .noted(format!(
        "{}; the batch's header and the padding to a whole block come on top",
        all.join(", ")
    )))
}

/// Bytes of entries for each of `count` operations.
fn logged(
    pool: &Pool,
    count: u64,
    mut operation: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let payload = || {
        let bytes = |status: DiskLogStatus| status.payload_bytes;
        let bytes = pool.log_status().map(bytes);
        bytes.ok_or_else(|| BenchError::Setup("the pool has no log".to_owned()))
    };
    pool.sync()?;
    let before = payload()?;
    (0..count).try_for_each(&mut operation)?;
    pool.sync()?;
    Ok((payload()? - before) as f64 / count as f64)
}
