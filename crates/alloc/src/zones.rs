//! Zones: up to 128 neighbourhoods of segments per group, and how worn each is.
//!
//! A segment is too small a unit to level wear by: whoever compares segments sees noise, and cold data that fills a stretch of them is
//! invisible. Zones are the intervals that wear is judged by (SanGuo, section IV.B, looks at 128 of them), so placement steers by them first.

use crate::{DomainId, Geometry};
use std::ops::Range;

/// Most zones of a group.
const ZONES: usize = 128;
/// A zone is level with the others while it is at most this part of the mean above the mean,
const LEVEL_PART_OF_MEAN: u64 = 48;
/// but at least this part of its capacity, so that young pools have room for other wishes,
const LEVEL_PART_OF_ZONE: u64 = 128;
/// A weight of one.
const WEIGHT_ONE: u64 = 256;
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
    /// The first segment of each zone, and the end of the last one.
    starts: Vec<u32>,
    /// The zone of each segment.
    zone_of: Vec<u8>,
    /// By zone: how much its wear counts for, in 1/256, because it has fewer segments than the largest.
    weights: Vec<u64>,
    blocks_per_segment: u32,
    /// By [`Class`]. What was written before the pool was opened counts as data.
    wear: Vec<[u64; 2]>,
    total: u64,
    /// By class: the zones that were level at the last look, and the total then.
    level: [(ZoneSet, u64); 2],
}

impl Zones {
    /// Zones of group `index`, alike in all groups: the intervals of the pool that they are part of are as long as whole segments allow.
    pub(crate) fn new(geometry: &Geometry, index: u32) -> Self {
        let (pool, groups) = (u64::from(geometry.segments), u64::from(geometry.groups));
        let count = (pool / groups).clamp(1, ZONES as u64);
        let zone_of: Vec<u8> = (u64::from(index)..pool)
            .step_by(groups as usize)
            .map(|segment| ((2 * segment + 1) * count / (2 * pool)) as u8)
            .collect();
        let starts: Vec<u32> = (0..=count)
            .map(|zone| zone_of.partition_point(|&of| u64::from(of) < zone) as u32)
            .collect();
        let sizes = starts.windows(2).map(|pair| u64::from(pair[1] - pair[0]));
        let largest = sizes.clone().max().unwrap_or(0);
        Self {
            weights: sizes
                .map(|size| largest * WEIGHT_ONE / size.max(1))
                .collect(),
            starts,
            zone_of,
            blocks_per_segment: geometry.blocks_per_segment as u32,
            wear: vec![[0; 2]; count as usize],
            total: 0,
            level: [(ZoneSet::of(count as usize, |_| true), 0); 2],
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
        usize::from(self.zone_of[local as usize])
    }

    /// The segments of a zone.
    pub(crate) fn range(&self, zone: usize) -> Range<u32> {
        self.starts[zone]..self.starts[zone + 1]
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
        self.all(zone) / u64::from(end - start).max(1)
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
        let zone_blocks =
            u64::from(self.blocks_per_segment) * self.zone_of.len() as u64 / count as u64;
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
        let zones = self.wear.iter().zip(&self.weights);
        for (rank, (&[data, metadata], weight)) in ranking.wear.iter_mut().zip(zones) {
            let wear = match class {
                Class::Data => data,
                Class::Metadata => data + metadata,
            };
            *rank = wear * weight / WEIGHT_ONE;
        }
        ranking
    }
}

/// How worn zones are; the wear of those that are smaller than the largest is scaled.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockNumber;

    fn geometry(segments: u32, groups: u32) -> Geometry {
        Geometry {
            first_block: BlockNumber::new(7),
            blocks_per_segment: 512,
            segments,
            groups,
        }
    }

    /// Where a zone of all groups begins and ends, in segments of the pool, and where the equal part of the pool does that it stands for.
    #[test]
    fn zones_are_equal_parts_of_the_pool_to_half_a_segment() {
        for (segments, groups) in [(2048, 2), (1023, 2), (1023, 3), (130, 1), (129, 64), (5, 2)] {
            let geometry = geometry(segments, groups);
            let zones: Vec<Zones> = (0..groups)
                .map(|index| Zones::new(&geometry, index))
                .collect();
            let count = zones[0].count();
            let mut seen = 0;
            for zone in 0..count {
                let of_zone = zones.iter().zip(0..).flat_map(|(of_group, index)| {
                    let range = of_group.range(zone);
                    assert!(!range.is_empty(), "zone {zone} of {segments}, {groups}");
                    range.map(move |local| (local, local * groups + index))
                });
                for (local, segment) in of_zone {
                    assert_eq!(zones[(segment % groups) as usize].of(local), zone);
                    let part = f64::from(segments) / count as f64;
                    let middle = f64::from(segment) + 0.5;
                    assert!(middle >= part * zone as f64 && middle <= part * (zone + 1) as f64);
                    seen += 1;
                }
            }
            assert_eq!(seen, segments);
        }
    }

    #[test]
    fn a_zone_with_fewer_segments_is_as_worn_as_its_segments() {
        let mut zones = Zones::new(&geometry(130, 1), 0);
        let sizes: Vec<usize> = (0..zones.count())
            .map(|zone| zones.range(zone).len())
            .collect();
        assert!(sizes.contains(&1) && sizes.contains(&2));
        for segment in 0..130 {
            zones.add(Class::Data, segment, 100);
        }
        let ranking = zones.ranking(Class::Data);
        assert!(
            ranking.wear[..ranking.count]
                .iter()
                .all(|&wear| wear == 200)
        );
    }
}
