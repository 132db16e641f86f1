//! A hot set beside a scan that is four times as large as the budget.

use super::bed::{BLOCK, Bed, System};
use super::orders::uniform;
use super::slices::{read_one, require_right};
use super::{ReadCacheOptions, SEED};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::memory::Page;
use fs::{Node, ReadCacheMode};
use serde_json::json;

pub(super) fn measure(collector: &mut Collector, options: &ReadCacheOptions) {
    let mut details = None;
    collector.row("scan_hit_ratio", || {
        let budget = (options.file_blocks() / 4).max(8);
        let cache = fs::ReadCacheOptions {
            budget_bytes: u64::from(budget) * BLOCK,
            ..options.cache(ReadCacheMode::On)
        };
        let bed = Bed::new(options, &options.media, cache)?;
        let (hot, scanned) = (budget / 2, 4 * budget);
        let hot_file = bed.fill("hot", hot)?;
        let scanned_file = bed.fill("scanned", scanned)?;
        bed.warm(&hot_file, hot)?;
        let scan = |pass| {
            let order = uniform(hot, scanned as usize, SEED + pass);
            scan_beside(&bed, (&hot_file, &order), (&scanned_file, scanned))
        };
        let [(hits, reads), (hits_again, reads_again)] = [scan(0)?, scan(1)?];
        let again = hits_again as f64 / reads_again as f64;
        details = Some(json!({
            "hits": hits,
            "reads": reads,
            "second_scan": again,
            "statistics": bed.files.read_cache_statistics(),
        }));
        let found = Found {
            value: hits as f64,
            against_value: reads as f64,
            ratio: hits as f64 / reads as f64,
            ..Found::default()
        };
        Ok(found.noted(format!(
            "when the same blocks are scanned again at once: {again:.3}"
        )))
    });
    if let Some(details) = details {
        let name = "scan_hit_ratio".to_owned();
        collector.details.insert(name, details);
    }
}

/// Reads a file from start to end, and after each block one of the hot set. Hits, and reads, of the hot set.
fn scan_beside(
    bed: &Bed,
    (hot_file, order): (&Node, &[u32]),
    (scanned_file, scanned): (&Node, u32),
) -> Result<(u64, u64), BenchError> {
    let mut page = Page::filled();
    let mut wrong = 0;
    let before = hits(bed, hot_file);
    for (block, &hot) in (0..scanned).zip(order) {
        wrong |= read_one(block, &mut page, &mut |offset, into: &mut [u8]| {
            bed.read(scanned_file, offset, into)
        })?;
        wrong |= read_one(hot, &mut page, &mut |offset, into: &mut [u8]| {
            bed.read(hot_file, offset, into)
        })?;
    }
    require_right(wrong)?;
    let hits = hits(bed, hot_file) - before;
    Ok((hits, scanned.into()))
}

/// Hits of a file so far.
fn hits(bed: &Bed, file: &Node) -> u64 {
    let files = bed.files.read_cache_files();
    let mut its = files
        .iter()
        .filter(|found| found.file == file.number().get());
    its.next().map_or(0, |file| file.hits)
}
