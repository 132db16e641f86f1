//! The default policy: steered by wear between neighbourhoods, by the wish for long free runs within them.
//!
//! Among zones that are not much more worn than the mean, a small request goes into leaves that are broken already, the fullest of the first such
//! zone; so small files pack densely, and what dies elsewhere leaves whole leaves free. If there is no such place, and for large requests
//! always, the least worn zone comes first: a leaf of a segment that the domain has, or a free segment. Single blocks and brief runs come from a
//! *window*, one leaf that is used once from its start to its end, so one search serves many, and what is freed behind it is not
//! handed out again before everything else had its turn.

use crate::DomainId;
use crate::group::{Group, Kind, Place, Shared, Window};
use crate::run::{Leaves, Run};
use crate::zones::{Class, Ranking, ZoneSet};
use std::sync::atomic::Ordering;

/// How much more worn (in segments' worth of blocks) than the mean of its zone, or than a free segment there, a segment may be before it
/// is left to drain.
const DRAIN_LEAD: u64 = 4;
/// Single blocks go into segments with at least this much room in broken leaves while there are any, so that a search serves more than a few.
const ROOM_FOR_SINGLES: u32 = 32;
/// Blocks of the aligned window that single blocks of metadata come from.
const METADATA_WINDOW: u32 = 64;
/// Single blocks of metadata come from one of so many level zones, chosen at random.
const METADATA_ZONES: usize = 4;
/// Homes move on to the next group when one was written this part of the pool more than another.
const TURNS_PER_PASS: u64 = 128;

/// What a request needs to know while it looks for its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) domain: DomainId,
    pub(crate) blocks: u32,
    /// A power of two: the run starts at a multiple of it.
    pub(crate) align: u32,
    pub(crate) kind: Kind,
}

/// Where in a segment of the domain a place is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Leaves in use.
    Broken,
    /// Leaves without a block in use.
    Clean,
    /// Anywhere.
    Any,
}

impl Group {
    /// One block of `domain`: the next free one of its window.
    #[inline]
    pub(crate) fn steer_one(
        &mut self,
        shared: &Shared,
        domain: DomainId,
    ) -> Option<(usize, Place)> {
        if let Some(pool) = self.pool(domain) {
            let window = self.pools[pool].windows[Kind::Single as usize];
            if window.next < window.end
                && self.segments[window.segment as usize].owner == domain.0
                && let Some(offset) = self
                    .tree(window.segment)
                    .first_zero(window.next, window.end)
            {
                let state = &mut self.pools[pool].windows[Kind::Single as usize];
                state.next = offset + 1;
                state.taken += 1;
                return Some((pool, (window.segment, offset)));
            }
            self.count_window(pool);
        }
        let need = Need {
            domain,
            blocks: 1,
            align: 1,
            kind: Kind::Single,
        };
        let (pool, place) = self.seek(shared, need)?;
        self.open_window(pool, need, place);
        self.pools[pool].windows[Kind::Single as usize].taken = 1;
        Some((pool, place))
    }

    /// Tells the zone of the window for single blocks what was taken from it: once for all, because each of them should cost little.
    fn count_window(&mut self, pool: usize) {
        let class = self.pools[pool].class;
        let window = &mut self.pools[pool].windows[Kind::Single as usize];
        let (segment, taken) = (window.segment, std::mem::take(&mut window.taken));
        self.zones.add(class, segment, u64::from(taken));
    }

    /// A run, booked.
    pub(crate) fn steer_run(&mut self, shared: &Shared, need: Need) -> Option<Place> {
        let has_window = need.kind == Kind::Brief && self.is_small(need);
        let (pool, place) = match has_window.then(|| self.next_of_window(need)).flatten() {
            Some(found) => found,
            None => self.seek(shared, need)?,
        };
        if has_window {
            self.open_window(pool, need, place);
        }
        self.take(shared, pool, place.0, (place.1, need.blocks));
        let class = self.pools[pool].class;
        self.zones.add(class, place.0, u64::from(need.blocks));
        Some(place)
    }

    fn is_small(&self, need: Need) -> bool {
        need.blocks < self.shape.leaf_blocks && need.align == 1
    }

