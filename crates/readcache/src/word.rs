//! The one word of an entry: its state, how many read it, which frame it owns, which life it is in.
//!
//! Pure: what may follow what (RCache, Fig. 3). [`crate::entry`] does it to a word that threads share, by compare-and-swap.

use std::fmt;

const STATE_BITS: u32 = 3;
const READER_BITS: u32 = 8;
const FRAME_BITS: u32 = 26;

const READER_SHIFT: u32 = STATE_BITS;
const FRAME_SHIFT: u32 = READER_SHIFT + READER_BITS;
const VERSION_SHIFT: u32 = FRAME_SHIFT + FRAME_BITS;

/// Most threads that can hold one page at a time.
pub(crate) const READERS_MAX: u32 = (1 << READER_BITS) - 1;
/// Frames that an entry can name: 256 GiB of them.
pub(crate) const FRAMES_MAX: u32 = (1 << FRAME_BITS) - 1;

/// A page of DRAM, by number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Frame(pub(crate) u32);

/// What an entry is doing. The names are the paper's.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub(crate) enum State {
    /// It stands for no block. It may still own the frame of its last life, for the next one.
    Invalid = 0,
    /// Without readers: a thread that missed has claimed it and writes down the block. With readers: its page is being read.
    InUse = 1,
    /// It points to a block that is to be copied.
    Prep = 2,
    /// Somebody copies the block into its frame.
    Copy = 3,
    /// Its frame holds the block.
    Ready = 4,
}

/// An entry's word. Zero is an invalid entry without a frame.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Word(u64);

impl fmt::Debug for Word {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?}, {} readers, frame {:?}, life {}",
            self.state(),
            self.readers(),
            self.frame(),
            self.version()
        )
    }
}

