//! The inode table: its own inode, its blocks, and all inodes in them.

use super::context::{DirectoryBlocks, Findings, Inodes, Scan, State, Summary};
use super::inode::{self, Examined};
use super::kind::FaultKind;
use super::leases;
use super::owners;
use super::progress::{CheckOptions, Phase, report_progress};
use super::report::Place;
use super::table_root::{self, own_inode};
use crate::format::inode::{INODE_BYTES, INODES_PER_BLOCK};
use crate::format::{FileType, InodeNumber, RawInode};
use pmem::{BLOCK_BYTES, BlockNumber};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Blocks of the table that a thread takes at a time.
const BATCH_BLOCKS: usize = 64;

/// Checks the table and every inode in it. `None` if it cannot be found.
pub(super) fn check(
    scan: &Scan<'_>,
    options: &CheckOptions<'_>,
    findings: &mut Findings,
) -> Option<Inodes> {
    let table = check_own(scan, findings)?;
    let mut inodes = Inodes {
        table,
        ..Inodes::default()
    };
    let parts = check_batches(scan, options, &inodes.table);
    let capacity = inodes.table.len() * INODES_PER_BLOCK as usize;
    inodes.summaries = vec![Summary::default(); capacity];
    for part in parts {
        let first = part.first_block * INODES_PER_BLOCK as usize;
        inodes.summaries[first..first + part.summaries.len()].copy_from_slice(&part.summaries);
        inodes.directories.extend(part.directories);
        findings.merge(part.findings);
    }
    findings.judge_tails();
    leases::check(scan, &inodes, findings);
    owners::check(scan, &inodes, findings);
    Some(inodes)
}

/// Checks the table's own inode; returns where its blocks are.
fn check_own(scan: &Scan<'_>, findings: &mut Findings) -> Option<Vec<Option<BlockNumber>>> {
    let number = InodeNumber::TABLE;
    let file_type = FileType::Regular;
    let stored: RawInode = scan.region.load(own_inode());
    let (mut raw, certain) = match inode::examine(&mut Findings::default(), number, stored) {
        Examined::Used {
            raw,
            file_type: FileType::Regular,
            certain,
        } => {
            inode::examine(findings, number, stored);
            (raw, certain)
        }
        _ => {
            let Some(raw) = table_root::find(scan, &stored) else {
                findings.fault(Place::Inode(number), FaultKind::TableLost, String::new());
                return None;
            };
            let detail = format!("its map has height {}", raw.height);
            findings.fault(Place::Inode(number), FaultKind::TableInodeLost, detail);
            (raw, false)
        }
    };
    inode::check_fields(findings, number, &mut raw, file_type);
    let found = inode::check_map(scan, findings, number, &mut raw, file_type, certain);
    let count = (raw.size / BLOCK_BYTES as u64) as usize;
    // Blocks that no pointer leads to are searched for, if it is known how many there are.
    if count == 0 {
        findings.fault(
            Place::Inode(number),
            FaultKind::TableLost,
            "its block map is empty",
        );
        return None;
    }
    inode::check_blocks(findings, number, &mut raw, found.owned);
    if raw != stored || !stored.is_intact(number) {
        findings.plan.inode(number, own_inode(), raw);
    }
    let mut table = vec![None; count];
    for (index, block) in found.blocks {
        if let Some(slot) = table.get_mut(index as usize) {
            *slot = Some(block);
        }
    }
    for index in (0..count).filter(|&index| table[index].is_none()) {
        findings.fault(
            Place::TableBlock(index as u64),
            FaultKind::TableHole,
            String::new(),
        );
        findings.plan.table_holes.push(index as u64);
    }
    Some(table)
}

/// What one thread found in one batch.
struct Part {
    first_block: usize,
    summaries: Vec<Summary>,
    directories: Vec<DirectoryBlocks>,
    findings: Findings,
}

/// Checks all inodes; the parts are in the order of the table.
fn check_batches(
    scan: &Scan<'_>,
    options: &CheckOptions<'_>,
    table: &[Option<BlockNumber>],
) -> Vec<Part> {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = if options.threads == 0 {
        cores()
    } else {
        options.threads
    };
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let parts = Mutex::new(Vec::new());
    let work = || {
        loop {
            let first = next.fetch_add(BATCH_BLOCKS, Ordering::Relaxed);
            if first >= table.len() {
                break;
            }
            let batch = &table[first..table.len().min(first + BATCH_BLOCKS)];
            let part = check_batch(scan, first, batch);
            parts
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .push(part);
            let before = done.fetch_add(batch.len() as u64, Ordering::Relaxed);
            report_progress(
                options,
                Phase::Inodes,
                before + batch.len() as u64,
                table.len() as u64,
            );
        }
    };
    if threads <= 1 || table.len() <= BATCH_BLOCKS {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
    }
    let mut parts = parts
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    parts.sort_by_key(|part| part.first_block);
    parts
}

fn check_batch(scan: &Scan<'_>, first_block: usize, batch: &[Option<BlockNumber>]) -> Part {
    let summaries = Vec::with_capacity(batch.len() * INODES_PER_BLOCK as usize);
    let mut part = Part {
        first_block,
        summaries,
        directories: Vec::new(),
        findings: Findings::default(),
    };
    for (index, block) in (first_block as u64..).zip(batch) {
        let Some(block) = block else {
            part.summaries.extend(
                [Summary {
                    state: State::Unknown,
                    ..Summary::default()
                }; INODES_PER_BLOCK as usize],
            );
            continue;
        };
        let raws: [RawInode; INODES_PER_BLOCK as usize] = scan.region.load(block.offset());
        for (slot, raw) in raws.iter().enumerate() {
            let number = InodeNumber::new(index * INODES_PER_BLOCK + slot as u64);
            let at = block.offset() + (slot * INODE_BYTES) as u64;
            let (summary, directory) = inode::check(scan, &mut part.findings, number, at, *raw);
            part.summaries.push(summary);
            part.directories.extend(directory);
        }
    }
    part
}
