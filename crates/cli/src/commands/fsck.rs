//! `perdure fsck`: finds faults, explains them, repairs them if asked.

mod report;

use crate::arguments::Fsck;
use crate::failure::{Failure, Status, failure_of_open};
use crate::mounts;
use crate::output;
use fs::check::{CheckOptions, PoolCheck, check_pool};
use indicatif::ProgressBar;
use report::Report;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

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
    let pool = &arguments.pool;
    let repairs_unasked = arguments.repair && (arguments.yes || !is_conversation());
    let mut report = Report::new(pool, &look(pool, repairs_unasked)?);
    if arguments.repair && !repairs_unasked && report.faults_total() > 0 {
        output::print(&report)?;
        if consents(report.faults_total())? {
            report = Report::new(pool, &look(pool, true)?);
        } else {
            return Ok(Status::Other(EXIT_FAULTS_LEFT));
        }
    }
    match arguments.json {
        true => output::print_json(&report)?,
        false => output::print(&report)?,
    }
    Ok(match (report.is_clean(), report.faults_total()) {
        (true, 0) => Status::Success,
        (true, _) => Status::Other(EXIT_REPAIRED),
        (false, _) => Status::Other(EXIT_FAULTS_LEFT),
    })
}

/// Checks, or checks and repairs, with a bar for whoever watches.
fn look(pool: &Path, with_repair: bool) -> Result<PoolCheck, Failure> {
    let bar = output::step_bar(0);
    bar.set_message(if with_repair { "repairing" } else { "checking" });
    let check = |options: &CheckOptions<'_>| check_pool(pool, with_repair, options);
    let check = || with_progress(&bar, check);
    let checked = mounts::open_once_saved(pool, check, |error| Some(error));
    bar.finish_and_clear();
    checked.map_err(|error| failure_of_open(pool, error))
}

fn with_progress<T>(bar: &ProgressBar, work: impl FnOnce(&CheckOptions<'_>) -> T) -> T {
    let progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    work(&CheckOptions {
        threads: 0,
        progress: Some(&progress),
    })
}

/// Whether somebody sits there who can be asked.
fn is_conversation() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn consents(faults: u64) -> Result<bool, Failure> {
    write!(io::stderr(), "repair {faults} faults? [y/N] ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
