//! Rows of one operation in a loop.

use super::bed::{Bed, Program, Side};
use super::program::{Operation, Order};
use super::{DirectOptions, first_processor, with_spread};
use crate::aging::{in_turn, pair};
use crate::error::BenchError;
use crate::evaluation::{Collector, Found};
use crate::measure::{Pinned, Places, median, nanoseconds_each, processors};
use crate::memory::{Page, raw_region};
use pmem::{BLOCK_BYTES, DurabilityClass, Flushed, Offset, Region};
use std::hint::black_box;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// So many that a fence does not count: what is measured then is what memory takes.
const BLOCKS_PER_FENCE: u64 = 256;

pub(super) fn measure(collector: &mut Collector, options: &DirectOptions, bed: &Bed) {
    collector.group(&["overwrite_4k", "overwrite_4k_vs_raw"], |collector| {
        overwrite(collector, options, bed)
    });
    collector.row("read_4k", || {
        beside_tmpfs(options, bed, Operation::Read, options.file_bytes)
    });
    collector.row("append_4k", || {
        // So that a file is emptied seldom: after that, the way to it has to be found again.
        let most = 2 * options.file_bytes;
        beside_tmpfs(options, bed, Operation::Append, most)
    });
    collector.row("open_close_vs_fuse", || open_close(options, bed));
    collector.row("permission_check", || permission_check(options, bed));
    collector.row("attach", || attach(options, bed));
    collector.row("processes_2", || two_processes(options, bed));
}

pub(super) fn order(options: &DirectOptions, operation: Operation) -> Order {
    Order {
        operation,
        bytes: BLOCK_BYTES,
        file_bytes: options.file_bytes,
        processor: first_processor(),
        warm_up: options.warm_up,
        flags: 0,
    }
}

/// Several programs, and what their rounds gave.
struct Sides {
    programs: Vec<Program>,
    counts: Vec<u64>,
    /// Kernel calls of one operation, in the last round.
    kernel_calls: Vec<f64>,
}

impl Sides {
    fn start(
        options: &DirectOptions,
        bed: &Bed,
        sides: &[Side],
        order: &Order,
    ) -> Result<Sides, BenchError> {
        let name = format!("{:?}", order.operation);
        let start = |side: &Side| bed.start(*side, &name, order);
        let programs: Vec<Program> = sides.iter().map(start).collect::<Result<_, _>>()?;
        // One more side: bare memory, which some rows have.
        let slice = options.slice_seconds(sides.len() + 1);
        let most = match order.operation {
            Operation::Append => order.file_bytes / BLOCK / 2,
            _ => u64::MAX,
        };
        let counts = programs.iter().map(|program| program.count_for(slice));
        Ok(Sides {
            counts: counts.map(|count| count.min(most)).collect(),
            kernel_calls: vec![0.0; programs.len()],
            programs,
        })
    }

    fn round(&mut self, side: usize) -> Result<f64, BenchError> {
        let answer = self.programs[side].run(self.counts[side])?;
        self.kernel_calls[side] = answer.kernel_calls;
        Ok(answer.nanoseconds)
    }

    /// Whether all moved what they should; after the rounds, because a look at the file disturbs who has it to himself.
    fn verify(&self) -> Result<(), BenchError> {
        self.programs.iter().try_for_each(Program::verify)
    }

    fn calls(&self, side: usize) -> String {
        format!("{:.2}", self.kernel_calls[side])
    }
}

/// Direct, tmpfs, plain mount; and bare memory.
fn overwrite(
    collector: &mut Collector,
    options: &DirectOptions,
    bed: &Bed,
) -> Result<(), BenchError> {
    collector.tell("overwrite_4k");
    let raw = raw_region(
        &options.directory,
        options.file_bytes,
        DurabilityClass::Volatile,
    )?;
    let kinds = [Side::Direct, Side::Tmpfs, Side::Fuse];
    let mut sides = Sides::start(options, bed, &kinds, &order(options, Operation::Overwrite))?;
    let _pin = Pinned::to(first_processor());
    let mut page = Page::filled();
    let times = in_turn(options.rounds, kinds.len() + 1, |side, round| {
        match side < kinds.len() {
            true => sides.round(side),
            false => raw_write(&raw, &mut page, round, sides.counts[0]),
        }
    })?;
    sides.verify()?;
    let note = beside(&sides, &times);
    collector.row("overwrite_4k", || {
        Ok(with_spread(&pair(&times[0], &times[1]), &note))
    });
    collector.row("overwrite_4k_vs_raw", || {
        Ok(with_spread(&pair(&times[0], &times[3]), ""))
    });
    Ok(())
}

