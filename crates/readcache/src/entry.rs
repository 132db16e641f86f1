//! An entry of a table: the transitions of [`Word`] on memory that threads share.
//!
//! Two words: the state, and the file's block with the time when it was last read. Who claims an entry owns the second one until he prepares or releases it: not
//! even a write takes a claim away from him. Its block does not change before the entry's next life. Where the block lies on the medium is told to whoever fills
//! the entry, together with the word of the life that it is true of; so a bucket of four is one cache line.
//!
//! * E1 A life ends in [`Word::invalidate`] or [`Word::evict`] only, and what a frame held in a life is not overwritten before that life has ended. So whoever
//!   copied out of the frame and then finds the same life copied what was published in it.
//! * E2 A claim is visible before the claimant asks whether his pointer is still current, and a writer says that it is not before he looks for
//!   entries. So either the claimant gives up, or the writer ends the entry's life.
//! * E3 Only the frame's owner writes to it: the copier, from `begin_copy` until his `publish` has succeeded, or failed and left the frame with him.

use std::sync::atomic::Ordering;

use crate::atomic::Atomic;
use crate::word::{Frame, State, Word};
use pmem::deliberate::{self, Bug};

/// Words of an entry: a quarter of a cache line.
pub(crate) const ENTRY_WORDS: usize = 2;

const WORD: usize = 0;
const BLOCK: usize = 1;

/// Bits of the second word that say when the block was last read; its number is above them.
const USED_BITS: u32 = 20;
/// Blocks beyond, at 2^56 bytes of a file, are not copied.
pub(crate) const BLOCKS_MAX: u64 = 1 << (u64::BITS - USED_BITS);

/// Turns of the clock since an entry was read. After 2^20 of them it counts as read now: a page that lives as long, while copies that nobody reads are
/// thrown away beside it, is spared once more.
pub(crate) fn age(now: u64, used: u64) -> u64 {
    now.wrapping_sub(used) & ((1 << USED_BITS) - 1)
}

/// One entry, by reference.
pub(crate) struct Entry<'t, W>(pub(crate) &'t [W; ENTRY_WORDS]);

impl<W> Clone for Entry<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Entry<'_, W> {}

