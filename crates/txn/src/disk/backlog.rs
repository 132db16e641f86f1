//! The bytes that records in memory still want to have in the log.
//!
//! A checkpoint needs the log to have every record that memory has. So there is always room for
//! these records: a change waits until the ring has room for its data beside the data of all
//! records that are in no batch. The records themselves have the room of the journals.

use super::logger::{LogFailed, Shared};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Changes with less data do not reserve room: their data is little beside the part of the ring
/// that is kept free.
pub const RESERVED_BYTES_MIN: usize = 64 << 10;
/// Of the ring, the most data that one record publishes.
const RECORDS_OF_RING: u64 = 8;
/// Of the ring, what is kept free of data of records: for heads, padding, the segment table, and
/// for changes that reserve nothing.
const FREE_PART: u64 = 4;
/// How often a change that waits looks whether there is room.
const LOOK: Duration = Duration::from_millis(10);

/// Data of records that no batch has, and of changes that are about to be records.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Bytes of the ring that batches and data may use together.
    limit: u64,
    /// Data of records that are in no batch.
    committed: AtomicI64,
    /// Data of changes that have reserved room.
    reserved: AtomicU64,
    /// The limit without what batches use, as of the last batch or checkpoint.
    room: AtomicI64,
    /// New changes have to look whether there is room.
    is_crowded: AtomicBool,
}

impl Backlog {
    pub(super) fn new(ring_bytes: u64, journal_bytes: u64) -> Backlog {
        let free = (ring_bytes / FREE_PART).max(journal_bytes.min(ring_bytes / 2));
        let limit = ring_bytes - free;
        Backlog {
            limit,
            committed: AtomicI64::new(0),
            reserved: AtomicU64::new(0),
            room: AtomicI64::new(limit as i64),
            is_crowded: AtomicBool::new(false),
        }
    }

    /// A record with so much data was committed; its journal is still locked.
    #[inline]
    pub(super) fn add(&self, bytes: u64) {
        let bytes = bytes as i64;
        let committed = self.committed.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if committed > self.room.load(Ordering::Relaxed) {
            self.is_crowded.store(true, Ordering::Relaxed);
        }
    }

    /// A batch has the records with so much data, and the ring's use includes it.
    pub(super) fn placed(&self, bytes: u64) {
        self.committed.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// Batches use so much of the ring.
    pub(super) fn ring_is_used(&self, used_bytes: u64) {
        let room = self.limit as i64 - used_bytes as i64;
        self.room.store(room, Ordering::Relaxed);
        if self.committed.load(Ordering::Relaxed) > room {
            self.is_crowded.store(true, Ordering::Relaxed);
        }
    }

    /// Whether new changes may have to wait.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Whether there is room for so much more data beside batches that use so much.
    fn has_room(&self, used_bytes: u64, bytes: u64) -> bool {
        self.fits(used_bytes, self.reserved.load(Ordering::Relaxed) + bytes)
    }

    fn fits(&self, used_bytes: u64, reserved: u64) -> bool {
        let committed = self.committed.load(Ordering::Relaxed).max(0) as u64;
        used_bytes + committed + reserved <= self.limit
    }

    /// Reserves room for so much data; `None` if there is not enough.
    fn reserve(&self, used_bytes: u64, bytes: u64) -> Option<Room<'_>> {
        let with_it = |reserved| Some(reserved + bytes).filter(|&all| self.fits(used_bytes, all));
        let order = Ordering::Relaxed;
        let reserved = self.reserved.fetch_update(order, order, with_it);
        reserved.ok().map(|_| Room {
            backlog: self,
            bytes,
        })
    }
}

/// Room in the log for the data of a change that is about to be a record.
#[derive(Debug)]
#[must_use = "the room is kept until this is dropped"]
pub struct Room<'l> {
    backlog: &'l Backlog,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.backlog
            .reserved
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Shared {
    /// Most data of one record.
    pub(super) fn record_data_max(&self) -> usize {
        (self.log.ring_bytes() / RECORDS_OF_RING) as usize
    }

    /// Waits until the log has room for so much data of a change beside all that memory has.
    /// `None` without threads, whose caller makes room.
    #[cold]
    pub(super) fn reserve(&self, bytes: u64) -> Result<Option<Room<'_>>, LogFailed> {
        while self.has_threads() {
            if let Some(room) = self.backlog.reserve(self.log.used_bytes(), bytes) {
                return Ok(Some(room));
            }
            self.make_room(bytes)?;
        }
        Ok(None)
    }

    /// Before a change that reserves nothing: waits until there is room for the data that memory
    /// has.
    #[cold]
    pub(super) fn wait_until_uncrowded(&self) -> Result<(), LogFailed> {
        if self.has_threads() && !self.backlog.has_room(self.log.used_bytes(), 0) {
            self.make_room(0)?;
        }
        self.backlog.is_crowded.store(false, Ordering::Relaxed);
        self.backlog.ring_is_used(self.log.used_bytes());
        Ok(())
    }

    /// Writes batches and waits for checkpoints, until there seems to be room for so much data.
    fn make_room(&self, bytes: u64) -> Result<(), LogFailed> {
        let begin = Instant::now();
        while !self.backlog.has_room(self.log.used_bytes(), bytes) {
            if self.placed() < self.journals.sequence() {
                self.wait(self.journals.sequence())?;
                continue;
            }
            let _waiting = self.watch.begin();
            let mut state = self.state();
            if let Some(failed) = state.failed() {
                return Err(failed);
            }
            state.checkpoint_wanted = true;
            self.changed.notify_all();
            self.changed.wait_for(&mut state, LOOK);
        }
        self.counts.was_late(begin);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: u64 = 64 << 20;

    #[test]
    fn changes_wait_when_batches_and_data_fill_three_quarters() {
        let backlog = Backlog::new(RING, 1 << 20);
        backlog.ring_is_used(RING / 2);
        backlog.add(RING / 4);
        assert!(!backlog.is_crowded());
        backlog.add(1);
        assert!(backlog.is_crowded() && !backlog.has_room(RING / 2, 0));
        backlog.placed(RING / 4);
        assert!(
            backlog.has_room(RING / 2, 0),
            "the ring's use is the caller's"
        );
    }

    #[test]
    fn room_is_reserved_until_it_is_given_back() {
        let backlog = Backlog::new(RING, 1 << 20);
        let room = backlog.reserve(RING / 2, RING / 8).expect("room");
        assert!(backlog.has_room(RING / 2, RING / 8));
        assert!(backlog.reserve(RING / 2, RING / 8 + 1).is_none());
        assert!(backlog.has_room(RING / 2, RING / 8), "nothing was reserved");
        drop(room);
        assert!(backlog.reserve(RING / 2, RING / 4).is_some());
    }

    #[test]
    fn a_ring_that_fills_is_noticed_without_a_change() {
        let backlog = Backlog::new(RING, 1 << 20);
        backlog.add(RING / 4);
        backlog.ring_is_used(RING / 2);
        assert!(!backlog.is_crowded());
        backlog.ring_is_used(RING / 2 + 1);
        assert!(backlog.is_crowded());
    }

    #[test]
    fn records_of_many_journals_have_room() {
        let backlog = Backlog::new(RING, RING / 3);
        let most = RING - RING / 3;
        assert!(backlog.has_room(most, 0) && !backlog.has_room(most, 1));
        let small = Backlog::new(RING, 2 * RING);
        assert!(small.has_room(RING / 2, 0), "half of the ring is for data");
    }
}
