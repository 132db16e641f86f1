//! The allocator's books against its bitmaps: for tests and for those who doubt.

use crate::group::{Group, Shared};
use crate::run::{Leaves, Run};
use crate::tree::Tree;
use crate::{Allocator, SegmentNumber};
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
                .position(|group| group.free_blocks < group.share);
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
        let mut free_blocks = 0;
        for local in 0..self.segments.len() as u32 {
            let segment = self.number(shared, local);
            self.tree(local).verify(segment)?;
            let end = self.shape.blocks;
            if let Run::Longest { blocks, .. } = self.tree(local).find_run(0, end, 1, Leaves::All) {
                let bound = self.segments[local as usize].run_bound;
                demand!(
                    blocks <= bound,
                    "segment {} has a run of {blocks}, bound {bound}",
                    segment.0
                );
            }
            let used = self.used(local);
            free_blocks += u64::from(end - used);
            let slot = self.segments[local as usize].slot as usize;
            let listed = match self.owner(local) {
                None => used == 0 && self.free.get(slot) == Some(&local),
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
        }
        demand!(
            free_blocks == self.free_blocks,
            "group counts {} free blocks, has {free_blocks}",
            self.free_blocks
        );
        for pool in &self.pools {
            let own: Vec<u32> = (0..self.segments.len() as u32)
                .filter(|&local| self.owner(local) == Some(pool.domain))
                .collect();
            let used: u64 = own.iter().map(|&local| u64::from(self.used(local))).sum();
            let empty = own.iter().filter(|&&local| self.used(local) == 0).count();
            let open = own
                .iter()
                .filter(|&&local| self.used(local) < self.shape.blocks)
                .count();
            let bound = own
                .iter()
                .filter(|&&local| self.used(local) < self.shape.blocks);
            let bound = bound
                .map(|&local| self.segments[local as usize].run_bound)
                .max()
                .unwrap_or(0);
            demand!(
                pool.run_bound >= bound,
                "{:?} bounds runs by {}, a segment by {bound}",
                pool.domain,
                pool.run_bound
            );
            demand!(
                (own.len(), used, empty, open)
                    == (
                        pool.segments as usize,
                        pool.used,
                        pool.empty as usize,
                        pool.open.len()
                    ),
                "{:?} has {} segments, {used} blocks in use, {empty} empty and {open} open segments; its books say {pool:?}",
                pool.domain,
                own.len()
            );
        }
        Ok(self.free.len() as u32)
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
