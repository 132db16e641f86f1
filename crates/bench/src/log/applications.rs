//! Programs on a mount, each with every write durable when it is acknowledged.

use super::LogOptions;
use super::bed::{Bed, MountedPool, Sides};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::programs::{self, Redis, find, redis_server};
use std::process::Command;

const ROWS: [&str; 4] = [
    "redis_always",
    "rocksdb_fillsync",
    "sqlite_delete",
    "sqlite_wal",
];

pub(super) fn measure(collector: &mut Collector, options: &LogOptions, bed: &Bed) {
    collector.group(&ROWS, |collector| {
        bed.ext4()?;
        let mount = bed.mount(options)?;
        collector.row("redis_always", || redis(options, bed, mount));
        collector.row("rocksdb_fillsync", || rocksdb(options, bed, mount));
        collector.row("sqlite_delete", || sqlite(options, bed, mount, "delete"));
        collector.row("sqlite_wal", || sqlite(options, bed, mount, "wal"));
        Ok(())
    });
}

/// One client that sets and waits for the answer; the append-only file is synced before it.
fn redis(options: &LogOptions, bed: &Bed, mount: &MountedPool) -> Result<Found, BenchError> {
    /// redis-benchmark counts milliseconds.
    const LEAST_REQUESTS: u64 = 100;
    const PER_SECOND: f64 = 700.0;
    let server = redis_server(bed.place())?;
    let sides = Sides::make(bed, mount, "redis")?;
    let mut started = Vec::new();
    for (number, directory) in sides.directories.iter().enumerate() {
        let socket = bed.place().join(format!("redis-{number}.sock"));
        let data = directory.join("data");
        started.push(Redis::start(Command::new(&server), &data, socket)?);
    }
    let count = options.amount(PER_SECOND).max(LEAST_REQUESTS);
    sides.compare(options.program_runs, |side, _| started[side].set(count))
}

/// Writes into a new database, each synced.
fn rocksdb(options: &LogOptions, bed: &Bed, mount: &MountedPool) -> Result<Found, BenchError> {
    const PER_SECOND: f64 = 700.0;
    let program = find("db_bench", "rocksdb-tools")?;
    let writes = options.amount(PER_SECOND);
    let sides = Sides::make(bed, mount, "rocksdb")?;
    sides.compare(options.program_runs, |_, directory| {
        let database = directory.join("database");
        programs::fillsync(Command::new(&program), &database, writes)
    })
}

/// Transactions of one insert each, with this kind of journal and `synchronous=FULL`.
fn sqlite(
    options: &LogOptions,
    bed: &Bed,
    mount: &MountedPool,
    mode: &str,
) -> Result<Found, BenchError> {
    const PER_SECOND: f64 = 300.0;
    let program = find("sqlite3", "sqlite3")?;
    let count = options.amount(PER_SECOND);
    let script = programs::write_script(bed.place(), mode, count)?;
    let sides = Sides::make(bed, mount, "sqlite")?;
    sides.compare(options.program_runs, |_, directory| {
        let database = directory.join("database");
        let seconds = programs::insert(Command::new(&program), &database, &script)?;
        Ok(count as f64 / seconds)
    })
}
