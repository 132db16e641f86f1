//! Segments that processes map.

use super::{Kept, PmemStore, PoolState};
use crate::directory::PoolDirectory;
use crate::domain::Domain;
use pmem::DurabilityClass;
use pmem::deliberate::{self, Bug};
use scatter::{DomainId, SegmentNumber};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Segments, which belong to users, and which the users' processes map (`docs/DIRECT.md`, *Whose
/// segments*).
pub trait Segments: Send + Sync + 'static {
    /// The number by which allocations name `domain`.
    fn domain_number(&self, domain: Domain) -> DomainId;
    /// Grants the segment to a process, which is going to map it. Returns its owner, which stays
    /// the owner until [`take_in`](Self::take_in). `None` if the segment has not one owner: then it
    /// is not granted.
    fn hand_out(&self, segment: SegmentNumber) -> Option<Domain>;
    /// Prepares a granted segment for its process: no record is validated by the content of it any
    /// more, and stale data of other users is overwritten, until so many `blocks` were looked at.
    ///
    /// Returns whether no stale data is left, and how many blocks were looked at. If none is left,
    /// the segment counts as given: a process may keep its pages after every process has closed it.
    fn prepare(&self, segment: SegmentNumber, blocks: u64) -> (bool, u64);
    /// Returns the file that a granted segment is mapped from; `None` if the segments are no files.
    /// The file has all its blocks for good, so a process that maps it need not ensure that. If the
    /// file `is_sealed`, the process cannot take any away.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn segment_file(&self, segment: SegmentNumber, is_sealed: bool) -> io::Result<Option<File>>;
    /// Whether processes can be kept from taking blocks of segments away.
    fn can_seal(&self) -> bool;
    /// The directory that the pool's files are in; `None` for a device or a region.
    fn directory(&self) -> Option<&Arc<PoolDirectory>>;
    /// The directory that the segments' files are in: of class `log` that of the memory.
    fn segments_directory(&self) -> Option<&Arc<PoolDirectory>>;
    /// Reaps the segment of a process that is gone. `false` if another process still has the
    /// segment, for example through an inherited descriptor: then it stays with its owner until
    /// [`take_in_rest`](Self::take_in_rest) finds that no process has it.
    fn take_in(&self, segment: SegmentNumber) -> bool;
    /// Reaps those segments that only an unknown process had, and that no process has any more.
    /// Returns how many are left.
    fn take_in_rest(&self) -> usize;
    /// Returns what each user's segments keep from other users, root's too, by user.
    fn kept(&self) -> Vec<(u32, Kept)>;
    /// Has files of these users, and of no others, use segments that they have before fresh ones.
    fn spare_segments(&self, users: Vec<u32>);
    /// Free blocks that this user cannot have, because processes of others have their segments.
    fn held_from(&self, user: u32) -> u64;
}

impl Segments for PmemStore {
    fn domain_number(&self, domain: Domain) -> DomainId {
        self.domains.number(domain)
    }

    fn hand_out(&self, segment: SegmentNumber) -> Option<Domain> {
        if !self.domains.held().hold(segment) {
            return None;
        }
        let owner = self.allocator().hold(segment);
        let domain = owner.map(|owner| self.domains.domain(owner));
        let domain = domain.filter(|domain| matches!(domain, Domain::Owner { .. }));
        let domain = domain.filter(|domain| self.shows_own_content(segment, *domain));
        if domain.is_none() {
            self.take_in(segment);
        }
        domain
    }

    fn prepare(&self, segment: SegmentNumber, blocks: u64) -> (bool, u64) {
        if self
            .logger
            .as_ref()
            .is_some_and(|it| !it.is_loaded(segment.0))
        {
            return (false, 0);
        }
        let is_there = |block| self.segment_of(block) == Some(segment);
        // Of class `log` the process cannot change it.
        if self.logger.is_none()
            && self.journals.checks_any(is_there)
            && !deliberate::is(Bug::TrustHeldData)
        {
            self.checkpoint();
        }
        let (is_clear, looked_at) = self.allocator().clear(segment, blocks);
        if is_clear {
            self.domains.held().give(segment);
        }
        (is_clear, looked_at)
    }

    fn segment_file(&self, segment: SegmentNumber, is_sealed: bool) -> io::Result<Option<File>> {
        if self.region.class() == DurabilityClass::Dax {
            let first =
                self.geometry.first_block() + u64::from(segment.0) * self.geometry.segment_blocks;
            let length = self.geometry.segment_bytes() as usize;
            self.region.make_present(first.offset(), length)?;
        }
        let held = self.domains.held();
        if is_sealed {
            held.seal(segment)?;
        }
        held.file(segment)
    }

    fn can_seal(&self) -> bool {
        self.domains.held().can_seal()
    }

    fn directory(&self) -> Option<&Arc<PoolDirectory>> {
        self.directory.as_ref()
    }

    fn segments_directory(&self) -> Option<&Arc<PoolDirectory>> {
        self.memory.as_ref().or(self.directory.as_ref())
    }

    fn take_in(&self, segment: SegmentNumber) -> bool {
        let is_free = self.domains.held().let_go(segment);
        if is_free {
            self.allocator().let_go(segment);
        }
        is_free
    }

    fn take_in_rest(&self) -> usize {
        let held = self.domains.held();
        for segment in held.look_again() {
            self.allocator().let_go(segment);
        }
        held.lingering()
    }

    fn kept(&self) -> Vec<(u32, Kept)> {
        self.count_kept()
    }

    fn spare_segments(&self, users: Vec<u32>) {
        self.domains.spare_segments(users);
    }

    fn held_from(&self, user: u32) -> u64 {
        let is_own = |domain| matches!(self.domains.domain(domain), Domain::Owner { uid, .. } if uid == user);
        self.allocator().held_from(is_own)
    }
}
