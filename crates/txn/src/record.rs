//! The bytes of a journal record.
//!
//! ```text
//! 0   sequence number      u64
//! 8   length in bytes      u32   header and entries, without the padding to whole lines
//! 12  check                u32   of all bytes but these four, and the salt of the half
//! 16  entries
//! ```
//! An entry is a head word (bits 0–47 offset in the pool, bits 48–61 length in bytes, bit 62: data check, bit 63: fill with
//! zeros, no payload) and its payload, padded to 8 bytes. Applying an entry stores absolute bytes, so applying a
//! record twice is the same as once.
//!
//! The first entry may be a *data check*: its payload is the CRC32C of bulk data that lies at its place, and that one fence made durable
//! together with the record. It changes nothing; it tells recovery whether the power went before that fence.
//!
//! In memory that a log on a disk follows, the last entries may be *notes* (bits 62 and 63): the
//! payload is the number of bytes at that place which the record publishes (length 8), or gives
//! back (length 16). They change nothing; they tell the log what to copy.

mod notes;

use crate::checksum::crc32c;
use crate::homes::{HomeOffset, Homes};
use crate::layout::{Geometry, Superblock};
use crate::places::HalfPlace;
use pmem::{BLOCK_BYTES, BlockNumber, LINE_BYTES, Offset, WORD_BYTES};
use zerocopy::IntoBytes;

pub(crate) use notes::{Note, notes};

/// Bytes of the record header.
pub const HEADER_BYTES: usize = 16;
const HEADER_WORDS: usize = HEADER_BYTES / WORD_BYTES;
const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;
const OFFSET_BITS: u64 = 48;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
const LENGTH_MASK: u64 = 0x3fff;
const DATA_FLAG: u64 = 1 << 62;
const ZERO_FLAG: u64 = 1 << 63;
/// A note.
const NOTE_FLAGS: u64 = DATA_FLAG | ZERO_FLAG;
/// Words of a note.
const NOTE_WORDS: usize = 2;
/// Length of a note that says what is given back.
const FREED_LENGTH: usize = 2 * WORD_BYTES;
/// Bytes of a note.
pub(crate) const NOTE_BYTES: usize = NOTE_WORDS * WORD_BYTES;
/// Words of a data check.
const DATA_CHECK_WORDS: usize = 2;
/// Where entries begin in a builder: room for a data check is always left before them, and the header is put where it belongs at the end.
const ENTRIES_AT: usize = HEADER_WORDS + DATA_CHECK_WORDS;
/// Stands for the place of a home until the record is closed: no place that anybody may change.
const UNKNOWN_PLACE: Offset = Offset::new(0);

/// One change of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry<'a> {
    /// Where the change goes.
    pub at: Offset,
    /// Bytes that change.
    pub length: usize,
    /// The new bytes; `None` fills with zeros.
    pub payload: Option<&'a [u8]>,
}

/// Bulk data that became durable together with the record, if it has this checksum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataCheck {
    /// Where the data is.
    pub at: Offset,
    /// Its bytes, all in one block.
    pub length: usize,
    /// Its CRC32C.
    pub checksum: u32,
}

/// Head word of an entry: place, length and kind in 8 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EntryHead(u64);

impl EntryHead {
    /// Where the change goes.
    pub fn at(self) -> Offset {
        Offset::new(self.0 & OFFSET_MASK)
    }

    /// Bytes that change.
    pub fn length(self) -> usize {
        ((self.0 >> OFFSET_BITS) & LENGTH_MASK) as usize
    }

    /// Of "store `length` bytes at `at`".
    pub(crate) fn change(at: Offset, length: usize) -> EntryHead {
        EntryHead(u64::from_le(head(at, length, 0)))
    }

    /// The word as a number.
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    fn is_data_check(self) -> bool {
        self.0 & DATA_FLAG != 0
    }
}

impl Entry<'_> {
    /// Whether the change touches `length` bytes at `at`.
    pub fn overlaps(&self, at: Offset, length: usize) -> bool {
        self.at < at + length as u64 && at < self.at + self.length as u64
    }

    fn overlaps_block_of(&self, at: Offset) -> bool {
        self.overlaps(at.block().offset(), BLOCK_BYTES)
    }
}

