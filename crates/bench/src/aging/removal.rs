//! Removing a directory with a great many names, beside directories with few.

use super::{AgingOptions, library};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Pinned, Rounds, Stopwatch};
use crate::memory::require_room;
use crate::ops::bed::work_directory;
use perdure::{File, Pool};

/// A file without content takes less than this from the pool, its name included.
const BYTES_PER_NAME: u64 = 1300;
/// Making a million names takes far longer than removing them is measured for.
const ROUNDS_MAX: usize = 5;

/// Measures the bar.
pub(super) fn measure(collector: &mut Collector, options: &AgingOptions) {
    collector.row("rmdir_1m", || {
        let [many, few] = options.names;
        let pool_bytes = options.pool_bytes.max(many * BYTES_PER_NAME);
        require_room(&options.directory, pool_bytes)?;
        let place = work_directory(&options.directory)?;
        let _pin = Pinned::anywhere();
        let library = library(place.path(), pool_bytes, &options.media)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds.clamp(1, ROUNDS_MAX) {
            // As many names on both sides.
            theirs.push(remove(library.pool(), few, (many / few).max(1))?);
            ours.push(remove(library.pool(), many, 1)?);
        }
        library.close()?;
        Ok(Found::of(&Rounds::new(ours, theirs)))
    });
}

/// Makes `directories` directories of `names` names and removes them with all that is in them: nanoseconds for each name.
fn remove(pool: &Pool, names: u64, directories: u64) -> Result<f64, BenchError> {
    let path = |directory: u64| format!("doomed-{directory}");
    for directory in 0..directories {
        pool.create_dir(path(directory))?;
        let open = pool.open_dir(path(directory))?;
        for name in 0..names {
            drop(File::create_new(&open, format!("message-{name:07}"))?);
        }
    }
    let watch = Stopwatch::of_thread();
    for directory in 0..directories {
        pool.remove_dir_all(path(directory))?;
    }
    Ok(watch.nanoseconds() / (names * directories) as f64)
}
