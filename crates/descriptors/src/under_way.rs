//! How many calls of a kind are under way, and how many have begun.

use locks::Word;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

const CALL: u64 = 1;
/// Those that have begun are counted above those that are under way.
const BEGUN: u64 = 1 << 32;
const CALLS: u64 = BEGUN - 1;

/// Calls that let others see a description, or give a number to another file.
#[derive(Default)]
pub(crate) struct UnderWay<W = AtomicU64>(W);

/// What was under way at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(u64);

impl UnderWay {
    pub(crate) const fn new() -> Self {
        UnderWay(AtomicU64::new(0))
    }
}

impl<W: Word> UnderWay<W> {
    pub(crate) fn begin(&self) {
        self.0.add(BEGUN + CALL);
    }

    /// One that began before a fork and ends in the child was forgotten there.
    pub(crate) fn end(&self) {
        self.0.update(|now| (now & CALLS != 0).then(|| now - CALL));
    }

    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.0.load(SeqCst) & CALLS != 0
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment(self.0.load(SeqCst))
    }

    /// Whether any was under way then, or has begun since.
    pub(crate) fn was_any_since(&self, then: Moment) -> bool {
        then.0 & CALLS != 0 || self.0.load(SeqCst) != then.0
    }

    /// In a child of `fork`, which has one thread: those of other threads are the parent's.
    pub(crate) fn forget(&self) {
        self.0.update(|now| Some(now & !CALLS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_or_is_under_way_is_seen() {
        let calls = UnderWay::new();
        let before = calls.moment();
        assert!(!calls.is_any() && !calls.was_any_since(before));
        calls.begin();
        let beside = calls.moment();
        assert!(calls.is_any() && calls.was_any_since(before));
        calls.end();
        assert!(!calls.is_any());
        assert!(calls.was_any_since(before), "it has begun");
        assert!(calls.was_any_since(beside), "it was under way");
        assert!(!calls.was_any_since(calls.moment()));
    }

    #[test]
    fn a_child_forgets_what_others_had_begun() {
        let calls = UnderWay::new();
        calls.begin();
        calls.begin();
        calls.forget();
        assert!(!calls.is_any());
        calls.end();
        assert!(!calls.is_any(), "one that was forgotten ends");
    }
}
