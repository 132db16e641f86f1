//! What is known of each descriptor number.
//!
//! One word for each: what the number is, and how often that has changed, so that who looked at a descriptor for some time can tell whether it is still the same.
//!
//! | tag | meaning |
//! | --- | --- |
//! | foreign | not looked at yet; others may see the description, so its position is the kernel's |
//! | fresh | not looked at yet; opened in here, and nobody else sees it |
//! | kernel | not ours, closed, or opened in a way that nobody saw |
//! | ours | leads to a description |
//!
//! A descriptor is looked at when it is used for the third time, so that programs that read a file and close it pay nothing, and a handler that writes one last line into a
//! file that it just opened asks nobody. Until then calls that use the kernel's position are counted while they last (*under way*): the library takes a position over only when
//! there are none.
//!
//! A number that is closed becomes `kernel` before the kernel closes it, and only an opening function that we stand before makes it anything else.
//!
//! A number to which `dup2` gives another file stays `kernel` while that is under way, and behind it unless nothing else has happened to it: of two such calls nobody knows which one
//! the kernel did last. `dup` learns its number from the kernel; so while one is under way whatever happens to a number leaves a trace, in the order of all changes.

use crate::client::client;
use crate::description::Description;
use crate::habits::{NAMES, Name};
use crate::log::say;
use crate::process::{self, Moment};
use crate::slab::{self, OwnersPin, Pin};
use crate::thread::{self, Inside};
use rustix::fs::OFlags;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// Numbers that are looked after; higher ones are the kernel's.
const NUMBERS: usize = 1 << 16;

const TAG: u64 = 3;
const FOREIGN: u64 = 0;
const FRESH: u64 = 1;
const KERNEL: u64 = 2;
const OURS: u64 = 3;

/// Of `ours`: the index of the description.
const INDEX_SHIFT: u32 = 2;
/// Of `foreign` and `fresh`: how often it was used.
const USE: u64 = 1 << 2;
const USES: u64 = 7 << 2;
/// It is looked at when it was used so often.
const USES_BEFORE_LOOK: u64 = 2 * USE;
/// Of `fresh`: calls under way. Of `kernel`: those that give the number to another file.
const CALL: u64 = 1 << 5;
const CALLS: u64 = 0xfff << 5;
/// Of `fresh`: the program made the file, under the name that stands there.
const MADE: u64 = 1 << 17;
const NAME_SHIFT: u32 = 18;
/// Which change of all made the word what it is.
const CHANGE: u64 = 1 << 32;

const _: () = assert!((NAMES as u64) << NAME_SHIFT <= CHANGE);

static TABLE: [AtomicU64; NUMBERS] = [const { AtomicU64::new(FOREIGN) }; NUMBERS];
/// Highest number that anything was written for, and one.
static USED: AtomicU64 = AtomicU64::new(0);

/// Changes of all words so far.
static CHANGES: AtomicU64 = AtomicU64::new(0);
/// Calls of `dup` and its like that are under way.
static DUPLICATING: AtomicU64 = AtomicU64::new(0);

/// What a call that is about to use a descriptor finds.
pub(crate) enum Found {
    /// The kernel's.
    Kernel,
    /// The kernel's, and whoever makes the call says [`landed`] with this word after it.
    Counted(u64),
    /// Ours.
    Ours(Pin),
}

#[inline]
fn entry(number: RawFd) -> Option<&'static AtomicU64> {
    usize::try_from(number)
        .ok()
        .and_then(|number| TABLE.get(number))
}

/// Whether a call on this descriptor is the kernel's without a doubt.
#[inline]
pub(crate) fn is_kernels(number: RawFd) -> bool {
    entry(number).is_none_or(|entry| entry.load(Relaxed) & TAG == KERNEL)
}

