//! The log of a mount of class `log`, as lines of the report.

use crate::output::Bytes;
use server::control::{LogStatus, Status};
use std::fmt;

/// The log of a server, for people.
pub(super) struct Lines<'a>(pub(super) &'a Status);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.log {
            Some(log) => lines(log, out),
            None => Ok(()),
        }
    }
}

fn lines(log: &LogStatus, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        out,
        "log        {} of {} used, a recovery reads them in {:.1} s; durable: {}",
        Bytes(log.used_bytes),
        Bytes(log.ring_bytes),
        log.recovery_seconds,
        log.durability
    )?;
    writeln!(
        out,
        "           {} syncs ({:.0}/s), p50 {:.0} us, p99 {:.0} us, longest {:.0} us; {} each, {} in flight",
        log.syncs,
        log.syncs_per_second,
        log.sync_p50_us,
        log.sync_p99_us,
        log.sync_max_us,
        Bytes(log.batch_bytes),
        log.writes_in_flight
    )?;
    if log.placed_bytes > 0 {
        writeln!(
            out,
            "           {} logged, {} of large data written straight to its place",
            Bytes(log.logged_bytes),
            Bytes(log.placed_bytes)
        )?;
    }
    if log.late_calls > 0 {
        writeln!(
            out,
            "           {} calls waited {:.2} s in all because the disk was slower than they",
            log.late_calls, log.late_seconds
        )?;
    }
    write!(
        out,
        "           {} checkpoints of the image, {} behind",
        log.checkpoints,
        Bytes(log.dirty_bytes)
    )?;
    match log.checkpoint_age_seconds {
        Some(age) => writeln!(out, ", the last {age:.0} s ago")?,
        None => writeln!(out)?,
    }
    if log.unloaded_bytes > 0 {
        writeln!(
            out,
            "           {} of memory not loaded yet; {} accesses waited for their block",
            Bytes(log.unloaded_bytes),
            log.load_waits
        )?;
    }
    match &log.failure {
        Some(failure) => writeln!(out, "           FAILED: {failure}"),
        None => Ok(()),
    }
}
