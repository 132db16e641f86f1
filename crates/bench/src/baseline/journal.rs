//! PMFS's undo journal: one ring of 64-byte entries for all threads.
//!
//! A transaction reserves its entries side by side, logs the old content of a range before it changes it (flush, fence), changes the range
//! in place, flushes all ranges, fences, and makes an entry that says "committed" durable. An entry counts when it carries the generation of
//! the ring's current round: so entries that were reserved and never written need no clearing.
//!
//! ```text
//! 0   address of the range u64
//! 8   generation u32 | number of the transaction u16 | kind u8 | bytes u8     stored last: it makes the entry valid
//! 16  old content, 48 bytes
//! ```
//!
//! Two open transactions never log the same byte: the locks that guard what is logged are held until the commit.
//!
//! Where PMFS wakes a thread to move the head past what is finished, here the transaction that finds an eighth of the ring used does it: one fence
//! in several thousand operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use pmem::{Durable, Flushed, Offset, Region};

use super::error::Corruption;
use super::layout::{
    BLOCK, Geometry, JOURNAL_BLOCK, JOURNAL_HEAD_AT, JOURNAL_TAIL_AT, RECORD_BYTES,
};

/// Bytes of an entry: one line.
pub(super) const ENTRY_BYTES: u64 = 64;
/// Bytes of old content in an entry.
pub(super) const CONTENT_BYTES: usize = 48;
const CONTENT_IN_ENTRY: u64 = 16;

const _: () = assert!(RECORD_BYTES <= CONTENT_BYTES);

const DATA: u8 = 0;
const START: u8 = 1;
const COMMIT: u8 = 2;
const ABORT: u8 = 4;

/// Marks a reservation whose transaction has ended.
const ENDED: u32 = 1 << 31;

/// A transaction may have this part of the ring.
const SHARE_MAX: u32 = 4;

/// The ring.
#[derive(Debug)]
pub(super) struct Journal {
    start: Offset,
    entries: u32,
    ring: Mutex<Ring>,
    /// For the first entry of each reservation, and of the unused end of a round: how many there are, and whether that is over.
    reservations: Box<[AtomicU32]>,
}

/// Positions, in entries from the start.
#[derive(Debug)]
struct Ring {
    /// First entry that recovery looks at; durable.
    head: u32,
    /// First free entry.
    tail: u32,
    /// Round of the ring that `tail` is in.
    generation: u32,
    next_number: u16,
}

/// Entries of one transaction.
#[derive(Copy, Clone, Debug)]
pub(super) struct Reservation {
    first: u32,
    entries: u32,
    generation: u32,
    number: u16,
}

/// The 8-byte word that moves the tail and names the round, in one store.
fn tail_word(tail: u32, generation: u32) -> u64 {
    u64::from(tail) | u64::from(generation) << 32
}

impl Journal {
    /// Makes an empty journal. What the area held before cannot be taken for entries.
    pub(super) fn format(region: &Region, geometry: &Geometry) -> Flushed {
        let start = Offset::new(JOURNAL_BLOCK * BLOCK);
        let mut batch = region.zero_streaming(start, geometry.journal_blocks * BLOCK);
        batch.join(region.store_u64(JOURNAL_HEAD_AT, 0).flush());
        batch.join(region.store_u64(JOURNAL_TAIL_AT, tail_word(0, 1)).flush());
        batch
    }

