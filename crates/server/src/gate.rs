//! As many threads read requests as there is work for; others take over while one waits for a disk.
//!
//! The kernel hands requests to the threads that read in turn, so threads beyond the number of
//! cores cost each request a cold cache. A thread too many parks behind its answer. A thread that
//! is about to wait for the log wakes a parked one if too few would be left.
//! Over io_uring each processor has threads of its own, so the gate is open: a thread that waits
//! tells its queue, which gets a further thread if it has none left.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;

use parking_lot::Mutex;

/// Fewest threads that may read: one of them may wait for the kernel, which waits for another.
const READERS_MIN: usize = 2;

/// Which threads of a mount read requests.
#[derive(Debug)]
pub(crate) struct Gate {
    /// So many threads may read or work; none is counted if all may.
    most: Option<usize>,
    /// The same number as in the state, for a look without the lock.
    active: AtomicUsize,
    state: Mutex<State<Arc<Bed>>>,
}

/// The threads that are known, behind one lock. A thread is known from its first request on.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct State<B> {
    /// Known threads that read or work.
    active: usize,
    /// Known threads that sleep; the last one has the warmest cache.
    parked: Vec<B>,
    /// A thread has ended, so the connection has.
    has_ended: bool,
}

impl<B> Default for State<B> {
    fn default() -> State<B> {
        State {
            active: 0,
            parked: Vec::new(),
            has_ended: false,
        }
    }
}

/// Fewer threads than this are never left while others are parked.
fn fewest(most: usize) -> usize {
    (most / 2).max(1)
}

impl<B> State<B> {
    /// A thread goes on, or has its first request.
    fn joins(&mut self) {
        self.active += 1;
    }

    /// An active thread waits from now on. Returns a thread to wake, which counts as active.
    fn waits(&mut self, most: usize) -> Option<B> {
        self.active -= 1;
        let woken = (self.active < fewest(most)).then(|| self.parked.pop());
        let woken = woken.flatten();
        self.active += usize::from(woken.is_some());
        woken
    }

    /// An active thread has answered. Gives the bed back unless the thread has to sleep in it.
    fn answers(&mut self, most: usize, bed: B) -> Option<B> {
        if self.active <= most || self.has_ended {
            return Some(bed);
        }
        self.active -= 1;
        self.parked.push(bed);
        None
    }

    /// An active thread ends. Returns the threads to wake, so that they end, too.
    fn ends(&mut self) -> Vec<B> {
        self.has_ended = true;
        let woken = std::mem::take(&mut self.parked);
        self.active = self.active - 1 + woken.len();
        woken
    }
}

/// The place where a thread sleeps.
#[derive(Debug)]
struct Bed {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Bed {
    fn sleep(&self) {
        while !self.is_woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }

    fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The gate of a thread, and the place where it sleeps.
struct Member {
    gate: Arc<Gate>,
    bed: Arc<Bed>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.gate
            .change(State::ends)
            .iter()
            .for_each(|bed| bed.wake());
    }
}

thread_local! {
    /// Of a thread that reads requests.
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// A request's turn. The thread may park at its end: the answer must be sent before.
#[must_use]
pub(crate) struct Turn<'g>(&'g Gate);

impl Gate {
    /// A gate for as many threads as there are cores.
    pub(crate) fn for_cores() -> Gate {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Gate::new(Some(cores.max(READERS_MIN)))
    }

    /// A gate that every thread passes.
    pub(crate) fn open() -> Gate {
        Gate::new(None)
    }

    fn new(most: Option<usize>) -> Gate {
        Gate {
            most,
            active: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// How many threads read requests, if all have `threads`.
    pub(crate) fn readers(&self, threads: usize) -> usize {
        self.most.map_or(threads, |most| most.min(threads))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State<Arc<Bed>>) -> T) -> T {
        let mut state = self.state.lock();
        let outcome = change(&mut state);
        self.active.store(state.active, Ordering::Relaxed);
        outcome
    }

    /// Begins a request. Only threads that read requests call this.
    pub(crate) fn turn(self: &Arc<Gate>) -> Turn<'_> {
        if self.most.is_some() {
            MEMBER.with_borrow_mut(|member| {
                if member.is_none() {
                    *member = Some(self.join());
                }
            });
        }
        Turn(self)
    }

    #[cold]
    fn join(self: &Arc<Gate>) -> Member {
        self.change(State::joins);
        Member {
            gate: Arc::clone(self),
            bed: Arc::new(Bed {
                thread: std::thread::current(),
                is_woken: AtomicBool::new(false),
            }),
        }
    }

    /// Parks this thread if enough others read.
    #[cold]
    fn park(&self, most: usize) {
        if std::thread::panicking() {
            return;
        }
        let bed = MEMBER.with_borrow(|member| Some(Arc::clone(&member.as_ref()?.bed)));
        let Some(bed) = bed else { return };
        if self
            .change(|state| state.answers(most, Arc::clone(&bed)))
            .is_none()
        {
            bed.sleep();
        }
    }

    fn is_own(&self) -> bool {
        let is_own = |member: &Member| std::ptr::eq(&*member.gate, self);
        MEMBER.with_borrow(|member| member.as_ref().is_some_and(is_own))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        match self.0.most {
            Some(most) if self.0.active.load(Ordering::Relaxed) > most => self.0.park(most),
            _ => {}
        }
    }
}

impl txn::Waits for Gate {
    fn begins(&self) {
        fuse::begins_to_wait();
        if let Some(most) = self.most.filter(|_| self.is_own()) {
            let woken = self.change(|state| state.waits(most));
            if let Some(bed) = woken {
                bed.wake();
            }
        }
    }

    fn ends(&self) {
        fuse::ends_waiting();
        if self.is_own() {
            self.change(State::joins);
        }
    }
}

#[cfg(test)]
mod tests;
