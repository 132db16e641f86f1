//! Power failures: a process has a pool open and is killed, its memory is removed, and another
//! process opens the pool.

use super::LogOptions;
use super::bed::{Leftover, opened};
use super::library::{FILE, filled};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Places, median};
use crate::memory::{Page, require_room};
use crate::ops::bed::work_directory;
use perdure::{CreateOptions, Durability, OpenOptions};
use pmem::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// First argument of the process; nothing that a user would type.
pub(crate) const ARGUMENT: &str = "--perdure-bench-log-victim";
/// The larger image has so many times the data.
const LARGER: u64 = 4;

/// The work of the process after it has opened the pool, before it waits for its death.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Order {
    /// Bytes of the file that it overwrites.
    file_bytes: u64,
    /// How much log there is to be afterwards.
    log_bytes: u64,
}

/// Its report then.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Answer {
    /// Time of opening, and of reading a block.
    seconds: f64,
    /// Bytes of log that a recovery reads.
    used_bytes: u64,
    uuid: [u8; 16],
}

/// In the process: opens the pool, fills the log, tells so, and waits. The arguments are the order
/// as JSON, and the pool's path.
pub(crate) fn serve(arguments: Vec<OsString>) -> Result<(), Box<dyn Error>> {
    let [order, path] = <[OsString; 2]>::try_from(arguments).map_err(|_| "two arguments")?;
    let order: Order = serde_json::from_str(&order.to_string_lossy())?;
    let begin = Instant::now();
    let pool = opened(Durability::default()).open(Path::new(&path))?;
    // It can be used, although its image is being read still.
    let file = OpenOptions::new().read(true).open(&pool, FILE)?;
    file.read_at(&mut Page::filled().0, order.file_bytes / 2 / BLOCK * BLOCK)?;
    let seconds = begin.elapsed().as_secs_f64();
    let used = || pool.log_status().map_or(0, |status| status.used_bytes);
    if used() < order.log_bytes {
        /// Overwrites between two looks at the log.
        const OVERWRITES: u64 = 64;
        let mut how = OpenOptions::new();
        let file = how.read(true).write(true).open(&pool, FILE)?;
        let (mut page, mut places) = (Page::filled(), Places::new(5));
        let most = 4 * order.log_bytes / BLOCK;
        for number in 0..most {
            page.number(number);
            file.write_at(&page.0, places.below(order.file_bytes / BLOCK) * BLOCK)?;
            if number % OVERWRITES == 0 && used() >= order.log_bytes {
                break;
            }
        }
        pool.sync()?;
    }
    let answer = Answer {
        seconds,
        used_bytes: used(),
        uuid: pool.filesystem().store().superblock().uuid,
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    // It was not killed: the pool is as if it had been.
    std::process::abort();
}

/// Such a process. When dropped it is killed, and the memory that it leaves is removed, as by a
/// power failure.
struct Victim {
    child: Child,
    answer: Option<Answer>,
}

impl Victim {
    fn start(pool: &Path, order: Order) -> Result<Victim, BenchError> {
        let failed =
            |error: &dyn std::fmt::Display| BenchError::program("the process with a log", error);
        let text = serde_json::to_string(&order).map_err(|error| failed(&error))?;
        let child = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            .arg(text)
            .arg(pool)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let child = child.map_err(|error| failed(&error))?;
        let mut victim = Victim {
            child,
            answer: None,
        };
        let mut line = String::new();
        if let Some(output) = victim.child.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(|error| failed(&error))?;
        }
        let answer = serde_json::from_str(&line);
        let ended = |_| failed(&"it ended; its own message, if it has one, is above");
        victim.answer = Some(answer.map_err(ended)?);
        Ok(victim)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        drop(self.answer.map(|answer| Leftover::of_uuid(&answer.uuid)));
    }
}

/// Opens the pool, which may fill its log, and cuts the power.
fn crash(pool: &Path, order: Order) -> Result<Answer, BenchError> {
    let victim = Victim::start(pool, order)?;
    let missing = || BenchError::Setup("no answer".to_owned());
    victim.answer.ok_or_else(missing)
}

pub(super) fn measure(collector: &mut Collector, options: &LogOptions) {
    collector.row("recovery", || recovery(options));
}

/// A pool with a full log, one with the same image and an empty log, and one with a larger image,
/// opened in turn after power failures. They do not lie on the loop device, whose image is in the
/// page cache, as nothing is after a power failure.
fn recovery(options: &LogOptions) -> Result<Found, BenchError> {
    let (bytes, wanted) = (options.recovery_file_bytes, options.recovery_bytes);
    // A checkpoint begins at a quarter.
    let ring_bytes = 4 * wanted + wanted / 2;
    let small_bytes = options.library_log_bytes;
    require_room(
        &options.directory,
        ring_bytes + 2 * small_bytes + 2 * (LARGER + 2) * bytes,
    )?;
    let place = work_directory(&options.directory)?;
    let make =
        |name: &str, bytes: u64, log_bytes: u64| make_pool(place.path(), name, bytes, log_bytes);
    let pools = [
        make("full", bytes, ring_bytes)?,
        make("empty", bytes, small_bytes)?,
        make("larger", LARGER * bytes, small_bytes)?,
    ];
    let nothing = Order {
        file_bytes: bytes,
        log_bytes: 0,
    };
    let fill = Order {
        log_bytes: wanted,
        ..nothing
    };
    crash(&pools[0], fill)?;
    crash(&pools[1], nothing)?;
    crash(&pools[2], nothing)?;
    let mut seconds: [Vec<f64>; 3] = Default::default();
    let mut used_bytes = 0;
    for round in 0..options.program_runs {
        for number in 0..pools.len() {
            let which = (number + round) % pools.len();
            let answer = crash(&pools[which], nothing)?;
            seconds[which].push(answer.seconds);
            used_bytes = match which {
                0 => answer.used_bytes,
                _ => used_bytes,
            };
        }
    }
    Ok(found(&seconds, used_bytes, bytes))
}

fn found(seconds: &[Vec<f64>; 3], used_bytes: u64, image_bytes: u64) -> Found {
    const GIB: f64 = (1 << 30) as f64;
    let log_gib = used_bytes as f64 / GIB;
    let costs: Vec<f64> = seconds[0]
        .iter()
        .zip(&seconds[1])
        .map(|(full, empty)| (full - empty).max(0.0) / log_gib)
        .collect();
    let [full, empty, larger] = seconds.each_ref().map(|seconds| median(seconds));
    Found::beside_limit(&costs, 1.0)
    .noted(format!(
        "{full:.2} s with {:.0} MiB of log and an image with {} MiB of data; {empty:.2} s with an empty log; {larger:.2} s with an empty log and {} MiB of data",
        log_gib * 1024.0,
        image_bytes >> 20,
        (LARGER * image_bytes) >> 20,
    ))
}

/// A pool that is closed, with a file of so many bytes in it.
fn make_pool(place: &Path, name: &str, bytes: u64, log_bytes: u64) -> Result<PathBuf, BenchError> {
    const LEAST_BYTES: u64 = 32 << 20;
    let path = place.join(name);
    let pool_bytes = LEAST_BYTES.max(bytes + bytes / 2);
    let format = CreateOptions::new().size_bytes(pool_bytes);
    format.log_bytes(log_bytes).format(&path)?;
    let pool = opened(Durability::default()).open(&path)?;
    let leftover = Leftover::of(&pool);
    let filled = filled(&pool, FILE, bytes).map(drop);
    let closed = pool.close();
    drop(leftover);
    filled?;
    closed?;
    Ok(path)
}
