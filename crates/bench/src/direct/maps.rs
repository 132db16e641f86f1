//! Mapped files: beside the rows, because there is no bar.

use super::DirectOptions;
use super::bed::{Bed, Program, Side};
use super::loops::order;
use super::program::{Operation, Order};
use crate::aging::in_turn;
use crate::collector::Collector;
use crate::error::BenchError;
use crate::measure::median;
use serde_json::json;

pub(super) const NAME: &str = "mmap_read";

const KINDS: [Side; 3] = [Side::Direct, Side::Fuse, Side::Tmpfs];

/// Measures random blocks out of a mapping, and a first look at each page of a file.
pub(super) fn measure(collector: &mut Collector, options: &DirectOptions, bed: &Bed) {
    let is_wanted = options.only.is_empty() || options.only.iter().any(|name| name == NAME);
    if !is_wanted {
        return;
    }
    collector.tell("mapped files");
    if let Err(error) = times(collector, options, bed) {
        let topic = "absent: mapped files".to_owned();
        collector.details.insert(topic, json!(error.to_string()));
    }
}

fn times(collector: &mut Collector, options: &DirectOptions, bed: &Bed) -> Result<(), BenchError> {
    let read = medians(options, bed, Operation::MapRead, None)?;
    let pass = medians(options, bed, Operation::MapPass, Some(3))?;
    let sides = |[direct, fuse, tmpfs]: [f64; 3]| json!({"direct_ns": direct, "mount_without_library_ns": fuse, "tmpfs_ns": tmpfs});
    let bytes = options.file_bytes;
    let details = json!({
        "random_4k": sides(read),
        "file_bytes": bytes,
        "map_look_at_each_page_unmap": sides(pass),
    });
    collector.details.insert("mapped files".to_owned(), details);
    Ok(())
}

/// Nanoseconds of an operation on each side; as many operations in a round as fit, or so many.
fn medians(
    options: &DirectOptions,
    bed: &Bed,
    operation: Operation,
    count: Option<u64>,
) -> Result<[f64; 3], BenchError> {
    let order = Order {
        warm_up: count.map_or(options.warm_up, |_| 1),
        ..order(options, operation)
    };
    let start = |side: Side| bed.start(side, &format!("{operation:?}"), &order);
    let [direct, fuse, tmpfs] = KINDS.map(start);
    let mut programs = [direct?, fuse?, tmpfs?];
    let slice = options.slice_seconds(KINDS.len());
    let count = |program: &mut Program| count.map_or_else(|| program.count_for(slice), Ok);
    let [direct, fuse, tmpfs] = &mut programs;
    let counts = [count(direct)?, count(fuse)?, count(tmpfs)?];
    let times = in_turn(options.rounds, KINDS.len(), |side, _| {
        Ok(programs[side].run(counts[side])?.nanoseconds)
    })?;
    programs.iter().try_for_each(Program::verify)?;
    Ok([0, 1, 2].map(|side: usize| median(&times[side])))
}
