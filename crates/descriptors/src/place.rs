//! Where a description lives.
//!
//! A place is never unmapped, so that whoever finds its index in the table may count himself in and
//! only then ask whether the index still stands there. Counters are several, each on a line of its
//! own, and a thread keeps to one: threads that read the same file do not fight over a line.
//! Counting takes no lock and no memory, so a signal handler may. Beside the counter a thread that
//! comes often can be the line's owner, and go in without a locked instruction ([`Bias`]).
//!
//! What is in a place is taken out when no number leads there any more (*dying*), and after that
//! each counter was seen at zero and each owner outside: new readers cannot come, because what they
//! ask is gone. Whoever goes out last sees that it is dying, or the one who made it so sees nobody.

use locks::{Bias, Thread, Word};
use pmem::deliberate::{self, Bug};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// States of a place; a smaller number counts the numbers that lead to it.
const FREE: u64 = 0;
const DYING: u64 = u64::MAX;
const CHANGING: u64 = u64::MAX - 1;

/// A thread that came so often to a line of its own becomes its owner.
const TURNS_BEFORE: u32 = 64;

/// Readers of a place that keep to the same line.
#[derive(Default)]
#[repr(align(64))]
pub struct Line<W = AtomicU64> {
    count: W,
    bias: Bias<W>,
    /// How often it was counted up: about, as nobody waits for others here.
    turns: AtomicU32,
}

impl<W: Word> Line<W> {
    #[cold]
    fn count_in(&self, me: Thread) {
        self.count.add(1);
        let turns = self.turns.load(Relaxed).saturating_add(1);
        self.turns.store(turns, Relaxed);
        // Counted in, so that the place does not end meanwhile. A kernel without the fence shows
        // itself here.
        if turns == TURNS_BEFORE && W::heavy_fence() {
            self.give(me);
        }
    }

    fn give(&self, me: Thread) {
        self.bias.give(me);
    }

    /// The owner leaves.
    #[inline(always)]
    pub fn leave_as_owner(&self) {
        self.bias.leave();
    }
}

/// Room for one `T`, shared by `LINES` lines of readers.
pub struct Place<T, const LINES: usize, W = AtomicU64> {
    lines: [Line<W>; LINES],
    state: W,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the cell is changed only in state `CHANGING` by the one who brought it there, when nobody
// is inside who may look; and the value may be used, and dropped, by all threads.
unsafe impl<T: Send + Sync, const LINES: usize, W: Sync> Sync for Place<T, LINES, W> {}

/// Somebody inside a place.
pub struct Visit<'a, W = AtomicU64> {
    line: &'a Line<W>,
    is_owner: bool,
}

/// What became of a place that is dying.
pub enum Ended<T> {
    /// It is free, and this was in it.
    Free(Option<T>),
    /// Somebody is there, and ends it later; or did so meanwhile.
    Used,
    /// The kernel has no fence for it: nobody can tell, now; perhaps later.
    Unknown,
}

impl<T, const LINES: usize, W: Word> Default for Place<T, LINES, W> {
    fn default() -> Self {
        Place {
            lines: std::array::from_fn(|_| Line::default()),
            state: W::default(),
            value: UnsafeCell::new(None),
        }
    }
}

impl<T, const LINES: usize, W: Word> Place<T, LINES, W> {
    #[inline(always)]
    fn line(&self, me: Thread) -> &Line<W> {
        &self.lines[me.spread_over(LINES)]
    }