/// Builds a record in a reusable buffer of words: few and wide stores, because they queue behind the data's.
///
/// One [without memory](RecordBuilder::without_memory) takes no changes before [`clear`](RecordBuilder::clear).
#[derive(Debug)]
pub struct RecordBuilder {
    words: Vec<u64>,
    /// Where the header will stand: before the data check, or in its place.
    start: usize,
    body_checksum: u32,
    /// Entries whose place is not known before the commit: index of the head word, and the home.
    homes: Vec<(usize, HomeOffset)>,
    /// Data that notes name.
    noted_bytes: u64,
}

impl Default for RecordBuilder {
    fn default() -> RecordBuilder {
        RecordBuilder::without_memory()
    }
}

impl RecordBuilder {
    /// A builder that has yet to be [cleared](RecordBuilder::clear), and gets its memory then.
    pub const fn without_memory() -> RecordBuilder {
        RecordBuilder {
            words: Vec::new(),
            start: DATA_CHECK_WORDS,
            body_checksum: 0,
            homes: Vec::new(),
            noted_bytes: 0,
        }
    }

    /// An empty record.
    pub fn new() -> RecordBuilder {
        let mut record = RecordBuilder::without_memory();
        record.clear();
        record
    }

    /// Forgets everything, keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.words.clear();
        self.words.extend_from_slice(&[0; ENTRIES_AT]);
        self.start = DATA_CHECK_WORDS;
        self.homes.clear();
        self.noted_bytes = 0;
    }

    /// Whether no change was added.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.len() == ENTRIES_AT
    }

    /// Bytes that the record will take in a journal, padding included.
    #[inline]
    pub fn padded_bytes(&self) -> usize {
        (self.words.len() - self.start).next_multiple_of(LINE_WORDS) * WORD_BYTES
    }

    /// Names the data that the record's own fence makes durable. A record that changes the block which holds it is refused when it is read.
    #[inline]
    pub fn check_data(&mut self, data: DataCheck) {
        debug_assert!(self.start > 0, "one check per record");
        self.words[HEADER_WORDS] = head(data.at, data.length, DATA_FLAG);
        self.words[HEADER_WORDS + 1] = u64::from(data.checksum).to_le();
        self.start = 0;
    }

    /// The data will be durable before the record after all.
    #[inline]
    pub fn forget_data(&mut self) {
        self.start = DATA_CHECK_WORDS;
    }

    /// Bytes of data that the record publishes, by its check or by notes.
    #[inline]
    pub(crate) fn data_bytes(&self) -> u64 {
        let check = EntryHead(u64::from_le(self.words[HEADER_WORDS]));
        let checked = if self.start == 0 { check.length() } else { 0 };
        self.noted_bytes + checked as u64
    }

    /// The block that holds the data to be checked.
    #[inline]
    pub fn checked_block(&self) -> Option<BlockNumber> {
        (self.start == 0).then(|| {
            EntryHead(u64::from_le(self.words[HEADER_WORDS]))
                .at()
                .block()
        })
    }

    /// Whether an entry changes the block whose data is checked. Recovery could not tell that from torn data.
    pub fn changes_checked_data(&self) -> bool {
        let checked = EntryHead(u64::from_le(self.words[HEADER_WORDS])).at();
        self.start == 0
            && self
                .entries()
                .any(|(_, entry)| entry.overlaps_block_of(checked))
    }

    /// Adds "store `payload` at `at`".
    #[inline]
    pub fn store(&mut self, at: Offset, payload: &[u8]) {
        for (index, part) in payload.chunks(BLOCK_BYTES).enumerate() {
            let head = head(at + (index * BLOCK_BYTES) as u64, part.len(), 0);
            let (whole, rest) = part.as_chunks::<WORD_BYTES>();
            self.words.reserve(2 + whole.len());
            self.words.push(head);
            self.words
                .extend(whole.iter().map(|word| u64::from_ne_bytes(*word)));
            if !rest.is_empty() {
                let mut word = [0; WORD_BYTES];
                word[..rest.len()].copy_from_slice(rest);
                self.words.push(u64::from_ne_bytes(word));
            }
        }
    }

    /// Adds "store `payload` at `home`", wherever that will be at the commit. The payload lies in one block.
    #[inline]
    pub fn store_at_home(&mut self, home: HomeOffset, payload: &[u8]) {
        self.homes.push((self.words.len(), home));
        self.store(UNKNOWN_PLACE, payload);
    }

    /// Adds "store the 8 bytes of `word` at `at`".
    #[inline]
    pub fn store_word(&mut self, at: Offset, word: u64) {
        self.words
            .extend_from_slice(&[head(at, 8, 0), word.to_le()]);
    }

    /// Adds "fill `length` bytes at `at` with zeros".
    pub fn zero(&mut self, at: Offset, length: usize) {
        let mut done = 0;
        while done < length {
            let part = (length - done).min(BLOCK_BYTES);
            self.words.push(head(at + done as u64, part, ZERO_FLAG));
            done += part;
        }
    }

    /// Adds "the record publishes `bytes` of data at `at`". Behind all changes.
    pub fn note_data(&mut self, at: Offset, bytes: u64) {
        self.noted_bytes += bytes;
        self.words
            .extend_from_slice(&[head(at, WORD_BYTES, NOTE_FLAGS), bytes.to_le()]);
    }

    /// Adds "the record gives back `bytes` at `at`". Behind all changes.
    pub fn note_freed(&mut self, at: Offset, bytes: u64) {
        self.words
            .extend_from_slice(&[head(at, FREED_LENGTH, NOTE_FLAGS), bytes.to_le()]);
    }

    /// No more changes: looks up the places of homes, and computes what of the checksum does not depend on the sequence number. Call it while
    /// bulk data is on its way to the medium, when computing costs no time.
    #[inline]
    pub fn close(&mut self, homes: &Homes) {
        self.settle(homes);
        self.body_checksum = crc32c(self.words[ENTRIES_AT..].as_bytes());
        self.set_length();
    }

    /// Does over what of [`close`](Self::close) depends on the places of homes: one of them moved since.
    #[cold]
    #[inline(never)]
    pub fn close_again(&mut self, homes: &Homes) {
        self.settle(homes);
        let bytes = u64::from_le(self.words[self.start + 1]) as usize;
        let end = self.start + bytes / WORD_BYTES;
        self.body_checksum = crc32c(self.words[ENTRIES_AT..end].as_bytes());
    }

    /// [`forget_data`](Self::forget_data), of a record that is closed.
    #[cold]
    #[inline(never)]
    pub fn forget_data_of_closed(&mut self) {
        let bytes = u64::from_le(self.words[self.start + 1]) as usize;
        self.words.truncate(self.start + bytes / WORD_BYTES);
        self.forget_data();
        self.set_length();
    }

    /// Notes the length, and pads the record to whole lines.
    #[inline]
    fn set_length(&mut self) {
        let words = self.words.len() - self.start;
        self.words[self.start + 1] = ((words * WORD_BYTES) as u64).to_le();
        self.words
            .resize(self.start + words.next_multiple_of(LINE_WORDS), 0);
    }

    #[inline]
    fn settle(&mut self, homes: &Homes) {
        for &(index, home) in &self.homes {
            let length = EntryHead(u64::from_le(self.words[index])).length();
            let place = homes
                .place(home)
                .expect("who changes a home knows that it exists");
            self.words[index] = head(place, length, 0);
        }
    }

    /// Puts the checksum into the data check of a closed record.
    pub fn complete_data_check(&mut self, checksum: u32) {
        debug_assert_eq!(self.start, 0, "a record with a data check");
        self.words[HEADER_WORDS + 1] = u64::from(checksum).to_le();
    }

    /// Completes a closed record for a half with this [salt](crate::places::HalfPlace::salt). The bytes are what goes to the journal.
    #[inline]
    pub fn finish(&mut self, sequence: u64, salt: u32) -> &[u8] {
        let start = self.start;
        debug_assert!(
            (self.words.len() - start).is_multiple_of(LINE_WORDS),
            "closed"
        );
        let length = u64::from_le(self.words[start + 1]) & u64::from(u32::MAX);
        self.words[start] = sequence.to_le();
        self.words[start + 1] = length.to_le();
        let head = crc32c(self.words[start..ENTRIES_AT].as_bytes());
        let checksum = combine(head, self.body_checksum) ^ salt;
        self.words[start + 1] = (length | (u64::from(checksum) << 32)).to_le();
        self.words[start..].as_bytes()
    }

    /// The changes, in order. Works before and after [`close`](Self::close).
    #[inline]
    pub fn entries(&self) -> Entries<'_> {
        Entries {
            rest: self.words[ENTRIES_AT..].as_bytes(),
        }
    }
}

