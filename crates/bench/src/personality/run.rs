//! Runs a personality: threads that go through its script, counted and timed.

use super::file_set::{FileSet, chunks};
use super::{APPEND_BYTES_MAX, Flowop, IO_BYTES, Random};
use crate::error::BenchError;
use crate::measure::{Pinned, SharedStopwatch, Stopwatch, processors};
use crate::report::Latencies;
use crate::target::Target;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, PoisonError};
use std::time::{Duration, Instant};

/// One turn in so many has its operations timed one by one, so that the clock does not slow the others down.
const TIMED_TURNS: u64 = 16;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// After so many turns through the script, of all threads together.
    Turns(u64),
    /// The same, but not after that time.
    Within(u64, Duration),
    /// When the time is over.
    After(Duration),
}

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Operations, and by kind.
    pub(crate) operations: u64,
    pub(crate) counts: [u64; Flowop::ALL.len()],
    /// Operations per second of all threads.
    pub(crate) rate: f64,
    histograms: Histograms,
}

impl Outcome {
    /// Latencies of the operations by kind, where any was timed.
    pub(crate) fn latencies(&self) -> Vec<(&'static str, Latencies)> {
        let timed = Flowop::ALL.iter().zip(&self.histograms.0);
        let timed = timed.filter(|(_, histogram)| !histogram.is_empty());
        timed
            .map(|(kind, histogram)| {
                let latencies = Latencies {
                    p50_ns: histogram.value_at_quantile(0.5),
                    p99_ns: histogram.value_at_quantile(0.99),
                };
                (kind.name(), latencies)
            })
            .collect()
    }
}

#[derive(Debug)]
struct Histograms(Vec<Histogram<u64>>);

impl Histograms {
    fn new() -> Histograms {
        // A minute at two digits cannot fail to be a valid range.
        let empty = || Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("a valid range");
        Histograms(Flowop::ALL.iter().map(|_| empty()).collect())
    }

    fn add(&mut self, other: &Histograms) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            // Both have the same bounds.
            let _ = mine.add(theirs);
        }
    }
}

/// Runs `threads` threads until `stop`. With the same seed, set and number of turns, one thread does the same operations every time.
///
/// As long as each thread has a processor, it stays on it and its time without it does not count; more threads are timed together,
/// less the time that others had the processors.
pub(crate) fn run<T: Target>(
    target: &T,
    set: &FileSet,
    threads: usize,
    stop: Stop,
    seed: u64,
) -> Result<Outcome, BenchError> {
    run_on(&processors(), target, set, threads, stop, seed)
}

