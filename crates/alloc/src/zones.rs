//! Zones: up to 128 neighbourhoods of segments per group, and how worn each is.
//!
//! A segment is too small a unit to level wear by: whoever compares segments sees noise, and cold data that fills a stretch of them is
//! invisible. Zones are the intervals that wear is judged by (SanGuo, section IV.B, looks at 128 of them), so placement steers by them first.

use crate::DomainId;
use std::ops::Range;

/// Most zones of a group.
const ZONES: usize = 128;
/// A zone is level with the others while it is at most this part of the mean above the mean,
const LEVEL_PART_OF_MEAN: u64 = 48;
/// but at least this part of its capacity, so that young pools have room for other wishes,
const LEVEL_PART_OF_ZONE: u64 = 16;
/// Writes after which it is looked anew which zones are level.
const LOOK_EVERY_BLOCKS: u64 = 256;

/// Who writes: data is levelled by itself, metadata evens out what all writes together left uneven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Owners' and mixed segments.
    Data,
    /// Metadata segments.
    Metadata,
}

impl Class {
    pub(crate) fn of(domain: DomainId) -> Self {
        if domain == DomainId::METADATA {
            Self::Metadata
        } else {
            Self::Data
        }
    }
}

/// A set of zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ZoneSet([u64; ZONES / 64]);

impl ZoneSet {
    /// Those of the first `count` zones that satisfy the condition.
    fn of(count: usize, condition: impl Fn(usize) -> bool) -> Self {
        let mut halves = [0; ZONES / 64];
        for (half, bits) in halves.iter_mut().enumerate() {
            for zone in half * 64..count.min(half * 64 + 64) {
                *bits |= u64::from(condition(zone)) << (zone % 64);
            }
        }
        Self(halves)
    }

    /// The zones of the set in ascending order.
    #[inline]
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(half, bits)| {
            let mut left = bits;
            std::iter::from_fn(move || {
                let zone = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(half * 64 + zone)
            })
        })
    }

    pub(crate) fn insert(&mut self, zone: usize) {
        self.0[zone / 64] |= 1 << (zone % 64);
    }

    pub(crate) fn remove(&mut self, zone: usize) {
        self.0[zone / 64] &= !(1 << (zone % 64));
    }

    pub(crate) fn contains(self, zone: usize) -> bool {
        self.0[zone / 64] & (1 << (zone % 64)) != 0
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|half| self.0[half] | other.0[half]))
    }

    /// Those of the set in whose entry of `bounds` a run of `blocks` may be.
    pub(crate) fn with_room(self, bounds: &[u32], blocks: u32) -> Self {
        let room = Self::of(bounds.len(), |zone| bounds[zone] >= blocks);
        Self(std::array::from_fn(|half| self.0[half] & room.0[half]))
    }
}

/// Blocks written per zone of one group.
#[derive(Debug)]
pub(crate) struct Zones {
    /// A zone has 2^shift segments, the last one perhaps fewer.
    shift: u32,
    segments: u32,
    blocks_per_segment: u32,
    /// By [`Class`]. What was written before the pool was opened counts as data.
    wear: Vec<[u64; 2]>,
    total: u64,
    /// By class: the zones that were level at the last look, and the total then.
    level: [(ZoneSet, u64); 2],
}

impl Zones {
    pub(crate) fn new(segments: u32, blocks_per_segment: u32) -> Self {
        let mut shift = 0;
        while (segments as usize).div_ceil(1 << shift) > ZONES {
            shift += 1;
        }
        let count = (segments as usize).div_ceil(1 << shift);
        Self {
            shift,
            segments,
            blocks_per_segment,
            wear: vec![[0; 2]; count],
            total: 0,
            level: [(ZoneSet::of(count, |_| true), 0); 2],
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.wear.len()
    }

    /// All zones.
    pub(crate) fn every(&self) -> ZoneSet {
        ZoneSet::of(self.count(), |_| true)
    }

    #[inline]
    pub(crate) fn of(&self, local: u32) -> usize {
        (local >> self.shift) as usize
    }

    /// The segments of a zone.
    pub(crate) fn range(&self, zone: usize) -> Range<u32> {
        let start = (zone as u32) << self.shift;
        start..(start + (1 << self.shift)).min(self.segments)
    }

    pub(crate) fn add(&mut self, class: Class, local: u32, blocks: u64) {
        let zone = self.of(local);
        self.wear[zone][class as usize] += blocks;
        self.total += blocks;
    }

    pub(crate) fn take_off(&mut self, class: Class, local: u32, blocks: u64) {
        let zone = self.of(local);
        self.wear[zone][class as usize] -= blocks;
        self.total -= blocks;
    }

    /// All writes to a zone.
    pub(crate) fn all(&self, zone: usize) -> u64 {
        self.wear[zone].iter().sum()
    }

    /// Mean wear of a zone's segments.
    pub(crate) fn mean_of_segments(&self, zone: usize) -> u64 {
        let Range { start, end } = self.range(zone);
        self.all(zone) / u64::from(end - start)
    }

    /// All writes to the group.
    pub(crate) fn total(&self) -> u64 {
        self.wear
            .iter()
            .map(|[data, metadata]| data + metadata)
            .sum()
    }

    /// Zones that are not much more worn than the mean, as of a moment ago: among them, other wishes may decide.
    pub(crate) fn level(&mut self, class: Class) -> ZoneSet {
        let total = self.total;
        let (level, seen) = self.level[class as usize];
        if total < seen + LOOK_EVERY_BLOCKS && total >= seen {
            return level;
        }
        let Ranking { wear, count } = self.ranking(class);
        let mean = wear[..count].iter().sum::<u64>() / count as u64;
        let zone_blocks = u64::from(self.blocks_per_segment) << self.shift;
        let slack =
            (mean / LEVEL_PART_OF_MEAN).clamp(zone_blocks / LEVEL_PART_OF_ZONE, zone_blocks);
        let level = ZoneSet::of(count, |zone| wear[zone] <= mean + slack);
        self.level[class as usize] = (level, total);
        level
    }

    /// The zones as `class` sees them now.
    pub(crate) fn ranking(&self, class: Class) -> Ranking {
        let mut ranking = Ranking {
            wear: [0; ZONES],
            count: self.count(),
        };
        for (rank, &[data, metadata]) in ranking.wear.iter_mut().zip(&self.wear) {
            *rank = match class {
                Class::Data => data,
                Class::Metadata => data + metadata,
            };
        }
        let last = self.count() - 1;
        let segments_of_last = u64::from(self.segments) - ((last as u64) << self.shift);
        ranking.wear[last] = (ranking.wear[last] << self.shift) / segments_of_last;
        ranking
    }
}

/// How worn zones are; the last one's wear is scaled if it is smaller than the others.
pub(crate) struct Ranking {
    wear: [u64; ZONES],
    count: usize,
}

impl Ranking {
    /// Takes the least worn zone out of the set; among equals in the order of van der Corput, so that what comes first and stays, cold data
    /// above all, lies evenly over the pool whenever it ends.
    pub(crate) fn pop_least(&self, set: &mut ZoneSet) -> Option<usize> {
        let keys = set
            .iter()
            .map(|zone| (self.wear[zone], (zone as u8).reverse_bits()));
        let least = keys.min();
        let zone = usize::from(least?.1.reverse_bits());
        set.remove(zone);
        Some(zone)
    }
}