/// An entry's head word, as it lies in the record.
#[inline]
fn head(at: Offset, length: usize, flag: u64) -> u64 {
    debug_assert!(at.get() <= OFFSET_MASK && length <= BLOCK_BYTES && length > 0);
    (at.get() | ((length as u64) << OFFSET_BITS) | flag).to_le()
}

/// The check of a record: of its head (header and data check, with zeros in place of the check) and of its other entries.
fn checksum(record: &[u8]) -> u32 {
    let (head, entries) = record.split_at(head_bytes(record));
    let mut words = [0; ENTRIES_AT * WORD_BYTES];
    words[..head.len()].copy_from_slice(head);
    words[12..16].fill(0);
    combine(crc32c(&words[..head.len()]), crc32c(entries))
}

/// Bytes of a record before its changes: the header, and the data check if there is one.
fn head_bytes(record: &[u8]) -> usize {
    let first = record[HEADER_BYTES..].first_chunk().copied();
    let is_check =
        first.is_some_and(|word| u64::from_le_bytes(word) & (DATA_FLAG | ZERO_FLAG) == DATA_FLAG);
    let with_check = HEADER_BYTES + DATA_CHECK_WORDS * WORD_BYTES;
    if is_check && record.len() >= with_check {
        with_check
    } else {
        HEADER_BYTES
    }
}

