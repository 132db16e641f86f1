//! Proof that exploration would notice: every deliberate bug is switched on once, and must be found.
//!
//! Only with the cargo feature `deliberate-bugs`.

use crate::disk::sequence::Sequence;
use crate::lab::Lab;
use crate::on_device::OnDevice;
use crate::tally::Tally;
use crate::watcher::Failure;
use crate::workload::{Pool, Workload};
use parking_lot::Mutex;
use pmem::deliberate::{self, Bug};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Every bug, and what it is in a few words.
pub const BUGS: [(Bug, &str); 51] = [
    (Bug::SkipDataFlush, "data is stored and never flushed"),
    (
        Bug::SkipRecordFence,
        "an operation returns before its record is fenced",
    ),
    (
        Bug::SkipDataFence,
        "a record is written before its data is fenced, without a check",
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
    (
        Bug::SkipDataCheck,
        "a record is believed without a look at its data",
    ),
    (
        Bug::DistrustChangedData,
        "data that a later record changed is taken for torn",
    ),
    (
        Bug::ForgetJournalPlace,
        "a journal moves and its new place is not durable",
    ),
    (
        Bug::ForgetInvalidation,
        "a write leaves copies in DRAM as they were",
    ),
    (
        Bug::SkipLeaseDataCheck,
        "a leased file's newest record is believed without a look at its data",
    ),
    (
        Bug::SkipLeaseDataFence,
        "the record of a leased write of several blocks comes before its data",
    ),
    (
        Bug::CountBeforeFold,
        "records of a lease are counted as folded before they are",
    ),
    (
        Bug::LeaveLeaseTail,
        "a torn append to a leased file leaves bytes behind the end",
    ),
    (
        Bug::SkipLeaseStamp,
        "bytes are overwritten in place that the newest record vouches for",
    ),
    (
        Bug::SkipInPlaceFence,
        "an overwrite in place returns before its bytes are fenced",
    ),
    (
        Bug::TrustHeldData,
        "a record is judged by data that a process can change",
    ),
    (
        Bug::LeaveBlocksBehind,
        "a file that is given away stays where its old owner sees it",
    ),
    (
        Bug::RecordBeforeToken,
        "a record points to the device before the data is written there",
    ),
    (
        Bug::SwapWithoutFlush,
        "a record points to data that the device may still lose",
    ),
    (
        Bug::SwallowDeviceError,
        "a device that failed to write is believed",
    ),
    (Bug::TrustDevice, "old bytes of the device are believed"),
    (
        Bug::LogDeviceData,
        "a small write to the device is logged as if it were memory",
    ),
    (
        Bug::IgnoreLocation,
        "a pointer to the device is taken for one to memory",
    ),
    (
        Bug::FreeBothPlaces,
        "a block that moves to the device is freed there as well",
    ),
    (
        Bug::EvictUnseen,
        "a block is evicted that has changed since it was copied",
    ),
    (
        Bug::KeepTwinOfEvicted,
        "a copy on the device has a pointer and counts as a copy still",
    ),
    (
        Bug::AcknowledgeBeforeSync,
        "a call returns before the log has it",
    ),
    (
        Bug::CopyAheadOfCut,
        "a batch has data as a later call left it",
    ),
    (
        Bug::ImageAheadOfLog,
        "the image has changes that the log does not have",
    ),
    (
        Bug::TrimBeforeFlush,
        "the log is trimmed before the image is written",
    ),
    (
        Bug::PlaceLoggedBlock,
        "a replay stores older bytes over data that went to its place",
    ),
    (
        Bug::PlaceBehindBatch,
        "data is not at its place when the batch that publishes it is durable",
    ),
    (
        Bug::SkipImageFlush,
        "the log is trimmed and the image not flushed",
    ),
    (
        Bug::RetireBeforeLog,
        "records are retired in memory that the log does not have",
    ),
    (
        Bug::ForgetTable,
        "the log has the segment table of the mount",
    ),
    (
        Bug::ReplayBatchesBackwards,
        "batches are applied newest first",
    ),
    (
        Bug::LogRootNotDurable,
        "the log's root is not durable when the ring before it is free",
    ),
    (Bug::LogSkipsBodyCheck, "a torn batch is believed"),
    (
        Bug::LogSkipsFlushAtOpen,
        "a killed server's batches stay in the disk's cache",
    ),
    (
        Bug::LogWrapNotDurable,
        "the part of a batch behind the ring's end is not durable",
    ),
];

/// Longest search for one bug.
const SEARCH_TIME: Duration = Duration::from_secs(60);
/// Short workloads between two long ones.
const SHORT_PER_LONG: usize = 3;
/// Workloads of two journals between two long ones.
const ACROSS_PER_LONG: usize = 12;
/// Workloads with a lease between two long ones.
const LEASED_PER_LONG: usize = 6;
/// How long a search without a bug must find nothing.
const CONTROL_TIME: Duration = Duration::from_secs(10);

/// The search for one bug.
struct Search {
    found: Option<Failure>,
    tally: Arc<Tally>,
    elapsed: Duration,
}

/// Whether workloads with a lease show the bug soonest: a search for it looks at no others.
fn needs_lease(bug: Bug) -> bool {
    matches!(
        bug,
        Bug::SkipLeaseDataCheck
            | Bug::SkipLeaseDataFence
            | Bug::CountBeforeFold
            | Bug::LeaveLeaseTail
            | Bug::SkipLeaseStamp
            | Bug::SkipInPlaceFence
            | Bug::TrustHeldData
    )
}

fn has_lease(workload: &Workload) -> bool {
    matches!(
        workload,
        Workload::Leased(..) | Workload::LongLeased(_) | Workload::LongMapped(_)
    )
}

/// Whether only a pool of class `log` shows the bug.
fn needs_disk(bug: Bug) -> bool {
    let first = BUGS
        .iter()
        .position(|(bug, _)| *bug == Bug::AcknowledgeBeforeSync);
    let disk = &BUGS[first.unwrap_or(0)..];
    disk.iter().any(|(known, _)| *known == bug)
}

/// Whether only a pool with a device shows the bug.
fn needs_device(bug: Bug) -> bool {
    matches!(
        bug,
        Bug::RecordBeforeToken
            | Bug::SwapWithoutFlush
            | Bug::SwallowDeviceError
            | Bug::TrustDevice
            | Bug::LogDeviceData
            | Bug::IgnoreLocation
            | Bug::FreeBothPlaces
            | Bug::EvictUnseen
            | Bug::KeepTwinOfEvicted
    )
}

/// Those with a device, in a fixed shuffle.
fn device_workloads() -> impl Iterator<Item = Workload> {
    let mut all: Vec<OnDevice> = OnDevice::all_short().chain(OnDevice::all_pairs()).collect();
    all.sort_by_cached_key(|sequence| pmem::crc32c(sequence.to_string().as_bytes()));
    all.into_iter().map(Workload::OnDevice)
}

/// Those of class `log`, in a fixed shuffle; a long one after every few.
fn disk_workloads() -> impl Iterator<Item = Workload> {
    let mut short: Vec<Sequence> = Sequence::all_short().chain(Sequence::all_pairs()).collect();
    short.sort_by_cached_key(|sequence| pmem::crc32c(sequence.to_string().as_bytes()));
    let all = short.into_iter().enumerate().flat_map(|(index, short)| {
        let has_long = index.is_multiple_of(SHORT_PER_LONG);
        let long = has_long.then_some(Sequence::Long(index as u64));
        [Some(short), long].into_iter().flatten()
    });
    all.map(Workload::Disk)
}

/// Workloads in the order of a search: those of one operation, then pairs; after every few a long one and, because they are cheap,
/// several of two journals.
fn workloads() -> impl Iterator<Item = Workload> {
    let mut ones = Vec::new();
    let mut pairs = Vec::new();
    let mut across = Vec::new();
    let mut leased = Vec::new();
    for workload in Workload::all_short() {
        match workload {
            Workload::One(_) => ones.push(workload),
            Workload::Two(first, second) => pairs.push((shuffled(first, second), workload)),
            Workload::Across(first, second) => across.push((shuffled(first, second), workload)),
            Workload::Leased(lease, first, second) => {
                leased.push((shuffled(first, second) ^ u64::from(lease), workload));
            }
            Workload::Large(_)
            | Workload::Long(_)
            | Workload::LongLeased(_)
            | Workload::LongMapped(_)
            | Workload::Disk(_)
            | Workload::OnDevice(_) => {}
        }
    }
    pairs.sort_by_key(|(key, _)| *key);
    across.sort_by_key(|(key, _)| *key);
    leased.sort_by_key(|(key, _)| *key);
    let mut short = ones
        .into_iter()
        .chain(pairs.into_iter().map(|(_, workload)| workload))
        .peekable();
    let mut across = across.into_iter().map(|(_, workload)| workload);
    let mut leased = leased.into_iter().map(|(_, workload)| workload);
    (1..)
        .map_while(move |seed| {
            short.peek()?;
            let mut group: Vec<Workload> = short.by_ref().take(SHORT_PER_LONG).collect();
            group.push(Workload::Long(seed));
            group.extend(across.by_ref().take(ACROSS_PER_LONG));
            group.push(Workload::LongLeased(seed));
            group.push(Workload::LongMapped(seed));
            group.extend(leased.by_ref().take(LEASED_PER_LONG));
            Some(group)
        })
        .flatten()
}

/// Pairs that begin alike find alike: a fixed shuffle sets them apart.
fn shuffled(first: u32, second: u32) -> u64 {
    txn::checksum::mix64(u64::from(first) << 32 | u64::from(second))
}

/// Runs workloads from the common queue until one searcher has found something or the time is up.
fn hunt(
    lab: &mut Lab,
    workloads: &Mutex<impl Iterator<Item = Workload> + ?Sized>,
    found: &Mutex<Option<Failure>>,
    until: Instant,
) {
    while found.lock().is_none() && Instant::now() < until {
        let Some(workload) = workloads.lock().next() else {
            return;
        };
        if let Some(failure) = lab.run(workload).into_iter().next() {
            found.lock().get_or_insert(failure);
        }
    }
}

fn search(bug: Option<Bug>, time: Duration) -> Search {
    let searchers = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let tally = Arc::new(Tally::default());
    // The start trees are made without the bug.
    let mut labs: Vec<Lab> = (0..searchers)
        .map(|_| {
            let mut lab = Lab::new(Arc::clone(&tally), None);
            for number in 0..2 {
                let prepared = crate::disk::pool::prepared(number);
                debug_assert!(prepared.is_ok(), "a pool of class log");
            }
            for pool in [Pool::Tiny, Pool::TwoJournals, Pool::OnDevice] {
                let prepared = lab.prepare(pool);
                debug_assert!(prepared.is_ok(), "{prepared:?}");
            }
            lab
        })
        .collect();
    let begin = Instant::now();
    let with_lease = bug.is_some_and(needs_lease);
    let wanted: Box<dyn Iterator<Item = Workload> + Send> = match bug {
        Some(bug) if needs_disk(bug) => Box::new(disk_workloads()),
        Some(bug) if needs_device(bug) => Box::new(device_workloads()),
        Some(_) => Box::new(workloads().filter(|workload| !with_lease || has_lease(workload))),
        None => {
            let below = disk_workloads().zip(device_workloads());
            let all = workloads().zip(below);
            Box::new(all.flat_map(|(a, (b, c))| [a, b, c]))
        }
    };
    let (workloads, found) = (Mutex::new(wanted), Mutex::new(None));
    deliberate::set(bug);
    std::thread::scope(|scope| {
        for lab in &mut labs {
            scope.spawn(|| hunt(lab, &workloads, &found, begin + time));
        }
    });
    deliberate::set(None);
    Search {
        found: found.into_inner(),
        tally,
        elapsed: begin.elapsed(),
    }
}

/// Searches for every bug, or for the one of this name, and then for none; prints a line for each.
pub fn prove(only: Option<&str>) -> ExitCode {
    let mut missed = 0;
    let is_wanted = |bug: Bug| only.is_none_or(|name| name == format!("{bug:?}"));
    let bugs: Vec<_> = BUGS
        .into_iter()
        .filter(|(bug, _)| is_wanted(*bug))
        .collect();
    if bugs.is_empty() {
        println!("there is no such bug");
        return ExitCode::FAILURE;
    }
    let count = bugs.len();
    for (bug, what) in bugs {
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
        count - missed,
        count,
        if clean { "nothing" } else { "SOMETHING" }
    );
    if missed == 0 && clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
