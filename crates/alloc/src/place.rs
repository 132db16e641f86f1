//! Where the next blocks come from: draws among segments, walks within one, by the policy.

use crate::group::{Group, Kind, Place, Shared};
use crate::run::{Leaves, Run};
use crate::steer::Need;
use crate::{DomainId, Policy};

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
            _ => *open.iter().min().expect("not empty"),
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
                // Every free block within reach has the same chance, be its segment assigned or not.
                Policy::Published => {
                    let (own, free) = (self.pools[pool].open.len() as u32, self.free.len() as u32);
                    self.random.below(own + free) >= own
                }
                _ => false,
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
            Policy::Steered => self.steer_one(shared, domain)?,
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
        self.take(shared, pool, local, (offset, 1));
        Some((local, offset))
    }

    /// A run of `blocks` for `domain`, at a multiple of `align`, by the policy.
    pub(crate) fn take_run(
        &mut self,
        shared: &Shared,
        domain: DomainId,
        blocks: u32,
        align: u32,
        kind: Kind,
    ) -> Option<Place> {
        if blocks > self.shape.blocks {
            return None;
        }
        if shared.options.policy == Policy::Steered {
            return self.steer_run(
                shared,
                Need {
                    domain,
                    blocks,
                    align,
                    kind,
                },
            );
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
        self.take(shared, pool, local, (offset, blocks));
        Some((local, offset))
    }

    /// Books a free run that was found in a segment of the domain.
    pub(crate) fn take_at(&mut self, shared: &Shared, domain: DomainId, place: Place, blocks: u32) {
        let pool = self.pool(domain).expect("an owner has a pool");
        self.take(shared, pool, place.0, (place.1, blocks));
        if shared.options.policy == Policy::Steered {
            let class = self.pools[pool].class;
            self.zones.add(class, place.0, u64::from(blocks));
        }
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
                self.take(shared, pool, local, (offset, blocks));
                return Some((local, offset));
            }
        }
        let mut bound = 0;
        for slot in 0..self.pools[pool].open.len() {
            let local = self.pools[pool].open[slot];
            if let Some(offset) = self.find_run(policy, local, blocks, align) {
                self.take(shared, pool, local, (offset, blocks));
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
        if align == 1 && blocks > leaf_blocks {
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
