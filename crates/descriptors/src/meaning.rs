//! One word: what a descriptor number is known to be.

/// Names that are told apart.
pub const NAMES: usize = 1 << 12;

const TAG: u64 = 3;
const FOREIGN: u64 = 0;
const FRESH: u64 = 1;
const KERNEL: u64 = 2;
const OURS: u64 = 3;

/// Of `ours`: the index of the description.
const INDEX_SHIFT: u32 = 2;
/// Of `foreign` and `fresh`: how often it was used.
const USE: u64 = 1 << 2;
const USES: u64 = 31 << 2;
/// It is looked at when it was used so often.
const USES_BEFORE_LOOK: u64 = 2 * USE;
/// Of `fresh`: calls under way. Of `kernel`: those that give the number to another file.
const CALL: u64 = 1 << 7;
const CALLS: u64 = 0x3ff << 7;
/// Of `fresh`: the program made the file, under the name that stands there.
const MADE: u64 = 1 << 17;
const NAME_SHIFT: u32 = 18;
/// Which change of all made the word what it is.
const CHANGE: u64 = 1 << 32;

const _: () = assert!((NAMES as u64) << NAME_SHIFT <= CHANGE);

/// What a number is known to be, and which change of all numbers made it that: so that who looked
/// at a descriptor for some time can tell whether it is still the same.
///
/// | tag | meaning |
/// | --- | --- |
/// | foreign | not looked at yet; others may see the description, so its position is the kernel's |
/// | fresh | not looked at yet; opened in here, and nobody else sees it |
/// | kernel | not ours, closed, or opened in a way that nobody saw |
/// | ours | leads to a description |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Meaning(u64);

/// A tag, with what belongs to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tag {
    Foreign,
    Fresh,
    Kernel,
    /// The index of the description.
    Ours(usize),
}

impl Meaning {
    /// As every number is at first.
    pub(crate) const FOREIGN: Meaning = Meaning(FOREIGN);
    pub(crate) const FRESH: Meaning = Meaning(FRESH);
    pub(crate) const KERNEL: Meaning = Meaning(KERNEL);
    /// So many calls give the number to another file that they are not counted any more: for good.
    const KERNEL_FOR_GOOD: Meaning = Meaning(CALLS | KERNEL);

    /// Opened in here, and the program made the file under this name, which is less than [`NAMES`].
    pub(crate) fn made(name: u64) -> Meaning {
        Meaning((name % NAMES as u64) << NAME_SHIFT | MADE | FRESH)
    }

    /// Leads to the description of this index.
    pub(crate) fn ours(index: usize) -> Meaning {
        Meaning((index as u64) << INDEX_SHIFT | OURS)
    }

    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Meaning {
        Meaning(word)
    }

    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn tag(self) -> Tag {
        match self.0 & TAG {
            FOREIGN => Tag::Foreign,
            FRESH => Tag::Fresh,
            KERNEL => Tag::Kernel,
            _ => Tag::Ours(((self.0 & (CHANGE - 1)) >> INDEX_SHIFT) as usize),
        }
    }

    /// The same, made what it is by the change of this number.
    pub(crate) fn since(self, change: u64) -> Meaning {
        Meaning(change.wrapping_mul(CHANGE) | self.0 & (CHANGE - 1))
    }

    fn change(self) -> u32 {
        (self.0 / CHANGE) as u32
    }

    /// Whether a number became this by one of the changes behind so many of them.
    pub(crate) fn is_later(self, changes: u64) -> bool {
        let age = (changes as u32).wrapping_sub(self.change());
        age.cast_signed() < 0
    }

    /// The name under which the program made the file.
    pub(crate) fn name(self) -> Option<u64> {
        let is_made = self.tag() == Tag::Fresh && self.0 & MADE != 0;
        is_made.then_some((self.0 >> NAME_SHIFT) % NAMES as u64)
    }

    /// Used often enough to be looked at.
    pub(crate) fn is_worth_a_look(self) -> bool {
        self.0 & USES >= USES_BEFORE_LOOK
    }

    /// Used so often that it is not counted any more.
    pub(crate) fn is_used_much(self) -> bool {
        self.0 & USES == USES
    }

