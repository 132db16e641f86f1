//! Clocks, rounds, places.

use crate::error::BenchError;
use crate::report::Latencies;
use hdrhistogram::Histogram;
use pmem::Counters;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// Measures time without the time in which others had the processor.
pub(crate) enum Stopwatch {
    /// Wall time less the time in which the calling thread was ready to run but had no processor. Without other work on the machine
    /// that is wall time. The kernel counts the wait of each thread (`run_delay`, the second number of `schedstat`);
    /// where it does not, this is wall time too.
    Thread {
        /// Wall time of the start.
        begin: Instant,
        /// What the thread had waited by then.
        delayed_ns: u64,
    },
    /// Processor time of the whole process. Right for a caller and a server on one processor: one of the two always runs, so
    /// without other work on the machine that is wall time.
    Process {
        /// Processor time of the start.
        begin_ns: u64,
    },
}

impl Stopwatch {
    /// Starts for the calling thread.
    pub(crate) fn of_thread() -> Stopwatch {
        let (begin, delayed_ns) = now_and_delay();
        Stopwatch::Thread { begin, delayed_ns }
    }

    /// Starts for a process whose threads take turns on one processor.
    pub(crate) fn of_process() -> Stopwatch {
        Stopwatch::Process {
            begin_ns: process_ns(),
        }
    }

    /// Nanoseconds since the start; never 0.
    pub(crate) fn nanoseconds(&self) -> f64 {
        let nanoseconds = match self {
            Stopwatch::Thread {
                begin,
                delayed_ns: before,
            } => {
                let (end, delayed_ns) = now_and_delay();
                let wall = end.duration_since(*begin).as_nanos() as u64;
                wall.saturating_sub(delayed_ns - before)
            }
            Stopwatch::Process { begin_ns } => process_ns() - begin_ns,
        };
        nanoseconds.max(1) as f64
    }
}

/// Measures the time in which this process could have had all processors: wall time less the share of the processors that others had, the
/// hypervisor's other guests included. For more threads than processors, which wait for each other, so that no thread's own time tells anything;
/// a processor that stands idle meanwhile counts against us. Without other work on the machine this is wall time.
pub(crate) struct SharedStopwatch {
    begin: Instant,
    busy_ns: u64,
    ours_ns: u64,
}

impl SharedStopwatch {
    pub(crate) fn start() -> SharedStopwatch {
        SharedStopwatch {
            begin: Instant::now(),
            busy_ns: machine_busy_ns(),
            ours_ns: process_ns(),
        }
    }

    /// Seconds since the start; never 0.
    pub(crate) fn seconds(&self) -> f64 {
        let wall = self.begin.elapsed().as_secs_f64().max(1e-9);
        let busy = machine_busy_ns().saturating_sub(self.busy_ns);
        let others = busy.saturating_sub(process_ns() - self.ours_ns) as f64 / 1e9;
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        // The kernel counts by ticks, so short times are inexact; never let them take nearly all away.
        (wall - others / processors).max(wall / 8.0)
    }
}

/// Time that the machine's processors were not idle since it was started.
fn machine_busy_ns() -> u64 {
    const TICK_NS: u64 = 10_000_000;
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks = line.split_ascii_whitespace().skip(1);
    let ticks: Vec<u64> = ticks.filter_map(|number| number.parse().ok()).collect();
    // user, nice, system, (idle, iowait,) irq, softirq, steal
    let busy = [0, 1, 2, 5, 6, 7].map(|field| ticks.get(field).copied().unwrap_or(0));
    busy.iter().sum::<u64>() * TICK_NS
}

/// The time, and the thread's delay at that time: no delay came between the two readings.
fn now_and_delay() -> (Instant, u64) {
    const TRIES: usize = 100;
    let mut before = delayed_ns();
    for _ in 0..TRIES {
        let now = Instant::now();
        let after = delayed_ns();
        if after == before {
            return (now, after);
        }
        before = after;
    }
    (Instant::now(), before)
}

