//! The place where a description is read and written next: a word, if it is the library's, or the
//! kernel's.
//!
//! The holder of the description's lock takes a step alone, but the lock can be passed by
//! ([`Hold`]). So each step is one, and right beside any other step. The kernel's position cannot
//! be changed under a condition; so of several threads that give the position to the kernel one
//! tells it where it is, and until that is done the position stays the library's.

use locks::{Hold, Word};
use pmem::deliberate::{self, Bug};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// From here on a word says that the position is the kernel's, or is handed over.
const KERNELS: u64 = 1 << 63;
/// The kernel's, and who holds the lock may take it.
const FREE: u64 = u64::MAX - 1;
/// The kernel's for good.
const GIVEN: u64 = u64::MAX;
/// Beside a place: it is being handed over.
const HANDED: u64 = KERNELS;
/// No place is farther.
const FARTHEST: u64 = KERNELS - 3;

/// The kernel's position of a description.
pub trait KernelsPosition: Copy {
    /// Moves it, and says where it is then.
    fn seek(&self, to: SeekFrom) -> Result<u64, Errno>;
}

impl KernelsPosition for BorrowedFd<'_> {
    #[inline]
    fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        rustix::fs::seek(self, to)
    }
}

/// A step on from a position.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// From here.
    From(u64),
    /// From here there are not so many bytes to the end of all files, so it stays.
    TooFar(u64),
    /// It is the kernel's.
    Kernels,
}

/// A position; the kernel's, at first, until it is [taken](Self::take).
#[derive(Debug)]
pub struct Position<W = AtomicU64>(W);

impl Position {
    /// The kernel's.
    pub const fn new() -> Position {
        Position(AtomicU64::new(FREE))
    }
}

impl Default for Position {
    fn default() -> Position {
        Position::new()
    }
}

/// The place in a word, if it is the library's.
#[inline]
fn place_in(word: u64) -> Option<u64> {
    match word {
        FREE | GIVEN => None,
        word => Some(word & !HANDED),
    }
}

impl<W: Word> Position<W> {
    /// The same with another word, for a model.
    #[cfg(test)]
    pub(crate) fn modelled() -> Position<W> {
        let word = W::default();
        word.store(FREE, Relaxed);
        Position(word)
    }

