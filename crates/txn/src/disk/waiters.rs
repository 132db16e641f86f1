//! Threads that wait until their records are durable.
//!
//! Each is woken alone: when its record is durable, or to write the next batch. One condition for
//! all would wake every thread at the end of every batch.

use smallvec::SmallVec;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// Where a thread sleeps.
#[derive(Debug)]
pub(super) struct Bed {
    thread: Thread,
    is_woken: AtomicBool,
}

thread_local! {
    static OWN: OnceCell<Arc<Bed>> = const { OnceCell::new() };
}

impl Bed {
    fn own() -> Arc<Bed> {
        let make = || {
            Arc::new(Bed {
                thread: std::thread::current(),
                is_woken: AtomicBool::new(false),
            })
        };
        OWN.with(|own| Arc::clone(own.get_or_init(make)))
    }

    /// Returns when the thread was woken since it was noted.
    pub(super) fn sleep(&self) {
        while !self.is_woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }

    fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Threads to wake when no lock is held.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Woken(SmallVec<[Arc<Bed>; 16]>);

impl Woken {
    pub(super) fn wake(self) {
        self.0.iter().for_each(|bed| bed.wake());
    }
}

/// The threads that wait, each for a record, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<(u64, Arc<Bed>)>);

impl Waiters {
    /// Notes that this thread waits for the record `sequence`. It sleeps when no lock is held.
    pub(super) fn note(&mut self, sequence: u64) -> Arc<Bed> {
        let bed = Bed::own();
        self.0.push((sequence, Arc::clone(&bed)));
        bed
    }

    /// Takes the threads whose records are durable, and one whose record is in no batch yet if
    /// `placed` is told: it writes the next one.
    pub(super) fn take(&mut self, durable: u64, placed: Option<u64>) -> Woken {
        let mut woken = Woken::default();
        self.0.retain(|(sequence, bed)| {
            let is_durable = *sequence <= durable;
            if is_durable {
                woken.0.push(Arc::clone(bed));
            }
            !is_durable
        });
        let is_free = |(sequence, _): &(u64, _)| placed.is_some_and(|placed| *sequence > placed);
        if let Some(next) = self.0.iter().position(is_free) {
            woken.0.push(self.0.remove(next).1);
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::spawn;

    #[test]
    fn threads_with_durable_records_are_woken_and_one_that_writes() {
        let mut waiters = Waiters::default();
        let others = [5, 7, 9, 11].map(|sequence| {
            let bed = spawn(Bed::own).join().expect("no panic");
            waiters.0.push((sequence, bed));
            sequence
        });
        assert_eq!(others.len(), waiters.0.len());
        assert_eq!(waiters.take(4, None).0.len(), 0);
        assert_eq!(waiters.take(5, Some(8)).0.len(), 2);
        let left: Vec<u64> = waiters.0.iter().map(|(sequence, _)| *sequence).collect();
        assert_eq!(left, [7, 11]);
        assert_eq!(waiters.take(u64::MAX, None).0.len(), 2);
    }

    #[test]
    fn a_thread_that_is_woken_before_it_sleeps_does_not_sleep() {
        let mut waiters = Waiters::default();
        let bed = waiters.note(1);
        waiters.take(1, None).wake();
        bed.sleep();
        let bed = waiters.note(2);
        let other = spawn(move || waiters.take(2, None).wake());
        bed.sleep();
        other.join().expect("no panic");
    }
}
