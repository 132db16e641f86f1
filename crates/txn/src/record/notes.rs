//! Notes behind the entries of a record: data that it publishes, blocks that it gives back.

use super::{EntryHead, FREED_LENGTH, NOTE_FLAGS, NOTE_WORDS};
use pmem::{Offset, WORD_BYTES};

/// A record tells the log of a range of data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) at: Offset,
    pub(crate) bytes: u64,
    /// Whether the record gives it back; else it publishes it.
    pub(crate) is_freed: bool,
}

/// The notes at the start of `rest`.
pub(crate) fn notes(rest: &[u8]) -> impl Iterator<Item = Note> + Clone {
    let words = rest.as_chunks::<WORD_BYTES>().0;
    let pairs = words.as_chunks::<NOTE_WORDS>().0.iter();
    let pairs = pairs.map(|pair| pair.map(u64::from_le_bytes));
    pairs
        .take_while(|[head, _]| head & NOTE_FLAGS == NOTE_FLAGS)
        .map(|[head, bytes]| Note {
            at: EntryHead(head).at(),
            bytes,
            is_freed: EntryHead(head).length() == FREED_LENGTH,
        })
}
