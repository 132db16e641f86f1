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
/// Parts that a segment is cut into where it lies in two zones; wear of zones is counted in as many parts of a block.
const PARTS: u64 = 256;
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

/// Where a segment lies.
#[derive(Debug, Clone, Copy)]
struct Site {
    /// Where most of it is: the segment is a place of this zone.
    zone: u8,
    /// Where the rest is; the wear of one hot segment, put down to one of two zones, would be a tenth of it.
    neighbour: u8,
    parts_in_neighbour: u8,
}

impl Site {
    /// The site of a segment among `pool` segments cut into `count` equal zones.
    fn new(segment: u64, pool: u64, count: u64) -> Self {
        // In units of which a segment is `count` long and a zone `pool`.
        let (start, end) = (segment * count, (segment + 1) * count);
        let zone = (start + end) / (2 * pool);
        let (before, behind) = (
            (zone * pool).saturating_sub(start),
            end.saturating_sub((zone + 1) * pool),
        );
        // Zones are no shorter than segments, so only one end sticks out.
        let neighbour = if before > 0 {
            zone - 1
        } else {
            zone + u64::from(behind > 0)
        };
        Self {
            zone: zone as u8,
            neighbour: neighbour as u8,
            parts_in_neighbour: ((before + behind) * PARTS / count) as u8,
        }
    }

    /// How many parts of it are in which zone.
    fn parts(self) -> [(usize, u64); 2] {
        let rest = u64::from(self.parts_in_neighbour);
        [
            (usize::from(self.zone), PARTS - rest),
            (usize::from(self.neighbour), rest),
        ]
    }
}

/// Blocks written per zone of one group.
#[derive(Debug)]
pub(crate) struct Zones {
    /// The first segment of each zone, and the end of the last one.
    starts: Vec<u32>,
    /// By segment.
    sites: Vec<Site>,
    /// By zone: parts of segments.
    sizes: Vec<u64>,
    /// By zone: how much its wear counts for, in 1/256, because it is smaller than the largest.
    weights: Vec<u64>,
    blocks_per_segment: u32,
    /// By [`Class`], in parts of a block. What was written before the pool was opened counts as data.
    wear: Vec<[u64; 2]>,
    /// Blocks.
    total: u64,
    /// By class: the zones that were level at the last look, and the total then.
    level: [(ZoneSet, u64); 2],
}

impl Zones {
    /// Zones of group `index`, alike in all groups: the intervals of the pool that they are part of are as long as whole segments allow.
    pub(crate) fn new(geometry: &Geometry, index: u32) -> Self {
        let (pool, groups) = (u64::from(geometry.segments), u64::from(geometry.groups));
        let count = (pool / groups).clamp(1, ZONES as u64);
        let sites: Vec<Site> = (u64::from(index)..pool)
            .step_by(groups as usize)
            .map(|segment| Site::new(segment, pool, count))
            .collect();
        let starts: Vec<u32> = (0..=count)
            .map(|zone| sites.partition_point(|site| u64::from(site.zone) < zone) as u32)
            .collect();
        let mut sizes = vec![0; count as usize];
        for (zone, parts) in sites.iter().flat_map(|site| site.parts()) {
            sizes[zone] += parts;
        }
        let largest = sizes.iter().copied().max().unwrap_or(0);
        Self {
            weights: sizes
                .iter()
                .map(|&size| largest * WEIGHT_ONE / size.max(1))
                .collect(),
            starts,
            sites,
            sizes,
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
        usize::from(self.sites[local as usize].zone)
    }

    /// The segments of a zone.
    pub(crate) fn range(&self, zone: usize) -> Range<u32> {
        self.starts[zone]..self.starts[zone + 1]
    }

    pub(crate) fn add(&mut self, class: Class, local: u32, blocks: u64) {
        for (zone, parts) in self.sites[local as usize].parts() {
            self.wear[zone][class as usize] += blocks * parts;
        }
        self.total += blocks;
    }

    pub(crate) fn take_off(&mut self, class: Class, local: u32, blocks: u64) {
        for (zone, parts) in self.sites[local as usize].parts() {
            self.wear[zone][class as usize] -= blocks * parts;
        }
        self.total -= blocks;
    }

    /// Mean wear of a zone's segments, in blocks.
    pub(crate) fn mean_of_segments(&self, zone: usize) -> u64 {
        self.wear[zone].iter().sum::<u64>() / self.sizes[zone].max(1)
    }

    /// All writes to the group, in blocks.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Looks for a zone that does not count what the segments do, `wear` blocks each: its number, what it counts, and what they do, in
    /// parts of a block. The number is that of zones if it is the total.
    pub(crate) fn compare(&self, wear: &[u64]) -> Option<(usize, u64, u64)> {
        let mut counted = vec![0; self.count()];
        for (site, blocks) in self.sites.iter().zip(wear) {
            for (zone, parts) in site.parts() {
                counted[zone] += blocks * parts;
            }
        }
        let zones = self.wear.iter().map(|classes| classes.iter().sum());
        let totals = (self.total * PARTS, wear.iter().sum::<u64>() * PARTS);
        let pairs = zones.zip(counted).chain([totals]);
        pairs
            .enumerate()
            .find(|(_, (ours, theirs))| ours != theirs)
            .map(|(zone, (ours, theirs))| (zone, ours, theirs))
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
            u64::from(self.blocks_per_segment) * self.sites.len() as u64 / count as u64;
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
            *rank = wear / PARTS * weight / WEIGHT_ONE;
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
    fn a_smaller_zone_is_as_worn_as_its_segments() {
        for segments in [130, 255, 2047] {
            let mut zones = Zones::new(&geometry(segments, 1), 0);
            for segment in 0..segments {
                zones.add(Class::Data, segment, 1_000);
            }
            let ranking = zones.ranking(Class::Data);
            let wear = &ranking.wear[..ranking.count];
            let (least, most) = (wear.iter().min().unwrap(), wear.iter().max().unwrap());
            assert!(most - least <= most / 64, "{segments}: {least} to {most}");
        }
    }

    /// 2,047 segments in 128 zones: the 1,023rd lies half in zone 63 and half in zone 64.
    #[test]
    fn wear_of_a_segment_that_lies_in_two_zones_counts_for_both() {
        let mut zones = Zones::new(&geometry(2047, 1), 0);
        zones.add(Class::Data, 1023, 1_000);
        let wear = zones.ranking(Class::Data).wear;
        assert_eq!(zones.of(1023), 64);
        assert!(
            wear[63].abs_diff(500) <= 5 && wear[64].abs_diff(500) <= 5,
            "{} {}",
            wear[63],
            wear[64]
        );
        let mut by_segment = vec![0; 2047];
        assert!(zones.compare(&by_segment).is_some());
        by_segment[1023] = 1_000;
        assert_eq!(zones.compare(&by_segment), None);
        zones.take_off(Class::Data, 1023, 999);
        by_segment[1023] = 1;
        assert_eq!(zones.compare(&by_segment), None);
    }
}
