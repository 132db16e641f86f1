//! A lock for readers and writers, which a thread that comes again and again by itself takes
//! without a locked instruction: see [`Bias`].

use crate::bias::{Bias, Thread, heavy_fence};
use crate::lock::{Alone, Lock, Shared};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// A thread becomes the owner after it came so often with no other thread between. After an owner
/// has lost the value, a new owner needs twice as many turns each time. (Taking the ownership back
/// costs some microseconds.)
const TURNS_MIN: u32 = 32;
const TURNS_MAX: u32 = 1 << 20;
/// Number of looks at an owner that is inside before the thread sleeps.
const LOOKS: u32 = 1000;

/// The thread that came last, and how often it came by itself. Two threads that write this at once
/// may forget one of them.
#[derive(Debug)]
struct Habit {
    last: AtomicU64,
    turns: AtomicU32,
    enough: AtomicU32,
}

impl Habit {
    /// Counts a turn; returns whether there were enough.
    #[inline]
    fn count(&self, me: Thread) -> bool {
        let me = me.number();
        if self.last.load(Relaxed) != me {
            self.last.store(me, Relaxed);
            self.turns.store(0, Relaxed);
        }
        let turns = self.turns.load(Relaxed).saturating_add(1);
        self.turns.store(turns, Relaxed);
        turns >= self.enough.load(Relaxed)
    }

    /// The ownership was taken from an owner.
    fn begin_again(&self) {
        self.turns.store(0, Relaxed);
        let enough = self.enough.load(Relaxed).saturating_mul(2);
        self.enough.store(enough.min(TURNS_MAX), Relaxed);
    }
}

/// A value that many threads read or one changes.
///
/// The owner of the bias may be inside instead of the threads that hold the lock. Only a thread
/// that holds the lock alone makes or unmakes an owner. So a thread that holds the lock, and finds
/// that there is no owner, is as alone as the lock says.
#[derive(Debug)]
pub struct Turns<T> {
    bias: Bias,
    habit: Habit,
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: as for a lock for readers and writers: it hands out the value to several threads to read,
// or to one to change or to move.
unsafe impl<T: Send + Sync> Sync for Turns<T> {}

/// The way by which a thread came in.
enum Way<'t> {
    Owner(&'t Bias),
    Shared(#[expect(dead_code, reason = "held")] Shared<'t>),
    Alone(#[expect(dead_code, reason = "held")] Alone<'t>),
}

impl Drop for Way<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Way::Owner(bias) = self {
            bias.leave();
        }
    }
}

/// The value, to be read.
pub struct Reading<'t, T> {
    turns: &'t Turns<T>,
    _way: Way<'t>,
}

/// The value, to be changed.
pub struct Changing<'t, T> {
    turns: &'t Turns<T>,
    _way: Way<'t>,
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a thread that came in this way is beside readers only, or is the owner and alone.
        unsafe { &*self.turns.value.get() }
    }
}

impl<T> Deref for Changing<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a thread that came in this way is alone.
        unsafe { &*self.turns.value.get() }
    }
}

impl<T> DerefMut for Changing<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.turns.value.get() }
    }
}

impl<T> Turns<T> {
    /// Makes one that has no owner, with this value.
    pub fn new(value: T) -> Turns<T> {
        Turns {
            bias: Bias::default(),
            habit: Habit {
                last: AtomicU64::new(0),
                turns: AtomicU32::new(0),
                enough: AtomicU32::new(TURNS_MIN),
            },
            lock: Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value to the only thread that has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Comes in to read or change the value if this thread owns it, and is not inside already: that
    /// takes no lock.
    #[inline(always)]
    pub fn as_owner(&self) -> Option<Changing<'_, T>> {
        self.bias.enter(Thread::current()).then(|| Changing {
            turns: self,
            _way: Way::Owner(&self.bias),
        })
    }

    /// Comes in to read; `None` after `wait`. A thread that has locked it must not come again; one
    /// that is inside as the owner gets `None`.
    #[inline]
    pub fn read(&self, wait: Duration) -> Option<Reading<'_, T>> {
        let way = match self.bias.enter(Thread::current()) {
            true => Way::Owner(&self.bias),
            false => self.read_slowly(wait)?,
        };
        Some(Reading {
            turns: self,
            _way: way,
        })
    }

