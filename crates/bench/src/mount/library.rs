//! Rows of the preload library on the mount over io_uring, against the same mount without it.

use super::MountOptions;
use super::bed::LibraryBed;
use super::worker::{Job, SMALL_BYTES, SMALL_FILES, Worker, attached};
use crate::aging::{in_turn, pair};
use crate::collector::{Collector, Found};
use crate::direct::{fill, with_spread};
use crate::error::BenchError;
use crate::measure::median;
use crate::programs::{find, insert, write_script};
use std::path::Path;

/// With the library, and without it.
const WAYS: [bool; 2] = [true, false];
const THIS_PROGRAM: &str = "/proc/self/exe";

pub(super) fn measure(collector: &mut Collector, options: &MountOptions, bed: &LibraryBed) {
    collector.row("attach_next", || attach_next(options, bed));
    collector.row("small_write", || small(options, bed, &Job::SmallWrite));
    collector.row("small_read", || small(options, bed, &Job::SmallRead));
    collector.row("sqlite_delete", || sqlite(options, bed));
}

/// The longest of a process's first overwrites of a further file: the one that attaches it.
fn attach_next(options: &MountOptions, bed: &LibraryBed) -> Result<Found, BenchError> {
    /// The time that an attachment may take.
    const LIMIT_US: f64 = 40.0;
    const FILE_BYTES: u64 = 1 << 20;
    /// Files of a round.
    const FILES: u64 = 8;
    let directory = bed.directory()?;
    let files = FILES * (options.rounds as u64 + 1);
    for number in 0..files {
        fill(&attached(directory.path(), number), FILE_BYTES)?;
    }
    let job = Job::Attach {
        file_bytes: FILE_BYTES,
    };
    let start = || {
        let mut command = bed.command(Path::new(THIS_PROGRAM), true);
        // By number, not by price: each file is to be attached within its first operations.
        command.env("PERDURE_DIRECT_AFTER", "16");
        Worker::start(command, &job, directory.path())
    };
    // Another process has used each file before: new memory for blocks is no matter of attaching.
    let mut before = start()?;
    for number in 0..files {
        before.work(number as f64)?;
    }
    drop(before);
    let mut worker = start()?;
    let mut times = Vec::new();
    for number in 0..files {
        let answer = worker.work(number as f64)?;
        if !answer.is_direct {
            return Err(BenchError::NoDirectAccess);
        }
        times.push(answer.value);
    }
    let found = Found::beside_limit(&times[FILES as usize..], LIMIT_US);
    let [least, greatest] = found.ratio_range.unwrap_or_default();
    Ok(found.noted(format!(
        "files from {:.0} to {:.0} us; the first one of the process {:.0} us",
        least * LIMIT_US,
        greatest * LIMIT_US,
        times[0],
    )))
}

/// Microseconds of a turn of small files, with the library and without it.
fn small(options: &MountOptions, bed: &LibraryBed, job: &Job) -> Result<Found, BenchError> {
    let directories = [bed.directory()?, bed.directory()?];
    let mut workers = Vec::new();
    for (with_library, directory) in WAYS.into_iter().zip(&directories) {
        let command = bed.command(Path::new(THIS_PROGRAM), with_library);
        workers.push(Worker::start(command, job, directory.path())?);
    }
    let slice = options.slice_seconds();
    let times = in_turn(options.rounds, workers.len(), |way, _| {
        Ok(workers[way].work(slice)?.value)
    })?;
    let note = format!("{SMALL_FILES} files of {SMALL_BYTES} B");
    Ok(with_spread(&pair(&times[0], &times[1]), &note))
}

/// Transactions of one insert each, with a rollback journal and `synchronous=FULL`.
fn sqlite(options: &MountOptions, bed: &LibraryBed) -> Result<Found, BenchError> {
    const PER_SECOND: f64 = 1000.0;
    let program = find("sqlite3", "sqlite3")?;
    let directory = bed.directory()?;
    let count = options.amount(PER_SECOND);
    let script = write_script(bed.place(), "delete", count)?;
    let rates = in_turn(options.rounds, WAYS.len(), |way, _| {
        let database = directory.path().join(format!("database-{way}"));
        let command = bed.command(&program, WAYS[way]);
        Ok(count as f64 / insert(command, &database, &script)?)
    })?;
    let note = format!("{:.0} us a transaction", 1e6 / median(&rates[0]));
    Ok(with_spread(&pair(&rates[0], &rates[1]), &note))
}