/// Two checksums in one, so that the entries' can be computed before the head is known; both halves still detect any
/// flipped bit. Swapped, because the CRC is linear: otherwise two flipped bits, one in each half, could cancel out.
#[inline]
fn combine(head: u32, entries: u32) -> u32 {
    head.swap_bytes() ^ entries
}

/// Iterator over the changes of a record. Stops at the padding, and at notes.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = (EntryHead, Entry<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.rest.split_first_chunk::<8>()?;
        let word = u64::from_le_bytes(*head);
        let head = EntryHead(word);
        let length = head.length();
        if length == 0 || word & NOTE_FLAGS == NOTE_FLAGS {
            return None;
        }
        if word & ZERO_FLAG != 0 {
            self.rest = rest;
            return Some((
                head,
                Entry {
                    at: head.at(),
                    length,
                    payload: None,
                },
            ));
        }
        let payload = rest.get(..length)?;
        self.rest = rest.get(length.next_multiple_of(8)..)?;
        Some((
            head,
            Entry {
                at: head.at(),
                length,
                payload: Some(payload),
            },
        ))
    }
}

impl<'a> Entries<'a> {
    /// The bytes behind the changes that were taken.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// What a record must fit to be believed.
#[derive(Clone, Copy, Debug)]
pub struct RecordForm {
    /// Where it may change anything.
    pub geometry: Geometry,
    /// What its check contains.
    pub salt: u32,
}

impl RecordForm {
    /// The form of the records in the half that lies at `place`.
    pub fn of(superblock: &Superblock, place: HalfPlace) -> RecordForm {
        RecordForm {
            geometry: superblock.geometry(),
            salt: place.salt(superblock.journal_key),
        }
    }
}

/// A whole record found in a journal.
#[derive(Clone, Debug)]
pub struct Record {
    /// Sequence number.
    pub sequence: u64,
    /// Header and entries, without padding.
    bytes: Vec<u8>,
}

impl Record {
    /// Reads the record at the start of `journal`, if a whole and sensible one is there.
    ///
    /// Any bytes are accepted: a torn, stale or hostile record is `None`, and so is one that was written for another use of the place. Every entry of a returned record lies
    /// inside the pool and outside its superblocks; the data that it checks lies in one block of a segment, which it does not change.
    pub fn parse(journal: &[u8], form: &RecordForm) -> Option<Record> {
        let header = journal.get(..HEADER_BYTES)?;
        let sequence = u64::from_le_bytes(header[0..8].try_into().ok()?);
        let length = u32::from_le_bytes(header[8..12].try_into().ok()?) as usize;
        let found = u32::from_le_bytes(header[12..16].try_into().ok()?);
        if sequence == 0 || length < HEADER_BYTES || !length.is_multiple_of(8) {
            return None;
        }
        let bytes = journal.get(..length)?;
        let skip = pmem::deliberate::is(pmem::deliberate::Bug::SkipRecordChecksum);
        if checksum(bytes) ^ form.salt != found && !skip {
            return None;
        }
        let record = Record {
            sequence,
            bytes: bytes.to_vec(),
        };
        record.is_sensible(&form.geometry).then_some(record)
    }

