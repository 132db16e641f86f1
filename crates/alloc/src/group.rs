//! One allocation group: its segments, and who owns them.

use crate::random::Random;
use crate::tree::{Leaves, Run, Shape, Tree, used_of};
use crate::{DomainId, Geometry, Options, Policy, SegmentLedger, SegmentNumber};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What all groups share.
pub(crate) struct Shared {
    pub(crate) geometry: Geometry,
    pub(crate) shape: Shape,
    pub(crate) options: Options,
    pub(crate) groups: u32,
    /// 2^64 / groups, rounded up: a multiplication instead of the division by the number of groups.
    pub(crate) group_reciprocal: u128,
    pub(crate) ledger: Box<dyn SegmentLedger>,
    /// Segments that belong to nobody, in all groups. Changed under the lock of the segment's group.
    pub(crate) free_segments: AtomicU32,
    /// Whether the reserve has been used, so that group shares don't bound it. Changed only under all locks.
    pub(crate) dug: AtomicBool,
}

impl Shared {
    /// Free segments are scarce when at most a quarter of all is left: then small owners share.
    pub(crate) fn scarce(&self) -> bool {
        u64::from(self.free_segments.load(Ordering::Relaxed)) * 4 <= u64::from(self.geometry.segments)
    }
}

const NOBODY: u32 = u32::MAX;
const NOWHERE: u32 = u32::MAX;

/// How much more worn (in segments' worth of blocks) an owner's segment may be than a free one before the owner moves on.
const ROTATION_LEAD: u64 = 2;
/// Segments that a request for a run tries at random before it looks at all.
const DRAWS_PER_RUN: usize = 3;

#[derive(Debug, Clone)]
pub(crate) struct Segment {
    owner: u32,
    /// Position in the list of free segments, or in its owner's list of open segments; nowhere if full.
    pub(crate) slot: u32,
    /// No free run is longer.
    pub(crate) run_bound: u32,
    pub(crate) wear: u64,
}

/// The leaf that single blocks of a domain come from, in ascending order.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    segment: u32,
    next: u32,
    end: u32,
}

/// A domain's segments within one group.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) domain: DomainId,
    /// Segments with a free block, in no order.
    pub(crate) open: Vec<u32>,
    /// All segments.
    pub(crate) segments: u32,
    /// Segments without a block in use.
    pub(crate) empty: u32,
    pub(crate) used: u64,
    /// No segment has a longer free run.
    pub(crate) run_bound: u32,
    window: Window,
}

/// Where blocks were found: (segment within the group, offset).
pub(crate) type Place = (u32, u32);

/// Segments `index, index + groups, index + 2 groups …` of the pool, under one lock.
pub(crate) struct Group {
    index: u32,
    pub(crate) shape: Shape,
    pub(crate) segments: Vec<Segment>,
    pub(crate) words: Vec<AtomicU64>,
    nodes: Vec<u32>,
    pub(crate) free: Vec<u32>,
    pub(crate) pools: Vec<Pool>,
    random: Random,
    pub(crate) free_blocks: u64,
    /// What ordinary requests leave free here, so that all groups together keep the reserve.
    pub(crate) share: u64,
}

impl Group {
    /// A group of free segments; the bitmap is zeroed memory that nobody has touched.
    pub(crate) fn new(index: u32, geometry: &Geometry, options: &Options, words: Vec<AtomicU64>) -> Self {
        let shape = Shape::new(geometry.blocks_per_segment as u32);
        let segments = segments_of_group(geometry, index);
        let blank = Segment { owner: NOBODY, slot: 0, run_bound: shape.blocks, wear: 0 };
        let mut group = Self {
            index,
            shape,
            segments: vec![blank; segments as usize],
            words,
            nodes: vec![0; (shape.nodes() * segments) as usize],
            free: (0..segments).collect(),
            pools: Vec::new(),
            random: Random::new(options.seed, u64::from(index)),
            free_blocks: u64::from(segments) * u64::from(shape.blocks),
            share: 0,
        };
        for local in 0..segments {
            group.segments[local as usize].slot = local;
        }
        if shape.padding() != 0 {
            group.words.iter_mut().for_each(|word| *word.get_mut() |= shape.padding());
        }
        group
    }

    pub(crate) fn number(&self, shared: &Shared, local: u32) -> SegmentNumber {
        SegmentNumber(local * shared.groups + self.index)
    }

