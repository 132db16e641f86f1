//! Bytes that went to the medium, by interval, and which of them were data.

use crate::evaluation::Found;
use pmem::{BLOCK_BYTES, DurabilityClass};
use txn::{PmemStore, Store};

/// Parts that the segments are cut into, as in the paper.
pub(super) const INTERVALS: usize = 128;

/// Sums the blocks of each interval; the first `header_blocks` blocks belong to the first one.
pub(super) fn intervals(blocks: &[u64], header_blocks: usize) -> Vec<u64> {
    let mut sums = vec![0; INTERVALS];
    let segments = blocks.len() - header_blocks;
    for (number, bytes) in blocks.iter().enumerate() {
        let place = number.saturating_sub(header_blocks);
        sums[(place * INTERVALS / segments).min(INTERVALS - 1)] += bytes;
    }
    sums
}

/// What is known of a segment's use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    Free,
    Metadata,
    Data(u32),
}

/// Whether what was written between two samples was data, and whether that is sure: it is not if the segment went from data to metadata or
/// back, or was used and given up in between.
fn kind(before: Use, now: Use) -> (bool, bool) {
    match (before, now) {
        (Use::Data(_) | Use::Free, Use::Data(_)) | (Use::Data(_), Use::Free) => (true, true),
        (Use::Metadata, Use::Data(_)) => (true, false),
        (Use::Metadata | Use::Free, Use::Metadata) | (Use::Metadata, Use::Free) => (false, true),
        (Use::Data(_), Use::Metadata) | (Use::Free, Use::Free) => (false, false),
    }
}

/// Follows the writes to our pool.
pub(super) struct Meter<'s> {
    store: &'s PmemStore,
    /// Bytes by block at the last sample, and those of them that were data.
    written: Vec<u64>,
    data: Vec<u64>,
    uses: Vec<Use>,
    unsure: u64,
}

impl<'s> Meter<'s> {
    /// Follows from now on; the region counts already.
    pub(super) fn new(store: &'s PmemStore) -> Meter<'s> {
        let blocks = store.region().wear().len();
        let mut meter = Meter {
            store,
            written: vec![0; blocks],
            data: vec![0; blocks],
            uses: Vec::new(),
            unsure: 0,
        };
        meter.uses = meter.uses();
        meter
    }

    fn uses(&self) -> Vec<Use> {
        let usage = self.store.allocator().usage();
        let of_segment = usage.iter().map(|segment| match segment.domain {
            None => Use::Free,
            Some(domain) if domain == scatter::DomainId::METADATA => Use::Metadata,
            Some(domain) => Use::Data(domain.0),
        });
        of_segment.collect()
    }

    /// Attributes what was written since the last sample.
    pub(super) fn sample(&mut self) {
        let geometry = *self.store.allocator().geometry();
        let (written, uses) = (self.store.region().wear(), self.uses());
        let first = geometry.first_block_of(scatter::SegmentNumber(0)).get() as usize;
        let per_segment = geometry.blocks_per_segment as usize;
        for (segment, (&before, &now)) in self.uses.iter().zip(&uses).enumerate() {
            let (is_data, is_sure) = kind(before, now);
            let blocks = first + segment * per_segment..first + (segment + 1) * per_segment;
            let counts = written[blocks.clone()]
                .iter()
                .zip(&self.written[blocks.clone()]);
            for (data, (now_bytes, before_bytes)) in self.data[blocks].iter_mut().zip(counts) {
                let bytes = now_bytes - before_bytes;
                *data += if is_data { bytes } else { 0 };
                self.unsure += if is_sure { 0 } else { bytes };
            }
        }
        (self.written, self.uses) = (written, uses);
    }

    fn header_blocks(&self) -> usize {
        let geometry = self.store.allocator().geometry();
        geometry.first_block_of(scatter::SegmentNumber(0)).get() as usize
    }

    /// What was found by the last sample.
    pub(super) fn spread(&self) -> Spread {
        let header_blocks = self.header_blocks();
        Spread {
            all: intervals(&self.written, header_blocks),
            data: intervals(&self.data, header_blocks),
            header: self.written[..header_blocks].iter().sum(),
            unsure: self.unsure,
            class: self.store.class(),
        }
    }

    /// The block with the most bytes written: its number and how often it was written whole, and whether it is one of the header.
    pub(super) fn hottest(&self) -> String {
        let greatest = self
            .written
            .iter()
            .enumerate()
            .max_by_key(|(_, bytes)| **bytes);
        greatest.map_or(String::new(), |(block, bytes)| {
            let place = match block.checked_sub(self.header_blocks()) {
                None => "in the header".to_owned(),
                Some(block) => {
                    let segment =
                        block / self.store.allocator().geometry().blocks_per_segment as usize;
                    format!("in segment {segment}, {:?}", self.uses[segment])
                }
            };
            let times = bytes / BLOCK_BYTES as u64;
            format!("block {block} {place}, written {times} times over")
        })
    }
}

/// Bytes by interval.
pub(super) struct Spread {
    all: Vec<u64>,
    data: Vec<u64>,
    header: u64,
    unsure: u64,
    class: DurabilityClass,
}

impl Spread {
    pub(super) fn all(&self) -> &[u64] {
        &self.all
    }

