//! Rows about a great many files: create and look up in their directory, recovery, memory of an idle mount.

use super::bed::{create_pool, work_directory};
use super::{OpsOptions, times};
use crate::child::IdleMount;
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Pinned, Places, alternate, latencies, median, nanoseconds_each, work_each};
use crate::memory::{Page, prepare, require_room};
use fs::{FileSystem, MountOptions, NewInode};
use perdure::{Dir, File, Pool};
use pmem::MediaModel;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use txn::{Mode, PmemStore};

/// Rows that need the many files.
pub(super) const ROWS: [&str; 4] = ["dir_1m_create", "dir_1m_lookup", "recovery", "idle_memory"];

const LARGE: &str = "large";
const SMALL: &str = "small";
/// Names in a small directory when its round begins.
const SMALL_NAMES: u64 = 1000;
/// Names that a small directory gets in a round: few, so that it stays small.
const SMALL_GROWTH: u64 = 250;
/// One file in so many has a block of data; the others are empty.
const FILES_PER_BLOCK: u64 = 8;
/// Records that recovery has to replay, besides the files that it has to find.
const LAST_CREATES: u64 = 500;
const RECOVERIES: usize = 5;
/// Until a process that was started has ended what it does at the start.
const SETTLE: Duration = Duration::from_millis(500);

/// Makes the files and measures all rows that need them.
pub(super) fn measure(collector: &mut Collector, options: &OpsOptions) -> Result<(), BenchError> {
    let pool_bytes = options.pool_bytes.max(options.names * 1300);
    require_room(&options.directory, pool_bytes)?;
    let place = work_directory(&options.directory)?;
    let path = place.path().join("pool");
    collector.tell("many files");
    let files = {
        let _pin = Pinned::anywhere();
        let pool = create_pool(&path, pool_bytes)?;
        let crowd = Crowd::make(&pool, options)?;
        collector.hash = collector
            .hash
            .wrapping_add(prepare(pool.filesystem().store().region(), &options.media));
        collector.row("dir_1m_create", || create(options, &crowd));
        collector.hashed_row("dir_1m_lookup", |hash| lookup(options, &crowd, hash));
        let files = count_files(&crowd)?;
        drop(crowd);
        pool.close()?;
        files
    };
    collector.row("idle_memory", || idle_memory(place.path(), &path));
    collector.row("recovery", || recovery(options, &path, files));
    Ok(())
}

/// The directories.
struct Crowd<'p> {
    pool: &'p Pool,
    large: Dir,
    small: Dir,
    /// Names in the large directory before its creates are measured.
    first: u64,
    /// Creates of a round.
    round_creates: u64,
}

fn name(number: u64) -> String {
    format!("message-{number:07}")
}

