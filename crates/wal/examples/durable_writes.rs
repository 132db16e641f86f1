//! Compares durable batches of the log with raw O_DIRECT|O_DSYNC writes, alternating, on the disk
//! of a folder: `durable_writes FOLDER [ROUNDS]`.

use perdure_wal::{AlignedBuffer, Disk, FileDisk, Log, LogError, OpenLog, UNIT_BYTES, format};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 256 << 20;
const TRIAL: Duration = Duration::from_millis(400);
/// Threads of the trials with many.
const THREADS: usize = 16;
const IDENTITY: [u8; 16] = *b"example of a log";
/// O_DIRECT | O_DSYNC on x86-64.
const DIRECT_SYNC: i32 = 0o40000 | 0o10000;

/// A way to write `bytes` bytes durably; each thread has one.
type Write<'a> = Box<dyn FnMut(usize) -> io::Result<()> + 'a>;

/// A name, and a function that makes a thread's way.
type Way<'a> = (&'static str, &'a (dyn Fn() -> Write<'a> + Sync));

fn make_log(folder: &Path) -> Result<Log, Box<dyn std::error::Error>> {
    let path = folder.join("log");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    // All at once, so that the file is in few pieces.
    let length = FILE_BYTES + 2 * UNIT_BYTES as u64;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length)?;
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::over(file, path)?);
    let started = Instant::now();
    format(&*disk, IDENTITY, 0, &mut |_, _| ())?;
    println!(
        "format: {:.0} MiB/s",
        (FILE_BYTES >> 20) as f64 / started.elapsed().as_secs_f64()
    );
    Ok(OpenLog::open(disk, IDENTITY)?.replay(&mut |_| ())?)
}

/// A file of zeros, written once, for raw writes.
fn make_raw(folder: &Path) -> io::Result<File> {
    let path = folder.join("raw");
    let file = File::create(&path)?;
    let zeros = vec![0; 4 << 20];
    for at in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    File::options()
        .read(true)
        .write(true)
        .custom_flags(DIRECT_SYNC)
        .open(path)
}

/// The next place in the file.
fn place(next: &AtomicU64, bytes: usize) -> u64 {
    let slots = FILE_BYTES / bytes as u64;
    next.fetch_add(1, Ordering::Relaxed) % slots * bytes as u64
}

fn aligned(bytes: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new();
    buffer.resize(bytes);
    buffer.fill(0xa5);
    buffer
}

fn raw_write<'a>(file: &'a File, next: &'a AtomicU64) -> Write<'a> {
    let buffer = aligned(1 << 20);
    Box::new(move |bytes| file.write_all_at(&buffer[..bytes], place(next, bytes)))
}

/// A batch of `bytes` bytes on the disk; the root moves when the ring is full.
fn log_write<'a>(log: &'a Log, sequence: &'a AtomicU64) -> Write<'a> {
    let payload = vec![0xa5; 1 << 20];
    Box::new(move |bytes| {
        loop {
            let mut buffer = log.buffer();
            buffer
                .payload()
                .extend_from_slice(&payload[..bytes - perdure_wal::HEADER_BYTES]);
            let number = sequence.fetch_add(1, Ordering::Relaxed) + 1;
            if let Ok(placed) = log.place(buffer, number, number, false) {
                return log.write(placed).map(|_| ()).map_err(io::Error::other);
            }
            // Another thread may have moved the root farther.
            match log.advance(log.durable_root()) {
                Ok(()) | Err(LogError::RootOrder { .. }) => (),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    })
}

/// One thread, one write in each way after the other, so that all see the same disk.
fn alternate(bytes: usize, rounds: usize, ways: &[Way<'_>]) {
    let mut writes: Vec<_> = ways.iter().map(|(_, make)| make()).collect();
    let mut times = vec![Vec::new(); ways.len()];
    let started = Instant::now();
    while started.elapsed() < TRIAL * rounds as u32 {
        for (write, times) in writes.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            write(bytes).expect("a write");
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    for (times, (name, _)) in times.iter_mut().zip(ways) {
        times.sort_by(f64::total_cmp);
        let at = |share: usize| times[times.len() * share / 100];
        println!(
            "1 thread {:4} KiB {name:>6}: {:6} writes  p10 {:6.1}  p50 {:6.1}  p90 {:6.1}  p99 {:6.1} µs",
            bytes >> 10,
            times.len(),
            at(10),
            at(50),
            at(90),
            at(99)
        );
    }
}

/// Writes with so many threads, and returns writes per second.
fn trial<'a>(threads: usize, bytes: usize, make: &(dyn Fn() -> Write<'a> + Sync)) -> f64 {
    let started = Instant::now();
    let one = || {
        let mut write = make();
        let mut writes = 0;
        while started.elapsed() < TRIAL {
            write(bytes).expect("a write");
            writes += 1;
        }
        writes
    };
    let writes: u64 = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        all.into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum()
    });
    writes as f64 / started.elapsed().as_secs_f64()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments
        .next()
        .ok_or("usage: durable_writes FOLDER [ROUNDS]")?;
    let rounds: usize = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let (log, raw) = (make_log(folder)?, make_raw(folder)?);
    println!(
        "{:?}",
        perdure_wal::measure_depth(&log, Duration::from_millis(150))?
    );
    let (next, sequence) = (AtomicU64::new(0), AtomicU64::new(0));
    let ways: [Way<'_>; 2] = [
        ("raw", &|| raw_write(&raw, &next)),
        ("log", &|| log_write(&log, &sequence)),
    ];
    for kib in [4, 64, 1024] {
        alternate(kib << 10, rounds, &ways);
    }
    for kib in [4, 64] {
        let mut results = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for (result, (_, make)) in results.iter_mut().zip(&ways) {
                result.push(trial(THREADS, kib << 10, *make));
            }
        }
        for (result, (name, _)) in results.iter_mut().zip(&ways) {
            result.sort_by(f64::total_cmp);
            let (least, median, most) = (result[0], result[rounds / 2], result[rounds - 1]);
            println!(
                "{THREADS} threads {kib:4} KiB {name:>6}: {median:8.0}/s ({least:.0} to {most:.0})"
            );
        }
    }
    println!("{:?}", log.statistics());
    drop(log);
    let file = File::options()
        .read(true)
        .write(true)
        .open(folder.join("log"))?;
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::over(file, folder.join("log"))?);
    let started = Instant::now();
    let replayed = OpenLog::open(disk, IDENTITY)?.read(&mut |_| ())?;
    let (mib, seconds) = (replayed.bytes >> 20, started.elapsed().as_secs_f64());
    println!(
        "replay: {mib} MiB, {} batches, {:.0} MiB/s",
        replayed.batches,
        mib as f64 / seconds
    );
    std::fs::remove_file(folder.join("log"))?;
    std::fs::remove_file(folder.join("raw"))?;
    Ok(())
}
