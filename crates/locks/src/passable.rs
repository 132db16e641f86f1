//! A lock for which no thread waits for ever.
//!
//! It is held while something is read or written at a position, as the kernel holds its own lock
//! then. Unlike the kernel's holder, this one can be interrupted by a signal. The holder is known,
//! so a handler that comes back to the lock on the same thread is not locked out. And a handler may
//! wait for another thread's lock, or until another thread has done something: so a thread that has
//! waited for some time passes the lock by, and so does every thread until the lock is free again.
//!
//! The lock is one word: 0, or the holder's number, with two marks beside it.

use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

/// A thread sleeps.
const SLEEPS: u32 = 1 << 31;
/// A thread has waited in vain, so no thread waits until the lock is free.
const PASSED: u32 = 1 << 30;
/// Number of looks at a held lock before the thread sleeps.
const LOOKS: u32 = 100;

/// Highest number of a thread.
pub const THREAD_MAX: u32 = PASSED - 1;

/// Length of a wait.
const PATIENCE: Duration = Duration::from_millis(200);

/// How a call has the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hold {
    /// The thread has the lock alone.
    Locked,
    /// This thread had the lock when a signal interrupted it, and the call comes from the handler:
    /// the interrupted holder does not go on meanwhile.
    Interrupting,
    /// Another thread has the lock, and did not unlock it in time. It may go on at any moment.
    Passing,
}

/// The word of a lock; abstract, so that all interleavings can be explored.
pub trait LockWord {
    /// Returns the word.
    fn load(&self) -> u32;
    /// Stores `new` if the word is `old`, and returns the former word. A thread that locks by that
    /// sees everything that was done under the lock.
    fn replace(&self, old: u32, new: u32) -> Result<u32, u32>;
    /// Stores 0, in order to unlock; returns the former word.
    fn clear(&self) -> u32;
    /// Sleeps for `left` at most while the word is `word`; may also return for no reason at all.
    fn sleep(&self, word: u32, left: Duration);
    /// Wakes one sleeper.
    fn wake(&self);
    /// Returns the time.
    fn now() -> Duration;
}

impl LockWord for AtomicU32 {
    #[inline]
    fn load(&self) -> u32 {
        self.load(Relaxed)
    }

    #[inline]
    fn replace(&self, old: u32, new: u32) -> Result<u32, u32> {
        self.compare_exchange(old, new, Acquire, Relaxed)
    }

    #[inline]
    fn clear(&self) -> u32 {
        self.swap(0, Release)
    }

    fn sleep(&self, word: u32, left: Duration) {
        let left = Timespec::try_from(left).ok();
        let _ = futex::wait(self, futex::Flags::PRIVATE, word, left.as_ref());
    }

    #[cold]
    fn wake(&self) {
        let _ = futex::wake(self, futex::Flags::PRIVATE, 1);
    }

    fn now() -> Duration {
        Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
    }
}

/// The lock. It guards nothing by itself: steps under it have to be right beside a thread that
/// passes it by.
#[derive(Debug, Default)]
pub struct PassableLock<W = AtomicU32>(W);

impl<W: LockWord> PassableLock<W> {
    /// Locks it as the thread of this number, from 1 to [`THREAD_MAX`], or passes it by. After
    /// [`Hold::Locked`], [`unlock`](Self::unlock) follows.
    #[inline]
    pub fn lock(&self, me: u32) -> Hold {
        match self.0.replace(0, me) {
            Ok(_) => Hold::Locked,
            Err(held) if held & THREAD_MAX == me => Hold::Interrupting,
            Err(_) => self.lock_slowly(me),
        }
    }

    #[cold]
    fn lock_slowly(&self, me: u32) -> Hold {
        for _ in 0..LOOKS {
            if self.0.load() == 0 && self.0.replace(0, me).is_ok() {
                return Hold::Locked;
            }
            std::hint::spin_loop();
        }
        let end = W::now() + PATIENCE;
        loop {
            // A thread that slept does not know whether others still do.
            let held = match self.0.replace(0, me | SLEEPS) {
                Ok(_) => return Hold::Locked,
                Err(held) => held,
            };
            if held & PASSED != 0 {
                return Hold::Passing;
            }
            let left = end.saturating_sub(W::now());
            // This thread may have been woken instead of one that still sleeps.
            let marked = match left.is_zero() {
                true => held | SLEEPS | PASSED,
                false => held | SLEEPS,
            };
            if held != marked && self.0.replace(held, marked).is_err() {
                continue;
            }
            if left.is_zero() {
                return Hold::Passing;
            }
            self.0.sleep(marked, left);
        }
    }

