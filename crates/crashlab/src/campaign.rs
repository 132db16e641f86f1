//! Many workloads on all cores, with a time limit, progress and totals.

use crate::lab::Lab;
use crate::tally::{Counts, Tally};
use crate::watcher::Failure;
use crate::workload::{LONGS, Workload};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How much is wanted.
#[derive(Clone, Debug)]
pub struct Goal {
    /// Distinct states at least; required workloads are finished in any case.
    pub states: u64,
    /// Time at most.
    pub time: Duration,
    /// Threads.
    pub threads: usize,
    /// Seed of the first long workload after the required ones.
    pub first_seed: u64,
    /// Workloads to run first, whatever the number of states.
    pub required: Vec<Workload>,
    /// The names of long workloads that come after them begin so.
    pub only: String,
    /// Whether the first failure ends it.
    pub stop_at_failure: bool,
    /// How often progress is reported.
    pub report_every: Option<Duration>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Counts.
    pub counts: Counts,
    /// Time taken.
    pub elapsed: Duration,
    /// Whether all required workloads were finished.
    pub required_finished: bool,
    /// What failed.
    pub failures: Vec<Failure>,
}

struct Shared {
    goal: Goal,
    begin: Instant,
    tally: Arc<Tally>,
    next: AtomicUsize,
    finished: AtomicUsize,
    stopped: AtomicBool,
    failures: Mutex<Vec<Failure>>,
}

/// Failing workloads after which a campaign ends: more would say the same.
const FAILURES_MAX: usize = 20;

impl Shared {
    /// The next workload, and whether it is required.
    fn next_workload(&self) -> Option<(Workload, bool)> {
        if self.stopped.load(Ordering::Relaxed) || self.begin.elapsed() >= self.goal.time {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(workload) = self.goal.required.get(index) {
            return Some((*workload, true));
        }
        if self.tally.counts().distinct >= self.goal.states {
            return None;
        }
        let beyond = (index - self.goal.required.len()) as u64;
        let mut longs = Workload::all_long(self.goal.first_seed + beyond / LONGS as u64).to_vec();
        longs.rotate_left(beyond as usize % LONGS);
        let is_wanted = |long: &Workload| long.to_string().starts_with(&self.goal.only);
        let wanted = longs.into_iter().find(is_wanted)?;
        Some((wanted, false))
    }

    fn work(&self) {
        let mut lab = Lab::new(Arc::clone(&self.tally), None);
        while let Some((workload, is_required)) = self.next_workload() {
            let failures = lab.run(workload);
            self.finished
                .fetch_add(usize::from(is_required), Ordering::Relaxed);
            if failures.is_empty() {
                continue;
            }
            let mut all = self.failures.lock();
            all.extend(failures);
            if self.goal.stop_at_failure || all.len() >= FAILURES_MAX {
                self.stopped.store(true, Ordering::Relaxed);
            }
        }
    }

    fn report(&self, every: Duration, done: &AtomicBool) {
        let mut next = every;
        while !done.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
            if self.begin.elapsed() >= next {
                next += every;
                println!("{}", line(&self.tally.counts(), self.begin.elapsed()));
            }
        }
    }
}

/// The counts in words.
pub fn line(counts: &Counts, elapsed: Duration) -> String {
    let Counts {
        workloads,
        points,
        tried,
        distinct,
        in_recovery,
        on_disks,
        on_device,
    } = counts;
    let rate = *distinct as f64 / elapsed.as_secs_f64().max(0.001);
    format!(
        "{workloads} workloads, {points} crash points, {tried} states, {distinct} distinct \
         ({on_disks} of them on disks, {on_device} with a device, {in_recovery} in a recovery), {:.1} s, {rate:.0} distinct/s",
        elapsed.as_secs_f64()
    )
}

/// Runs until the goal is reached, time is up, or too much fails.
pub fn run(goal: Goal) -> Outcome {
    let threads = goal.threads.max(1);
    let shared = Shared {
        begin: Instant::now(),
        tally: Arc::default(),
        next: AtomicUsize::new(0),
        finished: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        failures: Mutex::default(),
        goal,
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(every) = shared.goal.report_every {
            let (shared, done) = (&shared, &done);
            scope.spawn(move || shared.report(every, done));
        }
        std::thread::scope(|workers| {
            for _ in 0..threads {
                workers.spawn(|| shared.work());
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    Outcome {
        counts: shared.tally.counts(),
        elapsed: shared.begin.elapsed(),
        required_finished: shared.finished.load(Ordering::Relaxed) == shared.goal.required.len(),
        failures: shared.failures.into_inner(),
    }
}
