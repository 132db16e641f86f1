//! Where the next blocks come from: draws among segments, walks within one, by the policy.

use crate::group::{Group, Place, Shared, Window};
use crate::run::{Leaves, Run};
use crate::{DomainId, Policy};

/// How much more worn (in segments' worth of blocks) an owner's segment may be than a free one before the owner moves on.
const ROTATION_LEAD: u64 = 2;
/// Open segments that the steered policy compares at each draw. More keep runs longer and cost a cache miss each.
const CANDIDATES_PER_DRAW: u32 = 8;
/// Segments that a request for a run tries at random before it looks at all.
const DRAWS_PER_RUN: usize = 3;

impl Group {
    fn less_worn(&self, left: u32, right: u32) -> u32 {
        if self.segments[right as usize].wear < self.segments[left as usize].wear {
            right
        } else {
            left
        }
    }

    pub(crate) fn draw_free(&mut self, policy: Policy) -> Option<u32> {
        let count = self.free.len() as u32;
        if count == 0 {
            return None;
        }
        Some(match policy {
            Policy::Published => self.free[self.random.below(count) as usize],
            Policy::Steered => {
                let (left, right) = (self.random.below(count), self.random.below(count));
                self.less_worn(self.free[left as usize], self.free[right as usize])
            }
            Policy::FirstFit => *self.free.iter().min().expect("not empty"),
        })
    }

    /// A segment of the pool with a free block.
    fn draw_open(&mut self, policy: Policy, pool: usize) -> Option<u32> {
        let count = self.pools[pool].open.len() as u32;
        if count == 0 {
            return None;
        }
        let open = &self.pools[pool].open;
        Some(match policy {
            Policy::Published => open[self.random.below(count) as usize],
            // The least worn of a few, by whole segments' worth; among equals the first, so that free segments stay free at the end.
            Policy::Steered => {
                let class = |local: u32| {
                    self.segments[local as usize].wear >> self.shape.blocks.trailing_zeros()
                };
                let candidates =
                    (0..CANDIDATES_PER_DRAW).map(|_| open[self.random.below(count) as usize]);
                candidates
                    .min_by_key(|&local| (class(local), local))
                    .expect("some candidates")
            }
            Policy::FirstFit => *open.iter().min().expect("not empty"),
        })
    }

    /// The segment to take from next, and its pool: one of the domain's own with room, or a fresh one.
    fn draw(&mut self, shared: &Shared, domain: DomainId) -> Option<(usize, u32)> {
        let policy = shared.options.policy;
        let own = self
            .pool(domain)
            .and_then(|pool| Some((pool, self.draw_open(policy, pool)?)));
        let Some((pool, local)) = own else {
            return self
                .may_grow(shared, domain)
                .then(|| self.grow(shared, domain))
                .flatten();
        };
        let move_on = !self.free.is_empty()
            && self.may_move(shared, domain)
            && match policy {
                Policy::FirstFit => false,
                // Every free block within reach has the same chance, be its segment assigned or not.
                Policy::Published => {
                    let (own, free) = (self.pools[pool].open.len() as u32, self.free.len() as u32);
                    self.random.below(own + free) >= own
                }
                Policy::Steered => {
                    let fresh = self.draw_free(policy).expect("not empty");
                    let lead = ROTATION_LEAD * u64::from(self.shape.blocks);
                    self.segments[local as usize].wear > self.segments[fresh as usize].wear + lead
                }
            };
        if move_on {
            self.grow(shared, domain)
        } else {
            Some((pool, local))
        }
    }

    /// One block of `domain`, by the policy.
    #[inline]
    pub(crate) fn take_one(&mut self, shared: &Shared, domain: DomainId) -> Option<Place> {
        let (pool, (local, offset)) = match shared.options.policy {
            Policy::Steered => self.next_of_window(shared, domain)?,
            Policy::Published => {
                let (pool, local) = self.draw(shared, domain)?;
                let mut random = self.random.clone();
                let offset = self.tree(local).random_block(&mut random);
                self.random = random;
                (pool, (local, offset))
            }
            Policy::FirstFit => {
                let (pool, local) = self.draw(shared, domain)?;
                let end = self.shape.blocks;
                (
                    pool,
                    (
                        local,
                        self.tree(local)
                            .first_zero(0, end)
                            .expect("an open segment has room"),
                    ),
                )
            }
        };
        self.take(pool, local, offset, 1);
        Some((local, offset))
    }