    /// The next run in the window that is long enough.
    fn next_of_window(&mut self, need: Need) -> Option<(usize, Place)> {
        let pool = self.pool(need.domain)?;
        let Window {
            segment, next, end, ..
        } = self.pools[pool].windows[need.kind as usize];
        if next + need.blocks > end || self.segments[segment as usize].owner != need.domain.0 {
            return None;
        }
        let offset = self.tree(segment).first_run(next, end, need.blocks)?;
        Some((pool, (segment, offset)))
    }

    /// What follows in the same leaf serves the next requests of this kind.
    fn open_window(&mut self, pool: usize, need: Need, (segment, offset): Place) {
        let last = offset + need.blocks - 1;
        let end_of_leaf = (self.shape.leaf_of(last) + 1) * self.shape.leaf_blocks;
        // Metadata is written in place for long, and nobody knows how much when it is placed: not much of it stays together.
        let end = match (self.pools[pool].class, need.kind) {
            (Class::Metadata, Kind::Single) => (last / METADATA_WINDOW + 1) * METADATA_WINDOW,
            _ => end_of_leaf,
        };
        self.pools[pool].windows[need.kind as usize] = Window {
            segment,
            next: last + 1,
            end: end_of_leaf.min(end),
            taken: 0,
        };
    }

    /// A place for the need; a fresh segment is the domain's when this returns.
    fn seek(&mut self, shared: &Shared, need: Need) -> Option<(usize, Place)> {
        self.turn_homes(shared);
        let own = self
            .pool(need.domain)
            .filter(|&pool| self.pools[pool].run_bound >= need.blocks);
        if let Some(pool) = own
            && need.kind != Kind::Brief
            && self.is_small(need)
            && let Some(place) = self.seek_broken(pool, need)
        {
            return Some((pool, place));
        }
        self.seek_clean(shared, own, need)
    }

    /// The first zone that is level and has a broken leaf with room; for metadata, one of the first few.
    fn seek_broken(&mut self, pool: usize, need: Need) -> Option<Place> {
        let class = self.pools[pool].class;
        let level = self.zones.level(class);
        if class == Class::Data {
            return level
                .iter()
                .find_map(|zone| self.seek_broken_in(pool, zone, need));
        }
        // Metadata stays, so it lies densely, in few leaves; but it is written in place, so what is young must not all lie in one.
        let zones = level.with_room(&self.pools[pool].broken_bounds, need.blocks);
        let choice = zones.iter().take(METADATA_ZONES).count() as u32;
        let first = self.random.below(choice.max(1)) as usize;
        let mut in_turn = zones.iter().skip(first).chain(zones.iter().take(first));
        in_turn.find_map(|zone| self.seek_broken_in(pool, zone, need))
    }

    #[inline]
    fn seek_broken_in(&mut self, pool: usize, zone: usize, need: Need) -> Option<Place> {
        if self.pools[pool].broken_bounds[zone] < need.blocks {
            return None;
        }
        let mean = self.zones.mean_of_segments(zone);
        let limit = mean + DRAIN_LEAD * u64::from(self.shape.blocks);
        self.find_broken(pool, zone, need, limit)
    }

    /// The least worn zone that can serve: by what is there of the domain's own, or by a free segment.
    fn seek_clean(
        &mut self,
        shared: &Shared,
        own: Option<usize>,
        need: Need,
    ) -> Option<(usize, Place)> {
        let class = Class::of(need.domain);
        let ranking = self.zones.ranking(class);
        if let Some(pool) = own
            && need.kind != Kind::Brief
        {
            let at_least = self.run_of_clean(need);
            let mut zones = self
                .zones
                .level(class)
                .with_room(&self.pools[pool].run_bounds, at_least);
            while let Some(zone) = ranking.pop_least(&mut zones) {
                let mean = self.zones.mean_of_segments(zone);
                let limit = mean + DRAIN_LEAD * u64::from(self.shape.blocks);
                if let Some(place) = self.find_in_zone(pool, zone, need, Source::Clean, limit) {
                    return Some((pool, place));
                }
                self.lower_run_bound(pool, zone);
            }
        }
        let may_grow = self.may_grow(shared, need.domain);
        if may_grow && (own.is_none() || self.may_move(shared, need.domain)) {
            let found = self.seek_anything(shared, &ranking, own, need);
            if found.is_some() {
                return found;
            }
        }
        if let Some(pool) = own {
            let place = self.seek_own(&ranking, pool, need);
            if let Some(place) = place {
                return Some((pool, place));
            }
        }
        let (pool, local) = may_grow.then(|| self.grow(shared, need.domain)).flatten()?;
        Some((pool, (local, self.first_offset(need))))
    }

