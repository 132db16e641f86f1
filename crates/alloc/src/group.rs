//! One allocation group: its segments, and who owns them.

use crate::random::Random;
use crate::residue::Residue;
use crate::sync::{SharedBool, SharedU32, SharedU64};
use crate::tree::{Shape, Tree, used_of};
use crate::zones::{Class, ZoneSet, Zones};
use crate::{DomainId, Geometry, Options, Policy, SegmentLedger, SegmentNumber};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

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
    pub(crate) free_segments: SharedU32,
    /// Whether the reserve has been used, so that group shares don't bound it. Changed only under all locks.
    pub(crate) dug: SharedBool,
    /// How many groups further than its number a home lies: below the number of groups. Only a wish, so races don't matter.
    pub(crate) turn: SharedU32,
    /// What was written to each group, as of its last choice of a place.
    pub(crate) written: Vec<SharedU64>,
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
    /// No free run among leaves that are in use is longer. Kept by the steered policy alone.
    pub(crate) broken_bound: u32,
    pub(crate) wear: u64,
    /// What others may have left in a segment that its owner can map.
    pub(crate) residue: Option<Box<Residue>>,
    /// Whether its free blocks count among the group's `held_free`.
    pub(crate) is_held: bool,
    /// Blocks that were cleared of it. Counted as wear when the owner lets the segment go: until then it would send him elsewhere, where as much has to be cleared.
    pub(crate) cleared: u32,
}

impl Segment {
    /// What wears it, all told.
    pub(crate) fn blocks_written(&self) -> u64 {
        self.wear + u64::from(self.cleared)
    }
}

/// The leaf that one kind of a domain's requests is served from, in ascending order.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    pub(crate) segment: u32,
    pub(crate) next: u32,
    pub(crate) end: u32,
    /// Blocks taken that its zone does not know of yet.
    pub(crate) taken: u32,
}

/// A domain's segments within one group.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) domain: DomainId,
    pub(crate) class: Class,
    /// Segments with a free block, in no order.
    pub(crate) open: Vec<u32>,
    /// All segments.
    pub(crate) segments: u32,
    /// Segments without a block in use.
    pub(crate) empty: u32,
    pub(crate) used: u64,
    /// No segment has a longer free run.
    pub(crate) run_bound: u32,
    /// By zone: no segment there has a longer free run among leaves that are in use. Kept by the steered policy alone.
    pub(crate) broken_bounds: Vec<u32>,
    /// By zone: no segment there has a longer free run. Kept by the steered policy alone.
    pub(crate) run_bounds: Vec<u32>,
    /// The segment that was emptied last, if it is still empty and the domain's.
    spare: u32,
    /// By [`Kind`].
    pub(crate) windows: [Window; 3],
}

/// What a window serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Single blocks.
    Single,
    /// Runs shorter than a leaf.
    Run,
    /// Runs that their owner will free soon, together.
    Brief,
}

/// Where blocks were found: (segment within the group, offset).
pub(crate) type Place = (u32, u32);

