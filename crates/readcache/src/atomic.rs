//! An atomic word; abstract, so that the orderings of the protocol can be checked exhaustively.

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) trait Atomic {
    fn load(&self, ordering: Ordering) -> u64;
    fn store(&self, value: u64, ordering: Ordering);
    /// Stores `new` if the value is `current`; acquires in any case, releases if it stored.
    fn exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
    /// Stores, and is a sequentially consistent fence: one instruction.
    fn replace(&self, value: u64);
    fn fence(ordering: Ordering);
}

impl Atomic for AtomicU64 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        AtomicU64::load(self, ordering)
    }

    #[inline]
    fn store(&self, value: u64, ordering: Ordering) {
        AtomicU64::store(self, value, ordering);
    }

    #[inline]
    fn exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    #[inline]
    fn replace(&self, value: u64) {
        // On x86-64, for which all of this is written, every locked instruction is such a fence.
        self.swap(value, Ordering::SeqCst);
    }

    #[inline]
    fn fence(ordering: Ordering) {
        match ordering {
            Ordering::SeqCst => pmem::full_fence(),
            weaker => std::sync::atomic::fence(weaker),
        }
    }
}

#[cfg(test)]
impl Atomic for loom::sync::atomic::AtomicU64 {
    fn load(&self, ordering: Ordering) -> u64 {
        loom::sync::atomic::AtomicU64::load(self, ordering)
    }

    fn store(&self, value: u64, ordering: Ordering) {
        loom::sync::atomic::AtomicU64::store(self, value, ordering);
    }

    fn exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    fn replace(&self, value: u64) {
        self.swap(value, Ordering::SeqCst);
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    fn fence(ordering: Ordering) {
        loom::sync::atomic::fence(ordering);
    }
}
