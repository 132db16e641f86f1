//! Reads of cold blocks: what a reader pays for a cache that does not help him.

use super::orders::{part, shuffled};
use super::pools::{Kind, in_turn};
use super::{ReadCacheOptions, SEED};
use crate::collector::Collector;
use crate::error::BenchError;
use crate::evaluation::{Figure, Series, Shape};
use crate::measure::Rounds;
use fs::{ReadCacheMode, ReadCacheStatistics};
use serde_json::json;

/// Every round reads blocks that nobody has read since the mount. After that they are read once more, in the same order: those reads reach the
/// threshold and leave pointers, and the background thread copies at the same time.
pub(super) fn measure(collector: &mut Collector, options: &ReadCacheOptions) {
    let mut figure = None;
    let mut details = None;
    collector.row("miss", || {
        // What the medium holds beside some room for metadata.
        let blocks = (options.pool_bytes / super::bed::BLOCK / 8 * 5) as u32;
        let order = shuffled(blocks, SEED);
        let kind = Kind {
            media: &options.media,
            mode: ReadCacheMode::On,
            blocks,
        };
        let each = options.requests.min(order.len());
        let mut statistics = Vec::new();
        let pools = in_turn(options, kind, options.pool_rounds(), |side, round| {
            let order = part(&order, round, each);
            let count = || side.bed.files.read_cache_statistics();
            let first = side.read(order)?;
            let cold = count();
            let second = side.read(order)?;
            if let (Some(cold), Some(hot)) = (cold, count()) {
                require_cold(&cold)?;
                statistics = vec![cold, hot];
            }
            Ok(vec![first, second])
        })?;
        figure = Some(bars(&pools.rounds));
        let [least, second, most] = pools.rounds[1].ratios();
        details = Some(json!({
            "first_reads": pools.rounds[0].ratios(),
            "second_reads_that_leave_pointers": [least, second, most],
            "statistics_after_each": statistics,
        }));
        let note =
            format!("second reads, which leave pointers while blocks are copied: {second:.3}");
        Ok(pools.time().noted(note))
    });
    collector.figures.extend(figure);
    if let Some(details) = details {
        collector.details.insert("miss".to_owned(), details);
    }
}

/// First reads that were copied or came from DRAM would be something else than misses. Counts of few blocks fall together.
fn require_cold(statistics: &ReadCacheStatistics) -> Result<(), BenchError> {
    let ReadCacheStatistics {
        fills,
        hits,
        misses,
        ..
    } = *statistics;
    match (fills + hits) * 1000 <= misses {
        true => Ok(()),
        false => Err(BenchError::Setup(format!(
            "{fills} blocks were copied after one read, {hits} reads came from DRAM"
        ))),
    }
}

fn bars(rounds: &[Rounds]) -> Figure {
    let series = |label: &str, of: fn(&Rounds) -> f64| Series {
        label: label.to_owned(),
        values: rounds.iter().map(|rounds| Some(of(rounds) / 1e9)).collect(),
    };
    Figure {
        name: "miss".to_owned(),
        title: "Reads of blocks without copies".to_owned(),
        shape: Shape::Bars,
        x_label: "reads since the mount",
        places: vec![
            "first".to_owned(),
            "second, while blocks are copied".to_owned(),
        ],
        y_label: "seconds",
        series: vec![
            series("read cache", Rounds::ours),
            series("direct", Rounds::theirs),
        ],
    }
}