/// What the plain mount takes, and how often the programs went to the kernel.
fn beside(sides: &Sides, times: &[Vec<f64>]) -> String {
    format!(
        "on the mount without the library {:.0} ns; reads and writes by the kernel for each operation: {} with it, {} on tmpfs",
        median(&times[2]),
        sides.calls(0),
        sides.calls(1),
    )
}

/// Nanoseconds of a streaming copy of a block to bare memory, with its fence.
pub(super) fn raw_write(
    raw: &Region,
    page: &mut Page,
    round: u64,
    count: u64,
) -> Result<f64, BenchError> {
    let mut places = Places::new(round);
    let blocks = raw.length() / BLOCK;
    nanoseconds_each(count, |number| {
        page.number(number);
        let at = Offset::new(places.below(blocks) * BLOCK);
        raw.fence(raw.write_streaming(at, &page.0));
        Ok(())
    })
}

/// Nanoseconds of a streaming copy of a block to bare memory, if only each so many are fenced: the stores of one block need not wait for those of the one before.
fn raw_stream(
    raw: &Region,
    page: &mut Page,
    round: u64,
    fences: u64,
    blocks_per_fence: u64,
) -> Result<f64, BenchError> {
    let mut places = Places::new(round);
    let blocks = raw.length() / BLOCK;
    let nanoseconds = nanoseconds_each(fences, |number| {
        page.number(number);
        let mut batch = Flushed::nothing(raw);
        for _ in 0..blocks_per_fence {
            let at = Offset::new(places.below(blocks) * BLOCK);
            batch.join(raw.write_streaming(at, &page.0));
        }
        raw.fence(batch);
        Ok(())
    })?;
    Ok(nanoseconds / blocks_per_fence as f64)
}

/// Nanoseconds of a copy of a block from bare memory.
pub(super) fn raw_read(
    raw: &Region,
    page: &mut Page,
    round: u64,
    count: u64,
) -> Result<f64, BenchError> {
    let mut places = Places::new(round);
    let blocks = raw.length() / BLOCK;
    nanoseconds_each(count, |_| {
        raw.read(Offset::new(places.below(blocks) * BLOCK), &mut page.0);
        black_box(&page.0);
        Ok(())
    })
}

fn beside_tmpfs(
    options: &DirectOptions,
    bed: &Bed,
    operation: Operation,
    file_bytes: u64,
) -> Result<Found, BenchError> {
    let kinds = [Side::Direct, Side::Tmpfs, Side::Fuse];
    let order = Order {
        file_bytes,
        ..order(options, operation)
    };
    let mut sides = Sides::start(options, bed, &kinds, &order)?;
    let times = in_turn(options.rounds, kinds.len(), |side, _| sides.round(side))?;
    sides.verify()?;
    let note = beside(&sides, &times);
    Ok(with_spread(&pair(&times[0], &times[1]), &note))
}

fn open_close(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    let kinds = [Side::Direct, Side::Fuse];
    let order = order(options, Operation::OpenClose);
    let mut sides = Sides::start(options, bed, &kinds, &order)?;
    let times = in_turn(options.rounds, kinds.len(), |side, _| sides.round(side))?;
    Ok(with_spread(&pair(&times[0], &times[1]), ""))
}

