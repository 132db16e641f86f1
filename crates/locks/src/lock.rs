//! Locks that know nothing of threads.
//!
//! An operation may come from a signal's handler that has interrupted the program's `malloc`. Locks
//! that keep something for each thread register its destructor with the C library, by the program's
//! `calloc`, when a thread waits for the first time: that would wait for ever. These are one word
//! each, on which a thread that waits sleeps in the kernel (`futex`).
//!
//! Invariants:
//!
//! * The word says that a thread sleeps only while the lock is held.
//! * The thread that takes this mark from the word wakes all sleepers, and those that still have to
//!   wait set it again. So no thread sleeps while the lock is free, even if one that was woken has
//!   a handler to run first.
//!
//! A child of `fork` forgets a lock that it inherits ([`Lock::forget`]), or everything that is
//! locked together with the things that it locks.

use rustix::thread::{futex, sched_yield};
use std::cell::UnsafeCell;
use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// A thread sleeps until the lock is free. The bits below count the threads that share the lock.
const SLEEPS: u32 = 1 << 31;
/// One thread has the lock alone.
const ALONE: u32 = SLEEPS - 1;

/// Number of looks at a held lock before other threads get the processor between two looks.
const LOOKS_AWAKE: u32 = 100;

/// The word of a lock; abstract, so that all interleavings can be explored.
pub trait FutexWord {
    /// Number of looks at a held lock before the thread sleeps.
    const LOOKS: u32;
    fn load(&self) -> u32;
    /// Stores `new` if the word is `old`, in order to lock; returns whether it was.
    fn replace_to_lock(&self, old: u32, new: u32) -> bool;
    /// The same, in order to unlock.
    fn replace_to_unlock(&self, old: u32, new: u32) -> bool;
    /// Stores 0, in order to unlock; returns the former word.
    fn clear(&self) -> u32;
    /// Takes [`SLEEPS`] away; returns whether it was there.
    fn wake_for_nothing(&self) -> bool;
    /// Sleeps while the word is `word`, or for no reason at all; returns `false` when the time is
    /// over.
    fn sleep(&self, word: u32, until: Option<Instant>) -> bool;
    /// Wakes all sleepers.
    fn wake(&self);
}

impl FutexWord for AtomicU32 {
    const LOOKS: u32 = LOOKS_AWAKE + 10;

    #[inline]
    fn load(&self) -> u32 {
        self.load(Relaxed)
    }

    #[inline]
    fn replace_to_lock(&self, old: u32, new: u32) -> bool {
        self.compare_exchange(old, new, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn replace_to_unlock(&self, old: u32, new: u32) -> bool {
        self.compare_exchange(old, new, Release, Relaxed).is_ok()
    }

    #[inline]
    fn clear(&self) -> u32 {
        self.swap(0, Release)
    }

    fn wake_for_nothing(&self) -> bool {
        self.fetch_and(!SLEEPS, Relaxed) & SLEEPS != 0
    }

    fn sleep(&self, word: u32, until: Option<Instant>) -> bool {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        let left = left.map(|left| futex::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let _ = futex::wait(self, futex::Flags::PRIVATE, word, left.as_ref());
        true
    }

    #[cold]
    fn wake(&self) {
        let _ = futex::wake(self, futex::Flags::PRIVATE, i32::MAX as u32);
    }
}

/// Returns the word after one more thread shares the lock; `None` if that thread has to wait. It
/// also waits behind a sleeper, which would never be alone otherwise.
#[inline(always)]
fn shared(word: u32) -> Option<u32> {
    (word < ALONE - 1).then(|| word + 1)
}

/// Returns the word after one thread has the lock alone.
#[inline(always)]
fn alone(word: u32) -> Option<u32> {
    (word & ALONE == 0).then_some(word | ALONE)
}

/// A lock that several threads share, or one has alone.
#[derive(Debug, Default)]
pub struct Lock<W: FutexWord = AtomicU32>(W);

/// Access to the lock together with others, while this lives.
#[derive(Debug)]
pub struct Shared<'l, W: FutexWord = AtomicU32>(&'l W);

/// Access to the lock alone, while this lives.
#[derive(Debug)]
pub struct Alone<'l, W: FutexWord = AtomicU32>(&'l W);

impl Lock {
    /// Makes a lock that is free.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// In a child of `fork`, whose only thread this is: the lock's holder is not here.
    pub fn forget(&self) {
        self.0.store(0, Release);
    }
}

impl<W: FutexWord> Lock<W> {
    /// Locks it with others; `None` after `wait`.
    #[inline]
    pub fn share_for(&self, wait: Duration) -> Option<Shared<'_, W>> {
        let is_locked = self.take(shared) || self.take_within(shared, wait);
        is_locked.then(|| Shared(&self.0))
    }

