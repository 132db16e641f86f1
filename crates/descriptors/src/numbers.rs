//! What is known of each descriptor number.
//!
//! A descriptor is looked at when it is used for the third time, or read for the 32nd. So programs
//! that read a file and close it pay nothing, and a handler that writes one last line into a file
//! that it just opened asks nobody. Until then calls that use the kernel's position are counted
//! while they last (*under way*): the position is taken over only when there are none.
//!
//! A number that is closed becomes the kernel's before the kernel closes it, and only an opening
//! function that we stand before makes it anything else.

use crate::meaning::{Meaning, Tag};
use crate::under_way::{Moment, UnderWay};
use locks::Word;
use pmem::deliberate::{self, Bug};
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// Numbers below also belong to `stdin`, `stdout` and `stderr`, which the C library reads and
/// writes unseen.
pub(crate) const FIRST_OF_ITS_OWN: RawFd = 3;

/// What numbers lead to, and what the process and the kernel say of them.
pub trait Descriptions {
    /// A description that does not go away while this lives.
    type Pin<'a>
    where
        Self: 'a;

    /// Pins what an index leads to, if it still stands in the table after that.
    fn pin(&self, index: usize, still_stands: impl FnOnce() -> bool) -> Option<Self::Pin<'_>>;

    /// One number more leads to it; false if none may.
    fn add_number(&self, pin: &Self::Pin<'_>) -> bool;

    /// A number that led to the description of this index does not any more.
    fn remove_number(&self, index: usize);

    /// Its position is the kernel's from now on, for good.
    fn give_up_position(&self, pin: &Self::Pin<'_>, number: RawFd);

    /// Asks what a descriptor is. If it is ours, `enter` is told the index of a new description to
    /// which one number leads, while its position is locked; it says nothing if the number has
    /// changed meanwhile, so that none leads there, or whether the position may be taken over.
    fn look(
        &self,
        number: RawFd,
        name: Option<u64>,
        enter: impl FnOnce(usize) -> Option<bool>,
    ) -> Looked;

    /// Whether this thread cannot look now, because it is interrupted in the middle of it.
    fn is_inside(&self) -> bool;

    /// Whether a file that the program makes under this name is expected to be used, so that its
    /// descriptor is looked at when it is first used.
    fn is_expected(&self, name: u64) -> bool;

    /// Whether descriptors that are only read are looked at later, because little would come of it.
    fn may_readers_wait(&self) -> bool {
        false
    }

    /// Whether all numbers are the kernel's for good.
    fn is_off(&self) -> bool;

    /// To be called before anything of what the table leads to is let go: this may be a child that
    /// nobody has told us of, which forgets.
    fn settle(&self);
}

/// What a look has found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Looked {
    /// The thread cannot look now.
    NotNow,
    /// The descriptor is the kernel's.
    Kernels,
    /// It is ours, unless it has changed meanwhile.
    Ours,
}

/// What a call that is about to use a descriptor finds.
#[derive(Debug)]
pub enum Found<P> {
    /// The kernel's.
    Kernel,
    /// The kernel's, and whoever makes the call says [`Numbers::landed`] with this after it.
    Counted(Meaning),
    /// Ours.
    Ours(P),
}

/// Where a number leads.
pub struct Lead<'a, W = AtomicU64> {
    word: &'a W,
    then: Meaning,
    index: usize,
}

impl<W: Word> Lead<'_, W> {
    /// Index of the description.
    #[inline(always)]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether the number still leads there: who counted himself in before has the description.
    #[inline(always)]
    pub fn still_stands(&self) -> bool {
        self.word.load(SeqCst) == self.then.word() || deliberate::is(Bug::BelieveOldNumber)
    }
}

/// The table: what `COUNT` numbers are; higher ones are the kernel's.
pub struct Numbers<D, const COUNT: usize, W = AtomicU64> {
    descriptions: D,
    words: [W; COUNT],
    /// Highest number that anything was written for, and one.
    used: W,
    /// Changes of all words so far.
    changes: W,
    /// `dup` and its like.
    pub(crate) duplications: UnderWay<W>,
    /// What lets a child or another program see all descriptors.
    sharings: UnderWay<W>,
}

/// A moment before the kernel was asked to open something.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    duplications: Moment,
    sharings: Moment,
}

impl<D, const COUNT: usize> Numbers<D, COUNT> {
    /// Nothing is known yet.
    pub const fn new(descriptions: D) -> Self {
        const { assert!(Meaning::FOREIGN.word() == 0) };
        Numbers {
            descriptions,
            words: [const { AtomicU64::new(0) }; COUNT],
            used: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            duplications: UnderWay::new(),
            sharings: UnderWay::new(),
        }
    }
}

