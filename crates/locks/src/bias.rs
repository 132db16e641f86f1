//! A thread that uses something nearly always alone goes in without a locked instruction.
//!
//! A locked instruction waits until everything that its processor has stored before has arrived.
//! Behind a streaming copy of 4 KiB these are some hundred nanoseconds, in which the next copy
//! could begin. So a thread that keeps using something becomes its *owner*: it says that it is
//! inside, then looks whether it still is the owner. Another thread that wants in takes the
//! ownership back, then looks whether the owner is inside. Between the two steps of each side
//! belongs a full fence. The owner's is one for the compiler; the other thread executes one on the
//! processors of all threads (`membarrier`). A server takes a lease back in the same way
//! (`lease::State`); this is the way inside a process.

use rustix::thread::{MembarrierCommand, membarrier};
use std::arch::asm;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};

/// A word of 64 bits; abstract, so that the orderings can be checked exhaustively. Other structures
/// without a lock use it as well.
pub trait Word: Default {
    /// Loads the word.
    fn load(&self, ordering: Ordering) -> u64;
    /// Stores a word.
    fn store(&self, word: u64, ordering: Ordering);
    /// Stores `new` if the word is `old`; returns whether it was.
    fn replace(&self, old: u64, new: u64) -> bool;
    /// Adds to the word, and returns its former value.
    fn add(&self, change: u64) -> u64;
    /// The owner's fence: the compiler heeds it, and the processor does when the other side
    /// executes its own.
    fn light_fence();
    /// The other side's fence: a full one on each processor that runs a thread of this process. It
    /// returns `false` if the kernel has none: then no owner counts as outside.
    fn heavy_fence() -> bool;

    /// Stores the word that `change` makes of the present one, and returns the former value; `None`
    /// if `change` makes none.
    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        loop {
            let old = self.load(Acquire);
            if self.replace(old, change(old)?) {
                return Some(old);
            }
        }
    }
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        AtomicU64::load(self, ordering)
    }

    #[inline]
    fn store(&self, word: u64, ordering: Ordering) {
        AtomicU64::store(self, word, ordering);
    }

    #[inline]
    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, SeqCst, Relaxed).is_ok()
    }

    #[inline]
    fn add(&self, change: u64) -> u64 {
        self.fetch_add(change, SeqCst)
    }

    #[inline]
    fn light_fence() {
        std::sync::atomic::compiler_fence(SeqCst);
    }

    fn heavy_fence() -> bool {
        const FENCE: MembarrierCommand = MembarrierCommand::PrivateExpedited;
        const REGISTER: MembarrierCommand = MembarrierCommand::RegisterPrivateExpedited;
        membarrier(FENCE).is_ok() || membarrier(REGISTER).is_ok() && membarrier(FENCE).is_ok()
    }
}

/// A thread of this process, among those that are alive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Thread(u64);

impl Thread {
    /// Returns the calling thread.
    #[inline(always)]
    pub fn current() -> Thread {
        let pointer: u64;
        // SAFETY: by the ABI the first word that this segment leads to is its own address, another
        // one for each thread.
        unsafe {
            asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly, pure))
        };
        Thread(pointer)
    }

    /// Returns a thread of a model, by a number above 1.
    pub const fn modelled(number: u64) -> Thread {
        Thread(number)
    }

    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Returns one of `count` numbers, a power of two: different ones for most threads.
    #[inline(always)]
    pub fn spread_over(self, count: usize) -> usize {
        // Fibonacci hashing: the upper bits of the product depend on all of the address.
        let product = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (product >> 32) as usize % count
    }
}

const NOBODY: u64 = 0;
/// There was an owner, and it is not known yet whether that thread is still inside. No thread has
/// this address.
const TAKEN_BACK: u64 = 1;

/// Whether a thread owns something, and is inside.
#[derive(Debug, Default)]
pub struct Bias<W = AtomicU64> {
    owner: W,
    /// The owner, while it is inside, or 0. Only the owner stores to it.
    inside: W,
}

impl<W: Word> Bias<W> {
    /// Goes in, if this thread is the owner and is not inside already (a signal may have
    /// interrupted it there). Then [`leave`](Self::leave) follows.
    #[inline(always)]
    #[must_use]
    pub fn enter(&self, me: Thread) -> bool {
        if self.owner.load(Relaxed) != me.0 || self.inside.load(Relaxed) != 0 {
            return false;
        }
        self.inside.store(me.0, Relaxed);
        W::light_fence();
        // Acquire: the thread that took it back before may have changed the things inside.
        let is_owner = self.owner.load(Acquire) == me.0;
        if !is_owner {
            self.leave();
        }
        is_owner
    }

    /// The owner leaves; its later loads come after that.
    #[inline(always)]
    pub fn leave(&self) {
        self.inside.store(0, Release);
        W::light_fence();
    }

