//! Writes between the live and the durable image.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::{LINE_BYTES, WORD_BYTES};

/// By which kind of store a word was written.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Origin {
    /// An ordinary store: in the order of its line.
    Cached,
    /// A non-temporal store: in no order until its thread fences.
    Streaming { thread: u32 },
}

/// One aligned word written.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Write {
    /// Position among all writes to the medium.
    pub(crate) sequence: u64,
    pub(crate) value: u64,
    /// Index of the word in its line.
    pub(crate) word: u8,
    pub(crate) origin: Origin,
}

/// The pending writes of one line, oldest first.
#[derive(Default, Debug)]
pub(crate) struct Line {
    writes: Vec<Write>,
}

/// What a thread has sent to the medium since its last fence.
#[derive(Default, Debug)]
pub(crate) struct InFlight {
    /// Lines flushed, and the sequence number that their next write would have had.
    pub(crate) flushed: Vec<(u64, u64)>,
    /// Lines with non-temporal words of this thread.
    pub(crate) streamed: Vec<u64>,
}

impl Line {
    pub(crate) fn writes(&self) -> &[Write] {
        &self.writes
    }

    pub(crate) fn push(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// Can a write of the word's present value be forgotten?
    ///
    /// An ordinary one can if the word is pending through ordinary stores only: the longest prefix already ends in this
    /// value, and a flush marks the whole line anyway. A non-temporal one can only if the word is not pending at all.
    pub(crate) fn may_skip(&self, word: u8, origin: Origin) -> bool {
        !self.writes.iter().any(|write| {
            write.word == word && !(origin == Origin::Cached && write.origin == Origin::Cached)
        })
    }

    /// Removes the writes that are settled, and those that they overwrite; calls `durable(word, value)` once for each word
    /// that becomes durable.
    pub(crate) fn settle(
        &mut self,
        is_settled: impl Fn(&Write) -> bool,
        mut durable: impl FnMut(u8, u64),
    ) {
        const WORDS: usize = LINE_BYTES / WORD_BYTES;
        let mut newest: [Option<(u64, u64)>; WORDS] = [None; WORDS];
        for write in self.writes.iter().filter(|write| is_settled(write)) {
            newest[usize::from(write.word)] = Some((write.sequence, write.value));
        }
        for (word, settled) in newest.iter().enumerate() {
            if let Some((_, value)) = settled {
                durable(word as u8, *value);
            }
        }
        // A write older than a settled one of its word can have no effect any more. Leaving it out of a line's list only
        // merges two prefixes that are the same image.
        self.writes.retain(|write| {
            newest[usize::from(write.word)].is_none_or(|(settled, _)| write.sequence > settled)
        });
    }
}

/// Pending writes by number of line.
pub(crate) type Lines = HashMap<u64, Line, BuildHasherDefault<LineHasher>>;

/// Hashes line numbers: they come from our own code, so spreading neighbours apart is all it takes.
#[derive(Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_right(23);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