/// Segments `index, index + groups, index + 2 groups …` of the pool, under one lock.
pub(crate) struct Group {
    pub(crate) index: u32,
    pub(crate) shape: Shape,
    pub(crate) segments: Vec<Segment>,
    /// Kept by the steered policy alone.
    pub(crate) zones: Zones,
    pub(crate) words: Vec<AtomicU64>,
    nodes: Vec<u32>,
    pub(crate) free: Vec<u32>,
    /// Zones that may have a free segment.
    pub(crate) free_zones: ZoneSet,
    pub(crate) pools: Vec<Pool>,
    /// The pools that a scan of the first few does not find.
    far_pools: BTreeMap<DomainId, usize>,
    pub(crate) random: Random,
    pub(crate) free_blocks: u64,
    /// Of these, the ones in segments that somebody has mapped: only their owner can use them.
    pub(crate) held_free: u64,
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
            broken_bound: 0,
            wear: 0,
            residue: None,
            is_held: false,
            cleared: 0,
        };
        let zones = Zones::new(geometry, index);
        let mut group = Self {
            index,
            shape,
            segments: vec![blank; segments as usize],
            free_zones: zones.every(),
            zones,
            words,
            nodes: vec![0; (shape.nodes() * segments) as usize],
            free: (0..segments).collect(),
            pools: Vec::new(),
            far_pools: BTreeMap::new(),
            random: Random::new(options.seed, u64::from(index)),
            free_blocks: u64::from(segments) * u64::from(shape.blocks),
            held_free: 0,
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
                class: Class::of(domain),
                open: Vec::new(),
                segments: 0,
                empty: 0,
                used: 0,
                run_bound: 0,
                run_bounds: vec![0; self.zones.count()],
                spare: NOWHERE,
                broken_bounds: vec![0; self.zones.count()],
                windows: [Window::default(); 3],
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
            self.raise_broken_bound(pool, local, self.segments[local as usize].broken_bound);
            self.raise_run_bound(pool, local, self.segments[local as usize].run_bound);
            self.open(pool, local);
        } else {
            let segment = &mut self.segments[local as usize];
            (segment.run_bound, segment.broken_bound, segment.slot) = (0, 0, NOWHERE);
        }
        pool
    }

    /// Strikes a segment out of its owner's books.
    fn disown(&mut self, pool: usize, local: u32) {
        self.uncount_held(local);
        let used = self.used(local);
        if used < self.shape.blocks {
            self.close(pool, local);
        }
        self.pools[pool].segments -= 1;
        self.pools[pool].used -= u64::from(used);
        self.pools[pool].empty -= u32::from(used == 0);
        let cleared = std::mem::take(&mut self.segments[local as usize].cleared);
        self.charge(local, u64::from(cleared));
        self.segments[local as usize].owner = NOBODY;
    }

    /// Gives an empty segment back, unless its owner has it mapped.
    fn release(&mut self, shared: &Shared, pool: usize, local: u32) {
        if self.is_held(shared, local) {
            return;
        }
        self.disown(pool, local);
        self.segments[local as usize].slot = self.free.len() as u32;
        self.segments[local as usize].run_bound = self.shape.blocks;
        self.segments[local as usize].broken_bound = 0;
        self.segments[local as usize].residue = None;
        self.free.push(local);
        self.free_zones.insert(self.zones.of(local));
        shared.free_segments.fetch_add(1, Ordering::Relaxed);
        shared.ledger.release(self.number(shared, local));
    }

    pub(crate) fn is_held(&self, shared: &Shared, local: u32) -> bool {
        shared.ledger.is_held(self.number(shared, local))
    }

    /// Gives the segment back if it is empty and its owner has another empty one: it may have been held when it became so.
    pub(crate) fn tidy(&mut self, shared: &Shared, local: u32) {
        let Some(owner) = self.owner(local) else {
            return;
        };
        let pool = self.pool(owner).expect("an owner has a pool");
        if self.used(local) == 0 && (self.pools[pool].empty > 1 || shared.scarce()) {
            self.release(shared, pool, local);
        }
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
        free * 16 > u64::from(shared.geometry.segments)
            && shared.ledger.may_move(domain)
            && self.may_grow(shared, domain)
    }

    /// Gives `domain` a segment without a block in use: a free one, else another domain's spare.
    pub(crate) fn grow(&mut self, shared: &Shared, domain: DomainId) -> Option<(usize, u32)> {
        if let Some(local) = self.draw_free(shared.options.policy) {
            return Some(self.grow_by(shared, domain, local));
        }
        let (from, spare) = (0..self.pools.len())
            .filter(|&pool| self.pools[pool].empty > 0 && self.pools[pool].domain != domain)
            .find_map(|pool| {
                let open = (0..self.pools[pool].open.len()).map(|slot| self.pools[pool].open[slot]);
                let mut spares =
                    open.filter(|&local| self.used(local) == 0 && !self.is_held(shared, local));
                Some((pool, spares.next()?))
            })?;
        self.disown(from, spare);
        let pool = self.adopt(spare, domain);
        shared.ledger.assign(self.number(shared, spare), domain);
        self.list_residue(shared, spare);
        Some((pool, spare))
    }

    /// Gives `domain` this free segment.
    pub(crate) fn grow_by(
        &mut self,
        shared: &Shared,
        domain: DomainId,
        local: u32,
    ) -> (usize, u32) {
        self.unlist_free(local);
        shared.free_segments.fetch_sub(1, Ordering::Relaxed);
        let pool = self.adopt(local, domain);
        shared.ledger.assign(self.number(shared, local), domain);
        self.list_residue(shared, local);
        (pool, local)
    }

    /// The segment with most room among those of other owners: (free blocks, segment).
    pub(crate) fn emptiest_foreign(
        &mut self,
        shared: &Shared,
        domain: DomainId,
    ) -> Option<(u32, u32)> {
        (0..self.segments.len() as u32)
            .filter(|&local| {
                self.owner(local)
                    .is_some_and(|owner| !owner.is_server_only() && owner != domain)
                    && !self.is_held(shared, local)
                    && shared.ledger.may_be_shared(self.number(shared, local))
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
        self.list_residue(shared, local);
    }

    // ---- take and give ----

    /// Books `blocks` at a place where they are known to be free.
    #[inline]
    pub(crate) fn take(
        &mut self,
        shared: &Shared,
        pool: usize,
        local: u32,
        (offset, blocks): (u32, u32),
    ) {
        self.clear_for(shared, local, offset, blocks);
        let mut tree = self.tree(local);
        let before = tree.used();
        if tree.take(offset, blocks) {
            // A leaf is broken now; how much of it is left is found out when somebody looks.
            self.raise_broken_bound(pool, local, self.shape.blocks);
        }
        self.segments[local as usize].wear += u64::from(blocks);
        self.free_blocks -= u64::from(blocks);
        if self.segments[local as usize].is_held {
            self.held_free -= u64::from(blocks);
        }
        self.pools[pool].used += u64::from(blocks);
        if before == 0 {
            self.pools[pool].empty -= 1;
            self.count_held(shared, local);
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
        let Segment {
            run_bound,
            broken_bound,
            ..
        } = self.segments[local as usize];
        if run_bound.min(broken_bound) < free {
            let run = self.tree(local).run_around(offset, blocks);
            if run > run_bound.min(broken_bound) {
                self.segments[local as usize].run_bound = run.max(run_bound);
                self.raise_run_bound(pool, local, run);
                self.raise_broken_bound(pool, local, run);
            }
        }
        self.free_blocks += u64::from(blocks);
        if self.segments[local as usize].is_held {
            self.held_free += u64::from(blocks);
        }
        self.pools[pool].used -= u64::from(blocks);
        if before == self.shape.blocks {
            self.open(pool, local);
        }
        if before == blocks {
            // One empty segment stays with its owner, so that a file created and removed over and over
            // does not write the segment table each time.
            self.pools[pool].empty += 1;
            self.count_held(shared, local);
            let spare = std::mem::replace(&mut self.pools[pool].spare, local);
            if shared.scarce() {
                self.release(shared, pool, local);
            } else if self.pools[pool].empty > 1 {
                // The one that was emptied last is kept: who gives it back is about to ask again, and the older one may be worn.
                let kept = spare != NOWHERE
                    && self.segments[spare as usize].owner == owner.0
                    && self.used(spare) == 0;
                self.release(shared, pool, if kept { spare } else { local });
            }
        }
    }

    /// Writes that were not allocations.
    pub(crate) fn charge(&mut self, local: u32, blocks: u64) {
        let class = Class::of(self.owner(local).unwrap_or(DomainId::METADATA));
        self.segments[local as usize].wear += blocks;
        self.zones.add(class, local, blocks);
    }

    /// There may be a run of that many blocks in one of the pool's segments.
    fn raise_run_bound(&mut self, pool: usize, local: u32, run: u32) {
        let zone = self.zones.of(local);
        let pool = &mut self.pools[pool];
        pool.run_bound = run.max(pool.run_bound);
        pool.run_bounds[zone] = run.max(pool.run_bounds[zone]);
    }

    /// There may be a run of that many blocks among the segment's leaves in use.
    pub(crate) fn raise_broken_bound(&mut self, pool: usize, local: u32, run: u32) {
        let segment = &mut self.segments[local as usize].broken_bound;
        *segment = run.max(*segment);
        let zone = &mut self.pools[pool].broken_bounds[self.zones.of(local)];
        *zone = run.max(*zone);
    }

    /// Undoes a [`Self::take`] that nobody has seen.
    pub(crate) fn take_back(&mut self, shared: &Shared, local: u32, offset: u32, blocks: u32) {
        self.uncount(shared, local, blocks);
        self.give(shared, local, offset, blocks);
    }

    /// Blocks that were just taken are not, or not yet, written.
    pub(crate) fn uncount(&mut self, shared: &Shared, local: u32, blocks: u32) {
        self.segments[local as usize].wear -= u64::from(blocks);
        if shared.options.policy == Policy::Steered {
            let class = Class::of(self.owner(local).expect("a segment with blocks in use"));
            self.zones.take_off(class, local, u64::from(blocks));
        }
    }

    /// Loads the marks of a rebuild: who owns what, what is in use, how worn it is.
    pub(crate) fn load(&mut self, shared: &Shared, domains: &[Option<DomainId>], wear: &[u64]) {
        self.free.clear();
        for local in 0..self.segments.len() as u32 {
            let number = self.number(shared, local);
            let past = wear.get(number.0 as usize).copied().unwrap_or(0);
            self.segments[local as usize].wear = past;
            self.zones.add(Class::Data, local, past);
            self.segments[local as usize].broken_bound = self.shape.blocks;
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
                    self.count_held(shared, local);
                    if self.owner(local).is_some() {
                        self.list_residue(shared, local);
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
