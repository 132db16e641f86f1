//! On a medium as fast as DRAM copies are of no use: the mode `auto` must see that and step aside.

use super::orders::{sequential, steady, uniform};
use super::pools::{Kind, in_turn};
use super::writes::{self, Places};
use super::{ReadCacheOptions, SEED};
use crate::collector::{Collector, Found};
use fs::ReadCacheMode;
use pmem::MediaModel;
use serde_json::json;

/// Times as many rounds as in other rows: both sides do the same, so what differs is noise, and the worst of four kinds counts.
const ROUNDS: usize = 10;
const KINDS: [&str; 4] = ["sequential read", "random read", "overwrite", "append"];

pub(super) fn measure(collector: &mut Collector, options: &ReadCacheOptions) {
    let mut details = None;
    collector.row("auto_dram", || {
        let kind = Kind {
            media: &MediaModel::dram(),
            mode: ReadCacheMode::Auto,
            blocks: options.file_blocks(),
        };
        let mut state = String::new();
        let orders = [
            sequential(kind.blocks, options.order_length()),
            uniform(kind.blocks, options.order_length(), SEED),
        ];
        let places = Places::new(options, kind.blocks);
        let pools = in_turn(
            options,
            kind,
            ROUNDS * options.pool_rounds(),
            |side, round| {
                let copies = side.bed.files.read_cache_state();
                if copies.speed.is_some() {
                    state = copies.to_string();
                }
                let mut found = Vec::new();
                for order in &orders {
                    let slice = |part: &[u32]| side.read(part);
                    found.push(steady(order, round, options.requests, slice)?);
                }
                found.push(writes::overwrite_cold(&places, side, round)?);
                found.push(writes::append_cold(&places, side)?);
                Ok(found)
            },
        )?;
        let ratios = pools.rounds.iter().map(|rounds| rounds.ratios()[1]);
        let ratios: Vec<f64> = ratios.collect();
        let worst = (0..KINDS.len()).max_by(|&one, &other| ratios[one].total_cmp(&ratios[other]));
        let worst = worst.unwrap_or(0);
        let all = KINDS.iter().zip(&ratios).enumerate();
        let all = all.map(|(place, (name, ratio))| {
            let by_pool = pools.by_pool(place);
            (*name, json!({"ratio": ratio, "by_pool": by_pool}))
        });
        let mut found: serde_json::Map<String, _> =
            all.map(|(name, ratio)| (name.to_owned(), ratio)).collect();
        found.insert("state".to_owned(), json!(state));
        details = Some(found);
        let each = KINDS.iter().zip(&ratios);
        let each: Vec<String> = each
            .map(|(name, ratio)| format!("{name} {ratio:.3}"))
            .collect();
        let note = format!("worst: {}; {}; {}", KINDS[worst], each.join(", "), state);
        Ok(Found::of(&pools.rounds[worst]).noted(note))
    });
    if let Some(details) = details {
        collector
            .details
            .insert("auto_dram".to_owned(), details.into());
    }
}