    /// Whether it is the library's and likely to stay so.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.0.load(Relaxed) < KERNELS
    }

    /// Where it is, if it is the library's. Else this call is going to use the kernel's; if it
    /// passes by who may be about to take that, he must not.
    #[inline]
    pub fn get(&self, hold: Hold) -> Option<u64> {
        place_in(self.word(hold))
    }

    #[inline]
    fn word(&self, hold: Hold) -> u64 {
        match self.0.load(Acquire) {
            FREE if hold != Hold::Locked => self.keep_free(),
            word => word,
        }
    }

    #[cold]
    fn keep_free(&self) -> u64 {
        match deliberate::is(Bug::LeavePositionFree) || self.0.replace(FREE, GIVEN) {
            true => GIVEN,
            false => self.0.load(Acquire),
        }
    }

    /// Changes the place, if it is the library's, and `to` says where it goes from there; says
    /// where it was.
    #[inline]
    fn change(&self, hold: Hold, to: impl Fn(u64) -> Option<u64>) -> Step {
        loop {
            let word = self.word(hold);
            let Some(place) = place_in(word) else {
                return Step::Kernels;
            };
            let Some(next) = to(place).filter(|next| *next <= FARTHEST) else {
                return Step::TooFar(place);
            };
            if self.0.replace(word, next | word & HANDED) {
                return Step::From(place);
            }
        }
    }

    /// Moves it there, whose ever it is.
    pub fn set(&self, hold: Hold, kernels: impl KernelsPosition, place: u64) -> Result<u64, Errno> {
        match self.change(hold, |_| Some(place)) {
            Step::From(_) => return Ok(place),
            Step::Kernels => {}
            // A word that says so means something else.
            Step::TooFar(_) => self.give(hold, kernels),
        }
        kernels.seek(SeekFrom::Start(place))
    }

    /// Moves it on, and says where it was. A signal handler that comes in between moves it by what
    /// is its own.
    #[inline]
    pub fn advance(&self, hold: Hold, bytes: usize) -> Step {
        self.change(hold, |start| start.checked_add(bytes as u64))
    }

    /// Moves it from `start` to the end that an append has made, or leaves it where somebody has
    /// moved it meanwhile, if that is farther.
    pub fn reach(&self, hold: Hold, kernels: impl KernelsPosition, start: u64, end: u64) {
        let farther = |place: u64| if place == start { end } else { place.max(end) };
        if self.change(hold, |place| Some(farther(place))) == Step::Kernels {
            let _ = kernels.seek(SeekFrom::Start(end));
        }
    }

    /// Moves it back: less was read or written than was meant to be. Somebody may have given it to
    /// the kernel meanwhile.
    #[inline]
    pub fn retreat(&self, hold: Hold, kernels: impl KernelsPosition, bytes: usize) {
        let back = |place: u64| Some(place.saturating_sub(bytes as u64));
        if bytes > 0 && self.change(hold, back) == Step::Kernels {
            let _ = kernels.seek(SeekFrom::Current(-(bytes as i64)));
        }
    }

    /// Tells the kernel where it is.
    pub fn push(&self, hold: Hold, kernels: impl KernelsPosition) {
        if let Some(place) = self.get(hold) {
            let _ = kernels.seek(SeekFrom::Start(place));
        }
    }

    /// Takes it from the kernel: it is the library's from now on. False if the kernel has none, or
    /// somebody uses it. By who holds the lock.
    pub fn take(&self, kernels: impl KernelsPosition) -> bool {
        let place = kernels.seek(SeekFrom::Current(0)).ok();
        let place = place.filter(|place| *place <= FARTHEST);
        place.is_some_and(|place| self.0.replace(FREE, place))
    }

    /// It is the kernel's from now on, until it is taken. False if it was before. By who holds the
    /// lock.
    pub fn lend(&self, kernels: impl KernelsPosition) -> bool {
        self.hand_over(Hold::Locked, kernels, FREE)
    }

    /// It is the kernel's for good.
    ///
    /// Who comes while somebody hands it over leaves that to him. If he has interrupted him he
    /// tells the kernel beside that, which is right until he returns. If not, nobody can tell in
    /// which order the kernel would hear of it.
    pub fn give(&self, hold: Hold, kernels: impl KernelsPosition) {
        self.hand_over(hold, kernels, GIVEN);
    }

    /// Others may move it until the kernel knows.
    fn hand_over(&self, hold: Hold, kernels: impl KernelsPosition, next: u64) -> bool {
        let word = self
            .0
            .update(|word| (word < KERNELS).then_some(word | HANDED));
        if word.is_none() && !deliberate::is(Bug::HandOverTwice) {
            match hold {
                Hold::Interrupting => self.push(hold, kernels),
                // Who has lent it must not take it again.
                Hold::Passing => _ = self.word(hold),
                Hold::Locked => {}
            }
            return false;
        }
        while let Some(place) = self.get(hold) {
            let _ = kernels.seek(SeekFrom::Start(place));
            if self.0.replace(place | HANDED, next) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    type Handler<'a> = dyn Fn(&Interrupted<'a>) + 'a;

    /// A kernel in which a signal arrives before a position is moved, once.
    struct Interrupted<'a> {
        place: Cell<u64>,
        handler: Cell<Option<&'a Handler<'a>>>,
    }

    impl Interrupted<'_> {
        fn new() -> Self {
            Interrupted {
                place: Cell::new(0),
                handler: Cell::new(None),
            }
        }
    }

    impl KernelsPosition for &Interrupted<'_> {
        fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
            if let Some(handler) = self.handler.take() {
                handler(self);
            }
            match to {
                SeekFrom::Start(place) => self.place.set(place),
                SeekFrom::Current(bytes) => {
                    self.place.update(|place| place.strict_add_signed(bytes))
                }
                _ => return Err(Errno::INVAL),
            }
            Ok(self.place.get())
        }
    }

    fn taken(kernel: &Interrupted<'_>) -> Position {
        let position = Position::new();
        assert_eq!(position.advance(Hold::Locked, 1), Step::Kernels);
        assert!(position.take(kernel) && !position.take(kernel));
        assert_eq!(position.advance(Hold::Locked, 5), Step::From(0));
        position
    }

    #[test]
    fn a_handler_that_interrupts_who_hands_it_over_finds_the_kernel_told() {
        let kernel = Interrupted::new();
        let position = taken(&kernel);
        let handler = |kernel: &Interrupted<'_>| {
            position.give(Hold::Interrupting, kernel);
            assert_eq!(kernel.place.get(), 5);
            assert_eq!(position.advance(Hold::Interrupting, 2), Step::From(5));
        };
        kernel.handler.set(Some(&handler));
        position.give(Hold::Locked, &kernel);
        assert_eq!((position.get(Hold::Locked), kernel.place.get()), (None, 7));
        assert!(!position.take(&kernel), "it is given for good");
    }

    #[test]
    fn a_handler_that_uses_what_is_about_to_be_taken_keeps_it_the_kernels() {
        let kernel = Interrupted::new();
        let position = taken(&kernel);
        assert!(position.lend(&kernel) && !position.lend(&kernel));
        let handler = |kernel: &Interrupted<'_>| {
            assert_eq!(position.advance(Hold::Interrupting, 2), Step::Kernels);
            assert_eq!(kernel.seek(SeekFrom::Current(2)), Ok(7));
        };
        kernel.handler.set(Some(&handler));
        assert!(!position.take(&kernel));
        assert_eq!((position.get(Hold::Locked), kernel.place.get()), (None, 7));
    }

    #[test]
    fn places_that_words_cannot_say_are_the_kernels() {
        let kernel = Interrupted::new();
        let position = taken(&kernel);
        assert_eq!(position.set(Hold::Locked, &kernel, FARTHEST), Ok(FARTHEST));
        assert_eq!(position.advance(Hold::Locked, 1), Step::TooFar(FARTHEST));
        for place in [FARTHEST + 1, FARTHEST + 2] {
            assert_eq!(position.set(Hold::Locked, &kernel, place), Ok(place));
            assert_eq!(position.get(Hold::Locked), None);
        }
        assert_eq!(kernel.place.get(), FARTHEST + 2);
    }
}
