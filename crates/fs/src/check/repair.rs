//! Repairing: pass after pass, until one finds nothing.

use super::context::Findings;
use super::pass::Pass;
use super::progress::CheckOptions;
use super::report::Report;
use super::{header, journals, lost_found, regrow, saved};
use pmem::Region;
use std::sync::Arc;
use txn::Superblock;

/// More passes than any damage needs: each repairs what it can, and what one repairs the next does not find.
const PASSES_MAX: usize = 200;

/// What a repair did.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Faults before the repair, and damage that a repair has uncovered.
    pub found: Report,
    /// What is left: nothing, except where a fault says that it cannot be repaired or the pool is too full.
    pub left: Report,
    /// Passes that changed something.
    pub passes: usize,
}

/// Repairs the pool in `region` and checks it again.
///
/// Journals are replayed first, so that no record overwrites a repair. The mark of a clean unmount goes with the first store: the next
/// mount rebuilds its volatile state. Not atomic, but it can be interrupted at any point and run again.
pub fn repair(region: &Arc<Region>, options: &CheckOptions<'_>) -> Repaired {
    let mut repaired = Repaired {
        found: prepare(region),
        ..Repaired::default()
    };
    for pass_number in 0..PASSES_MAX {
        let mut pass = Pass::run(region, options);
        pass.findings.report.complete = pass.complete;
        if pass_number == 0 {
            repaired.found.merge(pass.findings.report.clone());
            repaired.found.counts = pass.findings.report.counts;
            repaired.found.complete = pass.complete;
        } else {
            repaired.found.add_new_damage(&pass.findings.report);
        }
        let changed = change(region, &pass);
        repaired.left = pass.findings.report;
        if !changed {
            break;
        }
        repaired.passes += 1;
    }
    repaired
}

/// Does what the pass plans. Whether anything changed.
fn change(region: &Arc<Region>, pass: &Pass) -> bool {
    let plan = &pass.findings.plan;
    if !plan.has_stores() && !plan.has_growth() {
        return false;
    }
    region.fence(region.store_u64(saved::clean_mark(), 0).flush());
    if plan.has_stores() {
        plan.store(region);
        return true;
    }
    let Some(claims) = &pass.claims else {
        return false;
    };
    if !plan.lost_halves.is_empty() {
        // Alone, because the rest needs journals.
        let Some(superblock) = header::find_superblock(region) else {
            return false;
        };
        return header::place_halves(region, &superblock, claims, &plan.lost_halves);
    }
    let result = if plan.table_holes.is_empty() && plan.directory_holes.is_empty() {
        lost_found::connect(region, &plan.lost)
    } else {
        regrow::fill(region, claims, plan)
    };
    result
        .inspect_err(|error| tracing::error!(%error, "repair stopped"))
        .is_ok()
}

/// Makes replay possible and replays. Returns the faults that nobody sees any more afterwards.
pub(super) fn prepare(region: &Region) -> Report {
    let mut findings = Findings::default();
    let Some(superblock) = header::find_superblock(region) else {
        return findings.report;
    };
    if region.length() < superblock.geometry().total_bytes() {
        return findings.report;
    }
    replay(region, &superblock, &mut findings);
    findings.report
}

fn replay(region: &Region, superblock: &Superblock, findings: &mut Findings) {
    let state = header::check_state(region, superblock, findings);
    findings.plan.store(region);
    let is_any_lost = journals::check_records(region, superblock, &state, findings);
    match txn::recovery::replay_from(region, superblock, &state.halves) {
        Ok(replay) => tracing::debug!(records = replay.records, "journals replayed"),
        // The checkpoint was just put right; should replay still refuse, the check says why.
        Err(error) => tracing::error!(%error, "journals cannot be replayed"),
    }
    if is_any_lost {
        // Now they are dropped: the next mount shall not find them.
        txn::recovery::forget_records(region, superblock, &state.halves);
    }
}
