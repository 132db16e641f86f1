//! Room in segments that processes have mapped: it is their owner's alone, so it is nobody else's reserve.

use crate::allocator::Taken;
use crate::group::{Group, Place, Shared};
use crate::run::{Leaves, Run};
use crate::sync::MutexGuard;
use crate::{Allocator, DomainId, Request, SegmentNumber};

/// A segment that stays with its owner because processes have it, or have had its pages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Kept {
    /// The segment.
    pub segment: SegmentNumber,
    /// Its owner.
    pub owner: DomainId,
    /// Blocks in it that are free and that only the owner can have.
    pub free_blocks: u64,
}

impl Allocator {
    /// Returns the segments that owners keep from others.
    #[must_use]
    pub fn kept(&self) -> Vec<Kept> {
        let mut found = Vec::new();
        for index in 0..self.geometry().groups as usize {
            let group = self.lock(index);
            for local in 0..group.segments.len() as u32 {
                let owner = group.owner(local);
                let is_held = group.segments[local as usize].is_held;
                if let Some(owner) = owner.filter(|_| is_held) {
                    found.push(Kept {
                        segment: group.number(self.shared(), local),
                        owner,
                        free_blocks: u64::from(group.free_in(local)),
                    });
                }
            }
        }
        found
    }

    /// The ledger holds the segment: from here on its room does not count for others. Who owns it, and stays so; `None` if it is free or does not exist.
    #[must_use]
    pub fn hold(&self, segment: SegmentNumber) -> Option<DomainId> {
        if segment.0 >= self.geometry().segments {
            return None;
        }
        let (index, local) = self.split(segment.0);
        let mut group = self.lock(index);
        group.count_held(self.shared(), local);
        let owner = group.owner(local);
        let has_its_share = group.usable_blocks() >= group.share;
        drop(group);
        if !has_its_share {
            // The others have to keep more.
            self.share_reserve(&mut self.lock_all());
        }
        owner
    }

    /// Free blocks in held segments that nobody can have who owns none but those of which `is_own` says so.
    #[must_use]
    pub fn held_from(&self, is_own: impl Fn(DomainId) -> bool) -> u64 {
        let groups = (0..self.geometry().groups as usize).map(|index| self.lock(index));
        groups.map(|group| group.held_from(&is_own)).sum()
    }

    /// The ledger no longer holds the segment: gives it back if it became empty meanwhile.
    pub fn let_go(&self, segment: SegmentNumber) {
        if segment.0 < self.geometry().segments {
            let (index, local) = self.split(segment.0);
            let mut group = self.lock(index);
            group.count_held(self.shared(), local);
            group.tidy(self.shared(), local);
        }
    }
}

impl Allocator {
    /// Takes up to `left` blocks from held segments of the request's domain, longest runs first. Returns what is still missing.
    pub(crate) fn gather_held(
        &self,
        groups: &mut [MutexGuard<'_, Group>],
        request: &Request,
        mut left: u32,
        taken: &mut Taken,
    ) -> u32 {
        let unit = request.unit.blocks();
        while left > 0 {
            let wanted = left.min(self.shared().shape.blocks / unit * unit);
            let runs = groups.iter_mut().enumerate().filter_map(|(index, group)| {
                let (blocks, place) = group.held_run(request.domain, wanted, unit)?;
                Some((blocks, index, place))
            });
            let Some((blocks, index, place)) = runs.max_by_key(|(blocks, ..)| *blocks) else {
                break;
            };
            groups[index].take_at(self.shared(), request.domain, place, blocks);
            taken.push((index, place, blocks));
            left -= blocks;
        }
        left
    }
}

impl Group {
    /// The longest run of up to `wanted` blocks, in multiples of `unit`, in the domain's held segments.
    fn held_run(&mut self, domain: DomainId, wanted: u32, unit: u32) -> Option<(u32, Place)> {
        if self.held_free == 0 {
            return None;
        }
        let segments = 0..self.segments.len() as u32;
        let own = segments.filter(|&local| {
            self.segments[local as usize].is_held && self.owner(local) == Some(domain)
        });
        let own: Vec<u32> = own.collect();
        let runs = own.into_iter().map(|local| {
            match self.tree(local).find_run(0, wanted, unit, Leaves::All) {
                Run::At(start) => (wanted, (local, start)),
                Run::Longest { start, blocks } => (blocks, (local, start)),
            }
        });
        runs.filter(|(blocks, _)| *blocks > 0).max()
    }

    /// Free blocks that are not in segments which somebody has mapped.
    #[inline]
    pub(crate) fn usable_blocks(&self) -> u64 {
        self.free_blocks - self.held_free
    }

    /// Free blocks in those of the held segments that are the domain's.
    pub(crate) fn held_blocks_of(&self, domain: DomainId) -> u64 {
        self.held_free - self.held_from(|owner| owner == domain)
    }

    /// Free blocks in the other held segments.
    fn held_from(&self, is_own: impl Fn(DomainId) -> bool) -> u64 {
        if self.held_free == 0 {
            return 0;
        }
        let segments = 0..self.segments.len() as u32;
        let others = segments.filter(|&local| {
            self.segments[local as usize].is_held && !self.owner(local).is_some_and(&is_own)
        });
        others.map(|local| u64::from(self.free_in(local))).sum()
    }

    fn free_in(&self, local: u32) -> u32 {
        self.shape.blocks - self.used(local)
    }

    /// Finds out whether the segment is held, or may not be shared for another reason, and counts its room accordingly. That of the file system's own and of mixed segments serves everybody all the same.
    pub(crate) fn count_held(&mut self, shared: &Shared, local: u32) {
        self.uncount_held(local);
        // An empty one goes to whoever needs it, unless it is held.
        let may_not_be_shared =
            || self.used(local) > 0 && !shared.ledger.may_be_shared(self.number(shared, local));
        let is_kept = || self.is_held(shared, local) || may_not_be_shared();
        let is_ones_own = self.owner(local).is_some_and(|it| !it.is_server_only());
        if is_ones_own && is_kept() {
            self.segments[local as usize].is_held = true;
            self.held_free += u64::from(self.free_in(local));
        }
    }

    /// The segment counts as held no longer.
    pub(crate) fn uncount_held(&mut self, local: u32) {
        if std::mem::take(&mut self.segments[local as usize].is_held) {
            self.held_free -= u64::from(self.free_in(local));
        }
    }
}
