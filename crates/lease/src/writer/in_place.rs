//! Overwrites in place, for who prefers them to writes that are all or nothing.
//!
//! The bytes are stored where they belong and fenced: no spare block, no record, nothing around them is copied. Two things still need a record, one without an exchange and without data, a *stamp*:
//!
//! * the time of modification, once in each tick of the clock;
//! * bytes that the newest record vouches for. It counts after a power cut only if its checksum fits, so before they change there must be a record behind it, whose own data is nothing.

use super::{BLOCK, FileMap, Place, Refusal, Writer};
use crate::record::{NO_SLOT, Record};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, Flushed, Offset, WORD_BYTES};
use std::ops::RangeInclusive;

const WORD: u64 = WORD_BYTES as u64;

/// What came of an overwrite in place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InPlace {
    /// All bytes are there and durable.
    Done,
    /// The lease has ended meanwhile: some blocks may have their new bytes. Whoever writes the same through the server makes it whole.
    Ended,
    /// Not a write for this: it goes behind the end of the file, or into a block that is not written. Nothing happened.
    Elsewhere,
}

/// What the newest record vouches for, if that is the one before `next`; else nobody knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vouched {
    pub(super) next: u64,
    /// A block of the file, in which its data is.
    pub(super) block: Option<u64>,
}

impl Vouched {
    pub(super) fn nothing(next: u64) -> Vouched {
        Vouched { next, block: None }
    }
}

impl Writer {
    /// Whether a write lies inside the file, in blocks that are written, so that it can go in place.
    pub fn can_go_in_place(&self, map: &impl FileMap, offset: u64, bytes: usize) -> bool {
        bytes > 0
            && self.is_inside(offset, bytes)
            && are_written(map, offset / BLOCK..=(offset + bytes as u64 - 1) / BLOCK)
    }

    #[inline]
    fn is_inside(&self, offset: u64, bytes: usize) -> bool {
        let end = offset.checked_add(bytes as u64);
        end.is_some_and(|end| end <= self.size_bytes)
    }

    /// Overwrites bytes of the file where they are, one block after the other. Durable at return; after a power cut in between each aligned word of 8 bytes is the old or the new one,
    /// and the time of modification may be that before.
    ///
    /// `begin` is told into which block is stored next, and says whether it may be: [`crate::Holding::begin`]. It is asked each time when all before is fenced.
    ///
    /// # Errors
    ///
    /// [`Refusal::RingFull`]; blocks before the one that needed a record have their new bytes.
    #[inline]
    pub fn overwrite_in_place(
        &mut self,
        map: &impl FileMap,
        offset: u64,
        data: &[u8],
        now: i64,
        mut begin: impl FnMut(u64) -> bool,
    ) -> Result<InPlace, Refusal> {
        if data.is_empty() || !self.is_inside(offset, data.len()) {
            return Ok(InPlace::Elsewhere);
        }
        let end = offset + data.len() as u64;
        let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
        let is_whole_block = first == last && data.len() == BLOCK_BYTES;
        let began_ticks = is_whole_block.then(pmem::ticks);
        if first != last && !are_written(map, first..=last) {
            return Ok(InPlace::Elsewhere);
        }
        for index in first..=last {
            // Of several, all were looked at: nothing has been stored.
            let Some(Place::At(block)) = map.get(index) else {
                return Ok(InPlace::Elsewhere);
            };
            if !begin(index) {
                return Ok(InPlace::Ended);
            }
            let from = (index * BLOCK).max(offset);
            let to = ((index + 1) * BLOCK).min(end);
            let mut batch = Flushed::nothing(&self.region);
            let is_vouched_for = self.is_vouched_for(index);
            if is_vouched_for || self.stamped_at != Some(now) {
                batch.join(self.stamp(index, now)?);
                if is_vouched_for {
                    self.region.fence(batch);
                    batch = Flushed::nothing(&self.region);
                    // If the server did not see the stamp when it took the lease back, it looks at these bytes.
                    if !begin(index) {
                        return Ok(InPlace::Ended);
                    }
                }
            }
            self.forget_end_in(index);
            let data = &data[(from - offset) as usize..(to - offset) as usize];
            let at = block.offset() + (from - index * BLOCK);
            batch.join(self.stream_words(at, data));
            if !deliberate::is(Bug::SkipInPlaceFence) {
                self.region.fence(batch);
            }
        }
        if let Some(began_ticks) = began_ticks {
            self.backoff.streamed(began_ticks);
        }
        Ok(InPlace::Done)
    }

    /// Whether the newest record vouches for bytes of the block, or may do so.
    #[inline]
    fn is_vouched_for(&self, index: u64) -> bool {
        let Vouched { next, block } = self.vouched;
        (next != self.next || block == Some(index)) && !deliberate::is(Bug::SkipLeaseStamp)
    }

    /// Writes a record that says no more than that the file was modified; not fenced.
    #[cold]
    fn stamp(&mut self, index: u64, now: i64) -> Result<Flushed, Refusal> {
        if self.next - self.folded >= self.ring.records() {
            return Err(Refusal::RingFull);
        }
        let record = Record {
            sequence: self.next,
            index,
            size: self.size_bytes,
            modified: now,
            slot: NO_SLOT,
            continues: 0,
            data_at: 0,
            data_bytes: 0,
            data_checksum: 0,
            checksum: 0,
            reserved: 0,
        };
        let at = self.ring.place(self.next);
        self.next += 1;
        self.vouched = Vouched::nothing(self.next);
        self.stamped_at = Some(now);
        let words = record.sealed_words(self.salt);
        Ok(self.region.write_line_streaming(at, words))
    }

    /// Streams bytes in whole aligned words, so that none of them is torn.
    #[inline]
    fn stream_words(&self, at: Offset, data: &[u8]) -> Flushed {
        if at.is_aligned(WORD) && data.len().is_multiple_of(WORD_BYTES) {
            return self.region.write_streaming(at, data);
        }
        self.stream_ragged(at, data)
    }

    /// The words at both ends keep what of them is not written: the holder is the only one who changes it.
    fn stream_ragged(&self, at: Offset, data: &[u8]) -> Flushed {
        let before = (at.get() % WORD) as usize;
        let (head, rest) = data.split_at(match before {
            0 => 0,
            before => (WORD_BYTES - before).min(data.len()),
        });
        let (body, tail) = rest.split_at(rest.len() - rest.len() % WORD_BYTES);
        let mut batch = Flushed::nothing(&self.region);
        if !head.is_empty() {
            let start = Offset::new(at.get() - before as u64);
            batch.join(self.stream_part(start, before, head));
        }
        let body_at = at + head.len() as u64;
        batch.join(self.region.write_streaming(body_at, body));
        if !tail.is_empty() {
            batch.join(self.stream_part(body_at + body.len() as u64, 0, tail));
        }
        batch
    }

    /// Streams one word, of which `data` is the part from `from` on.
    fn stream_part(&self, word_at: Offset, from: usize, data: &[u8]) -> Flushed {
        let mut word = [0; WORD_BYTES];
        self.region.read(word_at, &mut word);
        word[from..from + data.len()].copy_from_slice(data);
        self.region.write_streaming(word_at, &word)
    }
}

fn are_written(map: &impl FileMap, mut blocks: RangeInclusive<u64>) -> bool {
    blocks.all(|index| matches!(map.get(index), Some(Place::At(_))))
}