impl<W: Atomic> Entry<'_, W> {
    #[inline]
    /// What is in its frame is true if [`is_alive`](Self::is_alive) afterwards.
    pub(crate) fn word(self) -> Word {
        Word::from_bits(self.0[WORD].load(Ordering::Acquire))
    }

    /// The file's block that it stands for, if it stands for one.
    #[inline]
    pub(crate) fn block(self) -> u64 {
        self.0[BLOCK].load(Ordering::Relaxed) >> USED_BITS
    }

    /// Whether the life that `word` was seen in goes on. What was copied out of its frame since is the block then (E1).
    #[inline]
    pub(crate) fn is_alive(self, word: Word) -> bool {
        if deliberate::is(Bug::SkipVersionCheck) {
            return true;
        }
        // What was copied comes before this look.
        W::fence(Ordering::Acquire);
        let now = Word::from_bits(self.0[WORD].load(Ordering::Relaxed));
        now.version() == word.version()
    }

    /// When it was last read, by the cache's clock.
    pub(crate) fn used(self) -> u64 {
        self.0[BLOCK].load(Ordering::Relaxed) & ((1 << USED_BITS) - 1)
    }

    /// The block is read now. Stores only if the clock has moved, so that readers of one page do not take its line from each other, and only if the entry still
    /// stands for the block.
    #[inline]
    pub(crate) fn touch(self, block: u64, now: u64) {
        let old = self.0[BLOCK].load(Ordering::Relaxed);
        let new = block << USED_BITS | now & ((1 << USED_BITS) - 1);
        if old != new && old >> USED_BITS == block {
            // If somebody else was quicker he did the same, or has the entry for another block.
            let _ = self.0[BLOCK].exchange(old, new);
        }
    }

    /// One transition, if nobody was quicker. What the word is now.
    #[inline]
    fn step(self, from: Word, to: Option<Word>) -> Result<Word, Word> {
        let to = to.ok_or(from)?;
        match self.0[WORD].exchange(from.bits(), to.bits()) {
            Ok(_) => Ok(to),
            Err(other) => Err(Word::from_bits(other)),
        }
    }

    /// A transition from whatever the word is; `None` if there is none. What the word was.
    #[inline]
    fn change(self, next: impl Fn(Word) -> Option<Word>) -> Option<(Word, Word)> {
        let mut word = self.word();
        loop {
            let to = next(word)?;
            match self.step(word, Some(to)) {
                Ok(_) => return Some((word, to)),
                Err(other) => word = other,
            }
        }
    }

    /// Takes a free entry for `block`. Nobody else can have it before the caller, who next asks whether that is so (E2), calls
    /// [`prepare`](Self::prepare) or [`release`](Self::release).
    pub(crate) fn claim(self, block: u64) -> Option<Word> {
        let word = self.word();
        let claimed = self.step(word, word.claim()).ok()?;
        // The claim comes before the question whether the pointer is current.
        self.0[BLOCK].replace(block << USED_BITS);
        Some(claimed)
    }

    /// The block is written down and was current; whoever fills may take the entry. `None`, and the entry is free again, if it was
    /// invalidated meanwhile.
    pub(crate) fn prepare(self, claimed: Word) -> Option<Word> {
        let prepared = self.step(claimed, claimed.prepare()).ok();
        if prepared.is_none() {
            self.release();
        }
        prepared
    }

    /// Gives a claim up.
    pub(crate) fn release(self) {
        self.change(Word::release);
    }

    /// Gives a prepared entry up, if nobody else ended its life.
    pub(crate) fn abandon(self, prepared: Word) {
        let _ = self.step(prepared, prepared.invalidate());
    }

    /// Begins to copy, into the entry's own frame or into `spare`.
    pub(crate) fn begin_copy(self, prepared: Word, spare: Option<Frame>) -> Option<Word> {
        let copying = self.step(prepared, prepared.begin_copy(spare)).ok()?;
        if deliberate::is(Bug::PublishBeforeCopy) {
            return self.step(copying, copying.publish()).ok();
        }
        // Whoever sees a byte of what is copied now sees that the frame's life before has ended (E1).
        W::fence(Ordering::Release);
        Some(copying)
    }

    /// The frame holds the block, for readers from now on, until its last life ended meanwhile: then the frame stays with the caller.
    pub(crate) fn publish(self, copying: Word, now: u64) -> bool {
        self.touch(self.block(), now);
        if deliberate::is(Bug::PublishBeforeCopy) {
            return true;
        }
        self.step(copying, copying.publish()).is_ok()
    }

    /// Holds the page that `word` was seen with, as long as [`unpin`](Self::unpin) is not called.
    pub(crate) fn pin(self, word: Word) -> bool {
        let next = |now: Word| {
            let is_same = now.version() == word.version();
            now.pin().filter(|_| is_same)
        };
        self.change(next).is_some()
    }

    /// Lets a page go. The frame, if the entry has been invalidated meanwhile and nobody else will have it.
    pub(crate) fn unpin(self) -> Option<Frame> {
        let (_, left) = self.change(Word::unpin)?;
        let is_stale = left.state() == State::Invalid && left.readers() == 0;
        if is_stale { self.evict() } else { None }
    }

    /// Ends the life of an entry that stands for `block`. Whether there was one.
    #[inline]
    pub(crate) fn invalidate(self, block: u64) -> bool {
        if deliberate::is(Bug::ForgetInvalidation) {
            return false;
        }
        // A claim that becomes the block's after this look is given up (E2).
        if self.block() != block {
            return false;
        }
        let next = |word: Word| word.invalidate().filter(|_| self.block() == block);
        self.change(next).is_some()
    }

    /// Ends whatever life there is. Whether there was one.
    pub(crate) fn clear(self) -> bool {
        self.change(Word::invalidate).is_some()
    }

    /// Takes the frame away, unless it is read, or somebody fills it.
    pub(crate) fn evict(self) -> Option<Frame> {
        let next = |word: Word| word.evict().map(|(word, _)| word);
        self.change(next).and_then(|(word, _)| word.frame())
    }

    /// Takes the frame away if the word is still this one.
    pub(crate) fn evict_from(self, word: Word) -> Option<Frame> {
        let (evicted, frame) = word.evict()?;
        self.step(word, Some(evicted)).ok().map(|_| frame)
    }
}
