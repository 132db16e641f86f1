//! The bytes of a journal record.
//!
//! ```text
//! 0   sequence number      u64
//! 8   length in bytes      u32   header and entries, without the padding to whole lines
//! 12  CRC32C               u32   of bytes 0..12 and 16..length
//! 16  entries
//! ```
//! An entry is a head word (bits 0–47 offset in the pool, bits 48–62 length in bytes, bit 63: fill with
//! zeros, no payload) and its payload, padded to 8 bytes. Applying an entry stores absolute bytes, so applying a
//! record twice is the same as once.

use crate::checksum::crc32c;
use crate::layout::Geometry;
use pmem::{BLOCK_BYTES, LINE_BYTES, Offset, WORD_BYTES};
use zerocopy::IntoBytes;

/// Bytes of the record header.
pub const HEADER_BYTES: usize = 16;
const HEADER_WORDS: usize = HEADER_BYTES / WORD_BYTES;
const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;
const OFFSET_BITS: u64 = 48;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
const LENGTH_MASK: u64 = 0x7fff;
const ZERO_FLAG: u64 = 1 << 63;

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
}

/// Builds a record in a reusable buffer of words: few and wide stores, because they queue behind the data's.
///
/// The default value has no memory and takes no changes before [`clear`](RecordBuilder::clear).
#[derive(Debug, Default)]
pub struct RecordBuilder {
    words: Vec<u64>,
    body_checksum: u32,
}

impl RecordBuilder {
    /// An empty record.
    pub fn new() -> RecordBuilder {
        RecordBuilder {
            words: vec![0; HEADER_WORDS],
            body_checksum: 0,
        }
    }

    /// Forgets everything, keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.words.clear();
        self.words.extend_from_slice(&[0; HEADER_WORDS]);
    }

    /// Whether no change was added.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.len() == HEADER_WORDS
    }

    /// Bytes that the record will take in a journal, padding included.
    #[inline]
    pub fn padded_bytes(&self) -> usize {
        self.words.len().next_multiple_of(LINE_WORDS) * WORD_BYTES
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

    /// No more changes: computes what of the checksum does not depend on the sequence number. Call it while bulk data is on
    /// its way to the medium, when computing costs no time.
    #[inline]
    pub fn close(&mut self) {
        let length = (self.words.len() * WORD_BYTES) as u32;
        self.body_checksum = crc32c(self.words[HEADER_WORDS..].as_bytes());
        self.words[1] = u64::from(length).to_le();
        self.words
            .resize(self.words.len().next_multiple_of(LINE_WORDS), 0);
    }

    /// Completes a closed record. The bytes are what goes to the journal.
    #[inline]
    pub fn finish(&mut self, sequence: u64) -> &[u8] {
        debug_assert!(self.words.len().is_multiple_of(LINE_WORDS), "closed");
        self.words[0] = sequence.to_le();
        let length = u64::from_le(self.words[1]) & u64::from(u32::MAX);
        let header = crc32c(&self.words[..HEADER_WORDS].as_bytes()[..12]);
        let checksum = combine(header, self.body_checksum);
        self.words[1] = (length | (u64::from(checksum) << 32)).to_le();
        self.words.as_bytes()
    }

    /// The changes, in order. Works before and after [`close`](Self::close).
    #[inline]
    pub fn entries(&self) -> Entries<'_> {
        Entries {
            rest: self.words[HEADER_WORDS..].as_bytes(),
        }
    }
}

/// An entry's head word, as it lies in the record.
#[inline]
fn head(at: Offset, length: usize, flag: u64) -> u64 {
    debug_assert!(at.get() <= OFFSET_MASK && length <= BLOCK_BYTES && length > 0);
    (at.get() | ((length as u64) << OFFSET_BITS) | flag).to_le()
}

/// CRC32C of a record's bytes without the checksum field itself.
#[inline]
fn checksum(record: &[u8]) -> u32 {
    combine(crc32c(&record[0..12]), crc32c(&record[HEADER_BYTES..]))
}

