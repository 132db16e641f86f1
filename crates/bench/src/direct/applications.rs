//! Rows of databases: redis, sqlite, RocksDB, each with every write durable when it is acknowledged.

use super::bed::{Bed, Side};
use super::wake::wake_note;
use super::{DirectOptions, first_processor, with_spread};
use crate::aging::{in_turn, pair};
use crate::error::BenchError;
use crate::evaluation::{Collector, Found};
use crate::measure::{Pinned, median};
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SIDES: [Side; 3] = [Side::Direct, Side::Tmpfs, Side::Fuse];

pub(super) fn measure(collector: &mut Collector, options: &DirectOptions, bed: &Bed) {
    collector.row("redis_set", || redis(options, bed));
    collector.row("sqlite_full", || sqlite(options, bed));
    collector.row("rocksdb_fillsync", || rocksdb(options, bed));
}

/// The path of a program that is installed.
pub(super) fn find(program: &'static str, package: &'static str) -> Result<PathBuf, BenchError> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::split_paths(&directories).map(|directory| directory.join(program));
    let can_run = |path: &PathBuf| {
        let known = path.metadata();
        known.is_ok_and(|known| known.is_file() && known.permissions().mode() & 0o111 != 0)
    };
    let mut found = paths.filter(can_run);
    found
        .next()
        .ok_or(BenchError::NotInstalled { program, package })
}

/// The program's output, if it succeeded.
fn run(name: &str, command: &mut Command) -> Result<Output, BenchError> {
    let output = command.output();
    let output = output.map_err(|error| BenchError::program(name, error))?;
    if output.status.success() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let reason = text.lines().next().unwrap_or("it failed").to_owned();
    Err(BenchError::program(name, reason))
}

/// Ours beside one side, and what the other gave.
fn found(rates: &[Vec<f64>], against: usize, other: usize, label: &str) -> Found {
    let note = format!("{label} {:.0}", median(&rates[other]));
    with_spread(&pair(&rates[0], &rates[against]), &note)
}

/// A running redis, ended when dropped.
struct Redis {
    child: Child,
    socket: PathBuf,
}

const REDIS: &str = "redis-server";
const REDIS_PACKAGE: &str = "redis-tools";

impl Redis {
    fn start(bed: &Bed, way: &RedisWay, server: &Path) -> Result<Redis, BenchError> {
        let (side, _pin) = (way.side, way.pin());
        let name = format!("redis-{side:?}-{}", u8::from(way.is_on_one)).to_lowercase();
        let (directory, socket) = (
            bed.directory(side).join(&name),
            bed.place().join(format!("{name}.sock")),
        );
        std::fs::create_dir(&directory).map_err(BenchError::io("make", &directory))?;
        let child = bed
            .command(side, server)
            .args(["--port", "0", "--save", "", "--daemonize", "no"])
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(&directory)
            .stdout(Stdio::null())
            .spawn();
        let child = child.map_err(|error| BenchError::program(REDIS, error))?;
        let redis = Redis { child, socket };
        redis.wait_until_ready()?;
        Ok(redis)
    }

