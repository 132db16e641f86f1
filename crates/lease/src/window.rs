//! Records of a ring that were copied out of it to be judged: the holder can change the ring at any moment, but not the copies.

use crate::judge::GROUP_RECORDS_MAX;
use crate::record::{RECORD_BYTES, Record, Salt};
use crate::ring::{Medium, Ring};
use std::ops::Range;
use zerocopy::{FromZeros, IntoBytes};

/// Whole records, one after the other, copied by the block: so the processor fetches the next ones while the first are looked at.
pub(crate) struct Window<'r, M> {
    medium: &'r M,
    ring: &'r Ring,
    salt: Salt,
    /// Those in `at..filled` are whole and were not given out.
    records: Vec<Record>,
    at: usize,
    filled: usize,
    /// Number of the record behind them.
    next: u64,
    /// From this one on no record is likely to be asked for.
    end: u64,
    /// That record is not there, or not whole.
    has_ended: bool,
}

impl<'r, M: Medium> Window<'r, M> {
    /// The records with these numbers, and those that belong to the last one.
    pub(crate) fn new(
        medium: &'r M,
        ring: &'r Ring,
        salt: Salt,
        numbers: Range<u64>,
    ) -> Window<'r, M> {
        Window {
            medium,
            ring,
            salt,
            records: Vec::new(),
            at: 0,
            filled: 0,
            next: numbers.start,
            end: numbers.end,
            has_ended: false,
        }
    }

    /// The next records that belong together, and whether nothing comes behind them; `None` if they are not all there. `visit` gets each record some time before it is given out.
    #[inline]
    pub(crate) fn group(&mut self, visit: impl FnMut(&Record)) -> Option<(&[Record], bool)> {
        match self.records[self.at..self.filled] {
            [Record { continues, .. }, _, ..] if continues != 1 => {
                self.at += 1;
                Some((&self.records[self.at - 1..self.at], false))
            }
            _ => self.long_group(visit),
        }
    }

    /// The same for several records, and at the end of what was copied.
    #[inline(never)]
    fn long_group(&mut self, mut visit: impl FnMut(&Record)) -> Option<(&[Record], bool)> {
        let mut count = 0;
        loop {
            if !self.has(count, &mut visit) || count as u64 == GROUP_RECORDS_MAX {
                return None;
            }
            let is_last = self.records[self.at + count].continues != 1;
            count += 1;
            if is_last {
                break;
            }
        }
        let is_newest = !self.has(count, &mut visit);
        let first = self.at;
        self.at += count;
        Some((&self.records[first..self.at], is_newest))
    }

    /// Whether `count` records and one more are there that were not given out.
    #[inline]
    fn has(&mut self, count: usize, visit: &mut impl FnMut(&Record)) -> bool {
        self.at + count < self.filled || self.load(visit)
    }

    /// Copies what follows, up to the end of the ring's block; whether that is any.
    #[inline(never)]
    fn load(&mut self, visit: &mut impl FnMut(&Record)) -> bool {
        if self.has_ended {
            return false;
        }
        let (place, count) = self.ring.run(self.next);
        let medium = self.medium;
        medium.read(place, self.room(count).as_mut_bytes());
        medium.release(place, count * RECORD_BYTES);
        let copies = &self.records[self.filled..][..count];
        let whole = self.count_whole(copies);
        copies[..whole].iter().for_each(visit);
        self.has_ended = whole < count;
        self.filled += whole;
        self.next += whole as u64;
        whole > 0
    }

    /// How many of these copies are whole records with the next numbers. Meanwhile the ring's next block is fetched, if the last of them is there: the holder has gone on to that block then.
    fn count_whole(&self, copies: &[Record]) -> usize {
        let numbers = self.next..self.next + copies.len() as u64;
        let is_full = copies
            .last()
            .is_some_and(|last| last.sequence == numbers.end - 1);
        let following = (is_full && numbers.end < self.end).then(|| self.ring.place(numbers.end));
        let is_whole = |(line, (number, record)): &(u64, (u64, &Record))| {
            if let Some(at) = following {
                self.medium.prefetch(at + line * RECORD_BYTES as u64);
            }
            record.is_whole(*number, self.salt)
        };
        (0..).zip(numbers.zip(copies)).take_while(is_whole).count()
    }

    /// Room for `count` records behind those that were not given out, which go to the front. What lies in it does not matter: clearing it would take as long as judging some of them.
    fn room(&mut self, count: usize) -> &mut [Record] {
        self.records.copy_within(self.at..self.filled, 0);
        self.filled -= self.at;
        self.at = 0;
        let end = self.filled + count;
        if end > self.records.len() {
            self.records.resize(end, Record::new_zeroed());
        }
        &mut self.records[self.filled..end]
    }
}
