//! The cost of 4 KiB operations in Tinca's policies and in Spindle: time, flushes, fences, lines.
//!
//! ```text
//! cargo run --release -p perdure-bench --example journaling -- [MiB of memory]
//! ```
//!
//! Random offsets in one file, in half of the memory and in twice of it. The disk is a model
//! without latency, so that times are those of the designs. Memory is private and not modelled.

use device::{Device, DeviceBlock, DeviceError, ReadRequest, Run, Token, WriteRequest};
use perdure_bench::baseline::journaling::{
    CommitPoints, FsError, Handle, JournalingFs, Options, Replacement, Spindle, Tinca,
    TransactionalCache,
};
use pmem::{BLOCK_BYTES, Counters, Region};
use std::error::Error;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Instant;

const OPERATIONS: u64 = 200_000;

/// A disk without latency.
#[derive(Debug)]
struct MemoryDisk(Mutex<Vec<[u8; BLOCK_BYTES]>>);

impl MemoryDisk {
    fn new(blocks: u64) -> MemoryDisk {
        MemoryDisk(Mutex::new(vec![[0; BLOCK_BYTES]; blocks as usize]))
    }

    fn with<T>(&self, use_blocks: impl FnOnce(&mut [[u8; BLOCK_BYTES]]) -> T) -> T {
        match self.0.lock() {
            Ok(mut blocks) => use_blocks(&mut blocks),
            Err(poisoned) => use_blocks(&mut poisoned.into_inner()),
        }
    }
}

impl Device for MemoryDisk {
    fn blocks(&self) -> u64 {
        self.with(|blocks| blocks.len() as u64)
    }

    fn read(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.with(|blocks| {
            for request in requests {
                *request.into = blocks[request.block.get() as usize];
            }
        });
        Ok(())
    }

    fn write(&self, requests: &[WriteRequest<'_>]) -> Result<Token, DeviceError> {
        self.with(|blocks| {
            for WriteRequest { start, bytes } in requests {
                let whole = bytes.as_chunks::<BLOCK_BYTES>().0;
                let start = DeviceBlock::get(*start) as usize;
                blocks[start..start + whole.len()].copy_from_slice(whole);
            }
        });
        Ok(Token(0))
    }

    fn wait(&self, _token: Token) -> Result<(), DeviceError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn trim(&self, _runs: &[Run]) {}
}

/// Random numbers that are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mebibytes = std::env::args()
        .nth(1)
        .map_or(Ok(64), |text| text.parse())?;
    println!("file     design                          ns  flushes  fences   lines  hits %");
    for (name, factor) in [("memory/2", 0.5), ("memory*2", 2.0)] {
        for design in ["tinca", "published", "mended"] {
            let file_blocks = (mebibytes as f64 * 256.0 * factor) as u64;
            let disk = Arc::new(MemoryDisk::new(file_blocks * 5 / 4 + 1024));
            JournalingFs::format_disk(&*disk)?;
            let memory = Arc::new(Region::anonymous(mebibytes << 20));
            let replacement = Replacement::default();
            let spindle = |memory, disk, points| Spindle::format(memory, disk, points, replacement);
            let cache: Arc<dyn TransactionalCache> = match design {
                "tinca" => Arc::new(Tinca::format(memory, disk, replacement)?),
                "published" => Arc::new(spindle(memory, disk, CommitPoints::Published)?),
                _ => Arc::new(spindle(memory, disk, CommitPoints::Mended)?),
            };
            let fs = JournalingFs::mount(cache, Options::default())?;
            measure(&fs, name, file_blocks)?;
        }
    }
    Ok(())
}

fn measure(fs: &JournalingFs, name: &str, file_blocks: u64) -> Result<(), FsError> {
    let file = fs.create("/file")?;
    let piece = vec![1; 256 * BLOCK_BYTES];
    for _ in 0..file_blocks.div_ceil(256) {
        fs.append(&file, &piece)?;
    }
    let mut random = Random(1);
    let mut block = [2; BLOCK_BYTES];
    let mut offset = || random.below(file_blocks) * BLOCK_BYTES as u64;
    let write = |fs: &JournalingFs, file: &Handle, offset| fs.write_at(file, offset, &[3; 4096]);
    row(fs, &format!("{name} write"), || write(fs, &file, offset()))?;
    row(fs, &format!("{name} read"), || {
        fs.read_at(&file, offset(), &mut block).map(drop)
    })
}

fn row(
    fs: &JournalingFs,
    name: &str,
    mut operation: impl FnMut() -> Result<(), FsError>,
) -> Result<(), FsError> {
    for _ in 0..OPERATIONS / 10 {
        operation()?;
    }
    let (counters, cache) = (Counters::snapshot(), fs.statistics().cache);
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        operation()?;
    }
    let nanoseconds = start.elapsed().as_nanos() as f64 / OPERATIONS as f64;
    let spent = Counters::snapshot() - counters;
    let now = fs.statistics().cache;
    let (hits, misses) = (now.hits - cache.hits, now.misses - cache.misses);
    let each = |count: u64| count as f64 / OPERATIONS as f64;
    println!(
        "{name:15} {:28} {nanoseconds:6.0} {:8.2} {:7.2} {:7.2} {:6.1}",
        fs.cache().label(),
        each(spent.flushes),
        each(spent.fences),
        each(spent.lines),
        100.0 * hits as f64 / (hits + misses).max(1) as f64,
    );
    Ok(())
}