    /// Locks it; `None` after `wait`.
    #[inline]
    pub fn hold_for(&self, wait: Duration) -> Option<Alone<'_, W>> {
        let is_locked = self.take(alone) || self.take_within(alone, wait);
        is_locked.then(|| Alone(&self.0))
    }

    /// Locks it, if it is free.
    #[inline]
    pub fn try_hold(&self) -> Option<Alone<'_, W>> {
        self.take(alone).then(|| Alone(&self.0))
    }

    /// Locks it.
    #[inline]
    pub fn hold(&self) -> Alone<'_, W> {
        if !self.take(alone) {
            self.take_until(alone, None);
        }
        Alone(&self.0)
    }

    /// Locks it, if there is no thread to wait for.
    #[inline(always)]
    fn take(&self, next: impl Fn(u32) -> Option<u32>) -> bool {
        let mut word = self.0.load();
        while let Some(taken) = next(word) {
            if self.0.replace_to_lock(word, taken) {
                return true;
            }
            word = self.0.load();
        }
        false
    }

    #[cold]
    fn take_within(&self, next: impl Fn(u32) -> Option<u32>, wait: Duration) -> bool {
        !wait.is_zero() && self.take_until(next, Some(Instant::now() + wait))
    }

    #[cold]
    fn take_until(&self, next: impl Fn(u32) -> Option<u32>, until: Option<Instant>) -> bool {
        for look in 0..W::LOOKS {
            if self.take(&next) {
                return true;
            }
            match look < LOOKS_AWAKE {
                true => std::hint::spin_loop(),
                false => sched_yield(),
            }
        }
        loop {
            let word = self.0.load();
            if let Some(taken) = next(word) {
                if self.0.replace_to_lock(word, taken) {
                    return true;
                }
                continue;
            }
            let sleeps = word | SLEEPS;
            if (word == sleeps || self.0.replace_to_lock(word, sleeps))
                && !self.0.sleep(sleeps, until)
            {
                break;
            }
        }
        // Threads that would share the lock wait for sleepers, of which this was one.
        if self.0.wake_for_nothing() {
            self.0.wake();
        }
        self.take(next)
    }
}

impl<W: FutexWord> Drop for Shared<'_, W> {
    #[inline]
    fn drop(&mut self) {
        loop {
            let word = self.0.load();
            let is_last = word & ALONE == 1;
            let left = if is_last { 0 } else { word - 1 };
            if self.0.replace_to_unlock(word, left) {
                if is_last && word & SLEEPS != 0 {
                    self.0.wake();
                }
                return;
            }
        }
    }
}

impl<W: FutexWord> Drop for Alone<'_, W> {
    #[inline]
    fn drop(&mut self) {
        if self.0.clear() & SLEEPS != 0 {
            self.0.wake();
        }
    }
}

/// A value that one thread at a time uses.
#[derive(Default)]
pub struct Mutex<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: it hands out the value to one thread at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// The value, locked.
pub struct Locked<'m, T> {
    value: &'m UnsafeCell<T>,
    _alone: Alone<'m>,
}

// SAFETY: as a reference to the value, which is all that other threads get from it.
unsafe impl<T: Sync> Sync for Locked<'_, T> {}

impl<T> Mutex<T> {
    /// Makes one that is free, with this value.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            lock: Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks it.
    pub fn lock(&self) -> Locked<'_, T> {
        self.locked(self.lock.hold())
    }

    /// Locks it, if it is free.
    pub fn try_lock(&self) -> Option<Locked<'_, T>> {
        Some(self.locked(self.lock.try_hold()?))
    }

    /// Locks it; `None` after `wait`.
    pub fn try_lock_for(&self, wait: Duration) -> Option<Locked<'_, T>> {
        Some(self.locked(self.lock.hold_for(wait)?))
    }

    fn locked<'m>(&'m self, alone: Alone<'m>) -> Locked<'m, T> {
        Locked {
            value: &self.value,
            _alone: alone,
        }
    }
}