/// Two checksums in one, so that the body's can be computed before the header is known; both halves still detect any
/// flipped bit. Swapped, because the CRC is linear: otherwise two flipped bits, one in each half, could cancel out.
#[inline]
fn combine(header: u32, body: u32) -> u32 {
    header.swap_bytes() ^ body
}

/// Iterator over the entries of a record. Stops at the padding.
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
    /// Any bytes are accepted: a torn, stale or hostile record is `None`. Every entry of a returned record lies
    /// inside the pool and outside its superblocks.
    pub fn parse(journal: &[u8], geometry: &Geometry) -> Option<Record> {
        let header = journal.get(..HEADER_BYTES)?;
        let sequence = u64::from_le_bytes(header[0..8].try_into().ok()?);
        let length = u32::from_le_bytes(header[8..12].try_into().ok()?) as usize;
        let found = u32::from_le_bytes(header[12..16].try_into().ok()?);
        if sequence == 0 || length < HEADER_BYTES || !length.is_multiple_of(8) {
            return None;
        }
        let bytes = journal.get(..length)?;
        let skip = pmem::deliberate::is(pmem::deliberate::Bug::SkipRecordChecksum);
        if checksum(bytes) != found && !skip {
            return None;
        }
        let record = Record {
            sequence,
            bytes: bytes.to_vec(),
        };
        record.is_sensible(geometry).then_some(record)
    }

    fn is_sensible(&self, geometry: &Geometry) -> bool {
        let first = Offset::new(BLOCK_BYTES as u64);
        let second = geometry.second_superblock();
        let mut used = HEADER_BYTES;
        let inside = self.entries().all(|(_, entry)| {
            used += 8 + entry
                .payload
                .map_or(0, |payload| payload.len().next_multiple_of(8));
            let end = entry.at + entry.length as u64;
            let header = entry.at >= first && end <= second;
            let segments = entry.at >= geometry.first_block().offset();
            (header || segments) && end.get() <= geometry.total_bytes()
        });
        inside && used == self.bytes.len()
    }

    /// Bytes that the record takes in a journal.
    pub fn padded_bytes(&self) -> usize {
        self.bytes.len().next_multiple_of(LINE_BYTES)
    }

    /// The changes, in order.
    pub fn entries(&self) -> Entries<'_> {
        Entries {
            rest: &self.bytes[HEADER_BYTES..],
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

    fn sample() -> RecordBuilder {
        let mut builder = RecordBuilder::new();
        let base = GEOMETRY.first_block().offset();
        builder.store_word(base + 64, 7);
        builder.store(base + 4096, b"hello, record");
        builder.zero(base + 8192, 5000);
        builder
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let mut builder = sample();
        builder.close();
        let bytes = builder.finish(42).to_vec();
        assert_eq!(bytes.len() % LINE_BYTES, 0);
        let record = Record::parse(&bytes, &GEOMETRY).expect("whole record");
        assert_eq!(record.sequence, 42);
        let entries: Vec<_> = record.entries().map(|(_, entry)| entry).collect();
        assert_eq!(entries.len(), 4);
        assert_eq!(entries[1].payload, Some(&b"hello, record"[..]));
        assert_eq!(entries[2].length + entries[3].length, 5000);
        assert_eq!(record.padded_bytes(), bytes.len());
    }

    #[test]
    fn the_smallest_overwrite_fits_one_line() {
        let mut builder = RecordBuilder::new();
        let base = GEOMETRY.first_block().offset();
        builder.store_word(base, 1);
        builder.store(base + 4096, &[1; 24]);
        assert_eq!(builder.padded_bytes(), LINE_BYTES);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut builder = sample();
        builder.close();
        let bytes = builder.finish(42).to_vec();
        let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        for bit in 0..length * 8 {
            let mut copy = bytes.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::parse(&copy, &GEOMETRY).is_none(), "bit {bit}");
        }
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
            builder.close();
            let bytes = builder.finish(1).to_vec();
            assert!(Record::parse(&bytes, &GEOMETRY).is_none(), "offset {at}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Record::parse(&bytes, &GEOMETRY);
        }
    }
}