    /// Goes in. [`leave`](Self::leave) follows.
    #[inline(always)]
    pub fn enter(&self, me: Thread) -> Visit<'_, W> {
        let line = self.line(me);
        let is_owner = line.bias.enter(me);
        if !is_owner {
            line.count_in(me);
        }
        Visit { line, is_owner }
    }

    /// Goes in, if this thread owns its line: then it takes no locked instruction.
    /// [`Line::leave_as_owner`] follows, and what [`leave`](Self::leave) says.
    #[inline(always)]
    pub fn enter_as_owner(&self, me: Thread) -> Option<&Line<W>> {
        let line = self.line(me);
        line.bias.enter(me).then_some(line)
    }

    /// Goes out. If the place [is dying](Self::is_dying) then, it is to be [ended](Self::end).
    #[inline(always)]
    pub fn leave(&self, visit: &Visit<'_, W>) {
        match visit.is_owner {
            true => visit.line.bias.leave(),
            false => {
                visit.line.count.add(1_u64.wrapping_neg());
            }
        }
    }

    /// What is here.
    ///
    /// # Safety
    ///
    /// Whoever asks went in, then saw a number lead here, and has not left.
    #[inline(always)]
    pub unsafe fn value(&self) -> Option<&T> {
        // SAFETY: by the caller's promise the place is not free, and is not freed until he leaves.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// Nothing is here, as it seems.
    pub fn is_free(&self) -> bool {
        self.state.load(Relaxed) == FREE
    }

    /// No number leads here any more.
    #[inline(always)]
    pub fn is_dying(&self) -> bool {
        self.state.load(SeqCst) == DYING
    }

    /// Puts in what `make` makes, if the place is free; one number leads here from now on.
    pub fn fill(&self, make: impl FnOnce() -> T) -> bool {
        let is_mine = self.state.replace(FREE, CHANGING);
        if is_mine {
            let value = Some(make());
            // SAFETY: the state is ours to change, and who went in meanwhile sees no number lead
            // here, and does not look.
            unsafe { *self.value.get() = value };
            self.state.store(1, SeqCst);
        }
        is_mine
    }

    /// One number more leads here; false if none does any more, and none may.
    pub fn add_number(&self) -> bool {
        let more = |state| (state != FREE && state < CHANGING - 1).then(|| state + 1);
        self.state.update(more).is_some()
    }

    /// A number that led here does not any more. By who is inside, so that the place is ended.
    pub fn remove_number(&self) {
        self.state.update(|state| match state {
            1 => Some(DYING),
            FREE | DYING | CHANGING => None,
            several => Some(several - 1),
        });
    }

    /// Takes out what is in a place that is dying, if nobody is inside.
    pub fn end(&self) -> Ended<T> {
        match self.is_used() {
            None => return Ended::Unknown,
            Some(true) if !deliberate::is(Bug::EndUsedPlace) => return Ended::Used,
            Some(_) => {}
        }
        if !self.state.replace(DYING, CHANGING) {
            return Ended::Used;
        }
        // SAFETY: no number leads here, and each counter was at zero since: nobody has a reference,
        // and the state is ours to change.
        let value = unsafe { (*self.value.get()).take() };
        for line in &self.lines {
            line.turns.store(0, Relaxed);
            line.bias.free();
        }
        self.state.store(FREE, SeqCst);
        Ended::Free(value)
    }

    /// Whether somebody is inside a place that is dying, if that can be told.
    fn is_used(&self) -> Option<bool> {
        let take_back = |any: bool, line: &Line<W>| any | line.bias.take_back();
        let has_owner = self.lines.iter().fold(false, take_back);
        if has_owner && !W::heavy_fence() {
            return None;
        }
        let is_used = |line: &Line<W>| line.count.load(SeqCst) != 0 || line.bias.is_inside();
        Some(self.lines.iter().any(is_used))
    }

    /// How many numbers lead here, when nothing changes.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> u64 {
        self.state.load(SeqCst)
    }

    /// Makes a thread the owner of its line.
    #[cfg(test)]
    pub(crate) fn give(&self, to: Thread) {
        self.line(to).give(to);
    }

    /// In a child of `fork`: the place is free, and what was in it is the parent's and not dropped.
    ///
    /// # Safety
    ///
    /// There is no other thread, and this one is not inside.
    pub unsafe fn forget(&self) {
        for line in &self.lines {
            line.count.store(0, Relaxed);
            line.turns.store(0, Relaxed);
            line.bias.forget();
        }
        // SAFETY: by the caller's promise nobody has a reference.
        unsafe { self.value.get().write(None) };
        self.state.store(FREE, SeqCst);
    }
}
