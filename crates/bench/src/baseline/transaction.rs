//! One operation's changes: all or nothing.

use pmem::{BlockNumber, Durable, Flushed, Offset};
use smallvec::SmallVec;

use super::error::PmfsError;
use super::journal::{CONTENT_BYTES, Reservation};
use super::volume::Volume;

/// Changes that become durable together. Dropped without a commit, it takes them back.
pub(super) struct Transaction<'v> {
    volume: &'v Volume,
    /// `None` once it has ended.
    reservation: Option<Reservation>,
    used: u32,
    /// Flushed and not fenced yet.
    batch: Flushed,
    logged: SmallVec<[(Offset, u64); 8]>,
    /// Blocks to give back if it does not commit.
    allocated: SmallVec<[BlockNumber; 8]>,
}

/// Evidence that a power cut can take changes to a range back.
#[derive(Debug)]
pub(super) struct Logged {
    at: Offset,
    end: Offset,
    content: Durable,
}

/// Entries that the log of a range takes.
pub(super) const fn entries_for(bytes: u64) -> u32 {
    bytes.div_ceil(CONTENT_BYTES as u64) as u32
}

impl<'v> Transaction<'v> {
    /// Begins a transaction that logs into up to `entries` entries.
    pub(super) fn begin(volume: &'v Volume, entries: u32) -> Transaction<'v> {
        let with_commit = entries + 1;
        let (reservation, batch) = volume.journal.reserve(volume.region(), with_commit);
        Transaction {
            volume,
            reservation: Some(reservation),
            used: 0,
            batch,
            logged: SmallVec::new(),
            allocated: SmallVec::new(),
        }
    }

    pub(super) fn volume(&self) -> &'v Volume {
        self.volume
    }

    /// Logs a range; it may be changed from now on. One fence.
    pub(super) fn log(&mut self, at: Offset, bytes: u64) -> Logged {
        let region = self.volume.region();
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(CONTENT_BYTES as u64) as usize;
            let range = (at + done, part);
            if let Some(reservation) = &self.reservation {
                let entry = self
                    .volume
                    .journal
                    .log(region, reservation, self.used, range);
                self.batch.join(entry);
            }
            self.used += 1;
            done += part as u64;
        }
        self.logged.push((at, bytes));
        let batch = std::mem::replace(&mut self.batch, Flushed::nothing(region));
        Logged {
            at,
            end: at + bytes,
            content: region.fence(batch),
        }
    }

    /// Changes part of a logged range; the commit flushes it.
    pub(super) fn change(&self, logged: &Logged, at: Offset, bytes: &[u8]) {
        let region = self.volume.region();
        logged.content.assert_of(region);
        assert!(
            at >= logged.at && at + bytes.len() as u64 <= logged.end,
            "a change that was not logged"
        );
        let _flushed_by_commit = region.store(at, bytes);
    }

    /// Adds what is flushed but needs no log, because nothing leads to it before the commit.
    pub(super) fn fresh(&mut self, flushed: Flushed) {
        self.batch.join(flushed);
    }

    /// Takes blocks, to be given back if the transaction does not commit.
    pub(super) fn allocate(&mut self, blocks: u64) -> Result<BlockNumber, PmfsError> {
        let first = self
            .volume
            .in_use
            .lock()
            .allocate(blocks)
            .ok_or(PmfsError::NoSpace)?;
        self.allocated
            .extend((0..blocks).map(|index| first + index));
        Ok(first)
    }

    /// Makes the changes durable. Two fences.
    pub(super) fn commit(mut self) -> Durable {
        let region = self.volume.region();
        let mut batch = std::mem::replace(&mut self.batch, Flushed::nothing(region));
        for &(at, bytes) in &self.logged {
            batch.join(region.dirty(at, bytes).flush());
        }
        let changes = region.fence(batch);
        let Some(reservation) = self.reservation.take() else {
            return changes;
        };
        let journal = &self.volume.journal;
        let committed = journal.commit(region, &reservation, self.used, &changes);
        journal.end(&reservation);
        committed
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation.take() else {
            return;
        };
        let journal = &self.volume.journal;
        journal.abort(self.volume.region(), &reservation, self.used);
        journal.end(&reservation);
        let mut in_use = self.volume.in_use.lock();
        for &block in &self.allocated {
            let freed = in_use.free(block);
            debug_assert!(freed.is_ok(), "{block} was allocated by this transaction");
        }
    }
}
