//! Reads of a hot file: against the medium, and against a plain buffer in DRAM.

use super::bed::BLOCK;
use super::orders::{normal, sequential, steady, uniform};
use super::pools::{Kind, in_turn, with_cache};
use super::{ReadCacheOptions, SEED, slices};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::alternate;
use crate::memory::Page;
use fs::ReadCacheMode;
use pmem::{BLOCK_BYTES, Dram};
use serde_json::json;

/// The standard deviation of the paper's skewed reads would be this part of the file.
pub(super) const SKEW: f64 = 1.0 / 16.0;

pub(super) fn measure(collector: &mut Collector, options: &ReadCacheOptions) {
    let blocks = options.file_blocks();
    let count = options.order_length();
    let orders: [(&'static str, Vec<u32>); 2] = [
        ("hot_seq", sequential(blocks, count)),
        ("hot_skewed", normal(blocks, SKEW, count, SEED)),
    ];
    for (name, order) in orders {
        let mut cache = None;
        collector.row(name, || {
            let pools = in_turn(
                options,
                kind(options),
                options.pool_rounds(),
                |side, round| {
                    side.warm(blocks)?;
                    side.begin_counting();
                    let slice = |part: &[u32]| side.read(part);
                    let request_ns = steady(&order, round, options.requests, slice)?;
                    Ok(vec![slices::megabytes_per_second(request_ns)])
                },
            )?;
            let found = pools.time();
            cache = pools.cache;
            Ok(found)
        });
        if let Some(cache) = cache {
            collector.details.insert(format!("cache_of_{name}"), cache);
        }
    }
    beside_buffers(collector, options);
}

fn kind(options: &ReadCacheOptions) -> Kind<'_> {
    Kind {
        media: &options.media,
        mode: ReadCacheMode::On,
        blocks: options.file_blocks(),
    }
}

/// A file without a file system: the same blocks in one piece of memory of this process.
pub(super) fn plain_buffer(blocks: u32) -> Vec<u8> {
    let mut bytes = vec![0x5a; blocks as usize * BLOCK_BYTES];
    for (number, block) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        block[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }
    bytes
}

/// The same in memory like that of the copies: of huge pages.
fn huge_buffer(blocks: u32) -> Result<Dram, BenchError> {
    let no_memory = |error: std::io::Error| BenchError::Setup(error.to_string());
    let memory = Dram::new(blocks as usize * BLOCK_BYTES).map_err(no_memory)?;
    let mut page = Page::filled();
    for block in 0..blocks as usize {
        page.number(block as u64);
        memory.copy_in(block * BLOCK_BYTES, &page.0);
    }
    Ok(memory)
}

/// Time of a copy from such a buffer, for all requests of a slice.
fn copy_from(buffer: &[u8], blocks: &[u32], page: &mut Page) -> Result<f64, BenchError> {
    slices::read(blocks, page, |offset, into| {
        let begin = offset as usize;
        into.copy_from_slice(&buffer[begin..begin + BLOCK as usize]);
        Ok(into.len())
    })
}

fn beside_buffers(collector: &mut Collector, options: &ReadCacheOptions) {
    const NAMES: [&str; 6] = [
        "any block",
        "sequential",
        "one block",
        "any block, huge pages",
        "sequential, huge pages",
        "one block, huge pages",
    ];
    let mut found = None;
    collector.row("hit_vs_dram", || {
        let blocks = options.file_blocks();
        let (count, requests) = (options.order_length(), options.requests);
        let orders = [
            uniform(blocks, count, SEED),
            sequential(blocks, count),
            vec![blocks / 3; count],
        ];
        let plain = plain_buffer(blocks);
        let huge = huge_buffer(blocks)?;
        let pools = with_cache(options, kind(options), |side| {
            side.warm(blocks)?;
            let mut page = Page::filled();
            let mut rounds = Vec::new();
            for order in &orders {
                let ours = |round| steady(order, round, requests, |part| side.read(part));
                let theirs = |round| {
                    steady(order, round, requests, |part| {
                        copy_from(&plain, part, &mut page)
                    })
                };
                rounds.push(alternate(options.pool_rounds(), ours, theirs)?);
            }
            for order in &orders {
                let ours = |round| steady(order, round, requests, |part| side.read(part));
                let theirs = |round| {
                    steady(order, round, requests, |part| {
                        slices::read(part, &mut page, |offset, into| {
                            huge.copy_out(offset as usize, into);
                            Ok(into.len())
                        })
                    })
                };
                rounds.push(alternate(options.pool_rounds(), ours, theirs)?);
            }
            Ok(rounds)
        })?;
        let ratios = pools.rounds.iter().map(|rounds| rounds.ratios()[1]);
        let ratios: Vec<(&str, f64)> = NAMES.into_iter().zip(ratios).collect();
        let others = ratios[1..].iter();
        let others = others.map(|(name, ratio)| format!("{name} {ratio:.2}"));
        let note = others.collect::<Vec<_>>().join("; ");
        found = Some(ratios);
        Ok(Found::of(&pools.rounds[0]).noted(note))
    });
    for (name, ratio) in found.into_iter().flatten() {
        let details = collector.details.entry("hit_vs_dram");
        details.or_insert(json!({}))[name] = json!(ratio);
    }
}
