//! Rows of names and attributes: one thread in a loop.

use super::MountOptions;
use super::bed::{Bed, compare, forget_names, rate_for};
use crate::collector::{Collector, Found};
use crate::direct::with_spread;
use crate::error::BenchError;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tempfile::TempDir;

pub(super) fn measure(collector: &mut Collector, options: &MountOptions, bed: &Bed) {
    collector.row("create_unlink", || create_unlink(options, bed));
    collector.group(&["open_close", "stat_cold"], |collector| {
        let names = Names::make(options, bed)?;
        collector.row("open_close", || names.cold(options, open_close));
        collector.row("stat_cold", || {
            names.cold(options, |path| path.symlink_metadata().map(drop))
        });
        Ok(())
    });
}

/// A new file, closed and removed.
fn create_unlink(options: &MountOptions, bed: &Bed) -> Result<Found, BenchError> {
    let directories = bed.directories()?;
    let slice = options.slice_seconds();
    let mut count = 0;
    let rounds = compare(options.rounds, |side| {
        let directory = directories[side as usize].path();
        rate_for(slice, || {
            count += 1;
            let path = directory.join(format!("file-{count}"));
            let made = File::create_new(&path).map(drop);
            made.and_then(|()| std::fs::remove_file(&path))
                .map_err(BenchError::io("create and unlink", &path))
        })
    })?;
    Ok(with_spread(&rounds, ""))
}

/// `open`, `fstat`, `close`.
fn open_close(path: &Path) -> std::io::Result<()> {
    File::open(path)?.metadata().map(drop)
}

/// Directories with the same names on both sides.
struct Names {
    _directories: [TempDir; 2],
    paths: [Vec<PathBuf>; 2],
}

impl Names {
    fn make(options: &MountOptions, bed: &Bed) -> Result<Names, BenchError> {
        let directories = bed.directories()?;
        let paths = directories.each_ref().map(|directory| {
            (0..options.names)
                .map(|number| directory.path().join(format!("file-{number}")))
                .collect::<Vec<_>>()
        });
        for path in paths.iter().flatten() {
            std::fs::write(path, "x").map_err(BenchError::io("write", path))?;
        }
        Ok(Names {
            _directories: directories,
            paths,
        })
    }

    /// An operation on each name, none of which the kernel knows: it forgets them before each pass.
    /// The server has told the kernel that `open` needs no request, and the lookup brings the
    /// attributes, so an operation on a known name would send no request at all.
    fn cold(
        &self,
        options: &MountOptions,
        operation: impl Fn(&Path) -> std::io::Result<()>,
    ) -> Result<Found, BenchError> {
        let slice = options.slice_seconds();
        let rounds = compare(options.rounds, |side| {
            let paths = &self.paths[side as usize];
            let (mut seconds, mut count) = (0.0, 0);
            while count == 0 || seconds < slice {
                forget_names()?;
                let begin = Instant::now();
                for path in paths {
                    operation(path).map_err(BenchError::io("look at", path))?;
                }
                seconds += begin.elapsed().as_secs_f64();
                count += paths.len();
            }
            Ok(count as f64 / seconds)
        })?;
        let note = format!("{} names, forgotten before each pass", options.names);
        Ok(with_spread(&rounds, &note))
    }
}
