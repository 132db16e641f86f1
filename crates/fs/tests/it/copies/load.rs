//! Readers and writers at the same time, with more blocks than copies: what a reader sees is whole, never older than the last write that had returned, and
//! never older than what he saw before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fs::{FileSystem, Node};
use perdure_fs as fs;

use super::pool::{BLOCK_BYTES, file, mounted};

const BLOCKS: usize = 512;
/// Parts of a block that have versions of their own: small writes change one in place, large ones all of them in a new place.
const PARTS: usize = 4;
const PART_BYTES: usize = BLOCK_BYTES / PARTS;
const READERS: usize = 2;

/// Versions that writers have finished writing, for each part.
struct Finished(Vec<AtomicU64>);

/// What a part of block `block`, counted through all files, holds in this version.
fn part_of(version: u64, block: usize, part: usize) -> [u8; PART_BYTES] {
    let mut bytes = [0; PART_BYTES];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = version << 32 | (block as u64) << 16 | (part as u64) << 8 | index as u64;
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The version of a part, if all of its words are this block's and of one version.
fn version_of(bytes: &[u8], block: usize, part: usize) -> Option<u64> {
    let first = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    let version = first >> 32;
    (bytes == part_of(version, block, part)).then_some(version)
}

struct Load<'l> {
    files: &'l FileSystem,
    nodes: &'l [Node],
    finished: &'l Finished,
    stop: &'l AtomicBool,
}

impl Load<'_> {
    /// Changes blocks of its own file until it is told to stop.
    fn write(&self, writer: usize) -> u64 {
        let mut random = 7 + writer as u64;
        let mut versions = vec![1_u64; BLOCKS * PARTS];
        let mut writes = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let block = step(&mut random) % BLOCKS;
            let at = (block * BLOCK_BYTES) as u64;
            let own = writer * BLOCKS * PARTS + block * PARTS;
            let changed = match step(&mut random) % 3 {
                0 => 0..PARTS,
                _ => {
                    let part = step(&mut random) % PARTS;
                    part..part + 1
                }
            };
            let mut data = Vec::with_capacity(BLOCK_BYTES);
            for part in changed.clone() {
                versions[block * PARTS + part] += 1;
                let version = versions[block * PARTS + part];
                data.extend(part_of(version, writer * BLOCKS + block, part));
            }
            let at = at + (changed.start * PART_BYTES) as u64;
            self.files
                .write(&self.nodes[writer], at, &data)
                .expect("write");
            for part in changed {
                let version = versions[block * PARTS + part];
                self.finished.0[own + part].store(version, Ordering::Release);
            }
            writes += 1;
            if writes % 8 == 0 {
                std::thread::yield_now();
            }
        }
        writes
    }

    /// Reads blocks, mostly a few, until it is told to stop.
    fn read(&self, reader: usize) -> u64 {
        let mut random = 1000 + reader as u64;
        let mut seen = vec![0_u64; self.finished.0.len()];
        let mut reads = 0;
        let mut bytes = [0; 2 * BLOCK_BYTES];
        while !self.stop.load(Ordering::Relaxed) {
            let file = step(&mut random) % self.nodes.len();
            let limit = if step(&mut random).is_multiple_of(4) {
                BLOCKS
            } else {
                48
            };
            let block = step(&mut random) % limit;
            let first = (file * BLOCKS + block) * PARTS;
            let finished: Vec<u64> = self.finished.0[first..first + PARTS]
                .iter()
                .map(|version| version.load(Ordering::Acquire))
                .collect();
            let at = (block * BLOCK_BYTES) as u64;
            let node = &self.nodes[file];
            let held = match reads % 3 {
                0 => self.files.hold(node, at, BLOCK_BYTES),
                _ => None,
            };
            let found = match &held {
                Some(held) => held.bytes(),
                None => {
                    let length = BLOCK_BYTES * (1 + reads as usize % 2);
                    let read = self.files.read(node, at, &mut bytes[..length]);
                    assert!(read.expect("read") >= BLOCK_BYTES);
                    &bytes[..BLOCK_BYTES]
                }
            };
            for part in 0..PARTS {
                let range = part * PART_BYTES..(part + 1) * PART_BYTES;
                let part_found = &found[range];
                let how = || {
                    let words = part_found.len() / 8;
                    let word = |index: usize| {
                        u64::from_le_bytes(
                            part_found[index * 8..][..8].try_into().expect("8 bytes"),
                        )
                    };
                    format!(
                        "block {block} of file {file}, part {part}, words {:#x} to {:#x}; read {reads}, held: {}, finished {}, seen {}",
                        word(0),
                        word(words - 1),
                        held.is_some(),
                        finished[part],
                        seen[first + part]
                    )
                };
                let version = version_of(part_found, file * BLOCKS + block, part);
                let version =
                    version.unwrap_or_else(|| panic!("torn, or another block's: {}", how()));
                let least = finished[part].max(seen[first + part]);
                assert!(version >= least, "old: {}", how());
                seen[first + part] = version;
            }
            reads += 1;
        }
        reads
    }
}

fn step(random: &mut u64) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) as usize
}

/// Reads that were checked.
pub(crate) fn under_load(span: Duration) -> u64 {
    let files = mounted(64, 96);
    let nodes: Vec<Node> = (0..2)
        .map(|index| file(&files, &format!("file {index}")))
        .collect();
    for (number, node) in nodes.iter().enumerate() {
        for block in 0..BLOCKS {
            let part = |part| part_of(1, number * BLOCKS + block, part);
            let whole: Vec<u8> = (0..PARTS).flat_map(part).collect();
            let at = (block * BLOCK_BYTES) as u64;
            files.write(node, at, &whole).expect("fill");
        }
        // A block behind the last one, for reads of two.
        let at = (BLOCKS * BLOCK_BYTES) as u64;
        files.write(node, at, &[0; BLOCK_BYTES]).expect("fill");
    }
    let finished = Finished(
        (0..nodes.len() * BLOCKS * PARTS)
            .map(|_| AtomicU64::new(1))
            .collect(),
    );
    let stop = AtomicBool::new(false);
    let load = Load {
        files: &files,
        nodes: &nodes,
        finished: &finished,
        stop: &stop,
    };
    let stopped = Stop(&stop);
    let (reads, writes) = std::thread::scope(|scope| {
        let load = &load;
        let readers: Vec<_> = (0..READERS)
            .map(|reader| scope.spawn(move || load.read(reader)))
            .collect();
        let writers: Vec<_> = (0..nodes.len())
            .map(|writer| scope.spawn(move || load.write(writer)))
            .collect();
        let begin = Instant::now();
        while begin.elapsed() < span && !readers.iter().any(|reader| reader.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(stopped);
        let sum = |threads: Vec<std::thread::ScopedJoinHandle<'_, u64>>| -> u64 {
            threads
                .into_iter()
                .map(|thread| thread.join().expect("sound"))
                .sum()
        };
        (sum(readers), sum(writers))
    });
    let statistics = files.read_cache_statistics().expect("a cache");
    println!("{reads} reads, {writes} writes, {statistics:?}");
    assert!(writes > 0 && statistics.hits > 0, "{statistics:?}");
    assert!(
        statistics.evictions > 0 && statistics.invalidations > 0,
        "{statistics:?}"
    );
    reads
}

/// Stops all threads when it goes.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `COPIES_SECONDS` makes it longer.
#[test]
fn readers_see_whole_blocks_and_never_old_ones() {
    let seconds = std::env::var("COPIES_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let reads = under_load(Duration::from_secs_f64(seconds.unwrap_or(4.0)));
    assert!(reads > 100_000, "{reads} reads");
}
