//! A pool of 4 GiB without a medium: the allocator, and a meter of its own that counts what is written where.

use perdure_alloc::{
    Allocator, BlockNumber, DomainId, Extent, Geometry, Lifetime, NoLedger, Options, Policy,
    Purpose, Request, Unit,
};

/// The owner of all files.
pub(crate) const OWNER: DomainId = DomainId(2);
/// Blocks of the pool: 4 GiB.
pub(crate) const BLOCKS: u64 = 1 << 20;
/// Parts of the pool that writes are counted in, as in the paper's Fig. 7.
const INTERVALS: usize = 128;
/// Blocks before the first segment.
const HEADER_BLOCKS: u64 = 512;

/// A linear congruential generator.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// Uniform in `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 32) as usize * bound) >> 32
    }

    /// Uniform between 0 and 1, neither included.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.below(1 << 31) as f64 + 0.5) / f64::from(1_u32 << 31)
    }
}

/// Peak and least interval, over the mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) peak: f64,
    pub(crate) least: f64,
}

impl Spread {
    fn of(writes: &[u64]) -> Self {
        let mean = writes.iter().sum::<u64>().max(1) as f64 / writes.len() as f64;
        Self {
            peak: *writes.iter().max().expect("intervals") as f64 / mean,
            least: *writes.iter().min().expect("intervals") as f64 / mean,
        }
    }
}

/// The pool, the thread that writes to it, and the meter.
pub(crate) struct Pool {
    pub(crate) allocator: Allocator,
    pub(crate) chance: Chance,
    /// Two threads take turns.
    pub(crate) threads: usize,
    data: Vec<u64>,
    all: Vec<u64>,
}

impl Pool {
    pub(crate) fn new(policy: Policy, blocks_per_segment: u64, threads: usize) -> Self {
        let geometry = Geometry {
            first_block: BlockNumber::new(HEADER_BLOCKS),
            blocks_per_segment,
            segments: (BLOCKS / blocks_per_segment) as u32,
            groups: 2,
        };
        let options = Options {
            policy,
            seed: 3,
            reserve_blocks: 5000,
        };
        Self {
            allocator: Allocator::new(geometry, options, Box::new(NoLedger)),
            chance: Chance(17),
            threads,
            data: vec![0; INTERVALS],
            all: vec![0; INTERVALS],
        }
    }

    pub(crate) fn used(&self) -> u64 {
        BLOCKS - self.allocator.free_blocks()
    }

    /// Blocks written so far.
    pub(crate) fn written(&self) -> u64 {
        self.all.iter().sum()
    }

    pub(crate) fn written_data(&self) -> u64 {
        self.data.iter().sum()
    }

    fn count(&mut self, extent: Extent, domain: DomainId) {
        let first = extent.start.get() - HEADER_BLOCKS;
        for block in first..first + u64::from(extent.blocks) {
            let interval = (block * INTERVALS as u64 / BLOCKS) as usize;
            self.all[interval] += 1;
            self.data[interval] += u64::from(domain != DomainId::METADATA);
        }
    }

    /// Allocates and writes blocks in one request.
    pub(crate) fn write(
        &mut self,
        domain: DomainId,
        blocks: u32,
        lifetime: Lifetime,
        to: &mut Vec<Extent>,
    ) -> usize {
        let home = self.chance.below(self.threads);
        if blocks == 1 && lifetime == Lifetime::Unknown {
            let start = self
                .allocator
                .allocate_one(domain, Purpose::Ordinary, home)
                .expect("room");
            let extent = Extent { start, blocks };
            self.count(extent, domain);
            to.push(extent);
            return 1;
        }
        let request = Request {
            domain,
            blocks,
            unit: Unit::Block4K,
            purpose: Purpose::Ordinary,
            home,
        };
        let extents = self
            .allocator
            .allocate_with(&request, lifetime)
            .expect("room");
        for &extent in &extents {
            self.count(extent, domain);
        }
        to.extend_from_slice(&extents);
        extents.len()
    }

    /// Writes a block in place.
    pub(crate) fn overwrite(&mut self, block: BlockNumber) {
        let interval = ((block.get() - HEADER_BLOCKS) * INTERVALS as u64 / BLOCKS) as usize;
        self.all[interval] += 1;
    }

    pub(crate) fn free(&mut self, extents: &mut Vec<Extent>) {
        for extent in extents.drain(..) {
            self.allocator.free(extent).expect("ours");
        }
    }

    pub(crate) fn spread_of_data(&self) -> Spread {
        Spread::of(&self.data)
    }

    pub(crate) fn spread_of_all(&self) -> Spread {
        Spread::of(&self.all)
    }

    /// Peak over mean of the segments themselves, by the allocator's books.
    pub(crate) fn spread_of_segments(&self) -> Spread {
        Spread::of(&self.allocator.wear())
    }

    /// The part of free space that lies in free 2 MiB units.
    pub(crate) fn free_in_2m(&self) -> f64 {
        self.allocator.free_in_huge_runs() as f64 / self.allocator.free_blocks() as f64
    }
}
