//! Journals: what a damaged checkpoint word was, records that nobody can apply, replay.

use super::context::Findings;
use super::header;
use super::kind::FaultKind;
use super::report::Place;
use pmem::{BLOCK_BYTES, BlockNumber, LINE_BYTES, Region};
use txn::Superblock;
use txn::record::Record;

/// Number and length of the whole records that follow one another from the start of a half, numbers growing.
struct Run {
    numbers: Vec<u64>,
    /// Byte behind the last of them.
    end: usize,
}

fn run(half: &[u8], superblock: &Superblock) -> Run {
    let geometry = superblock.geometry();
    let mut run = Run {
        numbers: Vec::new(),
        end: 0,
    };
    while let Some(record) = half
        .get(run.end..)
        .and_then(|rest| Record::parse(rest, &geometry))
    {
        if run
            .numbers
            .last()
            .is_some_and(|&last| record.sequence <= last)
        {
            break;
        }
        run.numbers.push(record.sequence);
        run.end += record.padded_bytes();
    }
    run
}

/// Both halves of a journal; empty if it does not lie inside the region.
fn halves(region: &Region, superblock: &Superblock, start: BlockNumber) -> [Vec<u8>; 2] {
    let bytes = superblock.journal_blocks as usize * BLOCK_BYTES;
    let end = start.offset().get() + bytes as u64;
    if end > region.length() {
        return [Vec::new(), Vec::new()];
    }
    [0, 1].map(|half| {
        let mut content = vec![0; bytes / 2];
        region.read(start.offset() + (half * bytes / 2) as u64, &mut content);
        content
    })
}

/// What the checkpoint word most probably was, from the journals alone.
///
/// Replaying a record that was retired is worse than not replaying a live one: the retired one may overwrite a block
/// that was freed and given to another file since (R1), which nobody would notice, while the effects of a live one are mostly in
/// place already and what is missing is found by the check that follows. So this is the *largest* number that still
/// leaves the newest records alive:
///
/// * All journals switch halves at the same moment, so the live records are in the halves on the side of the newest
///   record, and every number on the other side is retired, unless the power went in the middle of a checkpoint.
/// * Numbers are used without gaps, but each journal may have lost its last record: counting down from the newest, more
///   gaps than journals mean that the rest is left over from before the half was last reused.
///
/// It depends on nothing but the journals, and replaying them twice is the same as once, so a repair that is interrupted and
/// started again comes to the same result.
pub(super) fn derive_checkpoint(
    region: &Region,
    superblock: &Superblock,
    starts: &[BlockNumber],
) -> u64 {
    let mut sides = [Vec::new(), Vec::new()];
    for &start in starts {
        for (side, half) in sides.iter_mut().zip(halves(region, superblock, start)) {
            side.extend(run(&half, superblock).numbers);
        }
    }
    let newest = |side: &[u64]| side.iter().copied().max().unwrap_or(0);
    let (first, second) = (newest(&sides[0]), newest(&sides[1]));
    let [left, right] = sides;
    let (mut live, retired) = if first >= second {
        (left, second)
    } else {
        (right, first)
    };
    live.retain(|&number| number > retired);
    live.sort_unstable_by(|a, b| b.cmp(a));
    let (mut lowest, mut gaps) = (first.max(second) + 1, 0);
    for number in live {
        gaps += (lowest - 1).saturating_sub(number);
        if gaps > u64::from(superblock.journals) {
            break;
        }
        lowest = number;
    }
    lowest - 1
}

/// Reports whole records that follow a broken one: a crash leaves only the last record of a half broken.
pub(super) fn check_records(
    region: &Region,
    superblock: &Superblock,
    state: &header::State,
    findings: &mut Findings,
) {
    for (index, &start) in state.journals.iter().enumerate() {
        for half in halves(region, superblock, start) {
            let run = run(&half, superblock);
            let newest = run
                .numbers
                .last()
                .copied()
                .unwrap_or(0)
                .max(state.checkpoint);
            let behind = (run.end..half.len())
                .step_by(LINE_BYTES)
                .filter_map(|at| Record::parse(&half[at..], &superblock.geometry()))
                .find(|record| record.sequence > newest);
            if let Some(record) = behind {
                let detail = format!(
                    "record {} and those behind it cannot be applied",
                    record.sequence
                );
                findings.fault(Place::Journal(index as u32), FaultKind::RecordsLost, detail);
            }
        }
    }
}

/// Reports live records. After replay there are none.
pub(super) fn check_replayed(
    region: &Region,
    superblock: &Superblock,
    state: &header::State,
    findings: &mut Findings,
) {
    for (index, &start) in state.journals.iter().enumerate() {
        for half in halves(region, superblock, start) {
            let first = Record::parse(&half, &superblock.geometry());
            if let Some(record) = first.filter(|record| record.sequence > state.checkpoint) {
                let detail = format!("from record {} on", record.sequence);
                findings.fault(
                    Place::Journal(index as u32),
                    FaultKind::RecordsNotReplayed,
                    detail,
                );
            }
        }
    }
}