/// How long the calling thread has been ready to run without a processor.
fn delayed_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

fn process_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds per operation of `count` operations in this thread.
pub(crate) fn nanoseconds_each(
    count: u64,
    mut operation: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let watch = Stopwatch::of_thread();
    for index in 0..count {
        operation(index)?;
    }
    Ok(watch.nanoseconds() / count as f64)
}

/// Wall time of each of `count` operations, the clock's own cost included.
pub(crate) fn latencies(
    count: u64,
    mut operation: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<Latencies, BenchError> {
    // A minute at three digits cannot fail to be a valid range.
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("a valid range");
    for index in 0..count {
        let begin = Instant::now();
        operation(index)?;
        histogram.saturating_record(begin.elapsed().as_nanos() as u64);
    }
    Ok(Latencies {
        p50_ns: histogram.value_at_quantile(0.5),
        p99_ns: histogram.value_at_quantile(0.99),
    })
}

/// What one of our operations asked of the medium, on average.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) flushes: f64,
    pub(crate) fences: f64,
    pub(crate) lines: f64,
}

impl Work {
    pub(crate) fn each(counters: Counters, operations: u64) -> Work {
        let share = |count: u64| count as f64 / operations.max(1) as f64;
        Work {
            flushes: share(counters.flushes),
            fences: share(counters.fences),
            lines: share(counters.lines),
        }
    }
}

