//! Rows about contents: overwrite, append, read.

use super::bed::Bed;
use super::{OpsOptions, times};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Places, alternate, latencies, nanoseconds_each, work_each};
use crate::memory::Page;
use perdure::{File, OpenOptions};
use pmem::{BLOCK_BYTES, LINE_BYTES, Offset, Region};
use std::hint::black_box;
use std::time::Duration;

const BLOCK: u64 = BLOCK_BYTES as u64;
const LINE: u64 = LINE_BYTES as u64;
/// Longer than the kernel's coarse clock stands still.
const CLOCK_TICKS: Duration = Duration::from_millis(20);

pub(super) fn measure(collector: &mut Collector, options: &OpsOptions, bed: &Bed) {
    collector.hashed_row("overwrite_4k", |hash| overwrite(options, bed, hash, BLOCK));
    collector.hashed_row("append_4k", |hash| append(options, bed, hash));
    collector.hashed_row("overwrite_64b", |hash| overwrite(options, bed, hash, LINE));
    collector.hashed_row("read_4k", |hash| read(options, bed, hash));
}

/// Writes `bytes` (a line or a block) where `places` says.
fn overwrite_ours(
    file: &File,
    units: u64,
    bytes: u64,
    page: &mut Page,
    places: &mut Places,
    number: u64,
) -> Result<(), BenchError> {
    page.number(number);
    file.write_at(&page.0[..bytes as usize], places.below(units) * bytes)?;
    Ok(())
}

/// The same to bare memory, in the way that is the quickest for the length.
fn overwrite_raw(
    raw: &Region,
    units: u64,
    bytes: u64,
    page: &mut Page,
    places: &mut Places,
    number: u64,
) {
    page.number(number);
    let (at, data) = (
        Offset::new(places.below(units) * bytes),
        &page.0[..bytes as usize],
    );
    let flushed = if bytes == BLOCK {
        raw.write_streaming(at, data)
    } else {
        raw.store(at, data).flush()
    };
    black_box(raw.fence(flushed));
}

fn overwrite(
    options: &OpsOptions,
    bed: &Bed,
    hash: &mut u64,
    bytes: u64,
) -> Result<Found, BenchError> {
    let units = if bytes == BLOCK {
        bed.blocks()
    } else {
        bed.lines()
    };
    let mut page = Page::filled();
    let mut raw_page = Page::filled();
    let ours = |round: u64, page: &mut Page| {
        let mut places = Places::new(round);
        nanoseconds_each(options.operations, |number| {
            overwrite_ours(&bed.file, units, bytes, page, &mut places, number)
        })
    };
    let rounds = alternate(
        options.rounds,
        |round| ours(round, &mut page),
        |round| {
            let mut places = Places::new(round);
            nanoseconds_each(options.operations, |number| {
                overwrite_raw(&bed.raw, units, bytes, &mut raw_page, &mut places, number);
                Ok(())
            })
        },
    )?;
    let mut measured = times(&rounds);
    let mut places = Places::new(1);
    let mut once = |number| overwrite_ours(&bed.file, units, bytes, &mut page, &mut places, number);
    measured.work = Some(work_each(options.operations, &mut once)?);
    if options.verbose {
        measured.latencies = Some(latencies(options.operations, &mut once)?);
        let mut places = Places::new(1);
        measured.against_latencies = Some(latencies(options.operations, |number| {
            overwrite_raw(&bed.raw, units, bytes, &mut raw_page, &mut places, number);
            Ok(())
        })?);
    }
    verify(bed, units, bytes, options.operations)?;
    *hash = hash.wrapping_add(sample(bed)?);
    Ok(measured)
}

/// Writes once more and reads back: what was measured did what it should.
fn verify(bed: &Bed, units: u64, bytes: u64, operations: u64) -> Result<(), BenchError> {
    let mut page = Page::filled();
    let mut places = Places::new(2);
    let mut expected = std::collections::HashMap::new();
    for number in 0..operations.min(1000) {
        let offset = places.below(units) * bytes;
        page.number(number);
        bed.file.write_at(&page.0[..bytes as usize], offset)?;
        expected.insert(offset, number);
    }
    for (offset, number) in expected {
        bed.file.read_at(&mut page.0[..bytes as usize], offset)?;
        if page.first_word() != number {
            return Err(BenchError::WrongData(format!(
                "at {offset} is {}, not {number}",
                page.first_word()
            )));
        }
    }
    Ok(())
}

