//! Rows of Filebench: its personalities over both transports, and with the preload library.

use super::MountOptions;
use super::bed::{Bed, LibraryBed, command, compare, in_memory};
use super::real_filebench::{Filebench, Set};
use super::worker::{Job, Worker};
use crate::aging::loop_device::{LoopDisk, LoopKind};
use crate::aging::{in_turn, pair};
use crate::collector::{Collector, Found};
use crate::direct::with_spread;
use crate::error::BenchError;
use crate::measure::median;
use crate::ops::bed::work_directory;
use crate::personality::Personality;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Personality, its row, its row with the library.
const ROWS: [(Personality, &str, &str); 4] = [
    (
        Personality::Fileserver,
        "filebench_fileserver",
        "filebench_fileserver_preload",
    ),
    (
        Personality::Webproxy,
        "filebench_webproxy",
        "filebench_webproxy_preload",
    ),
    (
        Personality::Webserver,
        "filebench_webserver",
        "filebench_webserver_preload",
    ),
    (
        Personality::Varmail,
        "filebench_varmail",
        "filebench_varmail_preload",
    ),
];

/// Over both transports.
pub(super) fn measure(collector: &mut Collector, options: &MountOptions, bed: &Bed) {
    for (personality, row, _) in ROWS {
        collector.row(row, || transports(options, bed, personality));
    }
}

fn transports(
    options: &MountOptions,
    bed: &Bed,
    personality: Personality,
) -> Result<Found, BenchError> {
    let [ours, theirs] = bed.directories()?;
    let mut loads = [
        Load::make(options, personality, None, ours)?,
        Load::make(options, personality, None, theirs)?,
    ];
    let rounds = compare(options.rounds, |side| loads[side as usize].rate(options))?;
    Ok(with_spread(&rounds, &loads[0].described(options)))
}

/// With the preload library and without it, on one mount.
pub(super) fn measure_library(collector: &mut Collector, options: &MountOptions, bed: &LibraryBed) {
    for (personality, _, row) in ROWS {
        collector.row(row, || with_library(options, bed, personality));
    }
}

fn with_library(
    options: &MountOptions,
    bed: &LibraryBed,
    personality: Personality,
) -> Result<Found, BenchError> {
    let load = |library, directory| Load::make(options, personality, library, directory);
    let ext4 = match personality {
        Personality::Varmail => Some(ext4(options)),
        _ => None,
    };
    let mut loads = vec![
        load(bed.library(true), bed.directory()?)?,
        load(None, bed.directory()?)?,
    ];
    if let Some(Ok((disk, _))) = &ext4 {
        loads.push(load(None, work_directory(disk.mountpoint())?)?);
    }
    let rates = in_turn(options.rounds, loads.len(), |way, _| {
        loads[way].rate(options)
    })?;
    let beside = match (&ext4, rates.get(2)) {
        (Some(Err(error)), _) => format!("; without ext4: {error}"),
        (_, Some(rates)) => format!("; on ext4 on a loop device in memory {:.0}", median(rates)),
        (_, None) => String::new(),
    };
    let note = format!("{}{beside}", loads[0].described(options));
    Ok(with_spread(&pair(&rates[0], &rates[1]), &note))
}

/// ext4 on a loop device whose image is in memory; the image's directory goes after the disk.
fn ext4(options: &MountOptions) -> Result<(LoopDisk, TempDir), BenchError> {
    if !rustix::process::geteuid().is_root() {
        let reason = "only root can mount ext4 on a loop device";
        return Err(BenchError::Unavailable(reason.to_owned()));
    }
    let place = in_memory(options)?;
    let bytes = options.pool_bytes / 2;
    let disk = LoopDisk::mount(place.path(), LoopKind::Ext4, bytes, false)?;
    Ok((disk, place))
}

/// A personality at work in a directory.
enum Load {
    Own {
        worker: Worker,
        /// Removed after the worker has ended.
        _directory: TempDir,
    },
    Real {
        filebench: Filebench,
        personality: Personality,
        library: Option<PathBuf>,
        directory: TempDir,
    },
}

impl Load {
    fn make(
        options: &MountOptions,
        personality: Personality,
        library: Option<&Path>,
        directory: TempDir,
    ) -> Result<Load, BenchError> {
        if let Some(filebench) = Filebench::find() {
            return Ok(Load::Real {
                filebench,
                personality,
                library: library.map(Path::to_path_buf),
                directory,
            });
        }
        let job = Job::Personality {
            name: personality.to_string(),
            files: options.set_files,
            mean_bytes: options.set_mean_bytes,
            threads: options.set_threads,
        };
        let program = command(Path::new("/proc/self/exe"), library);
        Ok(Load::Own {
            worker: Worker::start(program, &job, directory.path())?,
            _directory: directory,
        })
    }

    /// Operations per second of a slice.
    fn rate(&mut self, options: &MountOptions) -> Result<f64, BenchError> {
        let seconds = options.slice_seconds();
        match self {
            Load::Own { worker, .. } => Ok(worker.work(seconds)?.value),
            Load::Real {
                filebench,
                personality,
                library,
                directory,
            } => {
                let set = Set {
                    directory: directory.path(),
                    files: options.set_files,
                    mean_bytes: options.set_mean_bytes,
                    threads: options.set_threads,
                };
                filebench.rate(*personality, set, library.as_deref(), seconds)
            }
        }
    }

    fn described(&self, options: &MountOptions) -> String {
        let (files, threads) = (options.set_files, options.set_threads);
        let program = match self {
            Load::Own { .. } => "this program's own personality (filebench is not installed)",
            Load::Real { .. } => "the installed filebench with its own script",
        };
        format!("{program}, {files} files, {threads} threads")
    }
}
