//! Writes: what ending copies costs who writes.

use super::bed::{BLOCK, System};
use super::orders::{part, sequential, shuffled, uniform};
use super::pools::{Kind, Side, in_turn};
use super::slices::{read_one, require_right};
use super::{ReadCacheOptions, SEED};
use crate::collector::Collector;
use crate::error::BenchError;
use crate::measure::Stopwatch;
use fs::ReadCacheMode;

pub(super) fn measure(collector: &mut Collector, options: &ReadCacheOptions) {
    let blocks = options.file_blocks();
    let rows: [(&'static str, u32, Measure); 5] = [
        ("overwrite_cold", blocks, overwrite_cold),
        ("overwrite_hot", blocks, overwrite_hot),
        ("append", 0, append),
        ("append_hot", blocks / 8, append),
        ("mix_50", blocks, mix),
    ];
    for (name, blocks, measure) in rows {
        let mut cache = None;
        collector.row(name, || {
            let kind = Kind {
                media: &options.media,
                mode: ReadCacheMode::On,
                blocks,
            };
            let places = Places::new(options, blocks);
            let pools = in_turn(options, kind, options.pool_rounds(), |side, round| {
                Ok(vec![measure(&places, side, round)?])
            })?;
            let found = pools.time();
            cache = pools.cache;
            Ok(found)
        });
        if let Some(cache) = cache {
            collector.details.insert(format!("cache_of_{name}"), cache);
        }
    }
}

/// Which blocks are written, of a file that has `blocks` when a round begins.
pub(super) struct Places {
    blocks: u32,
    /// Requests of a round.
    writes: usize,
    each_once: Vec<u32>,
    appended: Vec<u32>,
    any: Vec<u32>,
    /// For each of these, whether it is written.
    kinds: Vec<u32>,
}

impl Places {
    pub(super) fn new(options: &ReadCacheOptions, blocks: u32) -> Places {
        let writes = options.writes();
        let mixed = 4 * blocks as usize;
        Places {
            blocks,
            writes,
            each_once: shuffled(blocks, SEED),
            appended: sequential(blocks + writes as u32, writes),
            any: uniform(blocks.max(1), mixed, SEED),
            kinds: uniform(2, mixed, SEED + 1),
        }
    }
}

/// Measures a round on a side that was mounted for it: nanoseconds of a request.
type Measure = fn(&Places, &Side, u64) -> Result<f64, BenchError>;

/// Nobody has read the file since the mount.
pub(super) fn overwrite_cold(places: &Places, side: &Side, round: u64) -> Result<f64, BenchError> {
    side.overwrite(part(&places.each_once, round, places.writes))
}

/// The whole file has been read until it is in DRAM; on the other side once, for the processor's caches. Twice, and only the second time counts: at first the
/// read cache's thread still takes memory from the machine.
fn overwrite_hot(places: &Places, side: &Side, round: u64) -> Result<f64, BenchError> {
    side.warm(places.blocks)?;
    overwrite_cold(places, side, 2 * round)?;
    side.warm(places.blocks)?;
    overwrite_cold(places, side, 2 * round + 1)
}

/// Appends to what is there, which is read until it is in DRAM; then takes away what was appended. The second time counts.
fn append(places: &Places, side: &Side, _round: u64) -> Result<f64, BenchError> {
    side.warm(places.blocks)?;
    append_cold(places, side)?;
    side.warm(places.blocks)?;
    append_cold(places, side)
}

/// The same once, without reading.
pub(super) fn append_cold(places: &Places, side: &Side) -> Result<f64, BenchError> {
    let nanoseconds = side.append(&places.appended)?;
    side.bed.cut(&side.file, u64::from(places.blocks) * BLOCK)?;
    Ok(nanoseconds)
}

/// Half reads, half overwrites, of any block of a file that was in DRAM at the beginning. Before the requests that count every block was
/// written twice on average, so that only copies that came back count.
fn mix(places: &Places, side: &Side, round: u64) -> Result<f64, BenchError> {
    /// As long as some slices of writes, because so much comes before it.
    const SLICES: usize = 4;
    let Places { any, kinds, .. } = places;
    side.warm(places.blocks)?;
    mix_slice(side, any, kinds)?;
    side.begin_counting();
    let part = |order| part(order, round, SLICES * places.writes);
    mix_slice(side, part(any), part(kinds))
}

/// Nanoseconds of one request.
fn mix_slice(side: &Side, blocks: &[u32], kinds: &[u32]) -> Result<f64, BenchError> {
    let page = &mut **side.page.borrow_mut();
    let mut read = |offset, into: &mut [u8]| side.bed.read(&side.file, offset, into);
    let mut wrong = 0;
    let watch = Stopwatch::of_thread();
    for (&block, &kind) in blocks.iter().zip(kinds) {
        if kind == 0 {
            wrong |= read_one(block, page, &mut read)?;
        } else {
            page.number(block.into());
            side.bed
                .write(&side.file, u64::from(block) * BLOCK, &page.0)?;
        }
    }
    let nanoseconds = watch.nanoseconds();
    require_right(wrong)?;
    Ok(nanoseconds / blocks.len() as f64)
}
