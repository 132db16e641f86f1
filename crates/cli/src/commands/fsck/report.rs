//! What a check found, as text and as JSON. The names of the JSON fields are stable.

use crate::output::Bytes;
use fs::check::{self, PoolCheck};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// A fault: where, what, what it means for the files, and what helps.
#[derive(Clone, Debug, Serialize)]
struct Fault {
    place: String,
    /// A name of the file, from the root on.
    path: Option<String>,
    /// A name that does not change between releases.
    kind: &'static str,
    /// `note`, `inconsistency` or `damage`.
    severity: String,
    fault: String,
    consequence: &'static str,
    repair: &'static str,
    repaired: bool,
}

/// What the pool holds.
#[derive(Clone, Debug, Serialize)]
struct Counts {
    inodes: u64,
    files: u64,
    directories: u64,
    symlinks: u64,
    others: u64,
    /// Unlinked files that were open at the end; the next mount frees them.
    orphans: u64,
    names: u64,
    bytes: u64,
    blocks: u64,
    blocks_used: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pool: String,
    clean: bool,
    /// Whether everything could be looked at.
    complete: bool,
    counts: Counts,
    faults_total: u64,
    faults_left: u64,
    /// The first thousand.
    faults: Vec<Fault>,
}

impl Report {
    pub(super) fn new(pool: &Path, checked: &PoolCheck) -> Report {
        let found = &checked.found;
        let left = checked.left.as_ref().unwrap_or(found);
        let repairs = checked.left.is_some();
        let is_left = |fault: &check::Fault| {
            !repairs
                || left
                    .faults
                    .iter()
                    .any(|other| (other.place, other.kind) == (fault.place, fault.kind))
        };
        Report {
            pool: pool.display().to_string(),
            clean: left.is_clean(),
            complete: left.complete,
            counts: Counts::of(&left.counts),
            faults_total: found.faults_total,
            faults_left: left.faults_total,
            faults: found
                .faults
                .iter()
                .map(|fault| Fault::of(fault, !is_left(fault)))
                .collect(),
        }
    }

    pub(super) fn faults_total(&self) -> u64 {
        self.faults_total
    }

    /// Whether all is well now.
    pub(super) fn is_clean(&self) -> bool {
        self.clean
    }
}

impl Fault {
    fn of(fault: &check::Fault, repaired: bool) -> Fault {
        let summary = fault.kind.summary();
        Fault {
            place: fault.place.to_string(),
            path: fault.path.clone(),
            kind: fault.kind.name(),
            severity: fault.kind.severity().to_string(),
            fault: if fault.detail.is_empty() {
                summary.to_owned()
            } else {
                format!("{summary} ({})", fault.detail)
            },
            consequence: fault.kind.consequence(),
            repair: fault.kind.repair(),
            repaired,
        }
    }
}

impl Counts {
    fn of(counts: &check::Counts) -> Counts {
        Counts {
            inodes: counts.inodes,
            files: counts.files,
            directories: counts.directories,
            symlinks: counts.symlinks,
            others: counts.others,
            orphans: counts.orphans,
            names: counts.names,
            bytes: counts.bytes,
            blocks: counts.blocks,
            blocks_used: counts.blocks_used,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            write!(out, "{} at {}", fault.severity, fault.place)?;
            if let Some(path) = &fault.path {
                write!(out, " (`{path}`)")?;
            }
            writeln!(out, ": {}", fault.fault)?;
            writeln!(out, "  consequence: {}", fault.consequence)?;
            writeln!(
                out,
                "  {}: {}",
                if fault.repaired { "repaired" } else { "repair" },
                fault.repair
            )?;
        }
        let unlisted = self.faults_total - self.faults.len() as u64;
        if unlisted > 0 {
            writeln!(out, "and {unlisted} more faults")?;
        }
        write!(out, "{}: ", self.pool)?;
        match (self.faults_total, self.faults_left) {
            (0, 0) => write!(out, "no faults")?,
            (found, 0) => write!(out, "{found} faults, all repaired")?,
            (found, left) if found == left => write!(out, "{left} faults")?,
            (found, left) => write!(out, "{found} faults, {left} left")?,
        }
        if !self.complete {
            write!(out, "; not everything could be looked at")?;
        }
        let Counts {
            files,
            directories,
            symlinks,
            others,
            bytes,
            ..
        } = &self.counts;
        let bytes = Bytes(*bytes);
        writeln!(
            out,
            "; {files} files, {directories} directories, {symlinks} links, {others} others, {bytes}"
        )
    }
}
