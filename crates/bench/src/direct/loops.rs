//! Rows of one operation in a loop.

use super::bed::{Bed, Program, Side};
use super::program::{Operation, Order};
use super::{DirectOptions, first_processor, with_spread};
use crate::aging::{in_turn, pair};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Pinned, Places, median, nanoseconds_each};
use crate::memory::{Page, raw_region};
use pmem::{BLOCK_BYTES, DurabilityClass, Offset, Region};
use std::hint::black_box;

const BLOCK: u64 = BLOCK_BYTES as u64;

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
        let mut programs: Vec<Program> = sides.iter().map(start).collect::<Result<_, _>>()?;
        // One more side: bare memory, which some rows have.
        let slice = options.slice_seconds(sides.len() + 1);
        let most = match order.operation {
            Operation::Append => order.file_bytes / BLOCK / 2,
            _ => u64::MAX,
        };
        let count = |program: &mut Program| program.count_for(slice).map(|count| count.min(most));
        Ok(Sides {
            counts: programs.iter_mut().map(count).collect::<Result<_, _>>()?,
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
    let found = Found::beside_limit(&extra, 1.0);
    let all_us = found.value * SHARED_BY as f64;
    Ok(found.noted(format!(
        "{all_us:.0} us to attach a file and to see its pages for the first time, over {SHARED_BY} operations, about a second's"
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
    let found = Found::beside_limit(&longest, LIMIT_US);
    let [least, greatest] = found.ratio_range.unwrap_or_default();
    Ok(found.noted(format!(
        "rounds from {:.0} to {:.0} us; the longest operation after that one {:.0} us",
        least * LIMIT_US,
        greatest * LIMIT_US,
        median(&others)
    )))
}