/// The same on these processors, in this order.
pub(crate) fn run_on<T: Target>(
    processors: &[usize],
    target: &T,
    set: &FileSet,
    threads: usize,
    stop: Stop,
    seed: u64,
) -> Result<Outcome, BenchError> {
    let pinned = threads <= processors.len();
    let (barrier, failed) = (Barrier::new(threads), AtomicBool::new(false));
    let turns = AtomicU64::new(0);
    let together = SharedStopwatch::start();
    let shares: Result<Vec<Share>, BenchError> = std::thread::scope(|scope| {
        let start = |number: usize| {
            let (barrier, failed, turns) = (&barrier, &failed, &turns);
            let processor = pinned.then(|| processors[number]);
            scope.spawn(move || {
                let _pin = processor.map(Pinned::to);
                let worker = Worker::new(target, set, seed ^ (number as u64) << 32);
                barrier.wait();
                worker.work(stop, turns, failed)
            })
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        let panicked = |_| BenchError::Panic("in a thread of a personality".to_owned());
        running
            .into_iter()
            .map(|thread| thread.join().map_err(panicked)?)
            .collect()
    });
    let together = (!pinned).then(|| together.seconds());
    Ok(Share::sum(&shares?, together))
}

/// What one thread did.
struct Share {
    counts: [u64; Flowop::ALL.len()],
    histograms: Histograms,
    /// Less the time without a processor.
    seconds: f64,
}

impl Share {
    fn operations(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds up; `together` is the time of all threads if not each has its own.
    fn sum(shares: &[Share], together: Option<f64>) -> Outcome {
        let mut counts = [0; Flowop::ALL.len()];
        let mut histograms = Histograms::new();
        for share in shares {
            histograms.add(&share.histograms);
            for (sum, count) in counts.iter_mut().zip(&share.counts) {
                *sum += count;
            }
        }
        let operations: u64 = counts.iter().sum();
        let rate = match together {
            Some(seconds) => operations as f64 / seconds,
            None => {
                let rate = |share: &Share| share.operations() as f64 / share.seconds;
                shares.iter().map(rate).sum()
            }
        };
        Outcome {
            operations,
            counts,
            rate,
            histograms,
        }
    }
}

/// One thread at work.
struct Worker<'a, T: Target> {
    target: &'a T,
    set: &'a FileSet,
    random: Random,
    /// Where the search for a file that is there goes on.
    rotor: usize,
    /// Filebench's descriptor 1.
    open: Option<(usize, T::File)>,
    /// The log and its generation.
    log: Option<(u64, T::File)>,
    buffer: Box<[u8; IO_BYTES]>,
    counts: [u64; Flowop::ALL.len()],
    histograms: Histograms,
}

impl<'a, T: Target> Worker<'a, T> {
    fn new(target: &'a T, set: &'a FileSet, seed: u64) -> Worker<'a, T> {
        let mut random = Random::new(set.seed() ^ seed.rotate_left(17));
        let rotor = random.below(set.files() as u64) as usize;
        Worker {
            target,
            set,
            random,
            rotor,
            open: None,
            log: None,
            buffer: Box::new([0; IO_BYTES]),
            counts: [0; Flowop::ALL.len()],
            histograms: Histograms::new(),
        }
    }

    fn work(
        mut self,
        stop: Stop,
        turns: &AtomicU64,
        failed: &AtomicBool,
    ) -> Result<Share, BenchError> {
        let (watch, begin) = (Stopwatch::of_thread(), Instant::now());
        let mut turn = 0;
        let result = loop {
            let enough = match stop {
                Stop::Turns(limit) => turns.fetch_add(1, Ordering::Relaxed) >= limit,
                Stop::Within(limit, duration) => {
                    turns.fetch_add(1, Ordering::Relaxed) >= limit || begin.elapsed() >= duration
                }
                Stop::After(duration) => begin.elapsed() >= duration,
            };
            if enough || failed.load(Ordering::Relaxed) {
                break Ok(());
            }
            if let Err(error) = self.turn(turn % TIMED_TURNS == 0) {
                failed.store(true, Ordering::Relaxed);
                break Err(error);
            }
            turn += 1;
        };
        let seconds = watch.nanoseconds() / 1e9;
        self.close();
        result.map(|()| Share {
            counts: self.counts,
            histograms: self.histograms,
            seconds,
        })
    }

    /// Once through the script.
    fn turn(&mut self, timed: bool) -> Result<(), BenchError> {
        for &flowop in self.set.personality().script() {
            let begin = timed.then(Instant::now);
            if self.step(flowop)? {
                self.counts[flowop as usize] += 1;
            }
            if let Some(begin) = begin {
                let nanoseconds = begin.elapsed().as_nanos() as u64;
                self.histograms.0[flowop as usize].saturating_record(nanoseconds);
            }
        }
        Ok(())
    }

    /// One operation; `false` if there was no file to do it with, which Filebench does not count either.
    fn step(&mut self, flowop: Flowop) -> Result<bool, BenchError> {
        match flowop {
            Flowop::Create => self.create(),
            Flowop::Open => self.open(),
            Flowop::Close => Ok(self.close()),
            Flowop::Append => {
                let bytes = self.append_bytes();
                self.with_open(|target, set, index, file| set.append(target, index, file, bytes))
            }
            Flowop::AppendLog => self.append_log(),
            Flowop::WriteWhole => self.with_open(|target, set, index, file| {
                chunks(set.whole_bytes(index), IO_BYTES)
                    .try_for_each(|bytes| set.append(target, index, file, bytes))
            }),
            Flowop::ReadWhole => self.read_whole(),
            Flowop::Sync => self.with_open(|target, _, _, file| target.sync(file)),
            Flowop::Delete => self.delete(),
            Flowop::Stat => self.stat(),
        }
    }

    fn with_open(
        &self,
        action: impl FnOnce(&T, &FileSet, usize, &T::File) -> Result<(), BenchError>,
    ) -> Result<bool, BenchError> {
        match &self.open {
            Some((index, file)) => action(self.target, self.set, *index, file).map(|()| true),
            None => Ok(false),
        }
    }

    fn append_bytes(&mut self) -> usize {
        self.random.below(APPEND_BYTES_MAX as u64) as usize + 1
    }

    fn create(&mut self) -> Result<bool, BenchError> {
        let Some(index) = self.set.pick_absent() else {
            return Ok(false);
        };
        let file = self.target.create(self.set.path(index))?;
        self.set.created(index);
        self.open = Some((index, file));
        Ok(true)
    }

    fn open(&mut self) -> Result<bool, BenchError> {
        let Some(index) = self.set.pick_present(&mut self.rotor, false) else {
            return Ok(false);
        };
        let file = self.target.open(self.set.path(index))?;
        self.set.opened(index);
        self.open = Some((index, file));
        Ok(true)
    }

    fn close(&mut self) -> bool {
        let Some((index, file)) = self.open.take() else {
            return false;
        };
        drop(file);
        self.set.closed(index);
        true
    }

    fn read_whole(&mut self) -> Result<bool, BenchError> {
        let Some((_, file)) = &self.open else {
            return Ok(false);
        };
        if self.set.reads_left_out() {
            return Ok(true);
        }
        let mut at = 0;
        loop {
            let read = self.target.read_at(file, &mut self.buffer[..], at)?;
            at += read as u64;
            if read < IO_BYTES {
                return Ok(true);
            }
        }
    }

    fn delete(&mut self) -> Result<bool, BenchError> {
        let Some(index) = self.set.pick_present(&mut self.rotor, true) else {
            return Ok(false);
        };
        self.target.remove(self.set.path(index))?;
        self.set.removed(index);
        Ok(true)
    }

    fn stat(&mut self) -> Result<bool, BenchError> {
        let Some(index) = self.set.pick_present(&mut self.rotor, false) else {
            return Ok(false);
        };
        let status = self.target.status(self.set.path(index));
        self.set.release(index);
        status.map(|_| true)
    }

    fn append_log(&mut self) -> Result<bool, BenchError> {
        let bytes = self.append_bytes();
        let log = &self.set.log;
        let generation = log.generation.load(Ordering::Acquire);
        if self
            .log
            .as_ref()
            .is_none_or(|(known, _)| *known != generation)
        {
            let _name = log.name.lock().unwrap_or_else(PoisonError::into_inner);
            let file = self.target.open(self.set.log_path())?;
            self.log = Some((log.generation.load(Ordering::Relaxed), file));
        }
        if let Some((_, file)) = &self.log {
            self.target.append(file, self.set.log_content(bytes))?;
        }
        let before = log.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if before + bytes as u64 > log.bytes_max {
            self.rotate_log(generation)?;
        }
        Ok(true)
    }

    /// Removes the log and begins a new one, unless another thread did.
    fn rotate_log(&mut self, generation: u64) -> Result<(), BenchError> {
        let log = &self.set.log;
        let _name = log.name.lock().unwrap_or_else(PoisonError::into_inner);
        if log.generation.load(Ordering::Relaxed) == generation {
            self.log = None;
            self.target.remove(self.set.log_path())?;
            drop(self.target.create(self.set.log_path())?);
            log.bytes.store(0, Ordering::Relaxed);
            log.generation.store(generation + 1, Ordering::Release);
        }
        Ok(())
    }
}
