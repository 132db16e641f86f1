//! One allocation group: its segments, and who owns them.

use crate::random::Random;
use crate::tree::{Shape, Tree, used_of};
use crate::{DomainId, Geometry, Options, SegmentLedger, SegmentNumber};
use std::collections::BTreeMap;
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
        u64::from(self.free_segments.load(Ordering::Relaxed)) * 4
            <= u64::from(self.geometry.segments)
    }
}

const NOBODY: u32 = u32::MAX;
const NOWHERE: u32 = u32::MAX;
/// Domains that are looked for one by one before a map is asked.
const POOLS_SCANNED: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) owner: u32,
    /// Position in the list of free segments, or in its owner's list of open segments; nowhere if full.
    pub(crate) slot: u32,
    /// No free run is longer.
    pub(crate) run_bound: u32,
    pub(crate) wear: u64,
}

/// The leaf that single blocks of a domain come from, in ascending order.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    pub(crate) segment: u32,
    pub(crate) next: u32,
    pub(crate) end: u32,
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
    pub(crate) window: Window,
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
    /// The pools that a scan of the first few does not find.
    far_pools: BTreeMap<DomainId, usize>,
    pub(crate) random: Random,
    pub(crate) free_blocks: u64,
    /// What ordinary requests leave free here, so that all groups together keep the reserve.
    pub(crate) share: u64,
}

impl Group {
    /// A group of free segments; the bitmap is zeroed memory that nobody has touched.
    pub(crate) fn new(
        index: u32,
        geometry: &Geometry,
        options: &Options,
        words: Vec<AtomicU64>,
    ) -> Self {
        let shape = Shape::new(geometry.blocks_per_segment as u32);
        let segments = segments_of_group(geometry, index);
        let blank = Segment {
            owner: NOBODY,
            slot: 0,
            run_bound: shape.blocks,
            wear: 0,
        };
        let mut group = Self {
            index,
            shape,
            segments: vec![blank; segments as usize],
            words,
            nodes: vec![0; (shape.nodes() * segments) as usize],
            free: (0..segments).collect(),
            pools: Vec::new(),
            far_pools: BTreeMap::new(),
            random: Random::new(options.seed, u64::from(index)),
            free_blocks: u64::from(segments) * u64::from(shape.blocks),
            share: 0,
        };
        for local in 0..segments {
            group.segments[local as usize].slot = local;
        }
        if shape.padding() != 0 {
            group
                .words
                .iter_mut()
                .for_each(|word| *word.get_mut() |= shape.padding());
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
        let (word, node) = (
            (local * words) as usize,
            (local * self.shape.nodes()) as usize,
        );
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
    pub(crate) fn pool(&self, domain: DomainId) -> Option<usize> {
        let near = self
            .pools
            .iter()
            .take(POOLS_SCANNED)
            .position(|pool| pool.domain == domain);
        near.or_else(|| self.far_pools.get(&domain).copied())
    }

    fn pool_or_new(&mut self, domain: DomainId) -> usize {
        self.pool(domain).unwrap_or_else(|| {
            self.pools.push(Pool {
                domain,
                open: Vec::new(),
                segments: 0,
                empty: 0,
                used: 0,
                run_bound: 0,
                window: Window::default(),
            });
            let index = self.pools.len() - 1;
            if index >= POOLS_SCANNED {
                self.far_pools.insert(domain, index);
            }
            index
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
            self.pools[pool].run_bound = self.pools[pool]
                .run_bound
                .max(self.segments[local as usize].run_bound);
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
    pub(crate) fn may_grow(&self, shared: &Shared, domain: DomainId) -> bool {
        domain.is_server_only()
            || !shared.scarce()
            || self.pool(domain).is_some_and(|pool| {
                let Pool { segments, used, .. } = self.pools[pool];
                segments > 0 && used * 2 >= u64::from(segments) * u64::from(self.shape.blocks)
            })
    }

    /// Whether `domain` may take a fresh segment although its own have room: for the sake of wear alone, so not the last sixteenth.
    pub(crate) fn may_move(&self, shared: &Shared, domain: DomainId) -> bool {
        let free = u64::from(shared.free_segments.load(Ordering::Relaxed));
        free * 16 > u64::from(shared.geometry.segments) && self.may_grow(shared, domain)
    }

    /// Gives `domain` a segment without a block in use: a free one, else another domain's spare.
    pub(crate) fn grow(&mut self, shared: &Shared, domain: DomainId) -> Option<(usize, u32)> {
        let local = match self.draw_free(shared.options.policy) {
            Some(local) => {
                self.unlist_free(local);
                shared.free_segments.fetch_sub(1, Ordering::Relaxed);
                local
            }
            None => {
                let from = (0..self.pools.len()).find(|&pool| {
                    self.pools[pool].empty > 0 && self.pools[pool].domain != domain
                })?;
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

    /// The segment with most room among those of other owners: (free blocks, segment).
    pub(crate) fn emptiest_foreign(&mut self, domain: DomainId) -> Option<(u32, u32)> {
        (0..self.segments.len() as u32)
            .filter(|&local| {
                self.owner(local)
                    .is_some_and(|owner| !owner.is_server_only() && owner != domain)
            })
            .map(|local| (self.shape.blocks - self.used(local), local))
            .filter(|&(free, _)| free > 0)
            .max()
    }

    /// Turns an owner's segment into a shared one.
    pub(crate) fn convert_to_mixed(&mut self, shared: &Shared, local: u32) {
        let owner = self.owner(local).expect("an owned segment");
        let pool = self.pool(owner).expect("an owner has a pool");
        self.disown(pool, local);
        self.adopt(local, DomainId::MIXED);
        shared
            .ledger
            .assign(self.number(shared, local), DomainId::MIXED);
    }

    // ---- take and give ----

    /// Books `blocks` at a place where they are known to be free.
    #[inline]
    pub(crate) fn take(&mut self, pool: usize, local: u32, offset: u32, blocks: u32) {
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
        let pool = self
            .pool(owner)
            .expect("a segment with blocks in use has an owner");
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