impl<T: Debug> Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => Debug::fmt(&*value, formatter),
            None => formatter.write_str("locked"),
        }
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: locked.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: locked, and borrowed by nobody else.
        unsafe { &mut *self.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::AtomicU32 as ModelWord;
    use loom::sync::{Arc, Condvar, Mutex as ModelMutex};

    /// The kernel's part as a condition. A wait that has an end ends at once. A thread that is
    /// never woken is a deadlock, which ends the process of the test.
    #[derive(Default)]
    struct Model {
        word: ModelWord,
        kernel: ModelMutex<()>,
        bell: Condvar,
    }

    impl FutexWord for Model {
        const LOOKS: u32 = 0;

        fn load(&self) -> u32 {
            self.word.load(Relaxed)
        }

        fn replace_to_lock(&self, old: u32, new: u32) -> bool {
            let replaced = self.word.compare_exchange(old, new, Acquire, Relaxed);
            replaced.is_ok()
        }

        fn replace_to_unlock(&self, old: u32, new: u32) -> bool {
            let replaced = self.word.compare_exchange(old, new, Release, Relaxed);
            replaced.is_ok()
        }

        fn clear(&self) -> u32 {
            self.word.swap(0, Release)
        }

        fn wake_for_nothing(&self) -> bool {
            self.word.fetch_and(!SLEEPS, Relaxed) & SLEEPS != 0
        }

        fn sleep(&self, word: u32, until: Option<Instant>) -> bool {
            if until.is_some() {
                return false;
            }
            let kernel = self.kernel.lock().expect("not poisoned");
            if self.word.load(Relaxed) == word {
                drop(self.bell.wait(kernel));
            }
            true
        }

        fn wake(&self) {
            let _kernel = self.kernel.lock().expect("not poisoned");
            self.bell.notify_all();
        }
    }

    #[derive(Default)]
    struct Guarded {
        lock: Lock<Model>,
        cell: loom::cell::UnsafeCell<u32>,
    }

    // SAFETY: the model checks this.
    unsafe impl Sync for Guarded {}

    impl Guarded {
        fn add(&self) {
            let _alone = self.lock.hold();
            // SAFETY: as above.
            self.cell.with_mut(|cell| unsafe { *cell += 1 });
        }

        fn add_at_once(&self) -> u32 {
            let alone = self.lock.hold_for(Duration::from_secs(1));
            if alone.is_some() {
                // SAFETY: as above.
                self.cell.with_mut(|cell| unsafe { *cell += 1 });
            }
            u32::from(alone.is_some())
        }

        fn look(&self) -> u32 {
            if !self.lock.take(shared) {
                self.lock.take_until(shared, None);
            }
            let _shared = Shared(&self.lock.0);
            // SAFETY: as above.
            self.cell.with(|cell| unsafe { *cell })
        }
    }

    /// Two threads and this one change a number at once: at the end it is the sum of the returned
    /// numbers. Explores all interleavings in which a thread is interrupted twice at most, which
    /// take a second; all interleavings take hours.
    fn explore(does: [fn(&Guarded) -> u32; 3]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            let guarded = Arc::new(Guarded::default());
            let [one, other, here] = does;
            let threads = [one, other].map(|does| {
                let guarded = Arc::clone(&guarded);
                loom::thread::spawn(move || does(&guarded))
            });
            let mut added = here(&guarded);
            for thread in threads {
                added += thread.join().expect("it ends");
            }
            assert_eq!(guarded.look(), added);
            assert_eq!(guarded.lock.0.load(), 0);
        });
    }

    fn add(guarded: &Guarded) -> u32 {
        guarded.add();
        1
    }

    fn look(guarded: &Guarded) -> u32 {
        assert!(guarded.look() <= 2);
        0
    }

    fn add_at_once(guarded: &Guarded) -> u32 {
        guarded.add_at_once()
    }

    #[test]
    fn one_at_a_time_has_it_and_who_sleeps_is_woken() {
        explore([add, add, add]);
    }

    #[test]
    fn those_who_share_it_do_not_meet_one_who_has_it_alone() {
        explore([add, look, look]);
        explore([add, add, look]);
    }

    #[test]
    fn who_gives_up_leaves_nobody_asleep() {
        explore([add, add, add_at_once]);
        explore([add, look, add_at_once]);
        explore([look, look, add_at_once]);
    }

    #[test]
    fn it_is_waited_for_but_not_for_ever() {
        let mutex = Mutex::new(1);
        let held = mutex.lock();
        let short = Duration::from_millis(20);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(mutex.try_lock().is_none());
                assert!(mutex.try_lock_for(Duration::ZERO).is_none());
                assert!(mutex.try_lock_for(short).is_none());
            });
        });
        assert!(begin.elapsed() >= short);
        std::thread::scope(|scope| {
            scope.spawn(|| *mutex.try_lock_for(Duration::from_secs(10)).expect("free") += 1);
            std::thread::sleep(short);
            drop(held);
        });
        assert_eq!(*mutex.lock(), 2);
    }

    #[test]
    fn those_who_share_it_are_not_in_the_way_of_each_other_when_another_gives_up() {
        let lock = Lock::new();
        let short = Duration::from_millis(20);
        let one = lock.share_for(short);
        assert!(one.is_some() && lock.hold_for(short).is_none());
        assert!(lock.share_for(Duration::ZERO).is_some());
        drop(one);
        assert!(lock.try_hold().is_some());
    }

    #[test]
    fn many_threads_lose_nothing() {
        const EACH: u32 = 50_000;
        let mutex = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        *mutex.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), 4 * EACH);
    }
}
