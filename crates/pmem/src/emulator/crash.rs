//! What a power cut may leave: a durable image, pending writes, and one choice among them.

use super::choices::Choices;
use super::pending::{Line, Lines, Origin, Write};
use crate::{LINE_BYTES, WORD_BYTES};

/// When, relative to a fence, the power is cut.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Moment {
    /// The fence was called and has had no effect yet.
    Before,
    /// The fence has taken effect and not returned yet.
    After,
    /// Outside of any fence.
    Between,
}

/// One pending word write.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct PendingWrite {
    /// Position among all writes to the medium: of several to one word, the newest wins.
    pub sequence: u64,
    /// Index of the word in its line, 0 to 7.
    pub word: u8,
    /// The 8 bytes, little-endian.
    pub value: u64,
}

/// How the pending writes of a line depend on each other.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum PendingKind {
    /// Ordinary stores, oldest first: a prefix survives.
    Cached {
        /// The writes.
        writes: Vec<PendingWrite>,
    },
    /// Non-temporal stores: any subset survives.
    Streaming {
        /// The writes.
        words: Vec<PendingWrite>,
    },
}

/// Pending writes of one kind to one line.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct PendingLine {
    /// Number of the line: its offset in bytes, divided by 64.
    pub line: u64,
    /// The writes.
    pub kind: PendingKind,
}

/// Which pending writes survive: one number per slot of a crash point.
///
/// Every [`PendingKind::Cached`] line is one slot, and its number is the length of the prefix that survives. Every word
/// of a [`PendingKind::Streaming`] line is one slot, 1 if it survives. Slots are in the order of
/// [`CrashPoint::pending`].
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Choice(pub Vec<u32>);

/// Everything that a power cut at one moment may leave.
#[derive(Debug)]
pub struct CrashPoint<'a> {
    /// Number of the fence (the next one, for [`Moment::Between`]).
    pub fence: u64,
    /// Before or after it takes effect.
    pub moment: Moment,
    /// What survives if nothing pending does.
    pub durable: &'a [u8],
    /// Hash of `durable`; the same for the same image at any crash point of any region.
    pub durable_hash: u64,
    /// What may survive in addition: the line with the newest write first; the two kinds of one line are neighbours.
    pub pending: Vec<PendingLine>,
    /// Differs whenever `durable` has become another image by other means than fences.
    pub(super) generation: u64,
    pub(super) settled: &'a [(u64, u64)],
    pub(super) settled_before: u64,
}

impl PendingLine {
    /// The writes, oldest first.
    pub fn writes(&self) -> &[PendingWrite] {
        match &self.kind {
            PendingKind::Cached { writes } => writes,
            PendingKind::Streaming { words } => words,
        }
    }

    /// Slots of a [`Choice`].
    pub fn slots(&self) -> usize {
        match &self.kind {
            PendingKind::Cached { .. } => 1,
            PendingKind::Streaming { words } => words.len(),
        }
    }

    /// How many numbers each of the slots can hold.
    pub fn radix(&self) -> u32 {
        match &self.kind {
            PendingKind::Cached { writes } => writes.len() as u32 + 1,
            PendingKind::Streaming { .. } => 2,
        }
    }

    /// The writes that survive when the slots of this line hold `numbers`.
    fn chosen<'s>(&'s self, numbers: &'s [u32]) -> impl Iterator<Item = &'s PendingWrite> {
        let is_cached = matches!(self.kind, PendingKind::Cached { .. });
        self.writes()
            .iter()
            .enumerate()
            .filter_map(move |(index, write)| {
                let survives = if is_cached {
                    (index as u32) < numbers[0]
                } else {
                    numbers[index] != 0
                };
                survives.then_some(write)
            })
    }
}