impl<D: Descriptions, const COUNT: usize, W: Word> Numbers<D, COUNT, W> {
    /// The same with other words, for a model.
    #[cfg(test)]
    pub(crate) fn modelled(descriptions: D) -> Self {
        Numbers {
            descriptions,
            words: std::array::from_fn(|_| W::default()),
            used: W::default(),
            changes: W::default(),
            duplications: UnderWay::default(),
            sharings: UnderWay::default(),
        }
    }

    /// What the numbers lead to.
    #[inline(always)]
    pub fn descriptions(&self) -> &D {
        &self.descriptions
    }

    #[inline(always)]
    fn word(&self, number: RawFd) -> Option<&W> {
        usize::try_from(number)
            .ok()
            .and_then(|number| self.words.get(number))
    }

    #[inline(always)]
    fn now(word: &W) -> Meaning {
        Meaning::from_word(word.load(Acquire))
    }

    /// Whether the table has this number.
    pub(crate) fn has(&self, number: RawFd) -> bool {
        self.word(number).is_some()
    }

    /// What the number is now; the kernel's if the table does not have it.
    #[cfg(test)]
    pub(crate) fn meaning(&self, number: RawFd) -> Meaning {
        self.word(number).map_or(Meaning::KERNEL, Self::now)
    }

    /// Whether it is still what it was then.
    pub(crate) fn is_still(&self, number: RawFd, then: Meaning) -> bool {
        let is_then = |word: &W| word.load(SeqCst) == then.word();
        self.word(number).is_some_and(is_then)
    }

    /// Changes of all numbers so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// With this meaning from now on.
    fn changed(&self, meaning: Meaning) -> Meaning {
        meaning.since(self.changes.add(1) + 1)
    }

    /// Changes the word, if nothing has happened to it since.
    fn change(&self, word: &W, then: Meaning, to: Meaning) -> bool {
        word.replace(then.word(), self.changed(to).word())
    }

    /// Whether a call on this descriptor is the kernel's without a doubt.
    #[inline]
    pub fn is_kernels(&self, number: RawFd) -> bool {
        let is_kernels = |word: &W| Meaning::from_word(word.load(Relaxed)).tag() == Tag::Kernel;
        self.word(number).is_none_or(is_kernels)
    }

