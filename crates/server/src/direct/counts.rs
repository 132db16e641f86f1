//! How often it happened since the mount, for `perdure stat` and the metrics.

use crate::control::{DirectStatus, Refusals};
use ::direct::protocol::Refusal;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows. Nothing is decided by it, so it has no order with anything else.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened between the processes of a mount and the server. The fields mean what those of [`DirectStatus`] mean.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) attached: Count,
    pub(super) leases_granted: Count,
    pub(super) leases_taken_back: Count,
    pub(super) leases_forced: Count,
    pub(super) leases_timed_out: Count,
    pub(super) records_folded: Count,
    /// Processes that found no place.
    pub(super) not_taken_in: Count,
    pub(super) mappings_taken_back: Count,
    pub(super) mappings_not_given_back: Count,
    /// By number of the refusal.
    refusals: [Count; Refusal::Failed as usize + 1],
}

/// What there is at this moment.
pub(super) struct Present {
    pub(super) in_place: bool,
    pub(super) reads_only: bool,
    pub(super) processes: u64,
    pub(super) leases: u64,
    pub(super) files_read: u64,
    pub(super) files_mapped: u64,
    pub(super) segments: u64,
}

impl Counts {
    /// A request was refused.
    pub(super) fn refused(&self, refusal: Refusal) {
        self.refusals[refusal as usize].add(1);
    }

    /// For an answer.
    pub(super) fn status(&self, present: Present) -> DirectStatus {
        let refused = |refusal| self.refusals[refusal as usize].get();
        DirectStatus {
            in_place: present.in_place,
            reads_only: present.reads_only,
            processes: present.processes,
            leases: present.leases,
            files_read: present.files_read,
            files_mapped: present.files_mapped,
            segments: present.segments,
            attached: self.attached.get(),
            leases_granted: self.leases_granted.get(),
            leases_taken_back: self.leases_taken_back.get(),
            leases_forced: self.leases_forced.get(),
            leases_timed_out: self.leases_timed_out.get(),
            records_folded: self.records_folded.get(),
            mappings_taken_back: self.mappings_taken_back.get(),
            mappings_not_given_back: self.mappings_not_given_back.get(),
            refusals: Refusals {
                protocol: refused(Refusal::Protocol),
                not_ours: refused(Refusal::NotOurs),
                not_yours: refused(Refusal::NotYours),
                busy: refused(Refusal::Busy),
                unsuitable: refused(Refusal::Unsuitable),
                no_room: refused(Refusal::NoRoom),
                ended: refused(Refusal::Ended),
                failed: refused(Refusal::Failed),
                too_many: self.not_taken_in.get(),
            },
        }
    }
}
