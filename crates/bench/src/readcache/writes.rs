//! Writes: what ending copies costs who writes.

use super::bed::{BLOCK, System};
use super::orders::{part, sequential, shuffled, uniform};
use super::pairs::{Kind, Pair, Side, over_pairs};
use super::slices::{read_one, require_right};
use super::{ReadCacheOptions, SEED};
use crate::error::BenchError;
use crate::evaluation::Collector;
use crate::measure::{Rounds, Stopwatch, alternate};
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
            let pairs = over_pairs(options, kind, |pair| {
                Ok(vec![measure(options, pair, blocks)?])
            })?;
            cache = pairs.describe_cache();
            Ok(pairs.time())
        });
        if let Some(cache) = cache {
            collector.details.insert(format!("cache_of_{name}"), cache);
        }
    }
}

/// Measures a pair whose file has so many blocks.
type Measure = fn(&ReadCacheOptions, &Pair, u32) -> Result<Rounds, BenchError>;

/// Nobody has read the file.
pub(super) fn overwrite_cold(
    options: &ReadCacheOptions,
    pair: &Pair,
    blocks: u32,
) -> Result<Rounds, BenchError> {
    let order = shuffled(blocks, SEED);
    let part = |round| part(&order, round, options.writes());
    alternate(
        options.rounds,
        |round| pair.ours.overwrite(part(round)),
        |round| pair.theirs.overwrite(part(round)),
    )
}

/// Before each slice the whole file is read until it is in DRAM again; on the other side once, for the processor's caches.
fn overwrite_hot(
    options: &ReadCacheOptions,
    pair: &Pair,
    blocks: u32,
) -> Result<Rounds, BenchError> {
    let order = shuffled(blocks, SEED);
    let side = |side: &Side, round| {
        side.warm(blocks)?;
        side.overwrite(part(&order, round, options.writes()))
    };
    alternate(
        options.rounds,
        |round| side(&pair.ours, round),
        |round| side(&pair.theirs, round),
    )
}

/// Appends to what is there, which is read until it is in DRAM; then takes away what was appended.
pub(super) fn append(
    options: &ReadCacheOptions,
    pair: &Pair,
    blocks: u32,
) -> Result<Rounds, BenchError> {
    let order = sequential(blocks + options.writes() as u32, options.writes());
    let side = |side: &Side| {
        side.warm(blocks)?;
        let nanoseconds = side.append(&order)?;
        side.bed.cut(&side.file, u64::from(blocks) * BLOCK)?;
        Ok(nanoseconds)
    };
    alternate(options.rounds, |_| side(&pair.ours), |_| side(&pair.theirs))
}

/// Half reads, half overwrites, of any block of a file that was in DRAM at the beginning. Before the first slice that counts every block was
/// written twice on average, so that only copies that came back count.
fn mix(options: &ReadCacheOptions, pair: &Pair, blocks: u32) -> Result<Rounds, BenchError> {
    let count = 4 * blocks as usize;
    let order = uniform(blocks, count, SEED);
    let kinds = uniform(2, count, SEED + 1);
    for side in [&pair.ours, &pair.theirs] {
        side.warm(blocks)?;
        mix_slice(side, &order, &kinds)?;
        side.begin_counting();
    }
    let slice = |side: &Side, round| {
        let blocks = part(&order, round, options.writes());
        mix_slice(side, blocks, part(&kinds, round, options.writes()))
    };
    alternate(
        options.rounds,
        |round| slice(&pair.ours, round),
        |round| slice(&pair.theirs, round),
    )
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