    pub(crate) fn owner(&self, local: u32) -> Option<DomainId> {
        let owner = self.segments[local as usize].owner;
        (owner != NOBODY).then_some(DomainId(owner))
    }

    #[inline]
    pub(crate) fn tree(&mut self, local: u32) -> Tree<'_> {
        let Shape { words, .. } = self.shape;
        let (word, node) = ((local * words) as usize, (local * self.shape.nodes()) as usize);
        Tree {
            shape: self.shape,
            nodes: &mut self.nodes[node..node + self.shape.nodes() as usize],
            words: &mut self.words[word..word + words as usize],
        }
    }

    #[inline]
    pub(crate) fn used(&self, local: u32) -> u32 {
        used_of(self.nodes[(local * self.shape.nodes()) as usize + 1])
    }

    #[inline]
    fn pool(&self, domain: DomainId) -> Option<usize> {
        self.pools.iter().position(|pool| pool.domain == domain)
    }

    fn pool_or_new(&mut self, domain: DomainId) -> usize {
        self.pool(domain).unwrap_or_else(|| {
            self.pools.push(Pool { domain, open: Vec::new(), segments: 0, empty: 0, used: 0, run_bound: 0, window: Window::default() });
            self.pools.len() - 1
        })
    }

    // ---- segments change hands ----

    fn unlist_free(&mut self, local: u32) {
        let slot = self.segments[local as usize].slot as usize;
        self.free.swap_remove(slot);
        if let Some(&moved) = self.free.get(slot) {
            self.segments[moved as usize].slot = slot as u32;
        }
    }

    fn open(&mut self, pool: usize, local: u32) {
        self.segments[local as usize].slot = self.pools[pool].open.len() as u32;
        self.pools[pool].open.push(local);
    }

    fn close(&mut self, pool: usize, local: u32) {
        let slot = std::mem::replace(&mut self.segments[local as usize].slot, NOWHERE) as usize;
        let open = &mut self.pools[pool].open;
        open.swap_remove(slot);
        if let Some(&moved) = open.get(slot) {
            self.segments[moved as usize].slot = slot as u32;
        }
    }

    /// Enters a segment of any fill into its new owner's books.
    fn adopt(&mut self, local: u32, domain: DomainId) -> usize {
        let pool = self.pool_or_new(domain);
        let used = self.used(local);
        self.segments[local as usize].owner = domain.0;
        self.pools[pool].segments += 1;
        self.pools[pool].used += u64::from(used);
        self.pools[pool].empty += u32::from(used == 0);
        if used < self.shape.blocks {
            self.pools[pool].run_bound = self.pools[pool].run_bound.max(self.segments[local as usize].run_bound);
            self.open(pool, local);
        } else {
            self.segments[local as usize].run_bound = 0;
            self.segments[local as usize].slot = NOWHERE;
        }
        pool
    }

    /// Strikes a segment out of its owner's books.
    fn disown(&mut self, pool: usize, local: u32) {
        let used = self.used(local);
        if used < self.shape.blocks {
            self.close(pool, local);
        }
        self.pools[pool].segments -= 1;
        self.pools[pool].used -= u64::from(used);
        self.pools[pool].empty -= u32::from(used == 0);
        self.segments[local as usize].owner = NOBODY;
    }

    fn release(&mut self, shared: &Shared, pool: usize, local: u32) {
        self.disown(pool, local);
        self.segments[local as usize].slot = self.free.len() as u32;
        self.segments[local as usize].run_bound = self.shape.blocks;
        self.free.push(local);
        shared.free_segments.fetch_add(1, Ordering::Relaxed);
        shared.ledger.release(self.number(shared, local));
    }

    /// Whether `domain` may take another segment: always if segments abound; if they are scarce only the server's own domains, and
    /// owners whose segments here are half full or more (the new one will be used).
    fn may_grow(&self, shared: &Shared, domain: DomainId) -> bool {
        domain.is_server_only()
            || !shared.scarce()
            || self.pool(domain).is_some_and(|pool| {
                let Pool { segments, used, .. } = self.pools[pool];
                segments > 0 && used * 2 >= u64::from(segments) * u64::from(self.shape.blocks)
            })
    }

    /// Whether `domain` may take a fresh segment although its own have room: for the sake of wear alone, so not the last sixteenth.
    fn may_move(&self, shared: &Shared, domain: DomainId) -> bool {
        let free = u64::from(shared.free_segments.load(Ordering::Relaxed));
        free * 16 > u64::from(shared.geometry.segments) && self.may_grow(shared, domain)
    }

    /// Gives `domain` a segment without a block in use: a free one, else another domain's spare.
    fn grow(&mut self, shared: &Shared, domain: DomainId) -> Option<(usize, u32)> {
        let local = match self.draw_free(shared.options.policy) {
            Some(local) => {
                self.unlist_free(local);
                shared.free_segments.fetch_sub(1, Ordering::Relaxed);
                local
            }
            None => {
                let from = (0..self.pools.len()).find(|&pool| self.pools[pool].empty > 0 && self.pools[pool].domain != domain)?;
                let spare = (0..self.pools[from].open.len())
                    .map(|slot| self.pools[from].open[slot])
                    .find(|&local| self.used(local) == 0)?;
                self.disown(from, spare);
                spare
            }
        };
        let pool = self.adopt(local, domain);
        shared.ledger.assign(self.number(shared, local), domain);
        Some((pool, local))
    }

    /// Turns the group's emptiest segment of an owner into a shared one. Returns its free blocks.
    pub(crate) fn emptiest_foreign(&mut self, domain: DomainId) -> Option<(u32, u32)> {
        (0..self.segments.len() as u32)
            .filter(|&local| self.owner(local).is_some_and(|owner| !owner.is_server_only() && owner != domain))
            .map(|local| (self.shape.blocks - self.used(local), local))
            .filter(|&(free, _)| free > 0)
            .max()
    }

    pub(crate) fn convert_to_mixed(&mut self, shared: &Shared, local: u32) {
        let owner = self.owner(local).expect("an owned segment");
        let pool = self.pool(owner).expect("an owner has a pool");
        self.disown(pool, local);
        self.adopt(local, DomainId::MIXED);
        shared.ledger.assign(self.number(shared, local), DomainId::MIXED);
    }

    // ---- draws ----

    fn less_worn(&self, left: u32, right: u32) -> u32 {
        if self.segments[right as usize].wear < self.segments[left as usize].wear { right } else { left }
    }

    fn draw_free(&mut self, policy: Policy) -> Option<u32> {
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
        let (left, right) = (self.random.below(count) as usize, self.random.below(count) as usize);
        let open = &self.pools[pool].open;
        Some(match policy {
            Policy::Published => open[left],
            Policy::Steered => self.less_worn(open[left], open[right]),
            Policy::FirstFit => *open.iter().min().expect("not empty"),
        })
    }

    /// The segment to take from next, and its pool: one of the domain's own with room, or a fresh one.
    fn draw(&mut self, shared: &Shared, domain: DomainId) -> Option<(usize, u32)> {
        let policy = shared.options.policy;
        let own = self.pool(domain).and_then(|pool| Some((pool, self.draw_open(policy, pool)?)));
        let Some((pool, local)) = own else {
            return self.may_grow(shared, domain).then(|| self.grow(shared, domain)).flatten();
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
        if move_on { self.grow(shared, domain) } else { Some((pool, local)) }
    }

    // ---- take and give ----

    /// Books `blocks` at a place where they are known to be free.
    #[inline]
    fn take(&mut self, pool: usize, local: u32, offset: u32, blocks: u32) {
        let mut tree = self.tree(local);
        let before = tree.used();
        tree.take(offset, blocks);
        self.segments[local as usize].wear += u64::from(blocks);
        self.free_blocks -= u64::from(blocks);
        self.pools[pool].used += u64::from(blocks);
        if before == 0 {
            self.pools[pool].empty -= 1;
        }
        if before + blocks == self.shape.blocks {
            self.segments[local as usize].run_bound = 0;
            self.close(pool, local);
        }
    }

    /// Frees blocks that are known to be allocated.
    #[inline]
    pub(crate) fn give(&mut self, shared: &Shared, local: u32, offset: u32, blocks: u32) {
        let owner = DomainId(self.segments[local as usize].owner);
        let pool = self.pool(owner).expect("a segment with blocks in use has an owner");
        let mut tree = self.tree(local);
        let before = tree.used();
        tree.give(offset, blocks);
        let free = self.shape.blocks + blocks - before;
        if self.segments[local as usize].run_bound < free {
            let run = self.tree(local).run_around(offset, blocks);
            let bound = &mut self.segments[local as usize].run_bound;
            *bound = run.max(*bound);
            self.pools[pool].run_bound = self.pools[pool].run_bound.max(run);
        }
        self.free_blocks += u64::from(blocks);
        self.pools[pool].used -= u64::from(blocks);
        if before == self.shape.blocks {
            self.open(pool, local);
        }
        if before == blocks {
            // One empty segment stays with its owner, so that a file created and removed over and over
            // does not write the segment table each time.
            self.pools[pool].empty += 1;
            if self.pools[pool].empty > 1 || shared.scarce() {
                self.release(shared, pool, local);
            }
        }
    }

    /// Undoes a [`Self::take`] that nobody has seen.
    pub(crate) fn take_back(&mut self, shared: &Shared, local: u32, offset: u32, blocks: u32) {
        self.segments[local as usize].wear -= u64::from(blocks);
        self.give(shared, local, offset, blocks);
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
                (pool, (local, self.tree(local).first_zero(0, end).expect("an open segment has room")))
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
            if next < end && self.segments[segment as usize].owner == domain.0 {
                if let Some(offset) = self.tree(segment).first_zero(next, end) {
                    self.pools[pool].window.next = offset + 1;
                    return Some((pool, (segment, offset)));
                }
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
        let (start, end) = (leaf * tree.shape.leaf_blocks, (leaf + 1) * tree.shape.leaf_blocks);
        let offset = tree.first_zero(start, end).expect("the walk ends at a leaf with room");
        self.random = random;
        self.pools[pool].window = Window { segment, next: offset + 1, end };
        Some((pool, (segment, offset)))
    }

    /// A run of `blocks` for `domain`, at a multiple of `align`, by the policy.
    pub(crate) fn take_run(&mut self, shared: &Shared, domain: DomainId, blocks: u32, align: u32) -> Option<Place> {
        if blocks > self.shape.blocks {
            return None;
        }
        let pool = self.pool(domain);
        if let Some(place) = pool.and_then(|pool| self.take_run_of_own(shared, pool, blocks, align)) {
            return Some(place);
        }
        let (pool, local) = self.may_grow(shared, domain).then(|| self.grow(shared, domain)).flatten()?;
        let offset = self.find_run(shared.options.policy, local, blocks, align)?;
        self.take(pool, local, offset, blocks);
        Some((local, offset))
    }

    fn take_run_of_own(&mut self, shared: &Shared, pool: usize, blocks: u32, align: u32) -> Option<Place> {
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
            found = tree.find_run(from, blocks, leaf_blocks, Leaves::All).start();
        }
        if found.is_none() {
            match tree.find_run(from, blocks, align, Leaves::All) {
                Run::At(start) => found = Some(start),
                Run::Longest { blocks: longest, .. } if align == 1 => self.segments[local as usize].run_bound = longest,
                Run::Longest { .. } => {}
            }
        }
        self.random = random;
        found
    }

    /// The longest run (in multiples of `align`) that `domain` has in its open segments here.
    pub(crate) fn longest_run(&mut self, domain: DomainId, align: u32) -> u32 {
        let Some(pool) = self.pool(domain) else { return 0 };
        let mut longest = 0;
        for slot in 0..self.pools[pool].open.len() {
            let local = self.pools[pool].open[slot];
            if self.segments[local as usize].run_bound > longest {
                let end = self.shape.blocks;
                longest = longest.max(match self.tree(local).find_run(0, end, align, Leaves::All) {
                    Run::At(_) => end,
                    Run::Longest { blocks, .. } => blocks,
                });
            }
        }
        longest
    }

    /// Loads the marks of a rebuild: who owns what, what is in use, how worn it is.
    pub(crate) fn load(&mut self, shared: &Shared, domains: &[Option<DomainId>], wear: &[u64]) {
        self.free.clear();
        for local in 0..self.segments.len() as u32 {
            let number = self.number(shared, local);
            self.segments[local as usize].wear = wear.get(number.0 as usize).copied().unwrap_or(0);
            match domains.get(number.0 as usize).copied().flatten() {
                Some(domain) => {
                    let mut tree = self.tree(local);
                    tree.recount();
                    let used = tree.used();
                    self.free_blocks -= u64::from(used);
                    let pool = self.adopt(local, domain);
                    shared.free_segments.fetch_sub(1, Ordering::Relaxed);
                    if used == 0 {
                        self.release(shared, pool, local);
                    }
                }
                None => {
                    self.segments[local as usize].slot = self.free.len() as u32;
                    self.free.push(local);
                }
            }
        }
    }
}

/// How many segments a group has.
pub(crate) fn segments_of_group(geometry: &Geometry, group: u32) -> u32 {
    (geometry.segments - group).div_ceil(geometry.effective_groups())
}