    /// The next free block of the domain's window; a new window when the old one is used up.
    #[inline]
    fn next_of_window(&mut self, shared: &Shared, domain: DomainId) -> Option<(usize, Place)> {
        if let Some(pool) = self.pool(domain) {
            let Window { segment, next, end } = self.pools[pool].window;
            if next < end
                && self.segments[segment as usize].owner == domain.0
                && let Some(offset) = self.tree(segment).first_zero(next, end)
            {
                self.pools[pool].window.next = offset + 1;
                return Some((pool, (segment, offset)));
            }
        }
        let (pool, segment) = self.draw(shared, domain)?;
        let mut random = self.random.clone();
        let mut tree = self.tree(segment);
        let leaf = if tree.free_in_touched() > 0 {
            tree.random_touched_leaf(&mut random)
        } else {
            tree.random_clean_leaf(&mut random)
        };
        let (start, end) = (
            leaf * tree.shape.leaf_blocks,
            (leaf + 1) * tree.shape.leaf_blocks,
        );
        let offset = tree
            .first_zero(start, end)
            .expect("the walk ends at a leaf with room");
        self.random = random;
        self.pools[pool].window = Window {
            segment,
            next: offset + 1,
            end,
        };
        Some((pool, (segment, offset)))
    }

    /// A run of `blocks` for `domain`, at a multiple of `align`, by the policy.
    pub(crate) fn take_run(
        &mut self,
        shared: &Shared,
        domain: DomainId,
        blocks: u32,
        align: u32,
    ) -> Option<Place> {
        if blocks > self.shape.blocks {
            return None;
        }
        let pool = self.pool(domain);
        if let Some(place) = pool.and_then(|pool| self.take_run_of_own(shared, pool, blocks, align))
        {
            return Some(place);
        }
        let (pool, local) = self
            .may_grow(shared, domain)
            .then(|| self.grow(shared, domain))
            .flatten()?;
        let offset = self.find_run(shared.options.policy, local, blocks, align)?;
        self.take(pool, local, offset, blocks);
        Some((local, offset))
    }

    fn take_run_of_own(
        &mut self,
        shared: &Shared,
        pool: usize,
        blocks: u32,
        align: u32,
    ) -> Option<Place> {
        if self.pools[pool].run_bound < blocks {
            return None;
        }
        let policy = shared.options.policy;
        for _ in 0..DRAWS_PER_RUN {
            let (pool, local) = self.draw(shared, self.pools[pool].domain)?;
            if let Some(offset) = self.find_run(policy, local, blocks, align) {
                self.take(pool, local, offset, blocks);
                return Some((local, offset));
            }
        }
        let mut bound = 0;
        for slot in 0..self.pools[pool].open.len() {
            let local = self.pools[pool].open[slot];
            if let Some(offset) = self.find_run(policy, local, blocks, align) {
                self.take(pool, local, offset, blocks);
                return Some((local, offset));
            }
            bound = bound.max(self.segments[local as usize].run_bound);
        }
        self.pools[pool].run_bound = bound;
        None
    }

    /// A free run within one segment: broken leaves first, then a free leaf, then across leaves.
    fn find_run(&mut self, policy: Policy, local: u32, blocks: u32, align: u32) -> Option<u32> {
        if self.segments[local as usize].run_bound < blocks {
            return None;
        }
        let mut random = self.random.clone();
        let mut tree = self.tree(local);
        let leaf_blocks = tree.shape.leaf_blocks;
        let from = match policy {
            Policy::FirstFit => 0,
            _ => random.below(tree.shape.leaves) * leaf_blocks,
        };
        let mut found = None;
        if policy == Policy::Steered && blocks < leaf_blocks && align == 1 {
            if tree.free_in_touched() >= blocks {
                found = tree.find_run(from, blocks, 1, Leaves::Touched).start();
            }
            if found.is_none() && tree.clean_leaves() > 0 {
                found = Some(tree.random_clean_leaf(&mut random) * leaf_blocks);
            }
        } else if align == 1 && blocks > leaf_blocks {
            found = tree
                .find_run(from, blocks, leaf_blocks, Leaves::All)
                .start();
        }
        if found.is_none() {
            match tree.find_run(from, blocks, align, Leaves::All) {
                Run::At(start) => found = Some(start),
                Run::Longest {
                    blocks: longest, ..
                } if align == 1 => self.segments[local as usize].run_bound = longest,
                Run::Longest { .. } => {}
            }
        }
        self.random = random;
        found
    }

    /// The longest run (in multiples of `align`) that `domain` has in its open segments here.
    pub(crate) fn longest_run(&mut self, domain: DomainId, align: u32) -> u32 {
        let Some(pool) = self.pool(domain) else {
            return 0;
        };
        let mut longest = 0;
        for slot in 0..self.pools[pool].open.len() {
            let local = self.pools[pool].open[slot];
            if self.segments[local as usize].run_bound > longest {
                let end = self.shape.blocks;
                longest = longest.max(
                    match self.tree(local).find_run(0, end, align, Leaves::All) {
                        Run::At(_) => end,
                        Run::Longest { blocks, .. } => blocks,
                    },
                );
            }
        }
        longest
    }
}