/// What it costs that a process is let in only once: attaching a file and mapping its segments, the first look at every page included, over
/// the operations of a program's first second. A check at every access, as the paper has it, would cost each of them.
fn permission_check(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    /// So many see every page of the file.
    const OPERATIONS: u64 = 100_000;
    /// About a second of them.
    const SHARED_BY: u64 = 1_000_000;
    let warm = order(options, Operation::Overwrite);
    let cold = Order {
        warm_up: 0,
        ..warm.clone()
    };
    let mut attached = bed.start(Side::Direct, "attached", &warm)?;
    if !attached.warm.is_direct() {
        return Err(BenchError::NoDirectAccess);
    }
    // Filled once, and used by a process before the first that counts: what it costs that a block lies in new memory, in a virtual machine most of all, is no matter of permission.
    bed.start(Side::Direct, "fresh", &cold)?.run(OPERATIONS)?;
    let mut extra = Vec::new();
    for _ in 0..options.rounds {
        let mut fresh = bed.start_again(Side::Direct, "fresh", &cold)?;
        let first = fresh.run(OPERATIONS)?;
        let later = attached.run(OPERATIONS)?;
        let nanoseconds = (first.nanoseconds - later.nanoseconds) * OPERATIONS as f64;
        extra.push(nanoseconds / 1000.0 / SHARED_BY as f64);
    }
    attached.verify()?;
    let cost = median(&extra);
    let spread = |pick: fn(f64, f64) -> f64| extra.iter().copied().reduce(pick);
    let found = Found {
        value: cost,
        against_value: 1.0,
        ratio: cost,
        ratio_range: spread(f64::min).zip(spread(f64::max)).map(<[f64; 2]>::from),
        note: None,
    };
    Ok(found.noted(format!(
        "{:.0} us to attach a file and to see its pages for the first time, over {SHARED_BY} operations, about a second's",
        cost * SHARED_BY as f64
    )))
}

/// The longest of a fresh process's first overwrites: the one that attaches the file (connects, leases, maps the segments that the lease needs). What others take longer, for parts of the map and pages that are
/// seen for the first time, is in the note.
fn attach(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    /// One of them attaches the file, and all behind it are direct.
    const FIRST: u64 = 32;
    /// What an attachment may take.
    const LIMIT_US: f64 = 1000.0;
    let cold = Order {
        warm_up: 0,
        ..order(options, Operation::Overwrite)
    };
    // Used by a process before the first that counts, as above.
    bed.start(Side::Direct, "attach", &cold)?.run(FIRST)?;
    let (mut longest, mut others) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let mut fresh = bed.start_again(Side::Direct, "attach", &cold)?;
        let first = (0..FIRST).map(|_| Ok(fresh.run(1)?.nanoseconds / 1000.0));
        let mut first: Vec<f64> = first.collect::<Result<_, BenchError>>()?;
        if !fresh.run(FIRST)?.is_direct() {
            return Err(BenchError::NoDirectAccess);
        }
        fresh.verify()?;
        first.sort_by(f64::total_cmp);
        longest.extend(first.pop());
        others.extend(first.pop());
    }
    let cost = median(&longest);
    let spread = |pick: fn(f64, f64) -> f64| longest.iter().copied().reduce(pick);
    let (least, greatest) = (spread(f64::min), spread(f64::max));
    let found = Found {
        value: cost,
        against_value: LIMIT_US,
        ratio: cost / LIMIT_US,
        ratio_range: least
            .zip(greatest)
            .map(|(least, greatest)| [least / LIMIT_US, greatest / LIMIT_US]),
        note: None,
    };
    Ok(found.noted(format!(
        "rounds from {:.0} to {:.0} us; the longest operation after that one {:.0} us",
        least.unwrap_or(cost),
        greatest.unwrap_or(cost),
        median(&others)
    )))
}

