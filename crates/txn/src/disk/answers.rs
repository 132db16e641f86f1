//! The changes that answers depend on, with the policy `call`: a call waits for its own changes,
//! and an answer for the changes that it shows.

use super::logger::{LogFailed, Logger};
use super::policy::Durability;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Objects that share a slot wait for each other's changes, which costs time and nothing else.
const SLOTS: usize = 4096;

thread_local! {
    /// Number of this thread's newest record.
    static NEWEST: Cell<u64> = const { Cell::new(0) };
}

/// For each object the number of the newest record that changed it.
#[derive(Debug)]
pub(super) struct Changes(Box<[AtomicU64]>);

impl Changes {
    /// Only the policy `call` asks for them.
    pub(super) fn new(durability: Durability) -> Changes {
        let slots = match durability {
            Durability::Call => SLOTS,
            Durability::Fsync(_) => 0,
        };
        Changes((0..slots).map(|_| AtomicU64::new(0)).collect())
    }

    fn slot(&self, object: u64) -> &AtomicU64 {
        &self.0[object as usize % SLOTS]
    }
}

impl Logger {
    /// Whether every call is durable when it returns.
    #[inline]
    pub fn waits_for_calls(&self) -> bool {
        !self.shared.changes.0.is_empty()
    }

    /// This thread's record `sequence` changed these objects, whose locks are held, and publishes
    /// so much data.
    #[inline]
    pub(crate) fn note_changes(&self, sequence: u64, objects: &[u64], data_bytes: u64) {
        self.shared.bound.is_committed();
        if data_bytes > 0 {
            self.shared.backlog.add(data_bytes);
        }
        if self.waits_for_calls() {
            NEWEST.set(sequence);
            for &object in objects {
                self.shared
                    .changes
                    .slot(object)
                    .fetch_max(sequence, Ordering::AcqRel);
            }
        }
    }

    /// Returns when all that this thread has changed is durable.
    ///
    /// # Errors
    ///
    /// The log has failed.
    pub fn wait_for_own_changes(&self) -> Result<(), LogFailed> {
        self.wait(NEWEST.get().min(self.shared.journals.sequence()))
    }

    /// Returns when all that was changed of an object is durable.
    ///
    /// # Errors
    ///
    /// The log has failed.
    pub fn wait_for_changes_of(&self, object: u64) -> Result<(), LogFailed> {
        match self.waits_for_calls() {
            true => self.wait(self.shared.changes.slot(object).load(Ordering::Acquire)),
            false => Ok(()),
        }
    }
}
