//! Years of use of a real tree of files, in a minute.
//!
//! File sizes follow Agrawal et al., "A Five-Year Study of File-System Metadata" (FAST 2007), with the parameters that they give in "Generating
//! Realistic Impressions for File-System Benchmarking" (FAST 2009): a lognormal body and a Pareto tail, here cut at 1/16 of the pool.

use crate::pool::{BLOCKS, Chance, OWNER, Pool};
use crate::wear::Metadata;
use perdure_alloc::{Extent, Lifetime, Policy};
use std::time::{Duration, Instant};

const BODY_MU: f64 = 9.48;
const BODY_SIGMA: f64 = 2.46;
const TAIL_SHARE: f64 = 0.000_06;
const TAIL_SHAPE: f64 = 0.91;
const TAIL_BYTES: f64 = 512e6;
const LARGEST_BLOCKS: u64 = BLOCKS / 16;
/// One write call of the file system.
const BLOCKS_PER_REQUEST: u64 = 1024;

fn file_blocks(chance: &mut Chance) -> u64 {
    let bytes = if chance.fraction() < TAIL_SHARE {
        TAIL_BYTES * chance.fraction().powf(-1.0 / TAIL_SHAPE)
    } else {
        let radius = (-2.0 * chance.fraction().ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * chance.fraction()).cos();
        (BODY_MU + BODY_SIGMA * normal).exp()
    };
    ((bytes / 4096.0).ceil() as u64).clamp(1, LARGEST_BLOCKS)
}

/// Requests and extents of some part of the run.
#[derive(Debug, Clone, Copy, Default)]
struct Runs {
    blocks: u64,
    extents: u64,
    requests: u64,
    time: Duration,
}

impl Runs {
    fn minus(self, earlier: Self) -> Self {
        Self {
            blocks: self.blocks - earlier.blocks,
            extents: self.extents - earlier.extents,
            requests: self.requests - earlier.requests,
            time: self.time - earlier.time,
        }
    }

    fn mean_run(self) -> f64 {
        self.blocks as f64 / self.extents as f64
    }

    fn nanoseconds(self) -> f64 {
        self.time.as_nanos() as f64 / self.requests as f64
    }
}

/// What aging did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aged {
    /// Blocks per extent while the pool was filled.
    pub(crate) fresh_run: f64,
    /// Blocks per extent in the last turnover.
    pub(crate) aged_run: f64,
    pub(crate) fresh_nanoseconds: f64,
    pub(crate) aged_nanoseconds: f64,
}

struct Tree {
    files: Vec<Vec<Extent>>,
    metadata: Metadata,
    runs: Runs,
}

impl Tree {
    fn write_file(&mut self, pool: &mut Pool) {
        let mut left = file_blocks(&mut pool.chance);
        let mut file = Vec::new();
        while left > 0 {
            let blocks = left.min(BLOCKS_PER_REQUEST);
            let start = Instant::now();
            let extents = pool.write(OWNER, blocks as u32, Lifetime::Unknown, &mut file);
            self.runs.time += start.elapsed();
            self.runs.blocks += blocks;
            self.runs.extents += extents as u64;
            self.runs.requests += 1;
            left -= blocks;
            self.metadata.keep_up(pool);
        }
        self.files.push(file);
    }

    fn remove_file(&mut self, pool: &mut Pool) {
        let victim = pool.chance.below(self.files.len());
        let mut file = self.files.swap_remove(victim);
        pool.free(&mut file);
    }
}

/// Fills a pool to `percent` and turns it over `turnovers` times its capacity; with each block of data, `metadata` blocks of metadata are written.
pub(crate) fn age(pool: &mut Pool, percent: u64, turnovers: u64, metadata: f64) -> Aged {
    let mut tree = Tree {
        files: Vec::new(),
        metadata: Metadata::new(metadata),
        runs: Runs::default(),
    };
    let full = BLOCKS * percent / 100;
    while pool.used() < full {
        tree.write_file(pool);
    }
    let fresh = tree.runs;
    let mut before_last = tree.runs;
    for _ in 0..turnovers {
        before_last = tree.runs;
        while tree.runs.blocks < before_last.blocks + BLOCKS {
            while pool.used() > full {
                tree.remove_file(pool);
            }
            tree.write_file(pool);
        }
    }
    while pool.used() > full {
        tree.remove_file(pool);
    }
    let last = tree.runs.minus(before_last);
    Aged {
        fresh_run: fresh.mean_run(),
        aged_run: last.mean_run(),
        fresh_nanoseconds: fresh.nanoseconds(),
        aged_nanoseconds: last.nanoseconds(),
    }
}

/// All policies, the paper's first.
pub(crate) const POLICIES: [Policy; 3] = [Policy::Published, Policy::Steered, Policy::FirstFit];
