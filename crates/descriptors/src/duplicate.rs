//! `dup` and its like.
//!
//! `dup` learns its number from the kernel; so while one is under way whatever happens to a number
//! leaves a trace, in the order of all changes. A number to which `dup2` gives another file stays
//! the kernel's while that is under way, and behind it unless nothing else has happened to it: of
//! two such calls nobody knows which one the kernel did last.

use crate::meaning::{Meaning, Tag};
use crate::numbers::{Descriptions, FIRST_OF_ITS_OWN, Numbers};
use locks::Word;
use pmem::deliberate::{self, Bug};
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;

/// A number that is being duplicated, and what it was before.
pub struct Duplication<'a, D: Descriptions, const COUNT: usize, W: Word = AtomicU64> {
    numbers: &'a Numbers<D, COUNT, W>,
    number: RawFd,
    meaning: Meaning,
    pin: Option<D::Pin<'a>>,
    /// Changes of all numbers before.
    changes: u64,
}

/// A number that `dup2` is about to make a duplicate, and what it is meanwhile.
#[derive(Debug)]
pub struct Target {
    number: RawFd,
    meaning: Meaning,
}

impl<D: Descriptions, const COUNT: usize, W: Word> Numbers<D, COUNT, W> {
    /// A number is about to be duplicated.
    pub fn duplicating(&self, number: RawFd) -> Duplication<'_, D, COUNT, W> {
        // First of all: what is opened from here on is known to be duplicated, what was before is
        // seen.
        self.duplications.begin();
        let (meaning, pin) = self.looked_at(number);
        Duplication {
            numbers: self,
            number,
            meaning,
            pin,
            changes: self.changes(),
        }
    }

    /// As [`replacing`](Self::replacing). Until [`Duplication::replaced`] the number is the
    /// kernel's.
    pub fn giving(&self, number: RawFd) -> Target {
        self.share(number);
        let meaning = self.become_what(number, Meaning::given);
        Target { number, meaning }
    }
}

impl<D: Descriptions, const COUNT: usize, W: Word> Duplication<'_, D, COUNT, W> {
    /// The kernel has made this number a duplicate. Nothing has happened to it since, or it is the
    /// kernel's.
    pub fn duplicated(self, copy: RawFd) {
        if copy < 0 || copy == self.number {
            return;
        }
        let next = self.meaning_of(copy);
        let is_undisturbed =
            |now: Meaning| !now.is_later(self.changes) || deliberate::is(Bug::MissTraceOfClose);
        let meaning = self
            .numbers
            .become_what(copy, |now| match is_undisturbed(now) {
                true => now.becomes(next),
                false => now.becomes(Meaning::KERNEL),
            });
        self.settle(next, meaning);
    }

    /// The kernel has made the target a duplicate, or has not.
    pub fn replaced(self, target: &Target, is_done: bool) {
        let next = match is_done {
            true => self.meaning_of(target.number),
            false => Meaning::KERNEL,
        };
        let is_alone = target.meaning.is_given_once();
        let meaning = self.numbers.become_what(target.number, |now| {
            let is_undisturbed = now == target.meaning || deliberate::is(Bug::BelieveSecondDup2);
            match is_alone && is_undisturbed {
                true => next,
                false => now.was_given(),
            }
        });
        if is_done {
            self.settle(next, meaning);
        }
    }

    /// What a duplicate of this number is.
    fn meaning_of(&self, copy: RawFd) -> Meaning {
        let descriptions = self.numbers.descriptions();
        let has_copy = self.numbers.has(copy);
        match (&self.pin, self.meaning.tag()) {
            (Some(pin), Tag::Ours(index)) if self.is_same() => {
                // Of high numbers nobody knows what happens to them.
                if copy.min(self.number) < FIRST_OF_ITS_OWN || !has_copy {
                    descriptions.give_up_position(pin, self.number);
                }
                match has_copy && descriptions.add_number(pin) {
                    true => Meaning::ours(index),
                    false => Meaning::KERNEL,
                }
            }
            (None, Tag::Foreign) if !descriptions.is_off() => Meaning::FOREIGN,
            _ => Meaning::KERNEL,
        }
    }

    /// The duplicate is this now, and should have become `next`. Whom the kernel serves moves the
    /// kernel's position.
    fn settle(&self, next: Meaning, meaning: Meaning) {
        let descriptions = self.numbers.descriptions();
        if let Some(pin) = &self.pin
            && !matches!(meaning.tag(), Tag::Ours(_))
        {
            if let Tag::Ours(index) = next.tag() {
                descriptions.remove_number(index);
            }
            if self.is_same() {
                descriptions.give_up_position(pin, self.number);
            }
        }
    }

    fn is_same(&self) -> bool {
        self.numbers.is_still(self.number, self.meaning)
    }
}

impl<D: Descriptions, const COUNT: usize, W: Word> Drop for Duplication<'_, D, COUNT, W> {
    fn drop(&mut self) {
        self.numbers.duplications.end();
    }
}
