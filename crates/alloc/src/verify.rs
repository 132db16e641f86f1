//! The allocator's books against its bitmaps: for tests and for those who doubt.

use crate::group::{Group, Segment, Shared};
use crate::run::Leaves;
use crate::tree::Tree;
use crate::{Allocator, Policy, SegmentNumber};
use std::sync::atomic::Ordering;
use thiserror::Error;

/// A count or list of the allocator that its bitmaps don't bear out: always a bug of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("free-space books are wrong: {0}; report this, and remount to rebuild them")]
pub struct Inconsistency(String);

macro_rules! demand {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(Inconsistency(format!($($message)+)));
        }
    };
}

impl Allocator {
    /// Compares every count of every tree node, list and group with the bitmaps. O(blocks); holds all locks.
    ///
    /// # Errors
    /// Names the first count that is wrong.
    pub fn verify(&self) -> Result<(), Inconsistency> {
        let mut groups = self.lock_all();
        let mut free_segments = 0;
        for (group, published) in groups.iter_mut().zip(self.published_counts()) {
            demand!(
                group.free_blocks == published,
                "group publishes {published} free blocks, has {}",
                group.free_blocks
            );
            free_segments += group.verify(self.shared())?;
        }
        let counted = self.shared().free_segments.load(Ordering::Relaxed);
        demand!(
            free_segments == counted,
            "{free_segments} segments are free, {counted} counted"
        );
        if !self.shared().dug.load(Ordering::Relaxed) {
            let shares: u64 = groups.iter().map(|group| group.share).sum();
            demand!(
                shares >= self.reserve_blocks(),
                "shares of {shares} don't cover the reserve"
            );
            let below = groups
                .iter()
                .position(|group| group.usable_blocks() < group.share);
            demand!(
                below.is_none(),
                "group {below:?} has less than its share of the reserve"
            );
        }
        Ok(())
    }
}

impl Group {
    /// Returns how many segments are free.
    fn verify(&mut self, shared: &Shared) -> Result<u32, Inconsistency> {
        let (mut free_blocks, mut held_free) = (0, 0);
        for local in 0..self.segments.len() as u32 {
            self.verify_segment(shared, local)?;
            let free = u64::from(self.shape.blocks - self.used(local));
            free_blocks += free;
            if self.segments[local as usize].is_held {
                held_free += free;
            }
        }
        demand!(
            held_free == self.held_free,
            "group counts {} free blocks in held segments, has {held_free}",
            self.held_free
        );
        demand!(
            free_blocks == self.free_blocks,
            "group counts {} free blocks, has {free_blocks}",
            self.free_blocks
        );
        for pool in 0..self.pools.len() {
            self.verify_pool(shared, pool)?;
        }
        if shared.options.policy == Policy::Steered {
            self.verify_zones()?;
        }
        Ok(self.free.len() as u32)
    }

    fn verify_segment(&mut self, shared: &Shared, local: u32) -> Result<(), Inconsistency> {
        let segment = self.number(shared, local);
        self.tree(local).verify(segment)?;
        let end = self.shape.blocks;
        let run = self.tree(local).longest_run(Leaves::All);
        let bound = self.segments[local as usize].run_bound;
        demand!(
            run <= bound,
            "segment {} has a run of {run}, bound {bound}",
            segment.0
        );
        let used = self.used(local);
        let slot = self.segments[local as usize].slot as usize;
        let listed = match self.owner(local) {
            None => {
                used == 0
                    && self.free.get(slot) == Some(&local)
                    && self.free_zones.contains(self.zones.of(local))
            }
            Some(domain) => {
                let pool = self.pools.iter().find(|pool| pool.domain == domain);
                pool.is_some_and(|pool| (used == end) != (pool.open.get(slot) == Some(&local)))
            }
        };
        demand!(
            listed,
            "segment {} with {used} blocks in use is not in the list it belongs to",
            segment.0
        );
        Ok(())
    }

    fn verify_pool(&mut self, shared: &Shared, pool: usize) -> Result<(), Inconsistency> {
        let domain = self.pools[pool].domain;
        let own: Vec<u32> = (0..self.segments.len() as u32)
            .filter(|&local| self.owner(local) == Some(domain))
            .collect();
        for &local in &own {
            self.verify_bounds(shared, pool, local)?;
        }
        let pool = &self.pools[pool];
        let used: u64 = own.iter().map(|&local| u64::from(self.used(local))).sum();
        let empty = own.iter().filter(|&&local| self.used(local) == 0).count();
        let open = own
            .iter()
            .filter(|&&local| self.used(local) < self.shape.blocks)
            .count();
        demand!(
            (own.len(), used, empty, open)
                == (
                    pool.segments as usize,
                    pool.used,
                    pool.empty as usize,
                    pool.open.len()
                ),
            "{domain:?} has {} segments, {used} blocks in use, {empty} empty and {open} open segments; its books say {pool:?}",
            own.len()
        );
        Ok(())
    }

    /// What a search passes over must hold nothing.
    fn verify_bounds(
        &mut self,
        shared: &Shared,
        pool: usize,
        local: u32,
    ) -> Result<(), Inconsistency> {
        let zone = self.zones.of(local);
        let Segment {
            run_bound,
            broken_bound,
            ..
        } = self.segments[local as usize];
        let books = &self.pools[pool];
        demand!(
            run_bound <= books.run_bound,
            "{:?} bounds runs by {}, a segment by {run_bound}",
            books.domain,
            books.run_bound
        );
        if shared.options.policy != Policy::Steered {
            return Ok(());
        }
        let (runs, broken) = (books.run_bounds[zone], books.broken_bounds[zone]);
        demand!(
            run_bound <= runs,
            "zone {zone} bounds runs by {runs}, a segment by {run_bound}"
        );
        let longest = self.tree(local).longest_run(Leaves::Touched);
        demand!(
            longest <= broken_bound && broken_bound <= broken,
            "broken leaves of a segment have a run of {longest}, bounds {broken_bound} and, for zone {zone}, {broken}"
        );
        Ok(())
    }

    fn verify_zones(&self) -> Result<(), Inconsistency> {
        let mut wear: Vec<u64> = self.segments.iter().map(|segment| segment.wear).collect();
        for window in self.pools.iter().flat_map(|pool| pool.windows) {
            // What a window gave out since its zone was told.
            wear[window.segment as usize] -= u64::from(window.taken);
        }
        let wrong = self.zones.compare(&wear);
        demand!(
            wrong.is_none(),
            "the zones count other writes than their segments do: {wrong:?}"
        );
        Ok(())
    }
}

impl Tree<'_> {
    fn verify(&mut self, segment: SegmentNumber) -> Result<(), Inconsistency> {
        let counted = self.nodes.to_vec();
        self.recount();
        let wrong = (1..counted.len()).find(|&node| counted[node] != self.nodes[node]);
        demand!(
            wrong.is_none(),
            "segment {}, tree node {wrong:?}",
            segment.0
        );
        Ok(())
    }
}
