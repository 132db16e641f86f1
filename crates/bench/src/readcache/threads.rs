//! Two readers against one, on hot blocks.

use super::bed::{BLOCK, Bed, System};
use super::hits::plain_buffer;
use super::slices::{read_one, require_right};
use super::{ReadCacheOptions, crew};
use crate::aging::{in_turn, pair};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{median, processors};
use fs::{Node, ReadCacheMode};
use serde_json::{Map, json};
use std::time::Duration;

/// What a thread of this number reads.
type Plan = fn(thread: usize, blocks: u32) -> Work;

/// A file, and how many of its blocks, from the first on.
struct Work {
    file: usize,
    blocks: u32,
}

/// All threads the same block; the control has a page for each thread.
fn one_block(_thread: usize, _blocks: u32) -> Work {
    Work { file: 0, blocks: 1 }
}

/// Each thread the whole of a file of its own.
fn own_file(thread: usize, blocks: u32) -> Work {
    Work {
        file: thread,
        blocks,
    }
}

/// Each thread 256 KiB of a file of its own, which stay in its processor's caches: what is left when the threads do not share the machine's memory.
fn own_part(thread: usize, blocks: u32) -> Work {
    Work {
        file: thread,
        blocks: blocks.min(64),
    }
}

/// Each thread one block of a file of its own: DRBL as FxMark itself has it. The paper's threads read files of 64 MiB from beginning to end.
fn own_block(thread: usize, _blocks: u32) -> Work {
    Work {
        file: thread,
        blocks: 1,
    }
}

/// The same row on less memory, with what the notes call it.
type Near = [(&'static str, Plan)];

const DRBL_NEAR: &Near = &[
    ("256 KiB of a file for each", own_part),
    (
        "one block of a file for each, as FxMark's own DRBL",
        own_block,
    ),
];

/// One thread has each of two processors in turn, because a machine shared with others may have a fast one and a slow one. What two
/// threads could reach in these minutes if they had nothing in common is told by two that copy from private buffers.
pub(super) fn measure(collector: &mut Collector, options: &ReadCacheOptions) {
    let rows: [(&'static str, Plan, &Near); 2] =
        [("drbm_2", one_block, &[]), ("drbl_2", own_file, DRBL_NEAR)];
    for (name, plan, near) in rows {
        let mut details = None;
        collector.row(name, || {
            let bed = Bed::new(options, &options.media, two_files(options))?;
            let blocks = options.file_blocks();
            let files = [bed.fill("first", blocks)?, bed.fill("second", blocks)?];
            for file in &files {
                bed.warm(file, blocks)?;
            }
            let sides = compare(options, &bed, &files, plan)?;
            let rounds = pair(&sides[0], &sides[1]);
            let control = pair(&sides[2], &sides[3]).ratios()[1];
            let mut note =
                format!("two threads that copy from private buffers against one: {control:.2}");
            let mut nearer = Map::new();
            for &(what, plan) in near {
                let sides = compare(options, &bed, &files, plan)?;
                let ratio = pair(&sides[0], &sides[1]).ratios()[1];
                note += &format!("; read cache, {what}: {ratio:.2}");
                nearer.insert(what.to_owned(), json!(ratio));
            }
            let per_second: Vec<f64> = sides.iter().map(|rates| median(rates)).collect();
            details = Some(json!({
                "control": control,
                "nearer": nearer,
                "megabytes_per_second": per_second,
                "statistics": bed.files.read_cache_statistics(),
            }));
            Ok(Found::of(&rounds).noted(note))
        });
        if let Some(details) = details {
            collector.details.insert(name.to_owned(), details);
        }
    }
}

/// Room for the files of two threads and more.
fn two_files(options: &ReadCacheOptions) -> fs::ReadCacheOptions {
    fs::ReadCacheOptions {
        budget_bytes: 2 * options.budget_bytes,
        ..options.cache(ReadCacheMode::On)
    }
}

/// Megabytes per second of two threads, of one, and the same of the control.
fn compare(
    options: &ReadCacheOptions,
    bed: &Bed,
    files: &[Node; 2],
    plan: Plan,
) -> Result<Vec<Vec<f64>>, BenchError> {
    let processors = processors();
    let two = [0, 1].map(|place| processors[place % processors.len()]);
    let duration = Duration::from_secs_f64(options.seconds);
    let Work { blocks, .. } = plan(0, options.file_blocks());
    let buffers = [plain_buffer(blocks), plain_buffer(blocks)];
    let cached = |on: &[usize]| {
        crew::run(on, duration, |thread, batch, page| {
            let Work { file, blocks } = plan(thread, options.file_blocks());
            let mut read = |offset, into: &mut [u8]| bed.read(&files[file], offset, into);
            let mut wrong = 0;
            for request in crew::batch(batch) {
                wrong |= read_one((request % u64::from(blocks)) as u32, page, &mut read)?;
            }
            require_right(wrong)
        })
    };
    let control = |on: &[usize]| {
        crew::run(on, duration, |thread, batch, page| {
            let buffer = &buffers[thread];
            let mut read = |offset: u64, into: &mut [u8]| {
                let begin = offset as usize;
                into.copy_from_slice(&buffer[begin..begin + BLOCK as usize]);
                Ok(into.len())
            };
            let mut wrong = 0;
            for request in crew::batch(batch) {
                wrong |= read_one((request % u64::from(blocks)) as u32, page, &mut read)?;
            }
            require_right(wrong)
        })
    };
    in_turn(options.rounds, 4, |side, _| match side {
        0 => cached(&two),
        1 => one_in_turn(two, cached),
        2 => control(&two),
        _ => one_in_turn(two, control),
    })
}

/// The rate of one thread that has each processor in turn.
fn one_in_turn(
    processors: [usize; 2],
    rate: impl Fn(&[usize]) -> Result<f64, BenchError>,
) -> Result<f64, BenchError> {
    let [first, second] = processors.map(|processor| rate(&[processor]));
    Ok((first? + second?) / 2.0)
}
