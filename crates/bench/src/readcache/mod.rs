//! The experiment `readcache`: what DRAM copies of hot blocks give to readers, and what they cost everybody else.
//!
//! Section 4 of the RCache paper on an emulated medium:
//!
//! * Fig. 4: latencies of reads and writes. Fig. 5: bandwidth of reads of a hot file, in order and skewed. FxMark's DRBL, DRBM and DWAL. On three
//!   systems: ours without the read cache, a page cache over it, and ours with it.
//! * Bars: what a hit gives, against the medium and against DRAM; and that nothing else is slower for it: misses, writes, mixed loads, a
//!   second reader, a medium that needs no cache, a hot set beside a scan.
//!
//! Ratios are medians over rounds of some milliseconds that alternate between the sides. Where bars are tight, the two sides are mounts
//! of the same pool, one after the other, because where a pool happens to lie in memory matters by some percent, too.

mod aside;
mod bed;
mod crew;
mod figures;
mod fxmark;
mod hits;
mod misses;
mod orders;
mod page_cache;
mod pools;
mod scan;
mod slices;
mod systems;
mod threads;
mod writes;

use crate::collector::{Collector, Plan, check_rows, guarded};
use crate::error::BenchError;
use crate::evaluation::Evaluation;
use crate::report::Setting;
use bed::{BLOCK, Bed};
use fs::ReadCacheMode;
use pmem::MediaModel;
use serde_json::json;
use std::path::PathBuf;

const SEED: u64 = 2023;

/// How to measure.
#[derive(Clone, Debug)]
pub struct ReadCacheOptions {
    /// Directory in which pools are made, as files without names; if there is none, pools are memory of this process.
    pub directory: Option<PathBuf>,
    /// Bytes of a pool; there are up to three at a time.
    pub pool_bytes: u64,
    /// Bytes of the file that is read and written.
    pub file_bytes: u64,
    /// Bytes of DRAM for copies.
    pub budget_bytes: u64,
    /// Laid over the pools.
    pub media: MediaModel,
    /// Numbers of threads of FxMark.
    pub threads: Vec<usize>,
    /// Rounds of each measurement; a quarter of them with each pool, where there are several.
    pub rounds: usize,
    /// Pools of each row that compares mounts of the same one.
    pub pools: usize,
    /// Requests of 4 KiB of each side of a round; a quarter of them where they are writes.
    pub requests: usize,
    /// Requests of Fig. 4.
    pub latency_requests: usize,
    /// Seconds of each side of a round, where threads run.
    pub seconds: f64,
    /// Bars to measure, by name; all, and the figures, if empty.
    pub only: Vec<String>,
    /// Told what begins.
    pub progress: Option<fn(&str)>,
}

impl Default for ReadCacheOptions {
    fn default() -> ReadCacheOptions {
        ReadCacheOptions {
            directory: None,
            pool_bytes: 512 << 20,
            file_bytes: 64 << 20,
            budget_bytes: 128 << 20,
            media: MediaModel::optane(),
            threads: vec![1, 2],
            rounds: 25,
            pools: 8,
            requests: 8192,
            latency_requests: 100_000,
            seconds: 0.05,
            only: Vec::new(),
            progress: None,
        }
    }
}

impl ReadCacheOptions {
    /// Smallest pool that an experiment makes sense on.
    const POOL_BYTES_MIN: u64 = 64 << 20;

    /// So small that it runs with every test; the figures mean nothing.
    #[must_use]
    pub fn smoke() -> ReadCacheOptions {
        ReadCacheOptions {
            pool_bytes: ReadCacheOptions::POOL_BYTES_MIN,
            file_bytes: 2 << 20,
            budget_bytes: 8 << 20,
            rounds: 1,
            pools: 1,
            requests: 256,
            latency_requests: 1000,
            seconds: 0.002,
            ..ReadCacheOptions::default()
        }
    }

    fn file_blocks(&self) -> u32 {
        (self.file_bytes / BLOCK) as u32
    }

    /// Blocks of each thread's file: as of the others, unless so many threads would fill more than half of the pool.
    fn thread_file_blocks(&self) -> u32 {
        let threads = self.threads.iter().copied().max().unwrap_or(1) as u64;
        let most = self.pool_bytes / 2 / BLOCK / threads;
        self.file_blocks().min(most as u32)
    }

    fn pool_rounds(&self) -> usize {
        self.rounds.div_ceil(4)
    }

    /// Writes of each side of a round.
    fn writes(&self) -> usize {
        (self.requests / 4).max(1)
    }

