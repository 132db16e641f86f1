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
pub(crate) struct ZoneSet(u128);

impl ZoneSet {
    /// The zones whose value satisfies the condition.
    fn of(values: &[impl Copy], condition: impl Fn(usize) -> bool) -> Self {
        let bits = 0..values.len();
        Self(bits.fold(0, |set, zone| set | (u128::from(condition(zone)) << zone)))
    }

    /// Takes the zone with the lowest number out of the set.
    pub(crate) fn pop_first(&mut self) -> Option<usize> {
        let zone = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(zone)
    }

    pub(crate) fn insert(&mut self, zone: usize) {
        self.0 |= 1 << zone;
    }

    pub(crate) fn remove(&mut self, zone: usize) {
        self.0 &= !(1 << zone);
    }

    pub(crate) fn contains(self, zone: usize) -> bool {
        self.0 & (1 << zone) != 0
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of the set in whose entry of `bounds` a run of `blocks` may be.
    pub(crate) fn with_room(self, bounds: &[u32], blocks: u32) -> Self {
        Self(self.0 & Self::of(bounds, |zone| bounds[zone] >= blocks).0)
    }
}

/// Blocks written per zone of one group. What was written before the pool was opened counts in both sums.
#[derive(Debug)]
pub(crate) struct Zones {
    /// A zone has 2^shift segments, the last one perhaps fewer.
    shift: u32,
    segments: u32,
    blocks_per_segment: u32,
    data: Vec<u64>,
    all: Vec<u64>,
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
            data: vec![0; count],
            all: vec![0; count],
            total: 0,
            level: [(ZoneSet(u128::MAX >> (ZONES - count)), 0); 2],
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// All zones.
    pub(crate) fn every(&self) -> ZoneSet {
        ZoneSet(u128::MAX >> (ZONES - self.count()))
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

    #[inline]
    pub(crate) fn add(&mut self, class: Class, local: u32, blocks: u64) {
        let zone = self.of(local);
        self.total += blocks;
        self.all[zone] += blocks;
        if class == Class::Data {
            self.data[zone] += blocks;
        }
    }

    pub(crate) fn take_off(&mut self, class: Class, local: u32, blocks: u64) {
        let zone = self.of(local);
        self.total -= blocks;
        self.all[zone] -= blocks;
        if class == Class::Data {
            self.data[zone] -= blocks;
        }
    }

    /// Wear from before the pool was opened, of nobody knows which class.
    pub(crate) fn add_past(&mut self, local: u32, blocks: u64) {
        self.add(Class::Data, local, blocks);
    }

    /// Mean wear of a zone's segments, all writes counted.
    pub(crate) fn mean_of_segments(&self, zone: usize) -> u64 {
        let Range { start, end } = self.range(zone);
        self.all[zone] / u64::from(end - start)
    }

    /// What `verify` compares with the segments: all writes to a zone, those of data among them.
    pub(crate) fn sums(&self, zone: usize) -> (u64, u64) {
        (self.all[zone], self.data[zone])
    }

    /// All writes to the group.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Zones that are not much more worn than the mean, as of a moment ago: among them, other wishes may decide.
    pub(crate) fn level(&mut self, class: Class) -> ZoneSet {
        let (level, seen) = self.level[class as usize];
        if self.total < seen + LOOK_EVERY_BLOCKS && self.total >= seen {
            return level;
        }
        let ranking = self.ranking(class);
        let wear = &ranking.wear[..ranking.count];
        let mean = wear.iter().sum::<u64>() / ranking.count as u64;
        let zone_blocks = u64::from(self.blocks_per_segment) << self.shift;
        let slack =
            (mean / LEVEL_PART_OF_MEAN).clamp(zone_blocks / LEVEL_PART_OF_ZONE, zone_blocks);
        let level = ZoneSet::of(wear, |zone| wear[zone] <= mean + slack);
        self.level[class as usize] = (level, self.total);
        level
    }

    /// The zones as `class` sees them now.
    pub(crate) fn ranking(&self, class: Class) -> Ranking {
        let wear = match class {
            Class::Data => &self.data,
            Class::Metadata => &self.all,
        };
        let mut ranking = Ranking {
            wear: [0; ZONES],
            count: wear.len(),
        };
        ranking.wear[..wear.len()].copy_from_slice(wear);
        let last = wear.len() - 1;
        let segments_of_last = u64::from(self.segments) - ((last as u64) << self.shift);
        ranking.wear[last] = (wear[last] << self.shift) / segments_of_last;
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
        let mut left = *set;
        let mut least = None;
        while let Some(zone) = left.pop_first() {
            let key = (self.wear[zone], (zone as u8).reverse_bits());
            if least.is_none_or(|least| key < least) {
                least = Some(key);
            }
        }
        let zone = usize::from(least?.1.reverse_bits());
        set.remove(zone);
        Some(zone)
    }
}