/// A sum over parts of the file and the raw memory.
fn sample(bed: &Bed) -> Result<u64, BenchError> {
    let mut page = Page::filled();
    let mut sum: u64 = 0;
    for block in (0..bed.blocks()).step_by(97) {
        bed.file.read_at(&mut page.0, block * BLOCK)?;
        sum = sum.wrapping_add(page.first_word());
        sum = sum.wrapping_add(bed.raw.load_u64(Offset::new(block * BLOCK)));
    }
    Ok(sum)
}

fn append(options: &OpsOptions, bed: &Bed, hash: &mut u64) -> Result<Found, BenchError> {
    const NAME: &str = "appended";
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&bed.pool, NAME)?;
    let statistics = bed.pool.statistics();
    let operations = options.operations.min(statistics.available_blocks / 2);
    let (mut page, mut raw_page) = (Page::filled(), Page::filled());
    let empty = || -> Result<(), BenchError> {
        file.set_len(0)?;
        // The blocks are free for the next round, and its checkpoints do no work of the last one.
        bed.pool.filesystem().checkpoint();
        Ok(())
    };
    let mut once = |number| {
        page.number(number);
        file.append(&page.0)?;
        Ok(())
    };
    let mut once_raw = |number, places: &mut Places| {
        overwrite_raw(&bed.raw, bed.blocks(), BLOCK, &mut raw_page, places, number);
        Ok(())
    };
    let rounds = alternate(
        options.rounds,
        |_| {
            empty()?;
            nanoseconds_each(operations, &mut once)
        },
        |round| {
            let mut places = Places::new(round);
            nanoseconds_each(operations, |number| once_raw(number, &mut places))
        },
    )?;
    let mut measured = times(&rounds);
    empty()?;
    measured.work = Some(work_each(operations, &mut once)?);
    if options.verbose {
        empty()?;
        measured.latencies = Some(latencies(operations, &mut once)?);
        let mut places = Places::new(1);
        measured.against_latencies = Some(latencies(operations, |number| {
            once_raw(number, &mut places)
        })?);
    }
    *hash = hash.wrapping_add(file.metadata()?.len());
    drop(file);
    bed.pool.remove_file(NAME)?;
    bed.pool.filesystem().checkpoint();
    Ok(measured)
}

fn read(options: &OpsOptions, bed: &Bed, hash: &mut u64) -> Result<Found, BenchError> {
    let (mut page, mut raw_page) = (Page::filled(), Page::filled());
    let (mut sum, mut raw_sum) = (0_u64, 0_u64);
    let blocks = bed.blocks();
    // A read in the clock's tick of a write would renew the access time once more, in the middle.
    std::thread::sleep(CLOCK_TICKS);
    bed.file.read_at(&mut page.0, 0)?;
    let mut once = |places: &mut Places| {
        bed.file
            .read_at(&mut page.0, places.below(blocks) * BLOCK)?;
        sum = sum.wrapping_add(black_box(&page).first_word());
        Ok(())
    };
    let mut once_raw = |places: &mut Places| {
        bed.raw
            .read(Offset::new(places.below(blocks) * BLOCK), &mut raw_page.0);
        raw_sum = raw_sum.wrapping_add(black_box(&raw_page).first_word());
        Ok(())
    };
    let rounds = alternate(
        options.rounds,
        |round| {
            let mut places = Places::new(round);
            nanoseconds_each(options.operations, |_| once(&mut places))
        },
        |round| {
            let mut places = Places::new(round);
            nanoseconds_each(options.operations, |_| once_raw(&mut places))
        },
    )?;
    let mut measured = times(&rounds);
    let mut places = Places::new(1);
    measured.work = Some(work_each(options.operations, |_| once(&mut places))?);
    if options.verbose {
        measured.latencies = Some(latencies(options.operations, |_| once(&mut places))?);
        measured.against_latencies =
            Some(latencies(options.operations, |_| once_raw(&mut places))?);
    }
    *hash = hash.wrapping_add(sum).wrapping_add(raw_sum);
    Ok(measured)
}