impl CrashPoint<'_> {
    /// The image that a choice leaves. Costs a copy of the image; [`super::Scratch`] doesn't.
    pub fn image(&self, choice: &Choice) -> Vec<u8> {
        let mut image = self.durable.to_vec();
        self.surviving_words(choice, |index, value| {
            let at = index as usize * WORD_BYTES;
            image[at..at + WORD_BYTES].copy_from_slice(&value.to_le_bytes());
        });
        image
    }

    /// Hash of the image that a choice leaves, computed from the surviving words only.
    pub fn hash(&self, choice: &Choice) -> u64 {
        let mut hash = self.durable_hash;
        self.surviving_words(choice, |index, value| {
            hash ^= word_hash(index, self.durable_word(index)) ^ word_hash(index, value);
        });
        hash
    }

    /// Number of words that a choice makes differ from the durable image.
    pub fn changed_words(&self, choice: &Choice) -> usize {
        let mut changed = 0;
        self.surviving_words(choice, |index, value| {
            changed += usize::from(self.durable_word(index) != value)
        });
        changed
    }

    /// Choices worth looking at, at most `limit`: all of them if there are no more than that, otherwise none, all, each
    /// line alone, all but one line, prefixes and torn words of the newest lines, and the rest at random from `seed`.
    /// The same pending writes, limit and seed give the same sequence.
    pub fn enumerate(&self, limit: usize, seed: u64) -> Choices<'_> {
        Choices::new(&self.pending, limit, seed)
    }

    /// In how many ways pending writes may survive; `u64::MAX` if there are more than that.
    pub fn possibilities(&self) -> u64 {
        self.pending.iter().fold(1, |product: u64, line| {
            product.saturating_mul(u64::from(line.radix()).saturating_pow(line.slots() as u32))
        })
    }

    /// Nothing pending survives.
    pub fn none(&self) -> Choice {
        Choice(vec![0; self.pending.iter().map(PendingLine::slots).sum()])
    }

    /// Everything pending survives: the live image.
    pub fn all(&self) -> Choice {
        let slots = self
            .pending
            .iter()
            .flat_map(|line| std::iter::repeat_n(line.radix() - 1, line.slots()));
        Choice(slots.collect())
    }

    fn durable_word(&self, index: u64) -> u64 {
        let at = index as usize * WORD_BYTES;
        u64::from_le_bytes(
            self.durable[at..at + WORD_BYTES]
                .try_into()
                .unwrap_or_default(),
        )
    }

    /// Calls `word(index in the image, value)` once for each word of which a pending write survives.
    pub(super) fn surviving_words(&self, choice: &Choice, mut word: impl FnMut(u64, u64)) {
        const WORDS: usize = LINE_BYTES / WORD_BYTES;
        let slots: usize = self.pending.iter().map(PendingLine::slots).sum();
        assert_eq!(choice.0.len(), slots, "a choice of another crash point");
        let mut first_slot = 0;
        let mut index = 0;
        while index < self.pending.len() {
            let line = self.pending[index].line;
            let mut newest: [Option<(u64, u64)>; WORDS] = [None; WORDS];
            while let Some(pending) = self
                .pending
                .get(index)
                .filter(|pending| pending.line == line)
            {
                let numbers = &choice.0[first_slot..first_slot + pending.slots()];
                for write in pending.chosen(numbers) {
                    let newest = &mut newest[usize::from(write.word)];
                    if newest.is_none_or(|(sequence, _)| sequence < write.sequence) {
                        *newest = Some((write.sequence, write.value));
                    }
                }
                first_slot += pending.slots();
                index += 1;
            }
            for (position, survivor) in newest.iter().enumerate() {
                if let Some((_, value)) = survivor {
                    word(line * WORDS as u64 + position as u64, *value);
                }
            }
        }
    }
}

/// What one word adds to the hash of an image. Zeros add nothing.
pub(super) fn word_hash(index: u64, value: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    let mut mixed = value ^ (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The exclusive or of all words' hashes.
pub(super) fn image_hash(words: &[u64]) -> u64 {
    words.iter().enumerate().fold(0, |hash, (index, value)| {
        hash ^ word_hash(index as u64, *value)
    })
}

/// The pending writes in the order of [`CrashPoint::pending`].
pub(super) fn pending_lines(lines: &Lines) -> Vec<PendingLine> {
    let mut newest_first: Vec<(u64, u64, &Line)> = lines
        .iter()
        .filter_map(|(number, line)| Some((line.writes().last()?.sequence, *number, line)))
        .collect();
    newest_first.sort_unstable_by_key(|(sequence, ..)| std::cmp::Reverse(*sequence));
    let mut pending = Vec::with_capacity(newest_first.len());
    for (_, line, content) in newest_first {
        let of_kind = |cached: bool| -> Vec<PendingWrite> {
            let is_kind = |write: &&Write| (write.origin == Origin::Cached) == cached;
            let shown = |write: &Write| PendingWrite {
                sequence: write.sequence,
                word: write.word,
                value: write.value,
            };
            content.writes().iter().filter(is_kind).map(shown).collect()
        };
        let (writes, words) = (of_kind(true), of_kind(false));
        if !writes.is_empty() {
            pending.push(PendingLine {
                line,
                kind: PendingKind::Cached { writes },
            });
        }
        if !words.is_empty() {
            pending.push(PendingLine {
                line,
                kind: PendingKind::Streaming { words },
            });
        }
    }
    pending
}
