//! What a check found, as text and as JSON. The names of the JSON fields are stable.

use serde::Serialize;
use std::fmt;

/// A fault: where, what, what it means for the files, and what helps.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fault {
    pub(super) place: String,
    pub(super) fault: String,
    pub(super) consequence: String,
    /// What `--repair` does, or what else helps.
    pub(super) remedy: String,
    pub(super) repairable: bool,
    pub(super) repaired: bool,
}

/// What was looked at.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Counts {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) other_inodes: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) pool: String,
    pub(super) class: Option<String>,
    /// Whether the last owner closed the pool. A pool that was not closed is no fault: the next mount recovers it.
    pub(super) closed: Option<bool>,
    /// Journal records that the next mount applies; the check sees the pool as it will be then.
    pub(super) journal_records: Option<u64>,
    pub(super) counts: Counts,
    pub(super) faults: Vec<Fault>,
    repaired: usize,
    left: usize,
}

impl Report {
    pub(super) fn new(pool: &std::path::Path) -> Report {
        Report {
            pool: pool.display().to_string(),
            class: None,
            closed: None,
            journal_records: None,
            counts: Counts::default(),
            faults: Vec::new(),
            repaired: 0,
            left: 0,
        }
    }

    pub(super) fn add(&mut self, fault: Fault) {
        if fault.repaired {
            self.repaired += 1;
        } else {
            self.left += 1;
        }
        self.faults.push(fault);
    }

    pub(super) fn repairable_faults(&self) -> usize {
        self.faults.iter().filter(|fault| fault.repairable && !fault.repaired).count()
    }

    pub(super) fn repaired(&self) -> usize {
        self.repaired
    }

    pub(super) fn faults_left(&self) -> usize {
        self.left
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(out, "{}: {}", fault.place, fault.fault)?;
            writeln!(out, "  consequence: {}", fault.consequence)?;
            let label = match (fault.repaired, fault.repairable) {
                (true, _) => "repaired",
                (false, true) => "--repair",
                (false, false) => "remedy",
            };
            writeln!(out, "  {label}: {}", fault.remedy)?;
        }
        write!(out, "{}: ", self.pool)?;
        match (self.left, self.repaired) {
            (0, 0) => write!(out, "no faults")?,
            (0, repaired) => write!(out, "{repaired} faults, all repaired")?,
            (left, 0) => write!(out, "{left} faults")?,
            (left, repaired) => write!(out, "{repaired} faults repaired, {left} left")?,
        }
        let Counts { files, directories, other_inodes, bytes } = &self.counts;
        write!(out, "; {files} files, {directories} directories, {other_inodes} others, {} of data", crate::output::Bytes(*bytes))?;
        if let Some(records @ 1..) = self.journal_records {
            write!(out, "; {records} journal records wait for the next mount")?;
        }
        writeln!(out)
    }
}
