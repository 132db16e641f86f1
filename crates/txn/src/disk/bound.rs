//! Calls wait if the log is late.
//!
//! All calls that had returned when the newest durable batch was cut are durable. So the calls that
//! a power failure can take back returned since that moment, and no call goes on if it is longer
//! ago than the policy allows.

use super::logger::{LogFailed, Shared};
use super::policy::Durability;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Of the bound, how often a thread looks for changes to write. A change that was there at the look
/// before is written, so it is at most twice as old.
const LOOKS: u32 = 8;
/// Of the bound, how long before its end a call waits: it has to return within the bound.
const RESERVE: u32 = 4;
/// Threads that write in time: while one writes, another looks.
pub(super) const THREADS_MAX: usize = 4;

/// When everything was durable, in nanoseconds since the pool was opened.
#[derive(Debug)]
pub(super) struct Bound {
    start: Instant,
    limit_ns: u64,
    covered_ns: AtomicU64,
    /// Whether the thread that writes batches in time is awake, or has been asked to be.
    is_awake: AtomicBool,
    /// The same, for the thread itself.
    is_any: Mutex<bool>,
    woken: Condvar,
    ends: AtomicBool,
    /// Held by the thread that looks.
    looks: Mutex<Looks>,
}

/// Of the thread that looks for changes to write.
#[derive(Debug, Default)]
struct Looks {
    /// When the next look is due.
    next: Option<Instant>,
    /// The newest record at the last one.
    newest: u64,
}

impl Bound {
    pub(super) fn new(durability: Durability) -> Bound {
        let limit = match durability {
            Durability::Call => Duration::MAX,
            // A call that begins within the bound also returns within it.
            Durability::Fsync(bound) => bound - bound / RESERVE,
        };
        Bound {
            start: Instant::now(),
            limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            covered_ns: AtomicU64::new(0),
            is_awake: AtomicBool::new(false),
            is_any: Mutex::new(false),
            woken: Condvar::new(),
            ends: AtomicBool::new(false),
            looks: Mutex::default(),
        }
    }

    fn now_ns(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_nanos() as u64
    }

    /// All calls that had returned at this moment are durable.
    pub(super) fn is_durable(&self, moment: Instant) {
        self.covered_ns
            .fetch_max(self.now_ns(moment), Ordering::AcqRel);
    }

    fn is_late(&self) -> bool {
        let late = self
            .now_ns(Instant::now())
            .saturating_sub(self.covered_ns.load(Ordering::Acquire));
        late > self.limit_ns
    }

    pub(super) fn wake(&self) {
        self.ends.store(true, Ordering::Release);
        self.ask();
    }

    /// A record was committed: the thread has to be awake. The number of the record was given out
    /// by a locked instruction, so either this sees that the thread sleeps, or the thread sees the
    /// number.
    #[inline]
    pub(super) fn is_committed(&self) {
        if !self.is_awake.load(Ordering::SeqCst) && !self.is_awake.swap(true, Ordering::SeqCst) {
            self.ask();
        }
    }

    /// Returns when a record was committed, if `is_idle` holds when it is looked at last.
    fn sleep(&self, is_idle: impl FnOnce() -> bool) {
        *self.is_any.lock() = false;
        self.is_awake.store(false, Ordering::SeqCst);
        // A record that was committed before that woke nobody.
        if !is_idle() {
            self.is_awake.store(true, Ordering::SeqCst);
            return;
        }
        let mut is_any = self.is_any.lock();
        while !*is_any && !self.ends() {
            self.woken.wait(&mut is_any);
        }
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    /// Returns at this moment, or when the pool is closed.
    fn pause_until(&self, moment: Instant) {
        let mut is_any = self.is_any.lock();
        while !self.ends() && Instant::now() < moment {
            self.woken.wait_until(&mut is_any, moment);
        }
    }

    /// Has a thread write batches until everything is durable.
    #[cold]
    fn ask(&self) {
        let mut is_any = self.is_any.lock();
        *is_any = true;
        self.woken.notify_all();
    }
}

impl Shared {
    /// Before a change: waits if the log is late, and refuses if it has failed.
    #[inline]
    pub(super) fn before_change(&self) -> Result<(), LogFailed> {
        if self.has_failed() {
            return Err(self.failure().unwrap_or_else(|| unreachable!("it was set")));
        }
        if self.backlog.is_crowded() {
            self.wait_until_uncrowded()?;
        }
        if self.bound.limit_ns != u64::MAX && self.bound.is_late() {
            return self.catch_up();
        }
        Ok(())
    }

    /// The first change after a pause, or one that has to wait for the log.
    #[cold]
    fn catch_up(&self) -> Result<(), LogFailed> {
        let begin = Instant::now();
        if self.durable() >= self.journals.sequence() {
            self.bound.is_durable(begin);
            return Ok(());
        }
        while self.bound.is_late() {
            let now = Instant::now();
            let newest = self.journals.sequence();
            if self.durable() >= newest {
                self.bound.is_durable(now);
                break;
            }
            // The oldest batch under way is the first to be durable.
            self.wait(self.oldest_cut().unwrap_or(newest))?;
        }
        self.counts.was_late(begin);
        Ok(())
    }

    /// The life of a thread that writes batches in time.
    pub(super) fn write_in_time(&self) {
        let Durability::Fsync(bound) = self.durability else {
            return;
        };
        while let Some(sequence) = self.look(bound / LOOKS) {
            if self.wait(sequence).is_err() {
                return;
            }
        }
    }

    /// Returns the number of a record that has to be written now; `None` if the pool is closed. One
    /// thread looks at a time; the others write, or wait for their turn.
    fn look(&self, pause: Duration) -> Option<u64> {
        let mut looks = self.bound.looks.lock();
        loop {
            if self.bound.ends() {
                return None;
            }
            let now = Instant::now();
            let next = looks.next.unwrap_or(now).max(now) + pause;
            self.bound.pause_until(next);
            looks.next = Some(next);
            let newest = self.journals.sequence();
            let old = std::mem::replace(&mut looks.newest, newest);
            if self.placed() < old {
                return Some(old);
            }
            if self.durable() >= newest {
                self.bound.sleep(|| self.journals.sequence() == newest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_thread_that_falls_asleep_when_the_pool_is_closed_ends() {
        let bound = Arc::new(Bound::new(Durability::default()));
        let (sender, ended) = channel();
        let theirs = Arc::clone(&bound);
        let thread = std::thread::spawn(move || {
            // The thread has looked whether it ends, and the pool is closed only then.
            theirs.wake();
            theirs.sleep(|| true);
            theirs.pause_until(Instant::now() + 2 * PATIENCE);
            sender.send(())
        });
        ended.recv_timeout(PATIENCE).expect("the thread ends");
        thread.join().expect("no panic").expect("sent");
    }
}
