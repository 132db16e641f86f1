//! Rows of fio: 4 KiB at random places, past the page cache, by jobs that make a system call for
//! each. Every job has a file of its own, because the kernel admits one writer at a time to a file.

use super::MountOptions;
use super::bed::{Bed, Side, command, compare};
use crate::collector::{Collector, Found};
use crate::direct::{fill, fio_figures, with_spread};
use crate::error::BenchError;
use crate::programs::{find, run};
use std::path::Path;
use tempfile::TempDir;

const FIO: &str = "fio";
const MOST_JOBS: usize = 4;

/// Row, kind, jobs.
const ROWS: [(&str, &str, usize); 4] = [
    ("randread_1", "read", 1),
    ("randwrite_1", "write", 1),
    ("randread_4", "read", MOST_JOBS),
    ("randwrite_4", "write", MOST_JOBS),
];

pub(super) fn measure(collector: &mut Collector, options: &MountOptions, bed: &Bed) {
    collector.group(&ROWS.map(|(name, ..)| name), |collector| {
        let program = find(FIO, FIO)?;
        let directories = bed.directories()?;
        for directory in &directories {
            for job in 0..MOST_JOBS {
                let path = directory.path().join(format!("file.{job}"));
                fill(&path, options.file_bytes)?;
            }
        }
        for (name, kind, jobs) in ROWS {
            collector.row(name, || {
                row(options, bed, &program, &directories, (kind, jobs))
            });
        }
        Ok(())
    });
}

fn row(
    options: &MountOptions,
    bed: &Bed,
    program: &Path,
    directories: &[TempDir; 2],
    (kind, jobs): (&str, usize),
) -> Result<Found, BenchError> {
    let mut latencies = [0.0; 2];
    let rounds = compare(options.rounds, |side| {
        let directory = directories[side as usize].path();
        let (rate, latency_ns) = once(options, bed, program, directory, (kind, jobs))?;
        latencies[side as usize] = latency_ns / 1e3;
        Ok(rate)
    })?;
    let [ours, theirs] = [Side::IoUring, Side::Classic].map(|side| latencies[side as usize]);
    let note = format!("latencies {ours:.1} and {theirs:.1} us");
    Ok(with_spread(&rounds, &note))
}

/// Operations per second of all jobs, and the mean latency in nanoseconds.
fn once(
    options: &MountOptions,
    bed: &Bed,
    program: &Path,
    directory: &Path,
    (kind, jobs): (&str, usize),
) -> Result<(f64, f64), BenchError> {
    const LEAST_MS: f64 = 50.0;
    let milliseconds = (options.slice_seconds() * 1e3).max(LEAST_MS);
    let mut command = command(program, None);
    command
        // fio leaves notes in its working directory.
        .current_dir(bed.place())
        .args(["--name=perdure", "--filename_format=file.$jobnum"])
        .arg(format!("--directory={}", directory.display()))
        .arg(format!("--size={}", options.file_bytes))
        .arg(format!("--rw=rand{kind}"))
        .arg(format!("--numjobs={jobs}"))
        .arg(format!("--runtime={milliseconds:.0}ms"))
        .args(["--ioengine=psync", "--direct=1", "--bs=4k", "--time_based"])
        .args(["--group_reporting", "--clocksource=cpu", "--eta=never"])
        .arg("--output-format=json");
    let output = run(FIO, &mut command)?;
    fio_figures(&String::from_utf8_lossy(&output.stdout), kind)
        .map(|figures| (figures.rate, figures.latency_ns))
        .ok_or_else(|| BenchError::program(FIO, "its report has no figures"))
}