    /// So long that the rounds go to many places.
    fn order_length(&self) -> usize {
        self.requests * 8
    }

    fn cache(&self, mode: ReadCacheMode) -> fs::ReadCacheOptions {
        fs::ReadCacheOptions {
            mode,
            budget_bytes: self.budget_bytes,
            ..fs::ReadCacheOptions::default()
        }
    }
}

const DIRECT: &str = "without the read cache";
const ONE: &str = "one thread";

const fn at_most(name: &'static str, against: &'static str, bar: f64) -> Plan {
    Plan::at_most(name, "ns", against, bar)
}

static PLANS: [Plan; 13] = [
    Plan::at_least("hot_seq", "MB/s", DIRECT, 3.0, Some(3.0)),
    Plan::at_least("hot_skewed", "MB/s", DIRECT, 3.5, None),
    at_most("hit_vs_dram", "copy of 4 KiB from a buffer in DRAM", 1.25),
    at_most("miss", DIRECT, 1.03),
    at_most("overwrite_cold", DIRECT, 1.03),
    at_most("overwrite_hot", DIRECT, 1.03),
    at_most("append", DIRECT, 1.03),
    at_most("append_hot", DIRECT, 1.03),
    at_most("mix_50", DIRECT, 1.0),
    Plan::at_least("drbm_2", "MB/s", ONE, 1.8, None),
    Plan::at_least("drbl_2", "MB/s", ONE, 1.8, None),
    at_most("auto_dram", "mode off, on DRAM", 1.01),
    Plan::at_least(
        "scan_hit_ratio",
        "reads",
        "all reads of the hot set beside a scan",
        0.9,
        None,
    ),
];

/// Runs the experiment. Bars that fail say so in the report.
///
/// # Errors
///
/// The sizes make no sense, or there is no memory for pools: nothing was measured.
pub fn run_readcache(options: &ReadCacheOptions) -> Result<Evaluation, BenchError> {
    let mut setting = Setting::here("readcache", options.media.name.as_str());
    check_rows(&options.only, &PLANS.each_ref().map(|plan| plan.name))?;
    check(options)?;
    setting.add("pool_bytes", options.pool_bytes);
    setting.add("file_bytes", options.file_bytes);
    setting.add("budget_bytes", options.budget_bytes);
    setting.add("threads", options.threads.as_slice());
    setting.add("rounds", options.rounds);
    setting.add("pools", options.pools);
    setting.add("requests", options.requests);
    setting.add("seconds", options.seconds);
    let mut collector = Collector::new(&PLANS, &options.only, options.progress);
    hits::measure(&mut collector, options);
    misses::measure(&mut collector, options);
    writes::measure(&mut collector, options);
    threads::measure(&mut collector, options);
    aside::measure(&mut collector, options);
    scan::measure(&mut collector, options);
    if options.only.is_empty() {
        draw(&mut collector, options);
    }
    describe_medium(&mut collector, options)?;
    Ok(collector.evaluation(setting))
}

/// The paper's figures. One that fails takes no bars along, and says so.
fn draw(collector: &mut Collector, options: &ReadCacheOptions) {
    type Figures = fn(&mut Collector, &ReadCacheOptions) -> Result<(), BenchError>;
    let all: [(&str, Figures); 3] = [
        ("figure 4", figures::latencies),
        ("figure 5", figures::bandwidths),
        ("FxMark", fxmark::measure),
    ];
    for (name, figures) in all {
        collector.tell(name);
        if let Err(error) = guarded(|| figures(collector, options)) {
            let failed = format!("FAILED: {error}");
            collector.details.insert(name.to_owned(), json!(failed));
        }
    }
}

/// What the mode `auto` sees of this medium.
fn describe_medium(
    collector: &mut Collector,
    options: &ReadCacheOptions,
) -> Result<(), BenchError> {
    let bed = Bed::new(options, &options.media, options.cache(ReadCacheMode::Auto))?;
    let state = bed.files.read_cache_state().to_string();
    collector
        .details
        .insert("mode auto on this medium".to_owned(), json!(state));
    Ok(())
}

fn check(options: &ReadCacheOptions) -> Result<(), BenchError> {
    const FILE_BYTES_MIN: u64 = 1 << 20;
    // The files of two threads, and as much for what is being replaced.
    let least_bytes = ReadCacheOptions::POOL_BYTES_MIN.max(4 * options.file_bytes);
    if options.pool_bytes < least_bytes || options.file_bytes < FILE_BYTES_MIN {
        return Err(BenchError::TooSmall {
            pool_bytes: options.pool_bytes,
            least_bytes,
        });
    }
    Ok(())
}