/// Counts the work of `count` operations in this thread.
pub(crate) fn work_each(
    count: u64,
    mut operation: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<Work, BenchError> {
    let before = Counters::snapshot();
    for index in 0..count {
        operation(index)?;
    }
    Ok(Work::each(Counters::snapshot() - before, count))
}

/// Both sides of a row, round by round.
pub(crate) struct Rounds {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

/// Runs both sides alternately, after one round of each that is not counted. A side gets the number of the round, so that both can
/// go to the same places.
pub(crate) fn alternate(
    rounds: usize,
    mut ours: impl FnMut(u64) -> Result<f64, BenchError>,
    mut theirs: impl FnMut(u64) -> Result<f64, BenchError>,
) -> Result<Rounds, BenchError> {
    ours(0)?;
    theirs(0)?;
    let mut result = Rounds {
        ours: Vec::new(),
        theirs: Vec::new(),
    };
    for round in 1..=rounds.max(1) as u64 {
        if round % 2 == 1 {
            result.ours.push(ours(round)?);
            result.theirs.push(theirs(round)?);
        } else {
            result.theirs.push(theirs(round)?);
            result.ours.push(ours(round)?);
        }
    }
    Ok(result)
}

impl Rounds {
    /// What was measured by other means than [`alternate`]: as many results of either side, at least one.
    pub(crate) fn new(ours: Vec<f64>, theirs: Vec<f64>) -> Rounds {
        Rounds { ours, theirs }
    }

    /// Adds the rounds of another measurement of the same.
    pub(crate) fn join(&mut self, more: Rounds) {
        self.ours.extend(more.ours);
        self.theirs.extend(more.theirs);
    }

    pub(crate) fn ours(&self) -> f64 {
        median(&self.ours)
    }

    pub(crate) fn theirs(&self) -> f64 {
        median(&self.theirs)
    }

    pub(crate) fn best(&self, higher_is_better: bool) -> f64 {
        let best = if higher_is_better { f64::max } else { f64::min };
        self.ours.iter().copied().reduce(best).unwrap_or(f64::NAN)
    }

    /// Least, median and greatest of the rounds' ratios.
    pub(crate) fn ratios(&self) -> [f64; 3] {
        let mut ratios: Vec<f64> = self
            .ours
            .iter()
            .zip(&self.theirs)
            .map(|(ours, theirs)| ours / theirs)
            .collect();
        ratios.sort_by(f64::total_cmp);
        [ratios[0], median(&ratios), ratios[ratios.len() - 1]]
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

/// Seeded places: two sides with the same seed go to the same ones.
pub(crate) struct Places(u64);

impl Places {
    pub(crate) fn new(seed: u64) -> Places {
        // Any state but 0 will do; neighbouring seeds must not be neighbouring sequences.
        Places((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `limit`.
    #[inline]
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(limit)) >> 64) as u64
    }
}

/// Processors that the calling thread may use.
pub(crate) fn processors() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU)
        .filter(|&processor| set.is_set(processor))
        .collect()
}

/// Keeps the calling thread, and those that it starts, on one processor until dropped.
pub(crate) struct Pinned(Option<CpuSet>);

impl Pinned {
    /// On `processor`, if the kernel lets us.
    pub(crate) fn to(processor: usize) -> Pinned {
        let before = sched_getaffinity(None).ok();
        let mut only = CpuSet::new();
        only.set(processor);
        // Refused, the figures are only noisier.
        let pinned = sched_setaffinity(None, &only).is_ok();
        Pinned(before.filter(|_| pinned))
    }

    /// On the first processor that this thread may use.
    pub(crate) fn anywhere() -> Pinned {
        Pinned::to(processors().first().copied().unwrap_or(0))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rounds_alternate_and_are_summarised_by_medians() {
        let order = std::cell::RefCell::new(String::new());
        let rounds = alternate(
            3,
            |round| {
                order.borrow_mut().push('a');
                Ok([100.0, 2.0, 40.0, 3.0][round as usize])
            },
            |round| {
                order.borrow_mut().push('b');
                Ok([100.0, 1.0, 10.0, 2.0][round as usize])
            },
        )
        .expect("no side fails");
        assert_eq!(*order.borrow(), "ababbaab");
        assert_eq!((rounds.ours(), rounds.theirs()), (3.0, 2.0));
        assert_eq!(rounds.ratios(), [1.5, 2.0, 4.0]);
        assert_eq!((rounds.best(false), rounds.best(true)), (2.0, 40.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn a_stopwatch_counts_waiting_for_events_but_not_more_than_wall_time() {
        // Around the stopwatch, because the thread can lose its processor between any two lines.
        let begin = Instant::now();
        let watch = Stopwatch::of_thread();
        std::thread::sleep(Duration::from_millis(20));
        let counted = watch.nanoseconds();
        let wall = begin.elapsed().as_nanos() as f64;
        assert!(counted <= wall, "{counted} of {wall}");
        // What may be missing is the wait for a processor after waking up, which is part of the sleep's overrun.
        let overrun = wall - 20e6;
        assert!(counted >= 20e6 - overrun, "{counted} of {wall}");
    }

    #[test]
    fn work_counts_however_busy_the_machine_is() {
        for _ in 0..200 {
            let watch = Stopwatch::of_thread();
            let processor_ns =
                |clock: rustix::time::Timespec| clock.tv_sec * 1_000_000_000 + clock.tv_nsec;
            let now = || processor_ns(clock_gettime(ClockId::ThreadCPUTime));
            let begin = now();
            while now() < begin + 200_000 {}
            let counted = watch.nanoseconds();
            assert!(counted >= 190_000.0, "{counted}");
        }
    }

    #[test]
    fn places_are_the_same_for_both_sides_and_all_different_ones_come() {
        let (mut ours, mut theirs) = (Places::new(7), Places::new(7));
        let mut seen = [false; 100];
        for _ in 0..10_000 {
            let place = ours.below(100);
            assert_eq!(place, theirs.below(100));
            seen[place as usize] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
    }

    #[test]
    fn a_pin_is_taken_back() {
        let before = processors();
        let pin = Pinned::anywhere();
        assert_eq!(processors().len(), 1);
        drop(pin);
        assert_eq!(processors(), before);
    }
}
