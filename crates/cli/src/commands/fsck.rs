//! `perdure fsck`: finds faults, explains them, repairs them if asked.

mod examine;
mod report;

use crate::arguments::Fsck;
use crate::failure::{Failure, Status};
use crate::output;
use report::Report;
use std::io::{self, BufRead, IsTerminal, Write};

/// Exit codes of fsck(8).
const EXIT_REPAIRED: u8 = 1;
const EXIT_FAULTS_LEFT: u8 = 4;
const EXIT_NOT_RUN: u8 = 8;
/// The command line makes no sense.
pub(crate) const EXIT_USAGE: u8 = 16;

pub(crate) fn run(arguments: &Fsck) -> Result<Status, Failure> {
    check(arguments).map_err(|failure| match failure.status {
        Status::ClosedPipe => failure,
        _ => failure.with_status(Status::Other(EXIT_NOT_RUN)),
    })
}

fn check(arguments: &Fsck) -> Result<Status, Failure> {
    let mut report = examine::examine(&arguments.pool)?;
    if arguments.repair && report.repairable_faults() > 0 {
        if !arguments.json {
            output::print(&report)?;
        }
        if arguments.yes || consents(&report)? {
            report = examine::repair(&arguments.pool, report)?;
        }
    }
    match arguments.json {
        true => output::print_json(&report)?,
        false => output::print(&report)?,
    }
    Ok(match (report.faults_left(), report.repaired()) {
        (0, 0) => Status::Success,
        (0, _) => Status::Other(EXIT_REPAIRED),
        _ => Status::Other(EXIT_FAULTS_LEFT),
    })
}

/// Asks on a terminal; elsewhere `--repair` is consent enough.
fn consents(report: &Report) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    let faults = report.repairable_faults();
    write!(io::stderr(), "repair {faults} faults? [y/N] ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