    /// What a call on a descriptor has to do with; `moves` if it uses the position.
    pub fn find(&self, number: RawFd, moves: bool) -> Found<D::Pin<'_>> {
        self.find_when(number, moves, Meaning::is_worth_a_look)
    }

    /// The same for a call that reads, which is no reason to look as soon.
    pub fn find_to_read(&self, number: RawFd, moves: bool) -> Found<D::Pin<'_>> {
        self.find_when(number, moves, |now| {
            let is_worth_a_look = now.is_worth_a_look();
            is_worth_a_look && (now.is_used_much() || !self.descriptions.may_readers_wait())
        })
    }

    #[inline]
    fn find_when(
        &self,
        number: RawFd,
        moves: bool,
        is_worth_a_look: impl Fn(Meaning) -> bool,
    ) -> Found<D::Pin<'_>> {
        let Some(word) = self.word(number) else {
            return Found::Kernel;
        };
        loop {
            let now = Self::now(word);
            let is_call = match now.tag() {
                Tag::Kernel => return Found::Kernel,
                Tag::Ours(index) => match self.pin(word, now, index) {
                    Some(pin) => return Found::Ours(pin),
                    None => continue,
                },
                tag => tag == Tag::Fresh && moves,
            };
            let is_due = is_worth_a_look(now) || self.is_expected(now);
            if is_due && !self.descriptions.is_inside() {
                self.look(number, word, now);
            } else if is_call && now.has_all_calls() {
                self.change(word, now, Meaning::FOREIGN);
            } else if word.replace(now.word(), now.used(is_call).word()) {
                return match is_call {
                    true => Found::Counted(now),
                    false => Found::Kernel,
                };
            }
        }
    }

    /// A call that was under way is over.
    pub fn landed(&self, number: RawFd, then: Meaning) {
        let landed = |now| Some(Meaning::from_word(now).landed(then)?.word());
        if let Some(word) = self.word(number) {
            word.update(landed);
        }
    }

    /// Where a number leads, if it is ours and was looked at before. For who goes in another way
    /// than [`Descriptions::pin`].
    #[inline(always)]
    pub fn led_to(&self, number: RawFd) -> Option<Lead<'_, W>> {
        let word = self.word(number)?;
        let then = Self::now(word);
        match then.tag() {
            Tag::Ours(index) => Some(Lead { word, then, index }),
            _ => None,
        }
    }

    /// What a number leads to, if it is ours and was looked at before. `None` also if it changes at
    /// this moment.
    #[inline(always)]
    pub fn pinned(&self, number: RawFd) -> Option<D::Pin<'_>> {
        let lead = self.led_to(number)?;
        self.descriptions.pin(lead.index, || lead.still_stands())
    }

    /// The same; what changes is looked at again.
    pub fn ours(&self, number: RawFd) -> Option<D::Pin<'_>> {
        let word = self.word(number)?;
        loop {
            let now = Self::now(word);
            let Tag::Ours(index) = now.tag() else {
                return None;
            };
            if let Some(pin) = self.pin(word, now, index) {
                return Some(pin);
            }
        }
    }

    /// The description, if it is ours; looks now, however seldom the number was used. Not in the
    /// middle of a call of this thread.
    pub fn find_now(&self, number: RawFd) -> Option<D::Pin<'_>> {
        let word = self.word(number)?;
        loop {
            let now = Self::now(word);
            match now.tag() {
                Tag::Kernel => return None,
                Tag::Ours(index) => {
                    if let Some(pin) = self.pin(word, now, index) {
                        return Some(pin);
                    }
                }
                _ => {
                    self.look(number, word, now);
                    if Self::now(word) == now {
                        return None;
                    }
                }
            }
        }
    }

    /// The description behind a number that was not looked at yet, if it is one of a file that is
    /// expected to be used, so that it will be looked at in any case.
    pub fn find_expected(&self, number: RawFd) -> Option<D::Pin<'_>> {
        let now = Self::now(self.word(number)?);
        self.is_expected(now).then(|| self.find_now(number))?
    }

    fn is_expected(&self, now: Meaning) -> bool {
        let is_expected = |name| self.descriptions.is_expected(name);
        now.name().is_some_and(is_expected)
    }

    #[inline(always)]
    fn pin(&self, word: &W, then: Meaning, index: usize) -> Option<D::Pin<'_>> {
        let lead = Lead { word, then, index };
        self.descriptions.pin(index, || lead.still_stands())
    }

    /// Looks at a descriptor, and writes down what it is, unless that has changed meanwhile.
    #[cold]
    fn look(&self, number: RawFd, word: &W, then: Meaning) {
        self.use_number(number);
        let enter = |index| {
            let is_entered = self.change(word, then, Meaning::ours(index));
            let is_moved = then.has_calls() && !deliberate::is(Bug::TakeMovingPosition);
            // Who begins to share from here on finds the number, and waits for the position.
            let is_alone = then.tag() == Tag::Fresh && !is_moved && !self.sharings.is_any();
            is_entered.then_some(is_alone)
        };
        let looked = self.descriptions.look(number, then.name(), enter);
        if looked == Looked::Kernels {
            self.change(word, then, Meaning::KERNEL);
        }
    }

    fn use_number(&self, number: RawFd) {
        let used = u64::from(number.unsigned_abs()) + 1;
        if self.used.load(Relaxed) < used {
            self.used.update(|now| (now < used).then_some(used));
        }
    }

    /// Numbers that may be anything but untouched.
    pub fn used(&self) -> Range<RawFd> {
        0..RawFd::try_from(self.used.load(SeqCst)).unwrap_or(RawFd::MAX)
    }

    /// Changes what a number is, and lets go of the description that it led to. While it is given
    /// to another file it is the kernel's, whatever else happens.
    fn become_(&self, number: RawFd, next: Meaning) {
        self.become_what(number, |now| now.becomes(next));
    }

    /// As above; `next` says what. Returns what it is then, or what is as good if the number is not
    /// in the table.
    pub(crate) fn become_what(&self, number: RawFd, next: impl Fn(Meaning) -> Meaning) -> Meaning {
        let Some(word) = self.word(number) else {
            return Meaning::KERNEL;
        };
        self.use_number(number);
        self.descriptions.settle();
        loop {
            let now = Self::now(word);
            let next = self.changed(next(now));
            if word.replace(now.word(), next.word()) {
                if let Tag::Ours(index) = now.tag() {
                    self.descriptions.remove_number(index);
                }
                return next;
            }
        }
    }

    /// Before the kernel is asked to open something.
    pub fn opening(&self) -> Opening {
        Opening {
            duplications: self.duplications.moment(),
            sharings: self.sharings.moment(),
        }
    }

    /// The kernel has opened this number for us.
    pub fn opened(&self, number: RawFd, opening: Opening) {
        self.opened_as(number, Meaning::FRESH, opening);
    }

    /// As [`opened`](Self::opened), and if the file was not there the kernel has made it, under
    /// this name.
    pub fn made(&self, number: RawFd, name: u64, opening: Opening) {
        self.opened_as(number, Meaning::made(name), opening);
    }

    fn opened_as(&self, number: RawFd, fresh: Meaning, opening: Opening) {
        if number < FIRST_OF_ITS_OWN || self.descriptions.is_off() || !self.has(number) {
            return self.opened_for_others(number);
        }
        let is_given = || {
            self.duplications.was_any_since(opening.duplications)
                && !deliberate::is(Bug::MissGivenNumber)
        };
        self.become_what(number, |now| match is_given() {
            // Another thread may have given the number to what it has, so that now it leads there,
            // and two numbers share a position.
            true => {
                self.share(number);
                now.becomes(Meaning::FOREIGN)
            }
            false => now.becomes(fresh),
        });
        // Another thread may have duplicated it, or a child has it that was made meanwhile, as long
        // as the table did not say that it is ours.
        if is_given() || self.sharings.was_any_since(opening.sharings) {
            self.share(number);
        }
    }

    /// The number was opened, and the C library or others use its position as well.
    pub fn opened_for_others(&self, number: RawFd) {
        if number >= 0 {
            let foreign = match self.descriptions.is_off() {
                true => Meaning::KERNEL,
                false => Meaning::FOREIGN,
            };
            self.become_(number, foreign);
        }
    }

    /// The number is about to be closed.
    #[inline]
    pub fn closing(&self, number: RawFd) {
        let is_idle = |word: &W| Meaning::from_word(word.load(Relaxed)).is_idle_kernels();
        if !self.word(number).is_none_or(is_idle) || self.duplications.is_any() {
            self.become_(number, Meaning::KERNEL);
        }
    }

    /// The number is about to be given to another file, if that succeeds: so its position must not
    /// be lost.
    pub fn replacing(&self, number: RawFd) {
        self.share(number);
        self.closing(number);
    }

    /// Others are about to see the description of this number, or use its position: it is the
    /// kernel's from now on.
    pub fn share(&self, number: RawFd) {
        let Some(word) = self.word(number) else {
            return;
        };
        loop {
            let now = Self::now(word);
            match now.tag() {
                Tag::Fresh => {
                    if self.change(word, now, Meaning::FOREIGN) {
                        return;
                    }
                }
                Tag::Ours(index) => {
                    if let Some(pin) = self.pin(word, now, index) {
                        self.descriptions.give_up_position(&pin, number);
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// What a number is that is about to be duplicated, and the description. One that was not
    /// looked at is looked at now: afterwards two numbers share a position, and one description
    /// must hold it.
    pub(crate) fn looked_at(&self, number: RawFd) -> (Meaning, Option<D::Pin<'_>>) {
        let Some(word) = self.word(number) else {
            return (Meaning::KERNEL, None);
        };
        let mut now = Self::now(word);
        if now.tag() == Tag::Fresh {
            self.look(number, word, now);
            now = Self::now(word);
        }
        if now.tag() == Tag::Fresh {
            self.share(number);
            now = Self::now(word);
        }
        let pin = match now.tag() {
            Tag::Ours(index) => self.pin(word, now, index),
            _ => None,
        };
        (now, pin)
    }

    /// Before a child of this process, or another program in its place, can see its descriptors:
    /// all positions are the kernel's from now on, and until [`end_sharing`](Self::end_sharing)
    /// none is taken over.
    pub fn begin_sharing(&self) {
        self.sharings.begin();
        self.share_all();
    }

    /// What was opened by other threads meanwhile is shared too.
    pub fn end_sharing(&self) {
        self.share_all();
        self.sharings.end();
    }

    /// All positions are the kernel's from now on.
    pub fn share_all(&self) {
        self.used().for_each(|number| self.share(number));
    }

    /// In a child of `fork`: what other threads have begun is not under way here.
    pub fn forget_calls(&self) {
        self.duplications.forget();
        self.sharings.forget();
    }

    /// The same, and all numbers are as inherited.
    pub fn forget(&self) {
        self.forget_calls();
        for word in self.used().filter_map(|number| self.word(number)) {
            word.store(self.changed(Meaning::FOREIGN).word(), SeqCst);
        }
    }

    /// Nothing is looked at any more: all numbers are the kernel's, as are their positions.
    pub fn give_up(&self) {
        for number in self.used() {
            self.share(number);
            self.closing(number);
        }
    }
}
