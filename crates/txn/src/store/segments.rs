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

/// Segments, whose owners are users, and which processes of these map (`docs/DIRECT.md`, *Whose segments*).
pub trait Segments: Send + Sync + 'static {
    /// The number by which allocations name `domain`.
    fn domain_number(&self, domain: Domain) -> DomainId;
    /// A process is going to map the segment, if it may: who owns it, and goes on owning it until [`take_in`](Store::take_in). `None` if it is not one owner's, and then it is not
    /// handed out.
    fn hand_out(&self, segment: SegmentNumber) -> Option<Domain>;
    /// Before a process gets a segment that was handed out: no record is judged by what is in it any more, and what others than its owner have left there is overwritten, until so many `blocks` were
    /// looked at. Whether nothing is left, and how many blocks were looked at. If nothing is, it counts as given from here on: somebody may have its pages when nobody has it any more.
    fn prepare(&self, segment: SegmentNumber, blocks: u64) -> (bool, u64);
    /// The very file through which a segment that was handed out is mapped, each of whose blocks is there for good: a process that maps it too need not make sure of that, and if it `is_sealed` cannot take any away.
    /// `None` if the segments are no files.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn segment_file(&self, segment: SegmentNumber, is_sealed: bool) -> io::Result<Option<File>>;
    /// Whether processes can be kept from taking blocks of segments away.
    fn can_seal(&self) -> bool;
    /// The directory that the pool's files are in; `None` for a device or a region.
    fn directory(&self) -> Option<&Arc<PoolDirectory>>;
    /// The directory that the segments' files are in: of class `log` that of the memory.
    fn segments_directory(&self) -> Option<&Arc<PoolDirectory>>;
    /// A process that had the segment mapped is gone. `false` if somebody has it all the same, whom it may have given it to: then it goes on belonging to its owner until
    /// [`take_in_rest`](Store::take_in_rest) finds that nobody has.
    fn take_in(&self, segment: SegmentNumber) -> bool;
    /// Takes in those segments that only somebody unknown had, and nobody has any more. How many are left.
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
