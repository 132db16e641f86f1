//! Proof that exploration would notice: every deliberate bug is switched on once, and must be found.
//!
//! Only with the cargo feature `deliberate-bugs`.

use crate::lab::Lab;
use crate::tally::Tally;
use crate::watcher::Failure;
use crate::workload::{Pool, Workload};
use pmem::deliberate::{self, Bug};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Every bug, and what it is in a few words.
pub const BUGS: [(Bug, &str); 16] = [
    (Bug::SkipDataFlush, "data is stored and never flushed"),
    (
        Bug::SkipRecordFence,
        "an operation returns before its record is fenced",
    ),
    (
        Bug::SkipDataFence,
        "a record is written before its data is fenced",
    ),
    (
        Bug::SkipCheckpointFlush,
        "a checkpoint retires records whose lines it never flushed",
    ),
    (
        Bug::CheckpointBeforeFlush,
        "a checkpoint moves its mark before it flushes",
    ),
    (Bug::TornPointer, "a word is stored in two halves"),
    (Bug::LeakBlock, "a freed block never becomes free"),
    (Bug::DoubleFree, "a block is freed twice"),
    (Bug::StaleIndex, "the index keeps a removed name"),
    (
        Bug::ReuseBeforeCheckpoint,
        "a freed block is reused while a live record names it",
    ),
    (
        Bug::SkipInodeChecksum,
        "an inode changes without its checksum",
    ),
    (Bug::ReplayOutOfOrder, "records are replayed newest first"),
    (Bug::SkipRecordChecksum, "a torn record is believed"),
    (
        Bug::ZeroTailForgotten,
        "truncation leaves old bytes behind the end",
    ),
    (
        Bug::SwapApplyAndCommit,
        "changes are applied before their record is durable",
    ),
    (Bug::RenameLosesTarget, "a rename leaves the old name"),
];

/// Longest search for one bug.
const SEARCH_TIME: Duration = Duration::from_secs(60);
/// Short workloads between two long ones.
const SHORT_PER_LONG: usize = 3;
/// How long a search without a bug must find nothing.
const CONTROL_TIME: Duration = Duration::from_secs(10);

/// The search for one bug.
struct Search {
    found: Option<Failure>,
    tally: Arc<Tally>,
    elapsed: Duration,
}

/// Workloads in the order of a search: those of one operation, then pairs; after every few a long one.
fn workloads() -> impl Iterator<Item = Workload> {
    let is_small = |workload: &Workload| workload.pool() == Pool::Tiny;
    let (ones, mut pairs): (Vec<_>, Vec<_>) = Workload::all_short()
        .into_iter()
        .filter(is_small)
        .partition(|workload| matches!(workload, Workload::One(_)));
    // Pairs that begin alike find alike: a fixed shuffle sets them apart.
    pairs.sort_by_key(|workload| match workload {
        Workload::Two(first, second) => {
            txn::checksum::mix64(u64::from(*first) << 32 | u64::from(*second))
        }
        _ => 0,
    });
    let longs = (1..).map(Workload::Long);
    let short: Vec<Workload> = ones.into_iter().chain(pairs).collect();
    let groups: Vec<Vec<Workload>> = short
        .chunks(SHORT_PER_LONG)
        .map(<[Workload]>::to_vec)
        .collect();
    groups
        .into_iter()
        .zip(longs)
        .flat_map(|(group, long)| group.into_iter().chain([long]))
}

fn search(bug: Option<Bug>, time: Duration) -> Search {
    let tally = Arc::new(Tally::default());
    let mut lab = Lab::new(Arc::clone(&tally), None);
    // The start trees are made without the bug.
    let prepared = lab.prepare(Pool::Tiny);
    debug_assert!(prepared.is_ok(), "{prepared:?}");
    let begin = Instant::now();
    deliberate::set(bug);
    let mut found = None;
    for workload in workloads() {
        found = lab.run(workload).into_iter().next();
        if found.is_some() || begin.elapsed() > time {
            break;
        }
    }
    deliberate::set(None);
    Search {
        found,
        tally,
        elapsed: begin.elapsed(),
    }
}

/// Searches for every bug and then for none; prints a line for each.
pub fn prove() -> ExitCode {
    let mut missed = 0;
    for (bug, what) in BUGS {
        let Search {
            found,
            tally,
            elapsed,
        } = search(Some(bug), SEARCH_TIME);
        let (counts, seconds) = (tally.counts(), elapsed.as_secs_f64());
        let head = format!(
            "{:<22} {seconds:6.2} s {:>6} workloads {:>8} states",
            format!("{bug:?}"),
            counts.workloads,
            counts.distinct
        );
        match found {
            Some(Failure { id, reason }) => {
                let reason: String = reason.replace('\n', " ").chars().take(90).collect();
                println!("{head}  found at {id}: {reason}");
            }
            None => {
                missed += 1;
                println!("{head}  NOT FOUND: {what}");
            }
        }
    }
    let Search {
        found,
        tally,
        elapsed,
    } = search(None, CONTROL_TIME);
    let (counts, seconds) = (tally.counts(), elapsed.as_secs_f64());
    let clean = found.is_none();
    println!(
        "{:<22} {seconds:6.2} s {:>6} workloads {:>8} states  {}",
        "no bug",
        counts.workloads,
        counts.distinct,
        match &found {
            None => "nothing found".to_string(),
            Some(Failure { id, reason }) => format!("FOUND {id}: {reason}"),
        }
    );
    println!(
        "{} of {} deliberate bugs found, {} without one",
        BUGS.len() - missed,
        BUGS.len(),
        if clean { "nothing" } else { "SOMETHING" }
    );
    if missed == 0 && clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