    fn wait_until_ready(&self) -> Result<(), BenchError> {
        const PATIENCE: Duration = Duration::from_secs(20);
        let cli = find("redis-cli", REDIS_PACKAGE)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let mut question = Command::new(&cli);
            let answer = question.arg("-s").arg(&self.socket).arg("ping").output();
            if answer.is_ok_and(|answer| answer.stdout.starts_with(b"PONG")) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(BenchError::program(REDIS, "it does not answer"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It has nothing to save, and may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a server writes, and who runs where.
struct RedisWay {
    side: Side,
    /// Server and client have one processor together.
    is_on_one: bool,
    requests_per_second: f64,
}

impl RedisWay {
    /// For what is started meanwhile.
    fn pin(&self) -> Option<Pinned> {
        self.is_on_one.then(|| Pinned::to(first_processor()))
    }
}

/// In the order in which they are measured.
const REDIS_WAYS: [RedisWay; 5] = [
    RedisWay {
        side: Side::Direct,
        is_on_one: true,
        requests_per_second: 5_000.0,
    },
    RedisWay {
        side: Side::Tmpfs,
        is_on_one: true,
        requests_per_second: 5_000.0,
    },
    RedisWay {
        side: Side::Fuse,
        is_on_one: true,
        requests_per_second: 1_000.0,
    },
    RedisWay {
        side: Side::Direct,
        is_on_one: false,
        requests_per_second: 2_000.0,
    },
    RedisWay {
        side: Side::Tmpfs,
        is_on_one: false,
        requests_per_second: 2_000.0,
    },
];

/// One client that sets and waits for the answer.
///
/// Server and client are on one processor, as fio and SQLite are in their rows. On two, a request waits twice until the host of a virtual machine has woken the other one: that is more than half of its time, is the same for all sides, and
/// changes within seconds by more than the whole write takes; how that comes out is in the note.
fn redis(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    /// Short rounds, because of that.
    const ROUNDS_PER_RUN: usize = 5;
    /// redis-benchmark counts milliseconds: 50 requests can take none, and it reports an infinite rate.
    const LEAST_REQUESTS: u64 = 1000;
    let benchmark = find("redis-benchmark", REDIS_PACKAGE)?;
    let server = redis_server(bed)?;
    let mut started = Vec::new();
    for way in &REDIS_WAYS {
        started.push(Redis::start(bed, way, &server)?);
    }
    let rounds = options.program_runs * ROUNDS_PER_RUN;
    let rates = in_turn(rounds, started.len(), |number, _| {
        let way = &REDIS_WAYS[number];
        let _pin = way.pin();
        let count = options.amount(way.requests_per_second).max(LEAST_REQUESTS);
        let count = count.to_string();
        let mut command = Command::new(&benchmark);
        command.arg("-s").arg(&started[number].socket);
        command.args(["-t", "set", "-c", "1", "--csv", "-n", &count]);
        let output = run("redis-benchmark", &mut command)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        redis_rate(&text)
            .ok_or_else(|| BenchError::program("redis-benchmark", "its report has no rate"))
    })?;
    let apart = pair(&rates[3], &rates[4]);
    let [low, middle, high] = apart.ratios();
    let note = format!(
        "on the mount without the library {:.0}; server and client on two processors {:.0} and {:.0}: {middle:.2} times (rounds from {low:.2} to {high:.2})",
        median(&rates[2]),
        apart.ours(),
        apart.theirs(),
    );
    Ok(with_spread(&pair(&rates[0], &rates[1]), &note))
}

/// Debian's package redis-tools has the server under another name, and the program looks at how it is called.
fn redis_server(bed: &Bed) -> Result<PathBuf, BenchError> {
    if let Ok(server) = find(REDIS, REDIS_PACKAGE) {
        return Ok(server);
    }
    let missing = |_| BenchError::NotInstalled {
        program: REDIS,
        package: REDIS_PACKAGE,
    };
    let other = find("redis-check-rdb", REDIS_PACKAGE).map_err(missing)?;
    let link = bed.place().join(REDIS);
    std::os::unix::fs::symlink(other, &link).map_err(BenchError::io("make", &link))?;
    Ok(link)
}

/// `"SET","51234.50",…`
fn redis_rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("\"SET\""))?;
    let rate: f64 = line.split(',').nth(1)?.trim_matches('"').parse().ok()?;
    rate.is_finite().then_some(rate)
}

/// Transactions of one insert each, with a rollback journal; with a write-ahead log in the note.
fn sqlite(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    let program = find("sqlite3", "sqlite3")?;
    let modes = [("delete", 500.0), ("wal", 4000.0)];
    let scripts = modes.map(|(mode, per_second)| {
        let count = options.amount(per_second);
        write_script(bed, mode, count).map(|script| (script, count))
    });
    let [delete, wal] = scripts;
    let scripts = [delete?, wal?];
    let kinds = [Side::Direct, Side::Fuse];
    let waking = wake_note()?;
    let _pin = Pinned::to(first_processor());
    // Both modes on both sides.
    let rates = in_turn(options.program_runs, 4, |number, _| {
        let (side, (script, count)) = (kinds[number % 2], &scripts[number / 2]);
        let seconds = insert(bed, side, &program, script)?;
        Ok(*count as f64 / seconds)
    })?;
    let wal = pair(&rates[2], &rates[3]);
    let note = format!(
        "with a write-ahead log {:.0} and {:.0}: {:.2} times{}",
        wal.ours(),
        wal.theirs(),
        wal.ratios()[1],
        waking,
    );
    Ok(with_spread(&pair(&rates[0], &rates[1]), &note))
}

fn write_script(bed: &Bed, mode: &str, count: u64) -> Result<PathBuf, BenchError> {
    let mut script = format!("PRAGMA journal_mode={mode};\nPRAGMA synchronous=FULL;\n");
    script.push_str("CREATE TABLE t (number INTEGER PRIMARY KEY, text TEXT);\n");
    for number in 0..count {
        let _ = writeln!(
            script,
            "INSERT INTO t VALUES ({number}, 'a hundred bytes, more or less, as rows of small tables have them');"
        );
    }
    let path = bed.place().join(format!("{mode}.sql"));
    std::fs::write(&path, script).map_err(BenchError::io("write", &path))?;
    Ok(path)
}

/// Seconds of one script on a new database.
fn insert(bed: &Bed, side: Side, program: &Path, script: &Path) -> Result<f64, BenchError> {
    let database = bed.directory(side).join(format!("sqlite-{side:?}.db"));
    let input = File::open(script).map_err(BenchError::io("open", script))?;
    let mut command = bed.command(side, program);
    command
        .arg("-batch")
        .arg("-bail")
        .arg(&database)
        .stdin(input);
    let start = Instant::now();
    run("sqlite3", &mut command)?;
    let seconds = start.elapsed().as_secs_f64();
    // What is beside the database goes with the last connection.
    std::fs::remove_file(&database).map_err(BenchError::io("remove", &database))?;
    Ok(seconds)
}

/// Writes that are each synced.
fn rocksdb(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    const PER_SECOND: f64 = 10_000.0;
    let program = find("db_bench", "rocksdb-tools")?;
    let writes = options.amount(PER_SECOND);
    let rates = in_turn(options.program_runs, SIDES.len(), |number, _| {
        let side = SIDES[number];
        let database = bed.directory(side).join(format!("rocksdb-{side:?}"));
        let mut command = bed.command(side, &program);
        command
            .args(["--benchmarks=fillsync", "--num=100000000"])
            .args(["--value_size=400", "--compression_type=none"])
            .arg(format!("--writes={writes}"))
            .arg(format!("--db={}", database.display()));
        let output = run("db_bench", &mut command)?;
        std::fs::remove_dir_all(&database).map_err(BenchError::io("remove", &database))?;
        rocksdb_rate(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| BenchError::program("db_bench", "its report has no rate"))
    })?;
    Ok(found(&rates, 2, 1, "on tmpfs"))
}

/// `fillsync     :      12.340 micros/op 81037 ops/sec …`
fn rocksdb_rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("fillsync "))?;
    let (before, _) = line.split_once(" ops/sec")?;
    before.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_in_reports() {
        let redis = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"51234.50\",\"0.01\"\n";
        assert_eq!(redis_rate(redis), Some(51234.5));
        assert_eq!(redis_rate("\"GET\",\"1\""), None);
        assert_eq!(redis_rate("\"SET\",\"inf\",\"0.013\""), None);
        let rocksdb = "RocksDB:    version 7.8\nfillsync     :      12.340 micros/op 81037 ops/sec 0.1 seconds 1000 operations;   33.0 MB/s\n";
        assert_eq!(rocksdb_rate(rocksdb), Some(81037.0));
        assert_eq!(rocksdb_rate("nothing"), None);
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let error = find("no-such-program", "nothing").expect_err("it is missing");
        assert!(error.is_absence());
        assert_eq!(
            error.to_string(),
            "no-such-program is not installed (apt install nothing)"
        );
        assert!(find("sh", "dash").is_ok());
    }
}