impl Word {
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Word {
        Word(bits)
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn state(self) -> State {
        match self.0 & ((1 << STATE_BITS) - 1) {
            1 => State::InUse,
            2 => State::Prep,
            3 => State::Copy,
            4 => State::Ready,
            _ => State::Invalid,
        }
    }

    #[inline]
    pub(crate) fn readers(self) -> u32 {
        (self.0 >> READER_SHIFT) as u32 & READERS_MAX
    }

    /// The frame that the entry owns.
    #[inline]
    pub(crate) fn frame(self) -> Option<Frame> {
        let stored = (self.0 >> FRAME_SHIFT) as u32 & FRAMES_MAX;
        stored.checked_sub(1).map(Frame)
    }

    /// The life of the entry: it ends when the entry becomes invalid. After 2^27 lives the numbers come again; a reader would have to stand still
    /// for exactly so many, a hundred seconds at least, to take one for the other.
    #[inline]
    pub(crate) fn version(self) -> u64 {
        self.0 >> VERSION_SHIFT
    }

    /// Whether its frame holds the block's bytes.
    #[inline]
    pub(crate) fn is_readable(self) -> bool {
        match self.state() {
            State::Ready => true,
            State::InUse => self.readers() > 0,
            _ => false,
        }
    }

    fn with_state(self, state: State) -> Word {
        Word(self.0 & !((1 << STATE_BITS) - 1) | state as u64)
    }

    fn with_readers(self, readers: u32) -> Word {
        let mask = u64::from(READERS_MAX) << READER_SHIFT;
        Word(self.0 & !mask | u64::from(readers) << READER_SHIFT)
    }

    fn with_frame(self, frame: Option<Frame>) -> Word {
        let mask = u64::from(FRAMES_MAX) << FRAME_SHIFT;
        let stored = frame.map_or(0, |frame| u64::from(frame.0) + 1);
        Word(self.0 & !mask | stored << FRAME_SHIFT)
    }

    fn next_life(self) -> Word {
        Word(self.0.wrapping_add(1 << VERSION_SHIFT))
    }

    /// Invalid → in use: a thread that missed takes the entry for its block.
    pub(crate) fn claim(self) -> Option<Word> {
        let is_free = self.state() == State::Invalid && self.readers() == 0;
        is_free.then(|| self.with_state(State::InUse))
    }

    /// In use → prep: the block is written down.
    pub(crate) fn prepare(self) -> Option<Word> {
        let is_claimed = self.state() == State::InUse && self.readers() == 0;
        is_claimed.then(|| self.with_state(State::Prep))
    }

    /// Prep → copy, into the frame that the entry owns, else into `spare`, which it owns then.
    pub(crate) fn begin_copy(self, spare: Option<Frame>) -> Option<Word> {
        let frame = self.frame().or(spare)?;
        let begun = self.with_state(State::Copy).with_frame(Some(frame));
        (self.state() == State::Prep).then_some(begun)
    }

    /// Copy → ready.
    pub(crate) fn publish(self) -> Option<Word> {
        (self.state() == State::Copy).then(|| self.with_state(State::Ready))
    }

    /// Ready → in use, or one reader more.
    pub(crate) fn pin(self) -> Option<Word> {
        let may = self.is_readable() && self.readers() < READERS_MAX;
        may.then(|| {
            self.with_state(State::InUse)
                .with_readers(self.readers() + 1)
        })
    }

    /// A reader ends; the last one makes the entry ready again. If it was invalidated meanwhile it stays so.
    pub(crate) fn unpin(self) -> Option<Word> {
        let left = self.readers().checked_sub(1)?;
        let word = self.with_readers(left);
        match self.state() {
            State::InUse if left == 0 => Some(word.with_state(State::Ready)),
            State::InUse | State::Invalid => Some(word),
            _ => None,
        }
    }

    /// Any → invalid: the block was written. Who is copying keeps the frame, because nobody else may have it before he stops. A claim stays one, in
    /// its next life: its claimant, who may still be writing down the block, notices when he prepares, and releases it.
    pub(crate) fn invalidate(self) -> Option<Word> {
        let word = match self.state() {
            State::Invalid => return None,
            State::InUse if self.readers() == 0 => self,
            State::Copy => self.with_state(State::Invalid).with_frame(None),
            _ => self.with_state(State::Invalid),
        };
        Some(word.next_life())
    }

    /// In use → invalid: the claimant gives up.
    pub(crate) fn release(self) -> Option<Word> {
        let is_claimed = self.state() == State::InUse && self.readers() == 0;
        is_claimed.then(|| self.with_state(State::Invalid).next_life())
    }

    /// Ready or invalid → invalid without its frame, which is the caller's now.
    pub(crate) fn evict(self) -> Option<(Word, Frame)> {
        let frame = self.frame()?;
        let is_idle = matches!(self.state(), State::Ready | State::Invalid) && self.readers() == 0;
        let word = self.with_state(State::Invalid).with_frame(None);
        is_idle.then(|| (word.next_life(), frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    /// The state with the kind of its readers and whether it owns a frame: what decides about what may follow.
    type Shape = (State, u32, bool);

    fn shape(word: Word) -> Shape {
        (word.state(), word.readers().min(2), word.frame().is_some())
    }

    fn successors(word: Word) -> Vec<(&'static str, Word)> {
        let spare = Some(Frame(FRAMES_MAX - 2));
        [
            ("claim", word.claim()),
            ("prepare", word.prepare()),
            ("copy", word.begin_copy(spare)),
            ("publish", word.publish()),
            ("pin", word.pin()),
            ("unpin", word.unpin()),
            ("invalidate", word.invalidate()),
            ("release", word.release()),
            ("evict", word.evict().map(|(word, _)| word)),
        ]
        .into_iter()
        .filter_map(|(name, word)| Some((name, word?)))
        .collect()
    }

    /// Everything that can be reached from a fresh entry, and the edges on the way.
    #[test]
    fn the_transitions_are_those_of_the_paper_and_no_other_state_is_reached() {
        let mut seen: HashSet<Shape> = HashSet::new();
        let mut edges: HashSet<(&'static str, State, State)> = HashSet::new();
        let mut queue = VecDeque::from([Word::from_bits(0)]);
        while let Some(word) = queue.pop_front() {
            let (state, readers, framed) = shape(word);
            if !seen.insert((state, readers, framed)) {
                continue;
            }
            match state {
                State::Invalid => {}
                State::InUse if readers > 0 => assert!(framed, "a page that is read"),
                State::InUse | State::Prep => assert_eq!(readers, 0),
                State::Copy | State::Ready => assert!(framed && readers == 0, "{word:?}"),
            }
            for (name, next) in successors(word) {
                edges.insert((name, state, next.state()));
                let begins_life = next.version() != word.version();
                let ends = ["invalidate", "release", "evict"].contains(&name);
                assert_eq!(begins_life, ends, "{name}: {word:?} -> {next:?}");
                queue.push_back(next);
            }
        }
        use State::{Copy, InUse, Invalid, Prep, Ready};
        let wanted = [
            ("claim", Invalid, InUse),
            ("prepare", InUse, Prep),
            ("copy", Prep, Copy),
            ("publish", Copy, Ready),
            ("pin", Ready, InUse),
            ("pin", InUse, InUse),
            ("unpin", InUse, InUse),
            ("unpin", InUse, Ready),
            ("unpin", Invalid, Invalid),
            // By readers it is invalid at once, a claim is released by its claimant.
            ("invalidate", InUse, Invalid),
            ("invalidate", InUse, InUse),
            ("release", InUse, Invalid),
            ("invalidate", Prep, Invalid),
            ("invalidate", Copy, Invalid),
            ("invalidate", Ready, Invalid),
            ("evict", Ready, Invalid),
            ("evict", Invalid, Invalid),
        ];
        assert_eq!(edges, HashSet::from(wanted));
    }

    #[test]
    fn the_frame_of_a_copy_belongs_to_the_copier() {
        let prepared = Word::from_bits(0)
            .claim()
            .and_then(Word::prepare)
            .expect("prepared");
        assert_eq!(prepared.begin_copy(None), None, "no frame, no copy");
        let copying = prepared.begin_copy(Some(Frame(7))).expect("copying");
        assert_eq!(copying.invalidate().expect("invalid").frame(), None);
        let ready = copying.publish().expect("ready");
        let stale = ready.invalidate().expect("invalid");
        assert_eq!(stale.frame(), Some(Frame(7)), "for its next life");
        let again = stale.claim().and_then(Word::prepare).expect("prepared");
        let copying = again.begin_copy(Some(Frame(8))).expect("copying");
        assert_eq!(copying.frame(), Some(Frame(7)));
    }

    #[test]
    fn a_page_that_is_held_is_neither_evicted_nor_taken() {
        let ready = Word::from_bits(0)
            .claim()
            .and_then(Word::prepare)
            .and_then(|word| word.begin_copy(Some(Frame(FRAMES_MAX - 1))))
            .and_then(Word::publish)
            .expect("ready");
        assert_eq!(ready.frame(), Some(Frame(FRAMES_MAX - 1)));
        let mut held = ready;
        for readers in 1..=READERS_MAX {
            held = held.pin().expect("room");
            assert_eq!((held.readers(), held.version()), (readers, ready.version()));
        }
        assert_eq!(held.pin(), None, "one too many");
        assert_eq!(held.evict(), None);
        let mut stale = held.invalidate().expect("invalid");
        for _ in 0..READERS_MAX {
            assert_eq!(stale.claim(), None);
            assert_eq!(stale.evict(), None);
            stale = stale.unpin().expect("a reader ends");
        }
        assert_eq!(stale.unpin(), None);
        assert!(stale.claim().is_some());
        assert!(stale.evict().is_some());
    }

    #[test]
    fn lives_wrap_around_and_touch_nothing_else() {
        let last = Word(u64::MAX << VERSION_SHIFT);
        let ready = last
            .claim()
            .and_then(Word::prepare)
            .and_then(|word| word.begin_copy(Some(Frame(3))))
            .and_then(Word::publish)
            .expect("ready");
        let next = ready.invalidate().expect("invalid");
        assert_eq!(
            (next.version(), next.frame(), next.readers()),
            (0, Some(Frame(3)), 0)
        );
    }
}
