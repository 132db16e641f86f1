//! Bytes that went to the medium, by interval, and which of them were data.

use crate::collector::Found;
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, DurabilityClass};
use std::sync::Arc;
use txn::{Domain, Metadata, PmemStore};

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

/// What a segment is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    Free,
    Metadata,
    Data,
}

impl Use {
    fn of(domain: Option<Domain>) -> Use {
        match domain {
            None => Use::Free,
            Some(Domain::Metadata) => Use::Metadata,
            Some(Domain::Mixed | Domain::Owner { .. }) => Use::Data,
        }
    }
}

/// Bytes written to a segment, by what it was used for at the time.
#[derive(Clone, Copy, Debug)]
struct Segment {
    now: Use,
    /// All bytes, as of the last look.
    written: u64,
    data: u64,
}

impl Segment {
    /// What was written since the last look was written in the present use.
    fn settle(&mut self, written: u64) {
        if self.now == Use::Data {
            self.data += written - self.written;
        }
        self.written = written;
    }
}

/// Follows the writes to our pool: told of every segment before it changes hands, it knows of each byte whether it was data.
pub(super) struct Meter<'s> {
    store: &'s PmemStore,
    segments: Arc<Mutex<Vec<Segment>>>,
}

impl<'s> Meter<'s> {
    /// Follows from now on; the region counts already. One for each opening of a pool.
    pub(super) fn new(store: &'s PmemStore) -> Meter<'s> {
        let geometry = store.geometry();
        let first = move |segment: u32| {
            geometry.first_block() + u64::from(segment) * geometry.segment_blocks
        };
        let region = store.shared_region();
        let segments: Vec<Segment> = (0..geometry.segments)
            .map(|segment| {
                let domain = store.domains().entry(segment).domain(segment);
                Segment {
                    now: Use::of(domain.unwrap_or(Some(Domain::Mixed))),
                    written: region.wear_of(first(segment), geometry.segment_blocks),
                    data: 0,
                }
            })
            .collect();
        let segments = Arc::new(Mutex::new(segments));
        let watched = Arc::clone(&segments);
        store.domains().observe(Box::new(move |segment, next| {
            let written = region.wear_of(first(segment.0), geometry.segment_blocks);
            let segment = &mut watched.lock()[segment.0 as usize];
            segment.settle(written);
            segment.now = Use::of(next);
        }));
        Meter { store, segments }
    }

    fn header_blocks(&self) -> usize {
        self.store.geometry().header_blocks as usize
    }

    /// What was written up to now.
    pub(super) fn spread(&self) -> Spread {
        let header_blocks = self.header_blocks();
        let written = self.store.region().wear();
        let geometry = self.store.geometry();
        let mut segments = self.segments.lock();
        // By segment, spread over its blocks: an interval may end inside one.
        let mut data = vec![0.0; header_blocks];
        let blocks_of = written[header_blocks..].chunks(geometry.segment_blocks as usize);
        for (segment, blocks) in segments.iter_mut().zip(blocks_of) {
            let all: u64 = blocks.iter().sum();
            segment.settle(all);
            let share = segment.data as f64 / all.max(1) as f64;
            data.extend(blocks.iter().map(|&bytes| bytes as f64 * share));
        }
        let data: Vec<u64> = data.into_iter().map(|bytes| bytes.round() as u64).collect();
        Spread {
            all: intervals(&written, header_blocks),
            data: intervals(&data, header_blocks),
            header: written[..header_blocks].iter().sum(),
            class: self.store.class(),
        }
    }

    /// The block with the most bytes written: its number and how often it was written whole, and whether it is one of the header.
    pub(super) fn hottest(&self) -> String {
        let written = self.store.region().wear();
        let greatest = written.iter().enumerate().max_by_key(|(_, bytes)| **bytes);
        greatest.map_or(String::new(), |(block, bytes)| {
            let place = match block.checked_sub(self.header_blocks()) {
                None => "in the header".to_owned(),
                Some(block) => {
                    let segment = block / self.store.geometry().segment_blocks as usize;
                    format!(
                        "in segment {segment}, {:?}",
                        self.segments.lock()[segment].now
                    )
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
            "data are {:.1} % of all bytes written",
            100.0 * bytes as f64 / self.written().max(1) as f64,
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