    /// Of `foreign` and `fresh`: used once more. Of `fresh`, if `is_call`, one call more is under
    /// way, for which there must be room.
    pub(crate) fn used(self, is_call: bool) -> Meaning {
        let used = if self.is_used_much() { 0 } else { USE };
        Meaning(self.0 + used + if is_call { CALL } else { 0 })
    }

    /// One call less is under way, of those that were counted while it was `then`.
    pub(crate) fn landed(self, then: Meaning) -> Option<Meaning> {
        let is_same = self.change() == then.change() && self.tag() == Tag::Fresh;
        (is_same && self.has_calls()).then(|| Meaning(self.0 - CALL))
    }

    /// Calls are under way: those that use the kernel's position, or give the number to another
    /// file.
    pub(crate) fn has_calls(self) -> bool {
        self.0 & CALLS != 0
    }

    /// As many as can be counted.
    pub(crate) fn has_all_calls(self) -> bool {
        self.0 & CALLS == CALLS
    }

    /// The kernel's, and nothing is under way that changes that.
    #[inline]
    pub(crate) fn is_idle_kernels(self) -> bool {
        self.0 & (TAG | CALLS) == KERNEL
    }

    /// What becomes of a number that should become `next`: while calls give it to another file it
    /// is the kernel's.
    pub(crate) fn becomes(self, next: Meaning) -> Meaning {
        match self.giving() {
            0 => next,
            calls => Meaning(calls | KERNEL),
        }
    }

    /// The kernel's, and one call more gives it to another file.
    pub(crate) fn given(self) -> Meaning {
        match self.giving() {
            CALLS => Meaning::KERNEL_FOR_GOOD,
            calls => Meaning((calls + CALL) | KERNEL),
        }
    }

    /// The kernel's, and one call less gives it to another file.
    pub(crate) fn was_given(self) -> Meaning {
        match self.giving() {
            calls @ (0 | CALLS) => Meaning(calls | KERNEL),
            calls => Meaning((calls - CALL) | KERNEL),
        }
    }

    /// One call alone gives it to another file.
    pub(crate) fn is_given_once(self) -> bool {
        self.giving() == CALL
    }

    /// Calls under way that give it to another file, as they are counted.
    fn giving(self) -> u64 {
        match self.tag() {
            Tag::Kernel => self.0 & CALLS,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_out_of_each_other() {
        let made = Meaning::made(NAMES as u64 - 1).since(u64::from(u32::MAX));
        assert_eq!(made.name(), Some(NAMES as u64 - 1));
        let mut used = made;
        for _ in 0..9 {
            used = used.used(true);
        }
        assert!(used.is_worth_a_look() && used.has_calls());
        assert_eq!(used.name(), made.name());
        assert_eq!(used.change(), u32::MAX);
        for _ in 0..9 {
            used = used.landed(made).expect("it is under way");
        }
        assert_eq!(used.landed(made), None);
        assert_eq!(Meaning::ours(65_535).since(7).tag(), Tag::Ours(65_535));
        assert_eq!(Meaning::FRESH.name(), None);
    }

    #[test]
    fn calls_are_counted_up_to_a_bound() {
        let mut meaning = Meaning::FRESH;
        for _ in 0..CALLS / CALL {
            assert!(!meaning.has_all_calls());
            meaning = meaning.used(true);
        }
        assert!(meaning.has_all_calls());
        let mut given = Meaning::ours(5);
        for _ in 0..CALLS / CALL + 3 {
            given = given.given();
        }
        assert_eq!(given, Meaning::KERNEL_FOR_GOOD);
        assert_eq!(given.was_given(), Meaning::KERNEL_FOR_GOOD);
        assert_eq!(given.becomes(Meaning::FRESH), Meaning::KERNEL_FOR_GOOD);
    }

    #[test]
    fn changes_come_round() {
        let meaning = Meaning::KERNEL.since((1 << 32) + 1);
        assert!(meaning.is_later(1 << 32) && !meaning.is_later((1 << 32) + 1));
        assert!(meaning.is_later((1 << 32) - 1), "one before it came round");
    }
}