    /// The journal of a region whose journal is empty: just formatted or rolled back.
    pub(super) fn open(region: &Region, geometry: &Geometry) -> Journal {
        let entries = (geometry.journal_blocks * BLOCK / ENTRY_BYTES) as u32;
        let tail = region.load_u64(JOURNAL_TAIL_AT);
        Journal {
            start: Offset::new(JOURNAL_BLOCK * BLOCK),
            entries,
            ring: Mutex::new(Ring {
                head: tail as u32,
                tail: tail as u32,
                generation: (tail >> 32) as u32,
                next_number: 0,
            }),
            reservations: (0..entries).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The most entries a transaction may have.
    pub(super) fn entries_max(&self) -> u32 {
        self.entries / SHARE_MAX
    }

    /// Reserves `entries` entries side by side; waits for other transactions to end while the ring is full.
    ///
    /// Who holds a reservation must not wait for another one. The tail is on its way to the medium when this returns; the first fence
    /// of the transaction makes it durable.
    pub(super) fn reserve(&self, region: &Region, entries: u32) -> (Reservation, Flushed) {
        assert!(entries <= self.entries_max(), "a transaction too large");
        loop {
            let mut ring = self.ring.lock();
            if let Some(reservation) = self.try_reserve(region, &mut ring, entries) {
                if self.used(&ring) > self.entries / 8 {
                    self.clean(region, &mut ring);
                }
                drop(ring);
                return (reservation, region.dirty(JOURNAL_TAIL_AT, 8).flush());
            }
            self.clean(region, &mut ring);
            drop(ring);
            std::thread::yield_now();
        }
    }

    fn used(&self, ring: &Ring) -> u32 {
        (ring.tail + self.entries - ring.head) % self.entries
    }

    fn try_reserve(&self, region: &Region, ring: &mut Ring, entries: u32) -> Option<Reservation> {
        if ring.tail >= ring.head && ring.tail + entries >= self.entries {
            if ring.head == 0 {
                return None;
            }
            let unused = self.entries - ring.tail;
            self.reservations[ring.tail as usize].store(unused | ENDED, Ordering::Relaxed);
            ring.tail = 0;
            ring.generation += 1;
        }
        if ring.tail < ring.head && ring.tail + entries >= ring.head {
            self.publish(region, ring);
            return None;
        }
        let reservation = Reservation {
            first: ring.tail,
            entries,
            generation: ring.generation,
            number: ring.next_number,
        };
        self.reservations[ring.tail as usize].store(entries, Ordering::Relaxed);
        ring.next_number = ring.next_number.wrapping_add(1);
        ring.tail += entries;
        self.publish(region, ring);
        Some(reservation)
    }

    /// Stores the tail; flushed by whoever reserves, under or after the lock.
    fn publish(&self, region: &Region, ring: &Ring) {
        let _flushed_when_reserved =
            region.store_u64(JOURNAL_TAIL_AT, tail_word(ring.tail, ring.generation));
    }

    /// Moves the head past all transactions that have ended.
    fn clean(&self, region: &Region, ring: &mut Ring) {
        let before = ring.head;
        while ring.head != ring.tail {
            let reserved = self.reservations[ring.head as usize].load(Ordering::Acquire);
            if reserved & ENDED == 0 {
                break;
            }
            ring.head = (ring.head + (reserved & !ENDED)) % self.entries;
        }
        if ring.head != before {
            // The tail lies in the same line and was stored before: the head cannot survive without it.
            let head = region.store_u64(JOURNAL_HEAD_AT, u64::from(ring.head));
            region.fence(head.flush());
        }
    }

    /// Place of an entry of a reservation.
    fn place(&self, reservation: &Reservation, index: u32) -> Offset {
        assert!(
            index < reservation.entries,
            "more entries than were reserved"
        );
        self.start + u64::from(reservation.first + index) * ENTRY_BYTES
    }

    /// Logs the old content of up to 48 bytes. Nothing of them may change before the batch is fenced.
    pub(super) fn log(
        &self,
        region: &Region,
        reservation: &Reservation,
        index: u32,
        (at, length): (Offset, usize),
    ) -> Flushed {
        let mut content = [0; CONTENT_BYTES];
        region.read(at, &mut content[..length]);
        let entry = self.place(reservation, index);
        let _flushed_below = region.store_u64(entry, at.get());
        let _flushed_below = region.store(entry + CONTENT_IN_ENTRY, &content);
        self.validate(region, reservation, index, DATA, length)
    }

    /// Stores the word that makes an entry valid, last in its line: what survives of a line is a prefix of its stores.
    fn validate(
        &self,
        region: &Region,
        reservation: &Reservation,
        index: u32,
        kind: u8,
        length: usize,
    ) -> Flushed {
        let entry = self.place(reservation, index);
        let kind = if index == 0 { kind | START } else { kind };
        let word = Header {
            generation: reservation.generation,
            number: reservation.number,
            kind,
            length: length as u8,
        }
        .word();
        let _flushed_below = region.store_u64(entry + 8, word);
        region.dirty(entry, ENTRY_BYTES).flush()
    }

    /// Makes a transaction count. All that it changed is durable.
    pub(super) fn commit(
        &self,
        region: &Region,
        reservation: &Reservation,
        index: u32,
        changes: &Durable,
    ) -> Durable {
        changes.assert_of(region);
        region.fence(self.validate(region, reservation, index, COMMIT, 0))
    }

    /// Puts back what the first `used` entries of a transaction hold, and makes it forgotten.
    pub(super) fn abort(&self, region: &Region, reservation: &Reservation, used: u32) {
        if used == 0 {
            return;
        }
        let mut batch = Flushed::nothing(region);
        for index in (0..used).rev() {
            let entry = self.place(reservation, index);
            let header = Header::of(region.load_u64(entry + 8));
            batch.join(undo(region, entry, header.length));
        }
        region.fence(batch);
        region.fence(self.validate(region, reservation, used, ABORT, 0));
    }

    /// Gives the entries back.
    pub(super) fn end(&self, reservation: &Reservation) {
        self.reservations[reservation.first as usize]
            .store(reservation.entries | ENDED, Ordering::Release);
    }
}

/// The second word of an entry.
struct Header {
    generation: u32,
    number: u16,
    kind: u8,
    length: u8,
}

impl Header {
    fn word(&self) -> u64 {
        u64::from(self.generation)
            | u64::from(self.number) << 32
            | u64::from(self.kind) << 48
            | u64::from(self.length) << 56
    }

    fn of(word: u64) -> Header {
        Header {
            generation: word as u32,
            number: (word >> 32) as u16,
            kind: (word >> 48) as u8,
            length: (word >> 56) as u8,
        }
    }
}

/// Puts the old content of an entry back.
fn undo(region: &Region, entry: Offset, length: u8) -> Flushed {
    let mut content = [0; CONTENT_BYTES];
    let content = &mut content[..usize::from(length)];
    region.read(entry + CONTENT_IN_ENTRY, content);
    let at = Offset::new(region.load_u64(entry));
    region.store(at, content).flush()
}

/// Rolls back every transaction that has begun and neither committed nor aborted, and empties the journal.
///
/// Doing it again, after a power cut half-way, has the same result.
pub(super) fn roll_back(region: &Region, geometry: &Geometry) -> Result<(), Corruption> {
    let entries = (geometry.journal_blocks * BLOCK / ENTRY_BYTES) as u32;
    let head = region.load_u64(JOURNAL_HEAD_AT);
    let tail_and_generation = region.load_u64(JOURNAL_TAIL_AT);
    let tail = tail_and_generation as u32;
    let generation = (tail_and_generation >> 32) as u32;
    if head >= u64::from(entries) || tail >= entries || generation == 0 {
        return Err(Corruption::Journal {
            at: JOURNAL_HEAD_AT,
        });
    }
    let mut batch = Flushed::nothing(region);
    for (entry, length) in unfinished(region, entries, (head as u32, tail), generation)? {
        batch.join(undo(region, entry, length));
    }
    region.fence(batch);
    // Entries behind the tail may have survived without it: in the next round they must not count.
    let next = tail_word(tail, generation + 1);
    region.fence(region.store_u64(JOURNAL_TAIL_AT, next).flush());
    region.fence(region.store_u64(JOURNAL_HEAD_AT, u64::from(tail)).flush());
    Ok(())
}

/// The entries to put back, those of a transaction newest first.
fn unfinished(
    region: &Region,
    entries: u32,
    (head, tail): (u32, u32),
    generation: u32,
) -> Result<Vec<(Offset, u8)>, Corruption> {
    let rounds = if head <= tail {
        [(head..tail, generation), (0..0, generation)]
    } else {
        [(head..entries, generation - 1), (0..tail, generation)]
    };
    let mut open: BTreeMap<u16, Vec<(Offset, u8)>> = BTreeMap::new();
    for (round, generation) in rounds {
        for index in round {
            let entry = Offset::new(JOURNAL_BLOCK * BLOCK + u64::from(index) * ENTRY_BYTES);
            let header = Header::of(region.load_u64(entry + 8));
            if header.generation != generation {
                continue;
            }
            if header.kind & (COMMIT | ABORT) != 0 {
                open.remove(&header.number);
                continue;
            }
            check(region, entry, &header)?;
            let found = (entry, header.length);
            if header.kind & START != 0 {
                open.insert(header.number, vec![found]);
            } else if let Some(transaction) = open.get_mut(&header.number) {
                transaction.push(found);
            }
        }
    }
    let newest_first = open
        .into_values()
        .flat_map(|entries| entries.into_iter().rev());
    Ok(newest_first.collect())
}

/// Does an entry name a range of the region?
fn check(region: &Region, entry: Offset, header: &Header) -> Result<(), Corruption> {
    let end = region.load_u64(entry).checked_add(u64::from(header.length));
    let is_inside = end.is_some_and(|end| end <= region.length());
    match is_inside && usize::from(header.length) <= CONTENT_BYTES {
        true => Ok(()),
        false => Err(Corruption::Journal { at: entry }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_journal() -> (Region, Geometry, Journal) {
        let region = Region::anonymous(1 << 20);
        let geometry = Geometry::of_new(region.length());
        region.fence(Journal::format(&region, &geometry));
        let journal = Journal::open(&region, &geometry);
        (region, geometry, journal)
    }

    const AT: Offset = Offset::new(100_003);

    /// Logs and changes one byte; commits or not.
    fn change(region: &Region, journal: &Journal, to: u8, commits: bool) -> Reservation {
        let (reservation, mut batch) = journal.reserve(region, 3);
        batch.join(journal.log(region, &reservation, 0, (AT, 1)));
        region.fence(batch);
        let durable = region.fence(region.store(AT, &[to]).flush());
        if commits {
            journal.commit(region, &reservation, 1, &durable);
            journal.end(&reservation);
        }
        reservation
    }

    fn byte(region: &Region) -> u8 {
        region.load(AT)
    }

    #[test]
    fn what_did_not_commit_is_put_back_in_every_round() {
        let (region, geometry, mut journal) = new_journal();
        for round in 0..1000 {
            change(&region, &journal, 7, true);
            assert_eq!(byte(&region), 7);
            change(&region, &journal, 8, false);
            assert_eq!(byte(&region), 8);
            roll_back(&region, &geometry).expect("rolled back");
            assert_eq!(byte(&region), 7, "round {round}");
            roll_back(&region, &geometry).expect("rolled back again");
            assert_eq!(byte(&region), 7);
            journal = Journal::open(&region, &geometry);
        }
    }

    #[test]
    fn the_ring_goes_round_while_transactions_stay_open() {
        let (region, geometry, journal) = new_journal();
        let mut open = Vec::new();
        for step in 0..10_000_u32 {
            let (reservation, batch) = journal.reserve(&region, 1 + step % 7);
            region.fence(batch);
            open.push(reservation);
            if open.len() > 20 {
                let ended = open.swap_remove((step as usize * 7) % 20);
                journal.end(&ended);
            }
            let mut places: Vec<(u32, u32)> = open
                .iter()
                .map(|one| (one.first, one.first + one.entries))
                .collect();
            places.sort_unstable();
            assert!(
                places.windows(2).all(|pair| pair[0].1 <= pair[1].0),
                "{places:?}"
            );
            assert!(places.iter().all(|place| place.1 <= journal.entries));
        }
        roll_back(&region, &geometry).expect("nothing to put back");
    }

    /// The tail is flushed and not fenced when the first entries are: they may survive without it.
    #[test]
    fn entries_behind_the_tail_never_count_later() {
        let (region, geometry, journal) = new_journal();
        let tail = region.load_u64(JOURNAL_TAIL_AT);
        change(&region, &journal, 0, false);
        region
            .store_u64(JOURNAL_TAIL_AT, tail)
            .leave_to_checkpoint();
        roll_back(&region, &geometry).expect("nothing to put back");

        let journal = Journal::open(&region, &geometry);
        region.store(AT, &[9]).leave_to_checkpoint();
        // Reserves the same places and has logged nothing when the power goes.
        let (_reservation, batch) = journal.reserve(&region, 3);
        region.fence(batch);
        roll_back(&region, &geometry).expect("nothing to put back");
        assert_eq!(byte(&region), 9);
    }

    #[test]
    fn an_aborted_transaction_is_not_put_back_twice() {
        let (region, geometry, journal) = new_journal();
        let reservation = change(&region, &journal, 5, false);
        journal.abort(&region, &reservation, 1);
        journal.end(&reservation);
        assert_eq!(byte(&region), 0);
        change(&region, &journal, 6, true);
        roll_back(&region, &geometry).expect("rolled back");
        assert_eq!(byte(&region), 6);
    }

    #[test]
    fn a_damaged_journal_is_refused() {
        let (region, geometry, journal) = new_journal();
        change(&region, &journal, 5, false);
        let entry = Offset::new(JOURNAL_BLOCK * BLOCK);
        region.store_u64(entry, u64::MAX).leave_to_checkpoint();
        assert!(roll_back(&region, &geometry).is_err());
        region
            .store_u64(JOURNAL_HEAD_AT, 1 << 40)
            .leave_to_checkpoint();
        assert!(roll_back(&region, &geometry).is_err());
    }
}
