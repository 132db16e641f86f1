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

use crate::checksum::crc32c;
use crate::homes::{HomeOffset, Homes};
use crate::layout::{Geometry, Superblock};
use crate::places::HalfPlace;
use pmem::{BLOCK_BYTES, BlockNumber, LINE_BYTES, Offset, WORD_BYTES};
use zerocopy::IntoBytes;

/// Bytes of the record header.
pub const HEADER_BYTES: usize = 16;
const HEADER_WORDS: usize = HEADER_BYTES / WORD_BYTES;
const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;
const OFFSET_BITS: u64 = 48;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
const LENGTH_MASK: u64 = 0x3fff;
const DATA_FLAG: u64 = 1 << 62;
const ZERO_FLAG: u64 = 1 << 63;
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

/// Iterator over the changes of a record. Stops at the padding.
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
        if length == 0 {
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
        is_checkable && inside && used == self.bytes.len()
    }

    /// Bytes that the record takes in a journal.
    pub fn padded_bytes(&self) -> usize {
        self.bytes.len().next_multiple_of(LINE_BYTES)
    }

    /// What tells whether the record's fence was reached; `None` if its data was durable before.
    pub fn data_check(&self) -> Option<DataCheck> {
        let head = head_bytes(&self.bytes);
        let words = self.bytes[HEADER_BYTES..head].as_chunks::<WORD_BYTES>().0;
        let [place, checksum] = words else {
            return None;
        };
        let place = EntryHead(u64::from_le_bytes(*place));
        Some(DataCheck {
            at: place.at(),
            length: place.length(),
            checksum: u64::from_le_bytes(*checksum) as u32,
        })
    }

    /// The changes, in order.
    pub fn entries(&self) -> Entries<'_> {
        Entries {
            rest: &self.bytes[head_bytes(&self.bytes)..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GEOMETRY: Geometry = Geometry {
        header_blocks: 4,
        segment_blocks: 16,
        segments: 16,
    };
    const SALT: u32 = 0x5a17_5a17;
    const FORM: RecordForm = RecordForm {
        geometry: GEOMETRY,
        salt: SALT,
    };

    fn sample() -> RecordBuilder {
        let mut builder = RecordBuilder::new();
        let base = GEOMETRY.first_block().offset();
        builder.store_word(base + 64, 7);
        builder.store(base + 4096, b"hello, record");
        builder.zero(base + 8192, 5000);
        builder
    }

    #[test]
    fn a_record_of_another_use_of_the_place_is_refused() {
        let mut builder = sample();
        builder.close(&Homes::default());
        let bytes = builder.finish(42, SALT).to_vec();
        let other = RecordForm { salt: 0, ..FORM };
        assert!(Record::parse(&bytes, &FORM).is_some());
        assert!(Record::parse(&bytes, &other).is_none());
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let mut builder = sample();
        builder.close(&Homes::default());
        let bytes = builder.finish(42, SALT).to_vec();
        assert_eq!(bytes.len() % LINE_BYTES, 0);
        let record = Record::parse(&bytes, &FORM).expect("whole record");
        assert_eq!(record.sequence, 42);
        let entries: Vec<_> = record.entries().map(|(_, entry)| entry).collect();
        assert_eq!(entries.len(), 4);
        assert_eq!(entries[1].payload, Some(&b"hello, record"[..]));
        assert_eq!(entries[2].length + entries[3].length, 5000);
        assert_eq!(record.padded_bytes(), bytes.len());
    }

    #[test]
    fn a_closed_record_without_its_data_check_is_one_that_never_had_it() {
        for words in 0..20 {
            let mut builders = [sample(), sample()];
            for builder in &mut builders {
                builder.store(GEOMETRY.first_block().offset(), &vec![3; 8 * words + 1]);
            }
            let [mut checked, mut plain] = builders;
            checked.check_data(DataCheck {
                at: GEOMETRY.first_block().offset() + 65_536,
                length: 100,
                checksum: 9,
            });
            assert_eq!(
                checked.checked_block(),
                Some(GEOMETRY.first_block() + 16),
                "where the data is"
            );
            for builder in [&mut checked, &mut plain] {
                builder.close(&Homes::default());
            }
            checked.forget_data_of_closed();
            assert_eq!(checked.checked_block(), None);
            assert_eq!(checked.padded_bytes(), plain.padded_bytes());
            assert_eq!(checked.finish(42, SALT), plain.finish(42, SALT));
        }
    }

    #[test]
    fn the_smallest_overwrite_fits_one_line() {
        let mut builder = RecordBuilder::new();
        let base = GEOMETRY.first_block().offset();
        builder.store_word(base, 1);
        builder.store(base + 4096, &[1; 24]);
        assert_eq!(builder.padded_bytes(), LINE_BYTES);
    }

    fn assert_flips_are_noticed(bytes: &[u8]) {
        let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        for bit in 0..length * 8 {
            let mut copy = bytes.to_vec();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::parse(&copy, &FORM).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut builder = sample();
        builder.close(&Homes::default());
        let bytes = builder.finish(42, SALT).to_vec();
        assert_flips_are_noticed(&bytes);
    }

    #[test]
    fn an_entry_outside_the_pool_is_refused() {
        for at in [
            0,
            GEOMETRY.second_superblock().get(),
            GEOMETRY.total_bytes(),
        ] {
            let mut builder = RecordBuilder::new();
            builder.store_word(Offset::new(at), 1);
            builder.close(&Homes::default());
            let bytes = builder.finish(1, SALT).to_vec();
            assert!(Record::parse(&bytes, &FORM).is_none(), "offset {at}");
        }
    }

    fn data_at(at: Offset) -> DataCheck {
        DataCheck {
            at,
            length: 700,
            checksum: 0x1234_5678,
        }
    }

    /// A block that [`sample`] does not change.
    fn data_block() -> Offset {
        GEOMETRY.first_block().offset() + 16 * BLOCK_BYTES as u64
    }

    fn finished(mut builder: RecordBuilder) -> Vec<u8> {
        builder.close(&Homes::default());
        builder.finish(42, SALT).to_vec()
    }

    #[test]
    fn a_data_check_reads_back_whenever_it_was_added() {
        let data = data_at(data_block() + 96);
        let mut first = RecordBuilder::new();
        first.check_data(data);
        first.store_word(GEOMETRY.first_block().offset(), 7);
        let mut last = RecordBuilder::new();
        last.store_word(GEOMETRY.first_block().offset(), 7);
        last.check_data(data);
        let (first, last) = (finished(first), finished(last));
        assert_eq!(first, last);
        let record = Record::parse(&first, &FORM).expect("whole record");
        assert_eq!(record.data_check(), Some(data));
        assert_eq!(record.entries().count(), 1);
        assert_eq!(first.len(), LINE_BYTES);
    }

    #[test]
    fn a_forgotten_data_check_leaves_no_trace() {
        let mut builder = sample();
        builder.check_data(data_at(data_block()));
        builder.forget_data();
        let bytes = finished(builder);
        assert_eq!(bytes, finished(sample()));
        let record = Record::parse(&bytes, &FORM).expect("whole record");
        assert_eq!(record.data_check(), None);
    }

    #[test]
    fn every_flipped_bit_of_a_record_with_a_data_check_is_noticed() {
        let mut builder = sample();
        builder.check_data(data_at(data_block()));
        let bytes = finished(builder);
        assert!(Record::parse(&bytes, &FORM).is_some());
        assert_flips_are_noticed(&bytes);
    }

    #[test]
    fn a_record_that_changes_the_block_it_checks_is_refused() {
        let block = data_block();
        let end = block + BLOCK_BYTES as u64;
        for (at, length, is_sound) in [
            (block + 8, 8, false),
            (end, 8, true),
            (block + 4088, 8, false),
            (Offset::new(block.get() - 8), 8, true),
            (Offset::new(block.get() - 8), 16, false),
        ] {
            let mut builder = RecordBuilder::new();
            builder.check_data(data_at(block + 96));
            builder.zero(at, length);
            assert_eq!(builder.changes_checked_data(), !is_sound, "at {at:?}");
            let record = Record::parse(&finished(builder), &FORM);
            assert_eq!(record.is_some(), is_sound, "at {at:?}");
        }
    }

    #[test]
    fn data_outside_the_segments_or_of_two_blocks_is_refused() {
        let last = GEOMETRY.total_bytes() - BLOCK_BYTES as u64;
        for (at, is_sound) in [
            (data_block().get(), true),
            (data_block().get() + BLOCK_BYTES as u64 - 700, true),
            (data_block().get() + BLOCK_BYTES as u64 - 699, false),
            (BLOCK_BYTES as u64, false),
            (last, true),
            (GEOMETRY.total_bytes(), false),
        ] {
            let mut builder = RecordBuilder::new();
            builder.check_data(data_at(Offset::new(at)));
            builder.store_word(GEOMETRY.first_block().offset(), 7);
            let record = Record::parse(&finished(builder), &FORM);
            assert_eq!(record.is_some(), is_sound, "data at {at}");
        }
    }

    #[test]
    fn a_data_check_behind_another_entry_is_refused() {
        let mut builder = RecordBuilder::new();
        builder.store_word(GEOMETRY.first_block().offset(), 7);
        builder
            .words
            .extend_from_slice(&[head(data_block(), 700, DATA_FLAG), 0]);
        assert!(Record::parse(&finished(builder), &FORM).is_none());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Record::parse(&bytes, &FORM);
        }
    }
}
