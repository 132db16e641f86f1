//! How fast a pool is read.

use pmem::{BLOCK_BYTES, BlockNumber, Dram, DurabilityClass, Region, ticks, ticks_per_nanosecond};

use crate::layout::Geometry;

/// Blocks that are read, of each kind of memory.
const SAMPLES: usize = 64;

/// Time to copy a block of 4 KiB out that is in no cache, in nanoseconds; the median of some blocks all over the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadSpeed {
    /// From the pool.
    pub medium_ns: f64,
    /// From DRAM, at the same moment.
    pub dram_ns: f64,
}

impl ReadSpeed {
    /// Reads some blocks of the pool and of DRAM by turns. Takes less than a millisecond, and writes nothing to the pool.
    /// Of memory that is being loaded, only the header is read.
    pub(crate) fn measure(region: &Region, geometry: &Geometry) -> ReadSpeed {
        let Ok(dram) = Dram::new(SAMPLES * BLOCK_BYTES) else {
            // Without that much memory there is nothing to cache in either.
            return ReadSpeed {
                medium_ns: 0.0,
                dram_ns: 0.0,
            };
        };
        let (first, blocks) = match region.class() {
            DurabilityClass::Log => (BlockNumber::new(0), geometry.header_blocks),
            _ => {
                let blocks = u64::from(geometry.segments) * geometry.segment_blocks;
                (geometry.first_block(), blocks)
            }
        };
        let mut block = [1; BLOCK_BYTES];
        let mut medium = Vec::with_capacity(SAMPLES);
        let mut plain = Vec::with_capacity(SAMPLES);
        for sample in 0..SAMPLES {
            let at: BlockNumber = first + blocks * sample as u64 / SAMPLES as u64;
            let copy_at = sample * BLOCK_BYTES;
            dram.copy_in(copy_at, &block);
            // The first access finds the page, the second is the one that counts.
            region.load_u64(at.offset());
            region.evict(at.offset(), BLOCK_BYTES);
            dram.evict(copy_at, BLOCK_BYTES);
            let begin = ticks();
            region.read(at.offset(), &mut block);
            let middle = ticks();
            dram.copy_out(copy_at, &mut block);
            let end = ticks();
            medium.push(middle - begin);
            plain.push(end - middle);
        }
        ReadSpeed {
            medium_ns: median_ns(medium),
            dram_ns: median_ns(plain),
        }
    }
}

fn median_ns(mut spans_ticks: Vec<u64>) -> f64 {
    spans_ticks.sort_unstable();
    spans_ticks[spans_ticks.len() / 2] as f64 / ticks_per_nanosecond()
}
