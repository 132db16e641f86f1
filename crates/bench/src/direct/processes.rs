//! Two programs at once, and what the machine lets two do.

use super::DirectOptions;
use super::bed::{Bed, Program, Side};
use super::handover::handover_nanoseconds;
use super::loops::order;
use super::program::{Operation, Order};
use super::with_spread;
use crate::aging::{in_turn, pair};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Pinned, Places, median, nanoseconds_each, processors};
use crate::memory::{Page, raw_region};
use pmem::{BLOCK_BYTES, DurabilityClass, Flushed, Offset, Region};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// So many that a fence does not count: what is measured then is what memory takes.
const BLOCKS_PER_FENCE: u64 = 256;

/// Where the rates of two at once are, in the order in which they are measured; behind them those of one at a time. The overwrites come first.
const READS: usize = 2;
const TMPFS: usize = 4;
const FENCED: usize = 6;
const UNFENCED: usize = 8;
const HANDOVER: usize = 10;

pub(super) fn measure(collector: &mut Collector, options: &DirectOptions, bed: &Bed) {
    collector.row("processes_2", || two_processes(options, bed));
}

/// Two processes overwrite a file each, beside one at a time that has each processor in turn. Two that read tell what else than writing there is; both on tmpfs what the processors allow; two threads that stream to bare memory, with a fence behind each block and without, what memory does, and how far the processors are from each other whether they
/// share the way there.
fn two_processes(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    let [first, second] = match processors()[..] {
        [first, second, ..] => [first, second],
        ref few => return Err(BenchError::Processors(few.len())),
    };
    let start = |side, operation, processor| {
        let order = Order {
            processor,
            ..order(options, operation)
        };
        bed.start(side, &format!("{operation:?}-{processor}"), &order)
    };
    let pair_of = |side, operation| {
        let on = |processor| start(side, operation, processor);
        Ok::<_, BenchError>([on(first)?, on(second)?])
    };
    let mut pairs = [
        pair_of(Side::Direct, Operation::Overwrite)?,
        pair_of(Side::Direct, Operation::Read)?,
        pair_of(Side::Tmpfs, Operation::Overwrite)?,
    ];
    let bare_on = |blocks_per_fence| {
        let on = |processor| Bare::new(options, processor, blocks_per_fence);
        Ok::<_, BenchError>([on(first)?, on(second)?])
    };
    let mut bare = [bare_on(1)?, bare_on(BLOCKS_PER_FENCE)?];
    let slice = options.slice_seconds(HANDOVER);
    let [overwrites, reads, on_tmpfs] = &mut pairs;
    let counts = [
        overwrites[0].count_for(slice)?,
        reads[0].count_for(slice)?,
        on_tmpfs[0].count_for(slice)?,
    ];
    let rates = in_turn(options.rounds, HANDOVER + 1, |number, round| {
        if number == HANDOVER {
            return Ok(handover_nanoseconds([first, second]));
        }
        let which = number / 2;
        match (pairs.get_mut(which), number % 2) {
            (Some(programs), 0) => together(programs, counts[which]),
            (Some(programs), _) => one_at_a_time(programs, counts[which]),
            (None, 0) => bare_together(&mut bare[which - FENCED / 2], round, counts[0]),
            (None, _) => bare_one_at_a_time(&mut bare[which - FENCED / 2], round, counts[0]),
        }
    })?;
    pairs.iter().flatten().try_for_each(Program::verify)?;
    let times = |both: usize| pair(&rates[both], &rates[both + 1]).ratios()[1];
    let note = format!(
        "two that read are {:.2} times as fast as one; two that write on tmpfs {:.2} times, two that stream to bare memory {:.2} times, without a fence behind each block {:.2} times (one {:.1} GB/s, two {:.1}); a line goes from one processor to the other in {:.0} ns",
        times(READS),
        times(TMPFS),
        times(FENCED),
        times(UNFENCED),
        median(&rates[UNFENCED + 1]) * BLOCK as f64 / 1e9,
        median(&rates[UNFENCED]) * BLOCK as f64 / 1e9,
        median(&rates[HANDOVER]),
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

    /// Blocks per second, streamed to random places.
    fn rate(&mut self, round: u64, count: u64) -> Result<f64, BenchError> {
        let _pin = Pinned::to(self.processor);
        let mut places = Places::new(round);
        let blocks = self.raw.length() / BLOCK;
        let fences = count.div_ceil(self.blocks_per_fence);
        let nanoseconds = nanoseconds_each(fences, |number| {
            self.page.number(number);
            let mut batch = Flushed::nothing(&self.raw);
            for _ in 0..self.blocks_per_fence {
                let at = Offset::new(places.below(blocks) * BLOCK);
                batch.join(self.raw.write_streaming(at, &self.page.0));
            }
            self.raw.fence(batch);
            Ok(())
        })?;
        Ok(1e9 * self.blocks_per_fence as f64 / nanoseconds)
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