    fn is_sensible(&self, geometry: &Geometry) -> bool {
        let first = Offset::new(BLOCK_BYTES as u64);
        let second = geometry.second_superblock();
        let mut used = head_bytes(&self.bytes);
        let checked = self.data_check();
        let is_checkable = checked.is_none_or(|data| {
            let last = data.at + (data.length as u64).saturating_sub(1);
            data.length > 0
                && data.at.block() == last.block()
                && data.at >= geometry.first_block().offset()
                && last.get() < geometry.total_bytes()
        });
        let inside = self.entries().all(|(head, entry)| {
            used += 8 + entry
                .payload
                .map_or(0, |payload| payload.len().next_multiple_of(8));
            let end = entry.at + entry.length as u64;
            let header = entry.at >= first && end <= second;
            let segments = entry.at >= geometry.first_block().offset();
            (header || segments)
                && end.get() <= geometry.total_bytes()
                && !head.is_data_check()
                && checked.is_none_or(|data| !entry.overlaps_block_of(data.at))
        });
        let notes = notes(&self.bytes[used.min(self.bytes.len())..]);
        let are_notes_inside = notes.clone().all(|Note { at, bytes, .. }| {
            let end = at.get().checked_add(bytes);
            at >= geometry.first_block().offset()
                && end.is_some_and(|end| end <= geometry.total_bytes())
        });
        used += notes.count() * NOTE_WORDS * WORD_BYTES;
        is_checkable && inside && are_notes_inside && used == self.bytes.len()
    }

    /// Bytes that the record takes in a journal.
    pub fn padded_bytes(&self) -> usize {
        self.bytes.len().next_multiple_of(LINE_BYTES)
    }

    /// What tells whether the record's fence was reached; `None` if its data was durable before.
    pub fn data_check(&self) -> Option<DataCheck> {
        data_check(&self.bytes)
    }

    /// The changes, in order.
    pub fn entries(&self) -> Entries<'_> {
        entries(&self.bytes)
    }

    /// Header and entries.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The changes of a record, in order.
pub(crate) fn entries(record: &[u8]) -> Entries<'_> {
    Entries {
        rest: &record[head_bytes(record)..],
    }
}

/// The changes in bytes that are nothing but changes.
pub(crate) fn all_entries(bytes: &[u8]) -> Entries<'_> {
    Entries { rest: bytes }
}

/// The data check of a record.
pub(crate) fn data_check(record: &[u8]) -> Option<DataCheck> {
    let words = &record[HEADER_BYTES..head_bytes(record)];
    let [place, checksum] = words.as_chunks::<WORD_BYTES>().0 else {
        return None;
    };
    let place = EntryHead(u64::from_le_bytes(*place));
    Some(DataCheck {
        at: place.at(),
        length: place.length(),
        checksum: u64::from_le_bytes(*checksum) as u32,
    })
}

/// Number and bytes of the record at the start of `journal`, which a process of ours wrote: nothing
/// is checked.
pub(crate) fn first_written(journal: &[u8]) -> Option<(u64, &[u8])> {
    let header = journal
        .first_chunk::<HEADER_BYTES>()?
        .as_chunks::<WORD_BYTES>()
        .0;
    let sequence = u64::from_le_bytes(header[0]);
    let length = u64::from_le_bytes(header[1]) as u32 as usize;
    let bytes = journal.get(..length.max(HEADER_BYTES))?;
    Some((sequence, bytes))
}

#[cfg(test)]
mod tests;
