//! A watch that sleeps while nothing happens, and is woken by the first request.
//!
//! A station counts its turn before it looks whether the watch sleeps; the watch says that it
//! sleeps before it looks at the turns a last time. Both are sequentially consistent, so one of
//! them sees the other.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A flag; abstract, so that all interleavings can be tried.
pub(super) trait Flag: Default {
    fn get(&self) -> bool;
    fn set(&self, value: bool);
    fn take(&self) -> bool;
}

impl Flag for AtomicBool {
    fn get(&self) -> bool {
        self.load(SeqCst)
    }

    fn set(&self, value: bool) {
        self.store(value, SeqCst);
    }

    fn take(&self) -> bool {
        self.swap(false, SeqCst)
    }
}

/// A counter, abstract for the same reason.
pub(super) trait Counter: Default {
    fn get(&self) -> u64;
    fn increase(&self);
}

impl Counter for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(SeqCst)
    }

    fn increase(&self) {
        self.fetch_add(1, SeqCst);
    }
}

/// Wakes a watch that sleeps because there was no request for a while.
#[derive(Debug, Default)]
pub(super) struct Alarm<F = AtomicBool>(F);

impl<F: Flag> Alarm<F> {
    /// Whether the caller, which has just counted a turn, is to wake the watch.
    pub(super) fn is_to_ring(&self) -> bool {
        self.0.get() && self.0.take()
    }

    /// Says that the watch sleeps or not. After it has said so, it looks at the turns.
    pub(super) fn set(&self, sleeps: bool) {
        self.0.set(sleeps);
    }
}

/// Turns of a station: odd while it has a request.
#[derive(Debug, Default)]
pub(super) struct Turns<C = AtomicU64> {
    count: C,
    /// The inode of its last request.
    inode: AtomicU64,
}

impl<C: Counter> Turns<C> {
    /// A request about an inode begins.
    pub(super) fn begin(&self, inode: u64) {
        self.inode.store(inode, Relaxed);
        self.count.increase();
    }

    /// It ends.
    pub(super) fn end(&self) {
        self.count.increase();
    }

    pub(super) fn get(&self) -> u64 {
        self.count.get()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.get() % 2 == 1
    }

    pub(super) fn inode(&self) -> u64 {
        self.inode.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool as ModelFlag, AtomicU64 as ModelCounter, fence};

    // The model knows sequential consistency by fences alone.
    impl Flag for ModelFlag {
        fn get(&self) -> bool {
            self.load(Relaxed)
        }

        fn set(&self, value: bool) {
            self.store(value, Relaxed);
            fence(SeqCst);
        }

        fn take(&self) -> bool {
            self.swap(false, Relaxed)
        }
    }

    impl Counter for ModelCounter {
        fn get(&self) -> u64 {
            self.load(Relaxed)
        }

        fn increase(&self) {
            self.fetch_add(1, Relaxed);
            fence(SeqCst);
        }
    }

    /// Two stations take a request each while the watch goes to sleep, in this order or the wrong
    /// one. A watch that sleeps through both requests is a mistake.
    fn explore(looks_first: bool) {
        loom::model(move || {
            let alarm = Arc::new(Alarm::<ModelFlag>::default());
            let turns = [(); 2].map(|()| Arc::new(Turns::<ModelCounter>::default()));
            let stations = turns.clone().map(|turns| {
                let alarm = alarm.clone();
                loom::thread::spawn(move || {
                    turns.begin(7);
                    alarm.is_to_ring()
                })
            });
            let is_quiet = || turns.iter().all(|turns| turns.get() == 0);
            let sleeps = match looks_first {
                true => {
                    let is_quiet = is_quiet();
                    alarm.set(true);
                    is_quiet
                }
                false => {
                    alarm.set(true);
                    is_quiet()
                }
            };
            let rang = stations.map(|station| station.join().expect("no panic"));
            let rings = rang.iter().filter(|rang| **rang).count();
            assert!(rings <= 1, "woken once");
            assert!(!sleeps || rings == 1, "a watch sleeps through a request");
        });
    }

    #[test]
    fn the_first_request_wakes_the_watch() {
        explore(false);
    }

    #[test]
    #[should_panic(expected = "sleeps through a request")]
    fn a_watch_that_looks_before_it_says_that_it_sleeps_is_noticed() {
        explore(true);
    }
}