    /// Zone after zone, the least worn first: segments of the domain unless a free one there is much less worn.
    fn seek_anything(
        &mut self,
        shared: &Shared,
        ranking: &Ranking,
        own: Option<usize>,
        need: Need,
    ) -> Option<(usize, Place)> {
        let sources: &[Source] = match (need.kind, self.is_small(need)) {
            (Kind::Brief, _) => &[Source::Clean],
            (_, true) => &[Source::Broken, Source::Clean],
            (_, false) => &[Source::Clean, Source::Any],
        };
        let mut zones = match own {
            Some(pool) => self.free_zones.or(self.zones_with_run(pool, need)),
            None => self.free_zones,
        };
        while let Some(zone) = ranking.pop_least(&mut zones) {
            let fresh = self.least_worn_free(zone);
            if fresh.is_none() {
                self.free_zones.remove(zone);
            }
            let limit = fresh.map_or(u64::MAX, |fresh| {
                self.segments[fresh as usize].wear + DRAIN_LEAD * u64::from(self.shape.blocks)
            });
            for &source in sources {
                if let Some(pool) = own
                    && let Some(place) = self.find_in_zone(pool, zone, need, source, limit)
                {
                    return Some((pool, place));
                }
            }
            if let Some(fresh) = fresh {
                let (pool, local) = self.grow_by(shared, need.domain, fresh);
                return Some((pool, (local, self.first_offset(need))));
            }
        }
        None
    }

    /// Any room in the domain's own segments, those in the least worn zones first.
    fn seek_own(&mut self, ranking: &Ranking, pool: usize, need: Need) -> Option<Place> {
        let sources: &[Source] = if self.is_small(need) && need.kind != Kind::Brief {
            &[Source::Broken, Source::Clean, Source::Any]
        } else {
            &[Source::Clean, Source::Any]
        };
        let mut zones = self.zones_with_run(pool, need);
        while let Some(zone) = ranking.pop_least(&mut zones) {
            for &source in sources {
                if let Some(place) = self.find_in_zone(pool, zone, need, source, u64::MAX) {
                    return Some(place);
                }
            }
            if need.align == 1 {
                self.lower_run_bound(pool, zone);
            }
        }
        if need.align == 1 {
            let bounds = self.pools[pool].run_bounds.iter();
            self.pools[pool].run_bound = bounds.copied().max().unwrap_or(0);
        }
        None
    }

    /// Zones where the domain may have a run for the need.
    fn zones_with_run(&self, pool: usize, need: Need) -> ZoneSet {
        let bounds = &self.pools[pool].run_bounds;
        self.zones.every().with_room(bounds, need.blocks)
    }

    /// The shortest run that a place in clean leaves needs.
    fn run_of_clean(&self, need: Need) -> u32 {
        need.blocks.max(self.shape.leaf_blocks)
    }

    /// What a search through all of a zone's segments found out.
    fn lower_run_bound(&mut self, pool: usize, zone: usize) {
        let owner = self.pools[pool].domain.0;
        let bounds = self.zones.range(zone).map(|local| {
            let segment = &self.segments[local as usize];
            if segment.owner == owner {
                segment.run_bound
            } else {
                0
            }
        });
        self.pools[pool].run_bounds[zone] = bounds.max().unwrap_or(0);
    }

    /// Sends all homes one group further if this one was written more than another: a single thread writes to all groups in turn.
    fn turn_homes(&self, shared: &Shared) {
        let groups = &shared.written;
        if groups.len() == 1 {
            return;
        }
        let mine = self.zones.total();
        groups[self.index as usize].store(mine, Ordering::Relaxed);
        let least = groups.iter().map(|group| group.load(Ordering::Relaxed));
        let least = least.min().unwrap_or(mine);
        if mine > least + shared.geometry.blocks() / TURNS_PER_PASS {
            let turn = shared.turn.load(Ordering::Relaxed) + 1;
            let turn = if turn < shared.groups { turn } else { 0 };
            shared.turn.store(turn, Ordering::Relaxed);
        }
    }

    /// Where in an empty segment the need is met.
    fn first_offset(&mut self, need: Need) -> u32 {
        if self.is_small(need) {
            self.random.below(self.shape.leaves) * self.shape.leaf_blocks
        } else {
            0
        }
    }