    /// Unlocks it.
    #[inline]
    pub fn unlock(&self) {
        if self.0.clear() & SLEEPS != 0 {
            self.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::AtomicU32 as ModelWord;
    use loom::sync::{Arc, Condvar, Mutex};
    use std::cell::Cell;

    /// Length of a thread's wait.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    enum Patience {
        Endless,
        None,
        /// It ends when the thread is woken, but that was too late.
        Late,
    }

    loom::thread_local! {
        static MINE: Cell<Patience> = Cell::new(Patience::Endless);
        /// The time is over.
        static IS_OVER: Cell<bool> = Cell::new(false);
    }

    /// The kernel's part as a condition. A thread that is never woken is a deadlock, which ends the
    /// process of the test.
    #[derive(Default)]
    struct Model {
        word: ModelWord,
        kernel: Mutex<()>,
        bell: Condvar,
    }

    impl LockWord for Model {
        fn load(&self) -> u32 {
            // A thread that looks often sees nothing that the next step does not.
            u32::MAX
        }

        fn replace(&self, old: u32, new: u32) -> Result<u32, u32> {
            self.word.compare_exchange(old, new, Acquire, Relaxed)
        }

        fn clear(&self) -> u32 {
            self.word.swap(0, Release)
        }

        fn sleep(&self, word: u32, _left: Duration) {
            let kernel = self.kernel.lock().expect("not poisoned");
            if self.word.load(Relaxed) == word {
                drop(self.bell.wait(kernel));
            }
            IS_OVER.with(|is_over| is_over.set(MINE.with(Cell::get) == Patience::Late));
        }

        fn wake(&self) {
            let _kernel = self.kernel.lock().expect("not poisoned");
            self.bell.notify_one();
        }

        fn now() -> Duration {
            let was_over = IS_OVER.with(|is_over| {
                is_over.replace(is_over.get() || MINE.with(Cell::get) == Patience::None)
            });
            PATIENCE * u32::from(was_over)
        }
    }

    #[derive(Default)]
    struct Guarded {
        lock: PassableLock<Model>,
        cell: UnsafeCell<u32>,
    }

    // SAFETY: the model checks this.
    unsafe impl Sync for Guarded {}

    impl Guarded {
        /// Adds one, if it is locked.
        fn add(&self, me: u32) -> u32 {
            if self.lock.lock(me) != Hold::Locked {
                return 0;
            }
            // SAFETY: as above.
            self.cell.with_mut(|cell| unsafe { *cell += 1 });
            self.lock.unlock();
            1
        }
    }

    /// Two threads add at once, and this one twice: the sum is that of the returned numbers, and
    /// the lock is free at the end. Explores all interleavings in which a thread is interrupted
    /// twice at most.
    fn explore(theirs: [Patience; 2]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            let guarded = Arc::new(Guarded::default());
            let threads = [(1, theirs[0]), (2, theirs[1])].map(|(me, patience)| {
                let guarded = Arc::clone(&guarded);
                loom::thread::spawn(move || {
                    MINE.with(|mine| mine.set(patience));
                    guarded.add(me)
                })
            });
            let mut added = guarded.add(3) + guarded.add(3);
            for thread in threads {
                added += thread.join().expect("it ends");
            }
            // SAFETY: as above.
            assert_eq!(guarded.cell.with(|cell| unsafe { *cell }), added);
            if theirs == [Patience::Endless; 2] {
                assert_eq!(added, 4, "nobody passes by");
            }
            assert_eq!(guarded.lock.lock(4), Hold::Locked);
        });
    }

    #[test]
    fn one_has_it_and_all_get_it() {
        explore([Patience::Endless; 2]);
    }

    #[test]
    fn who_passes_it_by_keeps_nobody_asleep() {
        for hurried in [Patience::None, Patience::Late] {
            explore([Patience::Endless, hurried]);
            explore([hurried; 2]);
        }
    }

    #[test]
    fn its_own_thread_is_told_apart() {
        let lock: PassableLock = PassableLock::default();
        assert_eq!(lock.lock(7), Hold::Locked);
        assert_eq!(lock.lock(7), Hold::Interrupting);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| [lock.lock(8), lock.lock(9)]);
            let held = other.join().expect("it ends");
            assert_eq!(held, [Hold::Passing; 2]);
        });
        assert_eq!(lock.lock(7), Hold::Interrupting);
        lock.unlock();
        assert_eq!(lock.lock(8), Hold::Locked);
        assert_eq!(lock.lock(THREAD_MAX), Hold::Passing);
    }
}