    pub(super) fn data(&self) -> &[u64] {
        &self.data
    }

    pub(super) fn class(&self) -> DurabilityClass {
        self.class
    }

    /// Bytes in all.
    pub(super) fn written(&self) -> u64 {
        self.all.iter().sum()
    }

    /// Peak over mean of the data.
    pub(super) fn found_of_data(&self) -> Found {
        let bytes: u64 = self.data.iter().sum();
        let note = format!(
            "data are {:.1} % of all bytes written; {:.1} % of all bytes are unsure",
            100.0 * bytes as f64 / self.written().max(1) as f64,
            100.0 * self.unsure as f64 / self.written().max(1) as f64,
        );
        found(&self.data).noted(note)
    }

    /// Peak over mean of every byte.
    pub(super) fn found_of_all(&self, hottest: String) -> Found {
        let data: u64 = self.data.iter().sum();
        let rest: Vec<u64> = self
            .all
            .iter()
            .zip(&self.data)
            .map(|(all, data)| all - data)
            .collect();
        let note = format!(
            "{:.1} GiB written, of it {:.1} data, {:.3} in the header; without data {:.2}; hottest: {hottest}",
            gibibytes(self.written()),
            gibibytes(data),
            gibibytes(self.header),
            found(&rest).ratio,
        );
        found(&self.all).noted(note)
    }
}

fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn found(intervals: &[u64]) -> Found {
    let peak = intervals.iter().copied().max().unwrap_or(0) as f64;
    let mean = intervals.iter().sum::<u64>() as f64 / intervals.len() as f64;
    Found {
        value: peak,
        against_value: mean,
        ratio: peak / mean,
        ..Found::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_belongs_to_the_first_interval_and_no_byte_is_lost() {
        let header = 10;
        let mut blocks = vec![1; header + 3 * INTERVALS + 5];
        blocks[header + 3 * INTERVALS + 4] = 100;
        let sums = intervals(&blocks, header);
        assert_eq!(sums.len(), INTERVALS);
        assert_eq!(sums.iter().sum::<u64>(), blocks.iter().sum::<u64>());
        assert!(sums[0] >= 13, "{}", sums[0]);
        assert!(sums[INTERVALS - 1] >= 102, "{}", sums[INTERVALS - 1]);
        assert!(
            sums[1..INTERVALS - 1]
                .iter()
                .all(|sum| (3..=4).contains(sum))
        );
    }

    #[test]
    fn level_writes_have_ratio_one_and_a_peak_shows() {
        assert_eq!(found(&[7; INTERVALS]).ratio, 1.0);
        let mut peaked = [1; INTERVALS];
        peaked[64] = 129;
        assert_eq!(found(&peaked).ratio, 64.5);
    }
}
