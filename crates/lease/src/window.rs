//! Records of a ring that were copied out of it to be judged: the holder can change the ring at any moment, but not the copies.

use crate::judge::GROUP_RECORDS_MAX;
use crate::record::{RECORD_BYTES, Record, Salt};
use crate::ring::{Medium, Ring};
use zerocopy::{FromZeros, IntoBytes};

/// Whole records, one after the other, copied by the block: so the processor fetches the next ones while the first are looked at.
pub(crate) struct Window<'r, M> {
    medium: &'r M,
    ring: &'r Ring,
    salt: Salt,
    /// All of them whole; those before `at` were given out.
    records: Vec<Record>,
    at: usize,
    /// Number of the record behind them.
    next: u64,
    /// That record is not there, or not whole.
    has_ended: bool,
}

impl<'r, M: Medium> Window<'r, M> {
    /// The records from number `first` on.
    pub(crate) fn new(medium: &'r M, ring: &'r Ring, salt: Salt, first: u64) -> Window<'r, M> {
        Window {
            medium,
            ring,
            salt,
            records: Vec::new(),
            at: 0,
            next: first,
            has_ended: false,
        }
    }

    /// The next records that belong together, and whether nothing comes behind them; `None` if they are not all there. `visit` gets each record some time before it is given out.
    #[inline]
    pub(crate) fn group(&mut self, mut visit: impl FnMut(&Record)) -> Option<(&[Record], bool)> {
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
        self.at + count < self.records.len() || self.load(visit)
    }

    /// Copies what follows, up to the end of the ring's block; whether that is any.
    fn load(&mut self, visit: &mut impl FnMut(&Record)) -> bool {
        if self.has_ended {
            return false;
        }
        self.records.drain(..self.at);
        self.at = 0;
        let (place, count) = self.ring.run(self.next);
        let known = self.records.len();
        self.records.resize(known + count, Record::new_zeroed());
        let copies = &mut self.records[known..];
        self.medium.read(place, copies.as_mut_bytes());
        self.medium.release(place, copies.len() * RECORD_BYTES);
        let (first, salt) = (self.next, self.salt);
        let is_whole = |(number, record): (u64, &Record)| record.is_whole(first + number, salt);
        let whole = (0..)
            .zip(&*copies)
            .take_while(|each| is_whole(*each))
            .count();
        self.has_ended = whole < count;
        self.records.truncate(known + whole);
        self.records[known..].iter().for_each(visit);
        self.next += whole as u64;
        whole > 0
    }
}