    fn least_worn_free(&self, zone: usize) -> Option<u32> {
        self.zones
            .range(zone)
            .filter(|&local| self.owner(local).is_none())
            .min_by_key(|&local| self.segments[local as usize].wear)
    }

    // ---- within a zone ----

    /// A place within the pool's segments of one zone that are not worn beyond the limit.
    fn find_in_zone(
        &mut self,
        pool: usize,
        zone: usize,
        need: Need,
        source: Source,
        limit: u64,
    ) -> Option<Place> {
        if source == Source::Broken {
            return self.find_broken(pool, zone, need, limit);
        }
        for local in self.zones.range(zone) {
            if self.is_candidate(pool, local, limit)
                && self.segments[local as usize].run_bound >= need.blocks
                && let Some(offset) = match source {
                    Source::Clean => self.find_clean(local, need),
                    _ => self.find_any(local, need),
                }
            {
                return Some((local, offset));
            }
        }
        None
    }

    fn is_candidate(&self, pool: usize, local: u32, limit: u64) -> bool {
        let segment = &self.segments[local as usize];
        segment.owner == self.pools[pool].domain.0 && segment.wear <= limit
    }

    /// A place in broken leaves of the fullest segment of the zone that has one.
    fn find_broken(&mut self, pool: usize, zone: usize, need: Need, limit: u64) -> Option<Place> {
        loop {
            let (mut best, mut passed_over) = (None, 0);
            for local in self.zones.range(zone) {
                if self.segments[local as usize].owner != self.pools[pool].domain.0 {
                    continue;
                }
                let room = self.tree(local).free_in_touched();
                let segment = &mut self.segments[local as usize];
                segment.broken_bound = segment.broken_bound.min(room);
                if segment.broken_bound < need.blocks {
                    continue;
                }
                if segment.wear > limit {
                    passed_over = passed_over.max(segment.broken_bound);
                    continue;
                }
                let few = need.kind == Kind::Single && room < ROOM_FOR_SINGLES;
                if best.is_none_or(|best| (few, room, local) < best) {
                    best = Some((few, room, local));
                }
            }
            let Some((_, _, local)) = best else {
                let bound = passed_over.max(need.blocks - 1);
                self.pools[pool].broken_bounds[zone] = bound;
                return None;
            };
            if let Some(offset) = self.find_in_broken(local, need) {
                return Some((local, offset));
            }
        }
    }

    fn find_in_broken(&mut self, local: u32, need: Need) -> Option<u32> {
        let mut random = self.random.clone();
        let mut tree = self.tree(local);
        let leaf_blocks = tree.shape.leaf_blocks;
        let found = if need.blocks == 1 {
            let start = tree.random_touched_leaf(&mut random) * leaf_blocks;
            tree.first_zero(start, start + leaf_blocks)
        } else {
            let from = random.below(tree.shape.leaves) * leaf_blocks;
            match tree.find_run(from, need.blocks, 1, Leaves::Touched) {
                Run::At(start) => Some(start),
                Run::Longest { blocks, .. } => {
                    self.segments[local as usize].broken_bound = blocks;
                    None
                }
            }
        };
        self.random = random;
        found
    }

    /// Whole leaves without a block in use.
    fn find_clean(&mut self, local: u32, need: Need) -> Option<u32> {
        let leaf_blocks = self.shape.leaf_blocks;
        let small = self.is_small(need);
        let mut random = self.random.clone();
        let mut tree = self.tree(local);
        if tree.clean_leaves() < need.blocks.div_ceil(leaf_blocks) {
            return None;
        }
        let found = if small {
            Some(tree.random_clean_leaf(&mut random) * leaf_blocks)
        } else {
            let align = need.align.max(leaf_blocks);
            tree.find_run(0, need.blocks, align, Leaves::All).start()
        };
        self.random = random;
        found
    }

    /// Any free run of a segment.
    fn find_any(&mut self, local: u32, need: Need) -> Option<u32> {
        match self
            .tree(local)
            .find_run(0, need.blocks, need.align, Leaves::All)
        {
            Run::At(start) => Some(start),
            Run::Longest { blocks, .. } => {
                if need.align == 1 {
                    self.segments[local as usize].run_bound = blocks;
                }
                None
            }
        }
    }
}
