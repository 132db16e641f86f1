//! On a medium as fast as DRAM copies are of no use: the mode `auto` must see that and step aside.

use super::orders::{part, sequential, uniform};
use super::pairs::{Kind, Pair, over_pairs};
use super::{ReadCacheOptions, SEED, writes};
use crate::error::BenchError;
use crate::evaluation::{Collector, Found};
use crate::measure::{Rounds, alternate};
use fs::ReadCacheMode;
use pmem::MediaModel;
use serde_json::json;

const KINDS: [&str; 4] = ["sequential read", "random read", "overwrite", "append"];

pub(super) fn measure(collector: &mut Collector, options: &ReadCacheOptions) {
    let mut details = None;
    collector.row("auto_dram", || {
        let kind = Kind {
            media: &MediaModel::dram(),
            mode: ReadCacheMode::Auto,
            blocks: options.file_blocks(),
        };
        let mut states = Vec::new();
        let pairs = over_pairs(options, kind, |pair| {
            states.push(pair.ours.bed.files.read_cache_state().to_string());
            [read_in_order, read_any, writes::overwrite_cold, append]
                .into_iter()
                .map(|measure| measure(options, pair, kind.blocks))
                .collect()
        })?;
        let ratios = pairs.rounds.iter().map(|rounds| rounds.ratios()[1]);
        let ratios: Vec<f64> = ratios.collect();
        let worst = (0..KINDS.len()).max_by(|&one, &other| ratios[one].total_cmp(&ratios[other]));
        let worst = worst.unwrap_or(0);
        let all = KINDS.iter().zip(&ratios).enumerate();
        let all = all.map(|(place, (name, ratio))| {
            let by_pair = pairs.by_pair(place);
            (*name, json!({"ratio": ratio, "pair by pair": by_pair}))
        });
        let mut found: serde_json::Map<String, _> =
            all.map(|(name, ratio)| (name.to_owned(), ratio)).collect();
        found.insert("states".to_owned(), json!(states));
        details = Some(found);
        let each = KINDS.iter().zip(&ratios);
        let each: Vec<String> = each
            .map(|(name, ratio)| format!("{name} {ratio:.3}"))
            .collect();
        let note = format!(
            "worst: {}; {}; {}",
            KINDS[worst],
            each.join(", "),
            states.join("; ")
        );
        Ok(Found::of(&pairs.rounds[worst]).noted(note))
    });
    if let Some(details) = details {
        collector
            .details
            .insert("auto_dram".to_owned(), details.into());
    }
}

fn read_in_order(
    options: &ReadCacheOptions,
    pair: &Pair,
    blocks: u32,
) -> Result<Rounds, BenchError> {
    read(options, pair, &sequential(blocks, options.order_length()))
}

fn read_any(options: &ReadCacheOptions, pair: &Pair, blocks: u32) -> Result<Rounds, BenchError> {
    read(
        options,
        pair,
        &uniform(blocks, options.order_length(), SEED),
    )
}

fn read(options: &ReadCacheOptions, pair: &Pair, order: &[u32]) -> Result<Rounds, BenchError> {
    let part = |round| part(order, round, options.requests);
    alternate(
        options.rounds,
        |round| pair.ours.read(part(round)),
        |round| pair.theirs.read(part(round)),
    )
}

/// To an empty file. Comes last, because it takes the content away.
fn append(options: &ReadCacheOptions, pair: &Pair, _blocks: u32) -> Result<Rounds, BenchError> {
    for side in [&pair.ours, &pair.theirs] {
        side.bed.cut(&side.file, 0)?;
    }
    writes::append(options, pair, 0)
}
