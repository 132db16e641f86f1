//! Checking and repairing a pool (`fsck`).
//!
//! [`check`] reads a pool that need not be mountable and names everything that contradicts `docs/FORMAT.md`. It takes any
//! bytes: it never panics, ends after work in proportion to the pool, and writes nothing. [`repair`] does what the faults
//! promise, pass after pass, until a pass finds nothing. [`check_pool`] does all of it to the files of a pool.
//!
//! The parts, in order:
//!
//! | part | looks at |
//! | --- | --- |
//! | `header`, `journals` | superblocks, state block, segment table, journals |
//! | `table`, `inode`, `map`, `attributes` | every inode and every block that one owns (in parallel) |
//! | `leases` | records of direct writes |
//! | `names`, `records` | every name: records, targets, uniqueness |
//! | `links` | link counts, parents, reachability |
//! | `saved` | the volatile state of a clean unmount against all of the above |
//!
//! Repair is not atomic: a power cut in the middle leaves some faults repaired and others not. It is *re-runnable*: each pass
//! derives what to do from what it finds, and a store that was done is not found again.

mod attributes;
mod claims;
mod context;
mod header;
mod inode;
mod journals;
mod kind;
mod leases;
mod links;
mod lost_found;
mod map;
mod names;
mod owners;
mod paths;
mod plan;
mod pool;
mod records;
mod regrow;
mod repair;
mod report;
mod saved;
mod single_bit;
mod table;
mod table_root;
mod target;

pub use kind::FaultKind;
pub use pool::{PoolCheck, check_pool};
pub use repair::{Repaired, repair};
pub use report::{Counts, Fault, LISTED_FAULTS_MAX, Place, Report, Severity};

use claims::Claims;
use context::{Findings, Scan};
use names::Names;
use pmem::{BLOCK_BYTES, Region};
use std::collections::BTreeSet;

/// Called with the work done and the work there is, in a unit of its own; not more often than some thousand times.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How to check.
#[derive(Clone, Copy, Default)]
pub struct CheckOptions<'a> {
    /// Threads that read inodes; 0 = one per core.
    pub threads: usize,
    /// Who wants to know how far it is.
    pub progress: Option<Progress<'a>>,
}

impl std::fmt::Debug for CheckOptions<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CheckOptions")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// Checks the pool in `region`, any bytes. Nothing is written.
///
/// The journals should have been replayed (opening a store does it; for a check alone, in a private copy); live records are
/// reported, and what they would have changed is then seen as faults.
pub fn check(region: &Region, options: &CheckOptions<'_>) -> Report {
    let mut pass = Pass::run(region, options);
    pass.findings.report.complete = pass.complete;
    pass.findings.report
}

/// One pass over a pool.
struct Pass {
    findings: Findings,
    /// Who owns what; `None` if that could not be found out.
    claims: Option<Claims>,
    complete: bool,
}

impl Pass {
    fn run(region: &Region, options: &CheckOptions<'_>) -> Pass {
        let first = Pass::with_contested(region, options, &BTreeSet::new());
        let clashes = first
            .claims
            .as_ref()
            .map(Claims::clashes)
            .unwrap_or_default();
        if clashes.is_empty() {
            return first;
        }
        // Blocks with two owners: once more in a fixed order, so that it is clear who was first.
        let options = CheckOptions {
            threads: 1,
            ..*options
        };
        Pass::with_contested(region, &options, &clashes)
    }

    fn with_contested(
        region: &Region,
        options: &CheckOptions<'_>,
        contested: &BTreeSet<u64>,
    ) -> Pass {
        let mut findings = Findings::default();
        let Some(superblock) = header::find_superblock(region) else {
            findings.fault(Place::Pool, FaultKind::SuperblocksLost, String::new());
            return Pass {
                findings,
                claims: None,
                complete: false,
            };
        };
        let geometry = superblock.geometry();
        if region.length() < geometry.total_bytes() {
            let detail = format!(
                "{} bytes instead of {}",
                region.length(),
                geometry.total_bytes()
            );
            findings.fault(Place::Pool, FaultKind::PoolTruncated, detail);
        }
        if !header::header_fits(region, &geometry) {
            return Pass {
                findings,
                claims: None,
                complete: false,
            };
        }
        let claims = Claims::new(geometry, region.length() / BLOCK_BYTES as u64, contested);
        let scan = Scan {
            region,
            superblock,
            geometry,
            claims: &claims,
            mappers: header::mappers(region, &geometry),
        };
        let complete = check_all(&scan, options, &mut findings);
        findings.report.counts.blocks = claims.blocks();
        findings.report.counts.blocks_used = claims.count();
        Pass {
            findings,
            claims: Some(claims),
            complete,
        }
    }
}

/// Checks a pool whose superblock is known. Whether all of it could be looked at.
fn check_all(scan: &Scan<'_>, options: &CheckOptions<'_>, findings: &mut Findings) -> bool {
    header::check_superblocks(scan.region, &scan.superblock, findings);
    let state = header::check_state(scan.region, &scan.superblock, findings);
    journals::check_replayed(scan.region, &scan.superblock, &state, findings);
    header::claim_journals(&scan.superblock, &state, scan.claims);
    header::check_reserved(scan.region, &scan.superblock, state.is_clean, findings);
    let Some(mut inodes) = table::check(scan, options, findings) else {
        return false;
    };
    let directories = inodes.directories.len() as u64;
    let mut names = Names::new(scan, &mut inodes, findings);
    let mut done = 0;
    names.read(|| {
        done += 1;
        report_progress(options, Phase::Names, done, directories);
    });
    links::check(scan, &mut names, state.is_clean);
    paths::name_faults(&mut names);
    names.finish();
    header::check_segments(scan, findings);
    if state.is_clean {
        saved::check(scan, &inodes, findings);
    }
    true
}

/// The two long parts of a check; each is half of the work.
#[derive(Clone, Copy)]
enum Phase {
    Inodes = 0,
    Names = 1,
}

/// Steps of which a phase reports one each.
const PROGRESS_STEPS: u64 = 1000;

fn report_progress(options: &CheckOptions<'_>, phase: Phase, done: u64, total: u64) {
    let Some(progress) = options.progress else {
        return;
    };
    let step = |done: u64| done * PROGRESS_STEPS / total.max(1);
    if done == total || step(done) != step(done.saturating_sub(1)) {
        progress(
            phase as u64 * PROGRESS_STEPS + step(done),
            2 * PROGRESS_STEPS,
        );
    }
}