    /// Comes in to change the value; `None` after `wait`. A thread that has locked it must not come
    /// again; one that is inside as the owner gets `None`.
    #[inline]
    pub fn change(&self, wait: Duration) -> Option<Changing<'_, T>> {
        let way = match self.bias.enter(Thread::current()) {
            true => Way::Owner(&self.bias),
            false => self.change_slowly(wait)?,
        };
        Some(Changing {
            turns: self,
            _way: way,
        })
    }

    fn read_slowly(&self, wait: Duration) -> Option<Way<'_>> {
        if self.bias.is_inside_by(Thread::current()) {
            return None;
        }
        if self.bias.is_free() && self.habit.count(Thread::current()) {
            // Readers that come at the same moment are a reason to leave it as it is.
            if let Some(alone) = self.lock.try_hold()
                && self.bias.is_free()
            {
                return Some(self.own(alone));
            }
        }
        let shared = self.lock.share_for(wait)?;
        if self.bias.is_free() {
            return Some(Way::Shared(shared));
        }
        drop(shared);
        let alone = self.lock.hold_for(wait)?;
        self.have_no_owner(wait).then_some(Way::Alone(alone))
    }

    fn change_slowly(&self, wait: Duration) -> Option<Way<'_>> {
        if self.bias.is_inside_by(Thread::current()) {
            return None;
        }
        let alone = self.lock.hold_for(wait)?;
        if !self.have_no_owner(wait) {
            return None;
        }
        Some(match self.habit.count(Thread::current()) {
            true => self.own(alone),
            false => Way::Alone(alone),
        })
    }

    /// Makes this thread the owner, if there can be one.
    fn own<'t>(&'t self, alone: Alone<'t>) -> Way<'t> {
        let me = Thread::current();
        // A first fence shows whether the kernel executes them.
        if !heavy_fence() {
            self.habit.enough.store(u32::MAX, Relaxed);
            return Way::Alone(alone);
        }
        match self.bias.give(me) && self.bias.enter(me) {
            true => Way::Owner(&self.bias),
            false => Way::Alone(alone),
        }
    }

    /// Takes the ownership back, and waits until the owner has left. The caller has the lock alone.
    fn have_no_owner(&self, wait: Duration) -> bool {
        if !self.bias.take_back() {
            return true;
        }
        if !heavy_fence() {
            return false;
        }
        let mut looks = 0;
        let begin = Instant::now();
        while self.bias.is_inside() {
            looks += 1;
            match looks {
                ..LOOKS => std::hint::spin_loop(),
                _ if begin.elapsed() > wait => return false,
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        self.habit.begin_again();
        self.bias.free();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const WAIT: Duration = Duration::from_secs(10);

    #[test]
    fn who_comes_often_alone_becomes_the_owner_until_another_comes() {
        let turns = Turns::new(0_u64);
        for _ in 0..2 * TURNS_MIN {
            *turns.change(WAIT).expect("free") += 1;
        }
        assert!(!turns.bias.is_free());
        std::thread::scope(|scope| {
            scope.spawn(|| *turns.change(WAIT).expect("taken back") += 1);
        });
        assert!(turns.bias.is_free());
        assert_eq!(
            *turns.read(WAIT).expect("free"),
            2 * u64::from(TURNS_MIN) + 1
        );
        for _ in 0..2 * TURNS_MIN {
            turns.read(WAIT).expect("free");
        }
        assert!(!turns.bias.is_free(), "readers own as well");
    }

    #[test]
    fn an_owner_who_is_inside_is_waited_for_but_not_for_ever() {
        let turns = Turns::new(0_u64);
        for _ in 0..TURNS_MIN {
            turns.change(WAIT).expect("free");
        }
        let inside = turns.change(WAIT).expect("the owner");
        assert!(!turns.bias.is_free());
        let short = Duration::from_millis(20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(turns.read(short).is_none() && turns.change(short).is_none());
            });
        });
        drop(inside);
        assert!(turns.change(WAIT).is_some(), "he has left");
    }

    #[test]
    fn an_owner_who_comes_back_by_a_signal_does_not_wait_for_himself() {
        let turns = Turns::new(0_u64);
        for _ in 0..TURNS_MIN {
            turns.change(WAIT).expect("free");
        }
        let inside = turns.as_owner().expect("the owner");
        let begin = Instant::now();
        assert!(turns.as_owner().is_none());
        assert!(turns.read(WAIT).is_none() && turns.change(WAIT).is_none());
        let short = Duration::from_millis(20);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(turns.change(short).is_none()));
        });
        // The thread is not the owner any more, but still inside.
        assert!(turns.read(WAIT).is_none() && turns.change(WAIT).is_none());
        assert!(begin.elapsed() < WAIT);
        drop(inside);
        assert!(turns.read(WAIT).is_some());
    }

    #[test]
    fn threads_that_come_at_once_are_never_in_together() {
        const EACH: u64 = 200_000;
        // Two words that are always equal, changed one after the other.
        let turns = Turns::new((0_u64, 0_u64));
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (turns, begin) = (&turns, &begin);
                scope.spawn(move || {
                    begin.wait();
                    for turn in 0..EACH {
                        let mut pair = turns.change(WAIT).expect("not for long");
                        pair.0 += 1;
                        pair.1 += 1;
                        drop(pair);
                        // Long runs of one thread, then of the other.
                        if turn % 1000 == thread * 500 {
                            std::thread::yield_now();
                        }
                        let pair = turns.read(WAIT).expect("not for long");
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(turns.read(WAIT).map(|pair| pair.1), Some(2 * EACH));
    }
}