/// Two processes overwrite a file each, beside one at a time that has each processor in turn. Both on tmpfs tell what the processors allow; two threads that stream to bare memory, with a fence behind each block and without, tell what memory does.
fn two_processes(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    let [first, second] = match processors()[..] {
        [first, second, ..] => [first, second],
        ref few => return Err(BenchError::Processors(few.len())),
    };
    let start = |side, processor| {
        let order = Order {
            processor,
            ..order(options, Operation::Overwrite)
        };
        bed.start(side, &format!("processor-{processor}"), &order)
    };
    let pair_on = |side| Ok::<_, BenchError>([start(side, first)?, start(side, second)?]);
    let mut pairs = [pair_on(Side::Direct)?, pair_on(Side::Tmpfs)?];
    let bare_on = |blocks_per_fence| {
        let on = |processor| Bare::new(options, processor, blocks_per_fence);
        Ok::<_, BenchError>([on(first)?, on(second)?])
    };
    let mut bare = [bare_on(1)?, bare_on(BLOCKS_PER_FENCE)?];
    let slice = options.slice_seconds(8);
    let counts = [0, 1].map(|which: usize| pairs[which][0].count_for(slice));
    let rates = in_turn(options.rounds, 8, |side, round| {
        let which = side / 2;
        match (pairs.get_mut(which), side % 2) {
            (Some(programs), 0) => together(programs, counts[which]),
            (Some(programs), _) => one_at_a_time(programs, counts[which]),
            (None, 0) => bare_together(&mut bare[which - 2], round, counts[0]),
            (None, _) => bare_one_at_a_time(&mut bare[which - 2], round, counts[0]),
        }
    })?;
    pairs.iter().flatten().try_for_each(Program::verify)?;
    let times = |both: usize| pair(&rates[both], &rates[both + 1]).ratios()[1];
    let note = format!(
        "two on tmpfs are {:.2} times as fast as one there, two that stream to bare memory {:.2} times, without a fence behind each block {:.2} times ({:.1} and {:.1} GB/s)",
        times(2),
        times(4),
        times(6),
        median(&rates[6]) * BLOCK as f64 / 1e9,
        median(&rates[7]) * BLOCK as f64 / 1e9,
    );
    Ok(with_spread(&pair(&rates[0], &rates[1]), &note))
}

/// Bare memory that is streamed to from one processor.
struct Bare {
    raw: Region,
    page: Box<Page>,
    processor: usize,
    blocks_per_fence: u64,
}

impl Bare {
    fn new(
        options: &DirectOptions,
        processor: usize,
        blocks_per_fence: u64,
    ) -> Result<Bare, BenchError> {
        let (directory, class) = (&options.directory, DurabilityClass::Volatile);
        Ok(Bare {
            raw: raw_region(directory, options.file_bytes, class)?,
            page: Page::filled(),
            processor,
            blocks_per_fence,
        })
    }

    /// Operations per second.
    fn rate(&mut self, round: u64, count: u64) -> Result<f64, BenchError> {
        let _pin = Pinned::to(self.processor);
        let (raw, page, each) = (&self.raw, &mut self.page, self.blocks_per_fence);
        let nanoseconds = match each {
            1 => raw_write(raw, page, round, count)?,
            _ => raw_stream(raw, page, round, count.div_ceil(each), each)?,
        };
        Ok(1e9 / nanoseconds)
    }
}

/// Operations per second of both.
fn bare_together(bare: &mut [Bare; 2], round: u64, count: u64) -> Result<f64, BenchError> {
    std::thread::scope(|scope| {
        let threads = bare
            .each_mut()
            .map(|bare| scope.spawn(move || bare.rate(round, count)));
        let mut sum = 0.0;
        for thread in threads {
            sum += match thread.join() {
                Ok(rate) => rate?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
        }
        Ok(sum)
    })
}

/// Operations per second of one, as the mean of both.
fn bare_one_at_a_time(bare: &mut [Bare; 2], round: u64, count: u64) -> Result<f64, BenchError> {
    let [first, second] = bare.each_mut().map(|bare| bare.rate(round, count));
    Ok((first? + second?) / 2.0)
}

/// Operations per second of both.
fn together(programs: &mut [Program; 2], count: u64) -> Result<f64, BenchError> {
    for program in programs.iter_mut() {
        program.begin(count)?;
    }
    let mut rate = 0.0;
    for program in programs {
        rate += 1e9 / program.answer()?.nanoseconds;
    }
    Ok(rate)
}

/// Operations per second of one, as the mean of both.
fn one_at_a_time(programs: &mut [Program; 2], count: u64) -> Result<f64, BenchError> {
    let mut rate = 0.0;
    for program in programs {
        rate += 1e9 / program.run(count)?.nanoseconds / 2.0;
    }
    Ok(rate)
}
