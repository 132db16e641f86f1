//! The records that journals in memory have and the log does not.

use crate::journal::{Journals, Reach};
use crate::record::{self, first_written, notes};
use pmem::{LINE_BYTES, Offset, Region};
use std::collections::VecDeque;

/// A record that was read from a journal: number, header and entries.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) sequence: u64,
    pub(crate) bytes: Box<[u8]>,
    /// Bytes of the data that it publishes.
    pub(crate) data_bytes: u64,
}

impl Read {
    pub(crate) fn new(sequence: u64, bytes: Box<[u8]>) -> Read {
        let mut entries = record::entries(&bytes);
        entries.by_ref().for_each(drop);
        let notes = notes(entries.rest()).filter(|note| !note.is_freed);
        let checked = record::data_check(&bytes).map_or(0, |data| data.length as u64);
        Read {
            sequence,
            data_bytes: notes.map(|note| note.bytes).sum::<u64>() + checked,
            bytes,
        }
    }

    /// Most bytes that it adds to a batch.
    pub(crate) fn bytes_in_log(&self) -> u64 {
        self.bytes.len() as u64 + self.data_bytes
    }
}

/// How far a journal was read.
#[derive(Clone, Copy, Debug)]
struct Place {
    cuts: u64,
    bytes: usize,
}

/// Reads each record once, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct JournalReader {
    places: Vec<Place>,
    scratch: Vec<u8>,
}

impl JournalReader {
    /// Records that are there now are not read.
    pub(crate) fn new(journals: &Journals) -> JournalReader {
        let place = |reach: Reach| Place {
            cuts: reach.cuts,
            bytes: reach.active_bytes,
        };
        let reaches = journals
            .journals
            .iter()
            .map(|journal| journal.lock().reach());
        JournalReader {
            places: reaches.map(place).collect(),
            scratch: Vec::new(),
        }
    }

    /// Appends all records up to some number to `into`, in order, and returns that number: the
    /// newest that was given out when the call began.
    ///
    /// A number is given out and used under the lock of its journal. So a thread that has read the
    /// newest number, and had each lock afterwards, finds every record up to that number whole.
    pub(crate) fn read(
        &mut self,
        journals: &Journals,
        region: &Region,
        into: &mut VecDeque<Read>,
    ) -> u64 {
        let newest = journals.sequence();
        let before = into.len();
        for (index, journal) in journals.journals.iter().enumerate() {
            let reach = journal.lock().reach();
            let mut place = self.places[index];
            if place.cuts + 1 < reach.cuts {
                // Two halves later: the log has what was in the first of them (L4).
                place = Place {
                    cuts: reach.cuts - 1,
                    bytes: 0,
                };
            }
            if place.cuts < reach.cuts {
                place = self.read_half(region, reach.other, place, reach.other_bytes, newest, into);
                if place.bytes == reach.other_bytes {
                    place = Place {
                        cuts: reach.cuts,
                        bytes: 0,
                    };
                }
            }
            if place.cuts == reach.cuts {
                place = self.read_half(
                    region,
                    reach.active,
                    place,
                    reach.active_bytes,
                    newest,
                    into,
                );
            }
            self.places[index] = place;
        }
        into.make_contiguous()[before..].sort_unstable_by_key(|read| read.sequence);
        newest
    }

    fn read_half(
        &mut self,
        region: &Region,
        half: Offset,
        mut place: Place,
        end: usize,
        newest: u64,
        into: &mut VecDeque<Read>,
    ) -> Place {
        let start = place.bytes;
        self.scratch.resize(end - start, 0);
        region.read(half + start as u64, &mut self.scratch);
        while place.bytes < end {
            let Some((sequence, bytes)) = first_written(&self.scratch[place.bytes - start..])
            else {
                unreachable!("a journal in memory has whole records up to its end");
            };
            if sequence > newest {
                break;
            }
            into.push_back(Read::new(sequence, bytes.into()));
            place.bytes += bytes.len().next_multiple_of(LINE_BYTES);
        }
        place
    }
}