impl<'p> Crowd<'p> {
    fn make(pool: &'p Pool, options: &OpsOptions) -> Result<Crowd<'p>, BenchError> {
        // The last 2 % of the names are those whose creation is measured.
        let round_creates = (options.names / 50 / (options.rounds as u64 + 1)).max(1);
        let first =
            options.names - (round_creates * (options.rounds as u64 + 1)).min(options.names);
        let large = directory(pool, LARGE, 0..first)?;
        let small = directory(pool, SMALL, 0..SMALL_NAMES)?;
        Ok(Crowd {
            pool,
            large,
            small,
            first,
            round_creates,
        })
    }
}

/// A new directory with these names in it.
fn directory(pool: &Pool, path: &str, numbers: std::ops::Range<u64>) -> Result<Dir, BenchError> {
    pool.create_dir(path)?;
    let directory = pool.open_dir(path)?;
    let page = Page::filled();
    for number in numbers {
        let file = File::create_new(&directory, name(number))?;
        if number % FILES_PER_BLOCK == 0 {
            file.write_at(&page.0, 0)?;
        }
    }
    Ok(directory)
}

fn create_in(directory: &Dir, names: &[String]) -> Result<f64, BenchError> {
    nanoseconds_each(names.len() as u64, |index| {
        drop(File::create_new(directory, &names[index as usize])?);
        Ok(())
    })
}

/// Both sides get as many new files, in directories that keep about their size.
fn create(options: &OpsOptions, crowd: &Crowd<'_>) -> Result<Found, BenchError> {
    let numbers = |round: u64| {
        let begin = crowd.first + round * crowd.round_creates;
        begin..begin + crowd.round_creates
    };
    let mut made = 0;
    let rounds = alternate(
        options.rounds,
        |round| {
            let names: Vec<String> = numbers(round).map(name).collect();
            create_in(&crowd.large, &names)
        },
        |_| {
            let (mut total, mut left) = (0.0, crowd.round_creates);
            while left > 0 {
                let growth = left.min(SMALL_GROWTH);
                let path = format!("{SMALL}-{made}");
                let names: Vec<String> = (SMALL_NAMES..SMALL_NAMES + growth).map(name).collect();
                total += create_in(&directory(crowd.pool, &path, 0..SMALL_NAMES)?, &names)?
                    * growth as f64;
                (left, made) = (left - growth, made + 1);
            }
            Ok(total / crowd.round_creates as f64)
        },
    )?;
    let mut measured = times(&rounds);
    let more = options.names..;
    let names: Vec<String> = more.take(crowd.round_creates as usize).map(name).collect();
    measured.work = Some(work_each(crowd.round_creates, |index| {
        drop(File::create_new(&crowd.large, &names[index as usize])?);
        Ok(())
    })?);
    Ok(measured)
}

fn lookup(options: &OpsOptions, crowd: &Crowd<'_>, hash: &mut u64) -> Result<Found, BenchError> {
    let mut sum = 0_u64;
    let names = |round, limit| -> Vec<String> {
        let mut places = Places::new(round);
        (0..options.operations)
            .map(|_| name(places.below(limit)))
            .collect()
    };
    let mut once = |directory: &Dir, name: &str| {
        sum = sum.wrapping_add(black_box(directory.metadata(name)?).len());
        Ok(())
    };
    let mut round_of = |directory: &Dir, limit, round| {
        let names = names(round, limit);
        nanoseconds_each(options.operations, |index| {
            once(directory, &names[index as usize])
        })
    };
    // `alternate` wants two closures; only one of them runs at a time.
    let shared = std::cell::RefCell::new(&mut round_of);
    let rounds = alternate(
        options.rounds,
        |round| (shared.borrow_mut())(&crowd.large, crowd.first, round),
        |round| (shared.borrow_mut())(&crowd.small, SMALL_NAMES, round),
    )?;
    let mut measured = times(&rounds);
    let all = [names(1, crowd.first), names(1, SMALL_NAMES)];
    measured.work = Some(work_each(options.operations, |index| {
        once(&crowd.large, &all[0][index as usize])
    })?);
    if options.verbose {
        let mut each = |directory, names: &[String]| {
            latencies(options.operations, |index| {
                once(directory, &names[index as usize])
            })
        };
        measured.latencies = Some(each(&crowd.large, &all[0])?);
        measured.against_latencies = Some(each(&crowd.small, &all[1])?);
    }
    *hash = hash.wrapping_add(sum);
    Ok(measured)
}

fn count_files(crowd: &Crowd<'_>) -> Result<u64, BenchError> {
    let mut files = 0;
    for entry in crowd.pool.read_dir(".")? {
        files += crowd.pool.read_dir(entry?.file_name())?.count() as u64;
    }
    Ok(files)
}

fn idle_memory(place: &Path, pool: &Path) -> Result<Found, BenchError> {
    const MEBIBYTE: f64 = (1 << 20) as f64;
    let mountpoint = place.join("mount");
    std::fs::create_dir(&mountpoint).map_err(BenchError::io("make", &mountpoint))?;
    let idle = IdleMount::start(pool, &mountpoint, false)?;
    std::thread::sleep(SETTLE);
    let value = idle.resident_bytes_beyond_mapping()? as f64 / MEBIBYTE;
    let large = idle.mountpoint().join(LARGE);
    let entries = std::fs::read_dir(&large)
        .map_err(BenchError::io("list", &large))?
        .count();
    let listed = idle.resident_bytes_beyond_mapping()? as f64 / MEBIBYTE;
    idle.stop()?;
    let note = format!(
        "resident heap, stacks and code of a freshly started mount; {listed:.1} MiB after {entries} names were listed"
    );
    Ok(Found {
        value,
        against_value: 1.0,
        ratio: value,
        note: Some(note),
        ..Found::default()
    })
}

/// Seconds for a million files, on the pool as it is and on one of twice the size.
fn recovery(options: &OpsOptions, path: &Path, files: u64) -> Result<Found, BenchError> {
    let (value, best) = recover(path, files, &options.media)?;
    let (twice, larger_files) = recover_larger(options, path, files)?;
    let note = format!(
        "{files} files in {} MiB; {twice:.3} s per million with {larger_files} files in a pool of twice the size",
        pool_bytes(path)? >> 20
    );
    let measured = Found {
        value,
        against_value: 1.0,
        ratio: value,
        best_value: Some(best),
        ..Found::default()
    };
    Ok(Found {
        note: Some(note),
        ..measured
    })
}

fn pool_bytes(path: &Path) -> Result<u64, BenchError> {
    Ok(PmemStore::open(path, Mode::ReadWrite, true)?
        .region()
        .length())
}

fn recover_larger(options: &OpsOptions, path: &Path, files: u64) -> Result<(f64, u64), BenchError> {
    let bytes = pool_bytes(path)? * 2;
    require_room(&options.directory, bytes)?;
    let place = work_directory(&options.directory)?;
    let larger = place.path().join("pool");
    let pool = create_pool(&larger, bytes)?;
    drop(directory(&pool, LARGE, 0..files)?);
    pool.close()?;
    let (seconds, _) = recover(&larger, files, &options.media)?;
    Ok((seconds, files))
}

/// Crashes and recovers several times; median and best in seconds for a million files.
///
/// A file system that is dropped without being unmounted leaves what a killed process leaves: the journals full, the
/// state of the allocator not saved.
fn recover(path: &Path, files: u64, media: &MediaModel) -> Result<(f64, f64), BenchError> {
    let mut seconds = Vec::new();
    for round in 0..=RECOVERIES {
        let begin = Instant::now();
        let store = PmemStore::open(path, Mode::ReadWrite, true)?;
        store.region().set_media(media);
        let (was_clean, records) = (store.was_clean(), store.recovered_records());
        let mounted = FileSystem::mount(store, MountOptions::default())?;
        let elapsed = begin.elapsed();
        if round > 0 {
            if was_clean || records == 0 {
                return Err(BenchError::WrongData(
                    "the pool was found clean after a crash".to_owned(),
                ));
            }
            seconds.push(elapsed.as_secs_f64() * 1e6 / files as f64);
        }
        let root = mounted.root();
        for number in 0..LAST_CREATES {
            let name = format!("{round}-{number}");
            mounted.create(&root, name.as_bytes(), &NewInode::file(0o644))?;
            mounted.unlink(&root, name.as_bytes())?;
        }
    }
    let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    Ok((median(&seconds), best))
}
