//! Rows about names: create and unlink, open and close, against tmpfs by system calls.

use super::bed::{on_tmpfs, work_directory};
use super::{OpsOptions, times};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Work, alternate, latencies, nanoseconds_each};
use perdure::{Dir, File, Pool};
use pmem::Counters;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};
use std::ffi::CString;
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Names that are used in turn.
const NAMES: u64 = 1000;
const DEEP: &str = "first/second/third/file";

/// The same names for both sides, in the form that each takes without a conversion.
struct Names {
    ours: Vec<String>,
    theirs: Vec<CString>,
}

impl Names {
    fn new() -> Names {
        let ours: Vec<String> = (0..NAMES)
            .map(|number| format!("message-{number:06}"))
            .collect();
        let theirs = ours
            .iter()
            .map(|name| CString::new(name.as_str()).unwrap_or_default())
            .collect();
        Names { ours, theirs }
    }

    fn ours(&self, number: u64) -> &str {
        &self.ours[(number % NAMES) as usize]
    }

    fn theirs(&self, number: u64) -> &CString {
        &self.theirs[(number % NAMES) as usize]
    }
}

/// A directory on tmpfs, by its descriptor: the counterpart of [`Dir`].
struct Tmpfs {
    place: tempfile::TempDir,
    directory: OwnedFd,
}

impl Tmpfs {
    fn make(options: &OpsOptions) -> Result<Tmpfs, BenchError> {
        let place = work_directory(&on_tmpfs(&options.directory))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, place.path(), flags, Mode::empty());
        let directory = directory.map_err(BenchError::io("open", place.path()))?;
        Ok(Tmpfs { place, directory })
    }

    #[inline]
    fn open(&self, name: &CString, flags: OFlags) -> Result<OwnedFd, BenchError> {
        let mode = Mode::from_raw_mode(0o644);
        openat(&self.directory, name, flags | OFlags::CLOEXEC, mode)
            .map_err(|errno| BenchError::io("open", Path::new("a file on tmpfs"))(errno))
    }

    #[inline]
    fn create_unlink(&self, name: &CString) -> Result<(), BenchError> {
        drop(self.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?);
        unlinkat(&self.directory, name, AtFlags::empty())
            .map_err(|errno| BenchError::io("unlink", Path::new("a file on tmpfs"))(errno))
    }
}

pub(super) fn measure(collector: &mut Collector, options: &OpsOptions, pool: &Pool) {
    collector.row("create_unlink", || create_unlink(options, pool));
    collector.row("open_close", || open_close(options, pool));
}

#[inline]
fn create_unlink_ours(directory: &Dir, name: &str) -> Result<(), BenchError> {
    drop(File::create_new(directory, name)?);
    directory.remove_file(name)?;
    Ok(())
}

fn create_unlink(options: &OpsOptions, pool: &Pool) -> Result<Found, BenchError> {
    pool.create_dir("names")?;
    let directory = pool.open_dir("names")?;
    let (names, tmpfs) = (Names::new(), Tmpfs::make(options)?);
    let ours = |number| create_unlink_ours(&directory, names.ours(number));
    let theirs = |number| tmpfs.create_unlink(names.theirs(number));
    let rounds = alternate(
        options.rounds,
        |_| nanoseconds_each(options.operations, ours),
        |_| nanoseconds_each(options.operations, theirs),
    )?;
    let mut measured = times(&rounds);
    let (create, unlink) = work_of_both(&directory, &names, options.operations)?;
    measured.note = Some(format!(
        "flushes, fences, lines of create {:.2}, {:.2}, {:.2}, of unlink {:.2}, {:.2}, {:.2}; the row has those of the one with more fences",
        create.flushes, create.fences, create.lines, unlink.flushes, unlink.fences, unlink.lines
    ));
    measured.work = Some(if create.fences > unlink.fences {
        create
    } else {
        unlink
    });
    if options.verbose {
        measured.latencies = Some(latencies(options.operations, ours)?);
        measured.against_latencies = Some(latencies(options.operations, theirs)?);
    }
    drop(directory);
    pool.remove_dir("names")?;
    Ok(measured)
}

/// The work of one create and of one unlink; the checkpoints in between belong to whoever came upon them.
fn work_of_both(directory: &Dir, names: &Names, count: u64) -> Result<(Work, Work), BenchError> {
    let (mut create, mut unlink) = (Counters::default(), Counters::default());
    for number in 0..count {
        let begin = Counters::snapshot();
        drop(File::create_new(directory, names.ours(number))?);
        let middle = Counters::snapshot();
        directory.remove_file(names.ours(number))?;
        create = create + (middle - begin);
        unlink = unlink + (Counters::snapshot() - middle);
    }
    Ok((Work::each(create, count), Work::each(unlink, count)))
}

fn open_close(options: &OpsOptions, pool: &Pool) -> Result<Found, BenchError> {
    let parent = Path::new(DEEP).parent().unwrap_or(Path::new(""));
    pool.create_dir_all(parent)?;
    drop(File::create_new(pool, DEEP)?);
    let tmpfs = Tmpfs::make(options)?;
    let there = tmpfs.place.path().join(parent);
    std::fs::create_dir_all(&there).map_err(BenchError::io("make", &there))?;
    let deep = CString::new(DEEP).unwrap_or_default();
    drop(tmpfs.open(&deep, OFlags::RDWR | OFlags::CREATE)?);
    let ours = |_| {
        drop(black_box(File::open(pool, DEEP)?));
        Ok(())
    };
    let theirs = |_| {
        drop(black_box(tmpfs.open(&deep, OFlags::RDONLY)?));
        Ok(())
    };
    let rounds = alternate(
        options.rounds,
        |_| nanoseconds_each(options.operations, ours),
        |_| nanoseconds_each(options.operations, theirs),
    )?;
    let mut measured = times(&rounds);
    let before = Counters::snapshot();
    ours(0)?;
    measured.work = Some(Work::each(Counters::snapshot() - before, 1));
    if options.verbose {
        measured.latencies = Some(latencies(options.operations, ours)?);
        measured.against_latencies = Some(latencies(options.operations, theirs)?);
    }
    pool.remove_dir_all("first")?;
    Ok(measured)
}