    /// Makes a thread the owner, if there is none; returns whether there was none.
    pub fn give(&self, to: Thread) -> bool {
        self.owner.replace(NOBODY, to.0)
    }

    /// Returns whether there is no owner, and no thread that is about to cease to be one.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.owner.load(SeqCst) == NOBODY
    }

    /// From here on no thread goes in, but the owner may still be inside: after the heavy fence
    /// [`is_inside`](Self::is_inside) knows. Returns whether there was an owner: if not, no fence
    /// is needed.
    pub fn take_back(&self) -> bool {
        if self.is_free() {
            return false;
        }
        self.owner.store(TAKEN_BACK, SeqCst);
        true
    }

    /// Returns whether the owner was inside at the time of the heavy fence, and has not left since.
    /// Once it has left, everything that it did is visible.
    pub fn is_inside(&self) -> bool {
        self.inside.load(Acquire) != 0
    }

    /// Returns whether this thread is inside as the owner: a signal has interrupted it there, and
    /// it must not wait until it has left.
    #[inline]
    pub fn is_inside_by(&self, me: Thread) -> bool {
        self.inside.load(Relaxed) == me.0
    }

    /// Allows an owner again, after the ownership was taken back and the former owner has left.
    pub fn free(&self) {
        self.owner.store(NOBODY, SeqCst);
    }

    /// In a child of `fork`, whose only thread this is: the other threads of the parent are not
    /// inside here.
    pub fn forget(&self) {
        self.inside.store(0, Relaxed);
        self.free();
    }
}

/// Executes [`Word::heavy_fence`] for this process.
pub fn heavy_fence() -> bool {
    AtomicU64::heavy_fence()
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64 as Model, fence};

    impl Word for Model {
        fn load(&self, ordering: Ordering) -> u64 {
            Model::load(self, ordering)
        }

        fn store(&self, word: u64, ordering: Ordering) {
            Model::store(self, word, ordering);
        }

        fn replace(&self, old: u64, new: u64) -> bool {
            self.compare_exchange(old, new, SeqCst, Relaxed).is_ok()
        }

        fn add(&self, change: u64) -> u64 {
            self.fetch_add(change, SeqCst)
        }

        // Together with the other side's it acts as a full one.
        fn light_fence() {
            fence(SeqCst);
        }

        fn heavy_fence() -> bool {
            fence(SeqCst);
            true
        }
    }

    #[derive(Default)]
    struct Shared {
        bias: Bias<Model>,
        cell: UnsafeCell<u64>,
    }

    // SAFETY: the model checks this.
    unsafe impl Sync for Shared {}

    const OWNER: Thread = Thread::modelled(64);

    /// An owner goes in twice; another thread takes the ownership back, and uses the cell. The
    /// model notices two threads inside at a time, and one that does not see the work of the other.
    fn explore(heavy: fn()) {
        loom::model(move || {
            let shared = Arc::new(Shared::default());
            assert!(shared.bias.give(OWNER));
            let theirs = Arc::clone(&shared);
            let owner = loom::thread::spawn(move || {
                (0..2)
                    .filter(|_| {
                        let is_in = theirs.bias.enter(OWNER);
                        if is_in {
                            // SAFETY: as above.
                            theirs.cell.with_mut(|cell| unsafe { *cell += 1 });
                            theirs.bias.leave();
                        }
                        is_in
                    })
                    .count() as u64
            });
            assert!(shared.bias.take_back());
            heavy();
            let is_alone = !shared.bias.is_inside();
            // SAFETY: as above.
            let seen = is_alone.then(|| shared.cell.with(|cell| unsafe { *cell }));
            let done = owner.join().expect("the owner ends");
            if let Some(seen) = seen {
                assert_eq!(seen, done, "gone in after it was taken back");
            }
            assert!(!shared.bias.is_inside());
        });
    }

    #[test]
    fn one_is_inside_at_a_time() {
        explore(|| fence(SeqCst));
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn taking_back_without_the_fence_is_caught() {
        explore(|| {});
    }

    #[test]
    fn threads_are_told_apart() {
        let here = Thread::current();
        assert_eq!(here, Thread::current());
        let there = std::thread::spawn(Thread::current).join();
        assert_ne!(there.expect("joined"), here);
        assert!(here.0 > TAKEN_BACK);
    }

    #[test]
    fn a_handler_does_not_go_in_where_its_thread_is() {
        let bias: Bias = Bias::default();
        let me = Thread::current();
        assert!(!bias.enter(me), "nobody gave it to us");
        assert!(bias.give(me) && !bias.give(OWNER));
        assert!(bias.enter(me));
        assert!(!bias.enter(me));
        bias.leave();
        assert!(bias.take_back() && heavy_fence() && !bias.is_inside());
        assert!(!bias.enter(me) && !bias.give(me));
        bias.free();
        assert!(bias.give(me) && bias.enter(me));
    }
}
