//! Programs that experiments measure: their paths, their commands, and the rates in their reports.

use crate::error::BenchError;
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The path of a program that is installed.
pub(crate) fn find(program: &'static str, package: &'static str) -> Result<PathBuf, BenchError> {
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
pub(crate) fn run(name: &str, command: &mut Command) -> Result<Output, BenchError> {
    let output = command.output();
    let output = output.map_err(|error| BenchError::program(name, error))?;
    if output.status.success() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let reason = text.lines().next().unwrap_or("it failed").to_owned();
    Err(BenchError::program(name, reason))
}

/// A running redis, ended when dropped.
pub(crate) struct Redis {
    child: Child,
    socket: PathBuf,
}

const REDIS: &str = "redis-server";
const REDIS_PACKAGE: &str = "redis-tools";

impl Redis {
    /// Starts the server with a command that has no arguments yet. It keeps its files in
    /// `directory`, and each write is durable when it is acknowledged.
    pub(crate) fn start(
        mut server: Command,
        directory: &Path,
        socket: PathBuf,
    ) -> Result<Redis, BenchError> {
        std::fs::create_dir(directory).map_err(BenchError::io("make", directory))?;
        let child = server
            .args(["--port", "0", "--save", "", "--daemonize", "no"])
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(directory)
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

    /// Requests per second of one client that sets `count` times and waits for each answer.
    pub(crate) fn set(&self, count: u64) -> Result<f64, BenchError> {
        let mut command = Command::new(find("redis-benchmark", REDIS_PACKAGE)?);
        command.arg("-s").arg(&self.socket);
        command.args(["-t", "set", "-c", "1", "--csv", "-n", &count.to_string()]);
        let output = run("redis-benchmark", &mut command)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        redis_rate(&text)
            .ok_or_else(|| BenchError::program("redis-benchmark", "its report has no rate"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It has nothing to save, and may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the server's path. Debian's package redis-tools has it under another name, and the
/// program looks at how it is called, so a link to it is made in `place`.
pub(crate) fn redis_server(place: &Path) -> Result<PathBuf, BenchError> {
    if let Ok(server) = find(REDIS, REDIS_PACKAGE) {
        return Ok(server);
    }
    let missing = |_| BenchError::NotInstalled {
        program: REDIS,
        package: REDIS_PACKAGE,
    };
    let other = find("redis-check-rdb", REDIS_PACKAGE).map_err(missing)?;
    let link = place.join(REDIS);
    if !link.is_symlink() {
        std::os::unix::fs::symlink(other, &link).map_err(BenchError::io("make", &link))?;
    }
    Ok(link)
}

/// `"SET","51234.50",…`
fn redis_rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("\"SET\""))?;
    let rate: f64 = line.split(',').nth(1)?.trim_matches('"').parse().ok()?;
    rate.is_finite().then_some(rate)
}

/// A script for sqlite in `place`: `count` transactions of one insert each.
pub(crate) fn write_script(place: &Path, mode: &str, count: u64) -> Result<PathBuf, BenchError> {
    let mut script = format!("PRAGMA journal_mode={mode};\nPRAGMA synchronous=FULL;\n");
    script.push_str("CREATE TABLE t (number INTEGER PRIMARY KEY, text TEXT);\n");
    for number in 0..count {
        let _ = writeln!(
            script,
            "INSERT INTO t VALUES ({number}, 'a hundred bytes, more or less, as rows of small tables have them');"
        );
    }
    let path = place.join(format!("{mode}.sql"));
    std::fs::write(&path, script).map_err(BenchError::io("write", &path))?;
    Ok(path)
}

/// Seconds of one script on a new database. The command is sqlite's, without arguments.
pub(crate) fn insert(
    mut sqlite: Command,
    database: &Path,
    script: &Path,
) -> Result<f64, BenchError> {
    let input = File::open(script).map_err(BenchError::io("open", script))?;
    sqlite.arg("-batch").arg("-bail").arg(database).stdin(input);
    let start = Instant::now();
    run("sqlite3", &mut sqlite)?;
    let seconds = start.elapsed().as_secs_f64();
    // The files beside the database go with the last connection.
    std::fs::remove_file(database).map_err(BenchError::io("remove", database))?;
    Ok(seconds)
}

/// Writes per second into a new RocksDB, each synced. The command is db_bench's, without arguments.
pub(crate) fn fillsync(
    mut db_bench: Command,
    database: &Path,
    writes: u64,
) -> Result<f64, BenchError> {
    db_bench
        .args(["--benchmarks=fillsync", "--num=100000000"])
        .args(["--value_size=400", "--compression_type=none"])
        .arg(format!("--writes={writes}"))
        .arg(format!("--db={}", database.display()));
    let output = run("db_bench", &mut db_bench)?;
    std::fs::remove_dir_all(database).map_err(BenchError::io("remove", database))?;
    rocksdb_rate(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| BenchError::program("db_bench", "its report has no rate"))
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