/// A descriptor for the system calls that the library makes itself.
///
/// The number is what the program passed, which answers for its being open, as it does towards the kernel.
#[inline]
pub(crate) fn borrow(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: not -1, because only numbers that the table has get here; nothing is closed through it, and the kernel says so if it is not open.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// What a call on a descriptor has to do with; `moves` if it uses the position.
pub(crate) fn find(number: RawFd, moves: bool) -> Found {
    let Some(entry) = entry(number) else {
        return Found::Kernel;
    };
    loop {
        let word = entry.load(Acquire);
        match word & TAG {
            OURS => {
                if let Some(pin) = pin(entry, word) {
                    return Found::Ours(pin);
                }
            }
            KERNEL => return Found::Kernel,
            tag => {
                let is_moved = tag == FRESH && moves;
                let is_awaited = made_as(word).is_some_and(Name::is_used);
                if (is_awaited || word & USES >= USES_BEFORE_LOOK) && !thread::is_inside() {
                    look(number, entry, word);
                    continue;
                }
                if is_moved && word & CALLS == CALLS {
                    let _ = entry.compare_exchange(word, changed(FOREIGN), SeqCst, Relaxed);
                    continue;
                }
                let used = if word & USES == USES { 0 } else { USE };
                let counted = word + used + if is_moved { CALL } else { 0 };
                if entry
                    .compare_exchange(word, counted, SeqCst, Relaxed)
                    .is_ok()
                {
                    return if is_moved {
                        Found::Counted(word)
                    } else {
                        Found::Kernel
                    };
                }
            }
        }
    }
}

/// The name under which the program made the file.
fn made_as(word: u64) -> Option<Name> {
    let is_made = word & TAG == FRESH && word & MADE != 0;
    is_made.then(|| Name::from_bits(word >> NAME_SHIFT))
}

/// What a number leads to, if it is ours and was looked at before.
#[inline(always)]
pub(crate) fn pinned(number: RawFd) -> Option<Pin> {
    let entry = entry(number)?;
    let word = entry.load(Acquire);
    (word & TAG == OURS).then(|| pin(entry, word))?
}

/// As [`pinned`], if this thread owns its line of those who use the description.
#[inline(always)]
pub(crate) fn pinned_as_owner(number: RawFd) -> Option<OwnersPin> {
    let entry = entry(number)?;
    let word = entry.load(Acquire);
    if word & TAG != OURS || process::settle() {
        return None;
    }
    slab::pin_as_owner(index_of(word), || entry.load(SeqCst) == word)
}

/// The description, if it is ours; looks now, however seldom the number was used. Not in the middle of a call of this thread.
pub(crate) fn find_now(number: RawFd) -> Option<Pin> {
    let entry = entry(number)?;
    loop {
        let word = entry.load(Acquire);
        match word & TAG {
            OURS => {
                if let Some(pin) = pin(entry, word) {
                    return Some(pin);
                }
            }
            KERNEL => return None,
            _ => {
                look(number, entry, word);
                if entry.load(Acquire) == word {
                    return None;
                }
            }
        }
    }
}

/// The description behind a number that was not looked at yet, if it is one of a file that is expected to be used directly, so that it will be looked at in any case.
pub(crate) fn find_expected(number: RawFd) -> Option<Pin> {
    let word = entry(number)?.load(Acquire);
    let is_expected = made_as(word).is_some_and(Name::is_used);
    is_expected.then(|| find_now(number))?
}

/// A word with this meaning from now on.
fn changed(low: u64) -> u64 {
    (CHANGES.fetch_add(1, SeqCst) + 1).wrapping_mul(CHANGE) | low
}

/// Whether a word became what it is by one of the changes since so many of them.
fn is_later(word: u64, changes: u64) -> bool {
    let age = (changes as u32).wrapping_sub((word / CHANGE) as u32);
    age.cast_signed() < 0
}

/// A call that was under way is over.
pub(crate) fn landed(number: RawFd, word: u64) {
    let is_same =
        |now: u64| now / CHANGE == word / CHANGE && now & TAG == FRESH && now & CALLS != 0;
    if let Some(entry) = entry(number) {
        let _ = entry.try_update(SeqCst, SeqCst, |now| is_same(now).then(|| now - CALL));
    }
}

#[inline(always)]
fn pin(entry: &'static AtomicU64, word: u64) -> Option<Pin> {
    if process::settle() {
        return None;
    }
    slab::pin(index_of(word), || entry.load(SeqCst) == word)
}

/// Index of the description that a word of tag `ours` leads to.
#[inline(always)]
fn index_of(word: u64) -> usize {
    ((word & (CHANGE - 1)) >> INDEX_SHIFT) as usize
}

/// Looks at a descriptor, and writes down what it is, unless that has changed meanwhile.
#[cold]
fn look(number: RawFd, entry: &'static AtomicU64, word: u64) {
    let Some(_inside) = Inside::enter() else {
        return;
    };
    use_number(number);
    let descriptor = borrow(number);
    // Not even that is asked if nothing may be looked at: a system call may end the process.
    let flags = match process::may_look() {
        true => rustix::fs::fcntl_getfl(descriptor).unwrap_or(OFlags::PATH),
        false => OFlags::PATH,
    };
    let file = if flags.contains(OFlags::PATH) {
        None
    } else {
        client().look(descriptor)
    };
    let Some(file) = file else {
        let _ = entry.compare_exchange(word, changed(KERNEL), SeqCst, Relaxed);
        return;
    };
    let name = made_as(word);
    if name.is_some_and(Name::is_used) {
        file.expect_use();
    }
    let Some(pin) = slab::place(Description::new(file, flags, name)) else {
        let _ = entry.compare_exchange(word, changed(KERNEL), SeqCst, Relaxed);
        return;
    };
    // Others who find the description wait here until it is known whose the position is.
    let position = pin.lock();
    let ours = changed((pin.index() as u64) << INDEX_SHIFT | OURS);
    if entry.compare_exchange(word, ours, SeqCst, Relaxed).is_err() {
        slab::remove_entry(pin.index());
        return;
    }
    // A fork that begins now finds the entry and waits for the position.
    let is_taken = word & TAG == FRESH
        && word & CALLS == 0
        && !process::is_sharing()
        && position.take(descriptor);
    let whose = if is_taken {
        "the library"
    } else {
        "the kernel"
    };
    say(format_args!(
        "descriptor {number} is ours, its position {whose}'s"
    ));
}

fn use_number(number: RawFd) {
    let used = u64::from(number.unsigned_abs()) + 1;
    if USED.load(Relaxed) < used {
        USED.fetch_max(used, SeqCst);
    }
}

/// Numbers that may be anything but untouched.
pub(crate) fn used() -> std::ops::Range<RawFd> {
    0..RawFd::try_from(USED.load(SeqCst)).unwrap_or(RawFd::MAX)
}

/// Changes what a number is, and lets go of the description that it led to. While it is given to another file it is the kernel's, whatever else happens.
fn become_(number: RawFd, low: u64) {
    become_what(number, |word| match calls_of_kernel(word) {
        0 => low,
        calls => calls | KERNEL,
    });
}

/// As above; `low` says what. Returns the word, or what is as good if the number is not in the table.
fn become_what(number: RawFd, low: impl Fn(u64) -> u64) -> u64 {
    let Some(entry) = entry(number) else {
        return KERNEL;
    };
    use_number(number);
    process::settle();
    let mut word = entry.load(Acquire);
    loop {
        let next = changed(low(word));
        match entry.compare_exchange(word, next, SeqCst, Acquire) {
            Ok(_) => {
                if word & TAG == OURS {
                    slab::remove_entry(index_of(word));
                }
                return next;
            }
            Err(now) => word = now,
        }
    }
}

/// Of a number that is the kernel's: the calls under way that give it to another file.
fn calls_of_kernel(word: u64) -> u64 {
    if word & TAG == KERNEL {
        word & CALLS
    } else {
        0
    }
}

/// The kernel has opened this number for us since that moment. Numbers 0 to 2 also belong to `stdin`, `stdout` and `stderr`, which the C library reads and writes unseen.
pub(crate) fn opened(number: RawFd, before: Moment) {
    match number {
        ..0 => {}
        _ if process::is_off() => become_(number, KERNEL),
        0..=2 => become_(number, FOREIGN),
        _ => become_fresh(number, FRESH, before),
    }
}

/// A child that was made meanwhile may see the number, as long as the table did not say that it is ours.
fn become_fresh(number: RawFd, low: u64, before: Moment) {
    become_(number, low);
    if !before.is_unforked_since() {
        share(number);
    }
}

/// As [`opened`], and if the file was not there the kernel has made it, under this name.
pub(crate) fn made(number: RawFd, name: Name, before: Moment) {
    match number {
        3.. if !process::is_off() => {
            become_fresh(number, name.bits() << NAME_SHIFT | MADE | FRESH, before);
        }
        _ => opened(number, before),
    }
}

/// The number was opened, and the C library or others use its position as well.
pub(crate) fn opened_for_others(number: RawFd) {
    if number >= 0 {
        become_(number, if process::is_off() { KERNEL } else { FOREIGN });
    }
}

/// The number is about to be closed.
#[inline]
pub(crate) fn closing(number: RawFd) {
    let is_idle = |entry: &AtomicU64| entry.load(Relaxed) & (TAG | CALLS) == KERNEL;
    if !entry(number).is_none_or(is_idle) || DUPLICATING.load(SeqCst) != 0 {
        become_(number, KERNEL);
    }
}

/// The number is about to be given to another file, if that succeeds: so its position must not be lost.
pub(crate) fn replacing(number: RawFd) {
    share(number);
    closing(number);
}

/// Others are about to see the description of this number, or use its position: it is the kernel's from now on.
pub(crate) fn share(number: RawFd) {
    let Some(entry) = entry(number) else {
        return;
    };
    loop {
        let word = entry.load(Acquire);
        match word & TAG {
            FRESH => {
                if entry
                    .compare_exchange(word, changed(FOREIGN), SeqCst, Relaxed)
                    .is_ok()
                {
                    return;
                }
            }
            OURS => {
                if let Some(pin) = pin(entry, word) {
                    pin.give_up_position(borrow(number));
                    return;
                }
            }
            _ => return,
        }
    }
}

/// The description that a number leads to, if it was looked at and is ours.
pub(crate) fn ours(number: RawFd) -> Option<Pin> {
    let entry = entry(number)?;
    loop {
        let word = entry.load(Acquire);
        if word & TAG != OURS {
            return None;
        }
        if let Some(pin) = pin(entry, word) {
            return Some(pin);
        }
    }
}

/// Tells the kernel where the position is, and keeps it.
pub(crate) fn push(number: RawFd) {
    if let Some(pin) = ours(number) {
        pin.lock().push(borrow(number));
    }
}

/// What a number was before it was duplicated.
pub(crate) struct Source {
    number: RawFd,
    word: u64,
    pin: Option<Pin>,
    /// Changes of all words before.
    changes: u64,
}

/// A number is about to be duplicated. One that was not looked at is looked at now: afterwards two numbers share a position, and one description must hold it.
pub(crate) fn duplicating(number: RawFd) -> Source {
    let (word, pin) = entry(number).map_or((KERNEL, None), |entry| looked_at(number, entry));
    DUPLICATING.fetch_add(1, SeqCst);
    let changes = CHANGES.load(SeqCst);
    Source {
        number,
        word,
        pin,
        changes,
    }
}

fn looked_at(number: RawFd, entry: &'static AtomicU64) -> (u64, Option<Pin>) {
    let mut word = entry.load(Acquire);
    if word & TAG == FRESH {
        look(number, entry, word);
        word = entry.load(Acquire);
    }
    if word & TAG == FRESH {
        share(number);
        word = entry.load(Acquire);
    }
    let pin = if word & TAG == OURS {
        pin(entry, word)
    } else {
        None
    };
    (word, pin)
}

/// A number that `dup2` is about to make a duplicate, and its word meanwhile.
pub(crate) struct Target {
    number: RawFd,
    word: u64,
}

/// As [`replacing`]. Until [`Source::replaced`] the number is the kernel's.
pub(crate) fn giving(number: RawFd) -> Target {
    share(number);
    let word = become_what(number, |word| match calls_of_kernel(word) {
        // So many that they are not counted any more: for good.
        CALLS => CALLS | KERNEL,
        calls => (calls + CALL) | KERNEL,
    });
    Target { number, word }
}

impl Source {
    /// The kernel has made this number a duplicate. Nothing has happened to it since, or it is the kernel's.
    pub(crate) fn duplicated(self, copy: RawFd) {
        if copy < 0 || copy == self.number {
            return;
        }
        let low = self.meaning(copy);
        let word = become_what(copy, |now| match calls_of_kernel(now) {
            0 if !is_later(now, self.changes) => low,
            calls => calls | KERNEL,
        });
        self.settle(low, word);
    }

    /// The kernel has made the target a duplicate, or has not.
    pub(crate) fn replaced(self, target: &Target, is_done: bool) {
        let low = match is_done {
            true => self.meaning(target.number),
            false => KERNEL,
        };
        let is_alone = target.word & CALLS == CALL;
        let word = become_what(target.number, |now| match calls_of_kernel(now) {
            _ if is_alone && now == target.word => low,
            calls @ (0 | CALLS) => calls | KERNEL,
            calls => (calls - CALL) | KERNEL,
        });
        if is_done {
            self.settle(low, word);
        }
    }

    /// What a duplicate of this number is.
    fn meaning(&self, copy: RawFd) -> u64 {
        match (&self.pin, self.word & TAG) {
            (Some(pin), OURS) if self.is_same() => {
                // The C library uses the positions of the first three unseen, and of high numbers nobody knows.
                if copy <= 2 || self.number <= 2 || entry(copy).is_none() {
                    pin.give_up_position(borrow(self.number));
                }
                match entry(copy).is_some() && pin.add_entry() {
                    true => (pin.index() as u64) << INDEX_SHIFT | OURS,
                    false => KERNEL,
                }
            }
            (None, FOREIGN) if !process::is_off() => FOREIGN,
            _ => KERNEL,
        }
    }

    /// The duplicate has become this word, and should have become what `low` says. Whom the kernel serves moves the kernel's position.
    fn settle(&self, low: u64, word: u64) {
        if let Some(pin) = &self.pin
            && word & TAG != OURS
        {
            if low & TAG == OURS {
                slab::remove_entry(pin.index());
            }
            if self.is_same() {
                pin.give_up_position(borrow(self.number));
            }
        }
    }

    fn is_same(&self) -> bool {
        entry(self.number).is_some_and(|entry| entry.load(SeqCst) == self.word)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        DUPLICATING.fetch_sub(1, SeqCst);
    }
}

/// In a child of `fork`: all numbers are as inherited.
pub(crate) fn forget() {
    for number in used() {
        if let Some(entry) = entry(number) {
            entry.store(changed(FOREIGN), SeqCst);
        }
    }
}

/// Nothing is looked at any more: all numbers are the kernel's, as are their positions.
pub(crate) fn give_up() {
    for number in used() {
        share(number);
        closing(number);
    }
}
