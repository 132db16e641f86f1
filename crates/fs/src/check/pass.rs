//! One pass of a check over a pool.

use super::claims::Claims;
use super::context::{Findings, Scan};
use super::kind::FaultKind;
use super::names::Names;
use super::progress::{CheckOptions, Phase, report_progress};
use super::report::{Place, Report};
use super::{header, journals, links, paths, saved, table};
use pmem::{BLOCK_BYTES, Region};
use std::collections::BTreeSet;

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
pub(super) struct Pass {
    pub(super) findings: Findings,
    /// Who owns what; `None` if that could not be found out.
    pub(super) claims: Option<Claims>,
    pub(super) complete: bool,
}

impl Pass {
    pub(super) fn run(region: &Region, options: &CheckOptions<'_>) -> Pass {
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
        let claims = Claims::new(&superblock, region.length() / BLOCK_BYTES as u64, contested);
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
    header::claim_own(&scan.superblock, &state, scan.claims);
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
