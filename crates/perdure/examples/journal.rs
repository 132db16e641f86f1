//! A write-ahead log at memory speed: appends records, each durable when the call returns, and prints what one costs.
//!
//! ```text
//! cargo run --release -p perdure --example journal [POOL [RECORDS]]
//! ```
//!
//! Without arguments it uses a pool in /dev/shm: quick, but nothing there survives a power cut.

use perdure::{CreateOptions, OpenOptions, Pool};
use std::path::PathBuf;
use std::time::Instant;

const RECORD_SIZES_BYTES: [usize; 4] = [64, 256, 1024, 4096];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let given = arguments.next().map(PathBuf::from);
    let records: u32 = match arguments.next() {
        Some(count) => count.to_string_lossy().parse()?,
        None => 50_000,
    };
    let own = PathBuf::from(format!("/dev/shm/perdure-journal-{}", std::process::id()));
    let pool = match &given {
        Some(path) => Pool::open(path)?,
        None => Pool::create(
            &own,
            &CreateOptions::new().size_bytes(1 << 30).volatile(true),
        )?,
    };
    println!("pool {}: class {}", pool.path().display(), pool.class());
    for size_bytes in RECORD_SIZES_BYTES {
        let nanoseconds = append_records(&pool, size_bytes, records)?;
        println!("{size_bytes:>5} byte record: {nanoseconds:>6.0} ns per durable append");
    }
    pool.close()?;
    if given.is_none() {
        std::fs::remove_dir_all(own)?;
    }
    Ok(())
}

/// Appends `records` records to a new log and returns the nanoseconds that one of them took.
fn append_records(
    pool: &Pool,
    size_bytes: usize,
    records: u32,
) -> Result<f64, Box<dyn std::error::Error>> {
    let log = OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(true)
        .open(pool, "example.log")?;
    let mut record = vec![0; size_bytes];
    let start = Instant::now();
    for number in 0..records {
        record[..4].copy_from_slice(&number.to_le_bytes());
        log.append(&record)?; // durable when it returns: no sync call
    }
    let elapsed = start.elapsed();

    for number in 0..records {
        let mut stored = [0; 4];
        log.read_exact_at(&mut stored, u64::from(number) * size_bytes as u64)?;
        assert_eq!(
            u32::from_le_bytes(stored),
            number,
            "a record is not where it was appended"
        );
    }
    pool.remove_file("example.log")?;
    Ok(elapsed.as_nanos() as f64 / f64::from(records))
}
