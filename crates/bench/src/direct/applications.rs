//! Rows of databases: redis, sqlite, RocksDB, each with every write durable when it is acknowledged.

use super::bed::{Bed, Side};
use super::wake::wake_note;
use super::{DirectOptions, first_processor, with_spread};
use crate::aging::{in_turn, pair};
use crate::collector::{Collector, Found};
use crate::error::BenchError;
use crate::measure::{Pinned, median};
use crate::programs::{self, Redis, find, redis_server};
use std::path::Path;

const SIDES: [Side; 3] = [Side::Direct, Side::Tmpfs, Side::Fuse];

pub(super) fn measure(collector: &mut Collector, options: &DirectOptions, bed: &Bed) {
    collector.row("redis_set", || redis(options, bed));
    collector.row("sqlite_full", || sqlite(options, bed));
    collector.row("rocksdb_fillsync", || rocksdb(options, bed));
}

/// Ours beside one side, and what the other gave.
fn found(rates: &[Vec<f64>], against: usize, other: usize, label: &str) -> Found {
    let note = format!("{label} {:.0}", median(&rates[other]));
    with_spread(&pair(&rates[0], &rates[against]), &note)
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

fn start_redis(bed: &Bed, way: &RedisWay, server: &Path) -> Result<Redis, BenchError> {
    let (side, _pin) = (way.side, way.pin());
    let name = format!("redis-{side:?}-{}", u8::from(way.is_on_one)).to_lowercase();
    let socket = bed.place().join(format!("{name}.sock"));
    let directory = bed.directory(side).join(&name);
    Redis::start(bed.command(side, server), &directory, socket)
}

/// One client that sets and waits for the answer.
///
/// Server and client are on one processor, as fio and SQLite are in their rows. On two, a request waits twice until the host of a virtual machine has woken the other one: that is more than half of its time, is the same for all sides, and
/// changes within seconds by more than the whole write takes; how that comes out is in the note.
fn redis(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    /// Short rounds, because of that.
    const ROUNDS_PER_RUN: usize = 5;
    /// redis-benchmark counts milliseconds: 50 requests can take none, and it reports an infinite rate.
    const LEAST_REQUESTS: u64 = 1000;
    let server = redis_server(bed.place())?;
    let mut started = Vec::new();
    for way in &REDIS_WAYS {
        started.push(start_redis(bed, way, &server)?);
    }
    let rounds = options.program_runs * ROUNDS_PER_RUN;
    let rates = in_turn(rounds, started.len(), |number, _| {
        let way = &REDIS_WAYS[number];
        let _pin = way.pin();
        let count = options.amount(way.requests_per_second).max(LEAST_REQUESTS);
        started[number].set(count)
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

/// Transactions of one insert each, with a rollback journal; with a write-ahead log in the note.
fn sqlite(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    let program = find("sqlite3", "sqlite3")?;
    let modes = [("delete", 500.0), ("wal", 4000.0)];
    let scripts = modes.map(|(mode, per_second)| {
        let count = options.amount(per_second);
        programs::write_script(bed.place(), mode, count).map(|script| (script, count))
    });
    let [delete, wal] = scripts;
    let scripts = [delete?, wal?];
    let kinds = [Side::Direct, Side::Fuse];
    let waking = wake_note()?;
    let _pin = Pinned::to(first_processor());
    // Both modes on both sides.
    let rates = in_turn(options.program_runs, 4, |number, _| {
        let (side, (script, count)) = (kinds[number % 2], &scripts[number / 2]);
        let database = bed.directory(side).join(format!("sqlite-{side:?}.db"));
        let seconds = programs::insert(bed.command(side, &program), &database, script)?;
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

/// Writes that are each synced.
fn rocksdb(options: &DirectOptions, bed: &Bed) -> Result<Found, BenchError> {
    const PER_SECOND: f64 = 10_000.0;
    let program = find("db_bench", "rocksdb-tools")?;
    let writes = options.amount(PER_SECOND);
    let rates = in_turn(options.program_runs, SIDES.len(), |number, _| {
        let side = SIDES[number];
        let database = bed.directory(side).join(format!("rocksdb-{side:?}"));
        programs::fillsync(bed.command(side, &program), &database, writes)
    })?;
    Ok(found(&rates, 2, 1, "on tmpfs"))
}
