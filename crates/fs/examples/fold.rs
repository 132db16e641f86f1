//! Measures the time to apply the records of a lease: `cargo run --release -p perdure-fs --example
//! fold [RING_BLOCKS]`.
//!
//! A holder overwrites 4 KiB blocks of a file of 64 MiB at random places. Whenever half of its ring
//! is used, the file system applies the records, checkpoints included. Both happen on one thread,
//! one after the other.

use lease::{FileMap, Place, RECORDS_PER_BLOCK, Spare, Trust, Writer};
use perdure_fs::lease::{Grant, Holder, LeaseRemains, LeaseSize, TakenBack};
use perdure_fs::{FileSystem, MountOptions, NewInode, Node, mkfs_region};
use pmem::{BLOCK_BYTES, BlockNumber, Region};
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::{FormatOptions, Mode, PmemStore};

const BLOCK: u64 = BLOCK_BYTES as u64;
const FILE_BLOCKS: u64 = (64 << 20) / BLOCK;
const RECORDS: u64 = 1 << 20;
/// The run is measured in so many parts.
const PARTS: u64 = 32;

/// A holder between two writes.
struct Idle;

impl Holder for Idle {
    fn attributes_changed(&self) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn folded(&self, _next: u64, _refilled: &[Spare]) {}

    fn take_back(&self) -> TakenBack {
        TakenBack {
            trust: Trust::All,
            busy_block: None,
        }
    }

    fn ended(&self, _remains: LeaseRemains, _next: u64) {}
}

struct Map(Vec<Place>);

impl FileMap for Map {
    fn get(&self, index: u64) -> Option<Place> {
        self.0.get(index as usize).copied()
    }

    fn set(&mut self, index: u64, block: BlockNumber) {
        self.0[index as usize] = Place::At(block);
    }
}

fn file() -> (FileSystem, Node) {
    let options = FormatOptions {
        size_bytes: 256 << 20,
        volatile: true,
        ..FormatOptions::default()
    };
    let region = Region::anonymous(options.size_bytes);
    let region = mkfs_region(region, &options, (0, 0)).expect("mkfs");
    let store = PmemStore::open_region(region, Mode::ReadWrite).expect("open");
    let files = FileSystem::mount(store, MountOptions::default()).expect("mount");
    let new = NewInode::file(0o644);
    let node = files.create(&files.root(), b"file", &new).expect("create");
    for index in 0..FILE_BLOCKS {
        files
            .write(&node, index * BLOCK, &[1; BLOCK_BYTES])
            .expect("room");
    }
    (files, node)
}

fn main() {
    let ring_blocks = std::env::args().nth(1).map_or(Ok(128), |text| text.parse());
    let ring_blocks = ring_blocks.expect("a number of blocks");
    let (files, node) = file();
    let size = LeaseSize {
        ring_blocks,
        spare_blocks: 512,
    };
    let Grant {
        ring,
        salt,
        next,
        spares,
        size_bytes,
        ..
    } = files.lease(&node, size, Arc::new(Idle)).expect("a lease");
    let mut map = Map(Vec::new());
    files
        .places(&node, 0, FILE_BLOCKS, |_, place| {
            map.0.push(place.expect("memory"));
        })
        .expect("places");
    let region = files.store().shared_region();
    let mut writer = Writer::new(region, ring, salt, next, spares, size_bytes);
    let at_once = u64::from(ring_blocks) * RECORDS_PER_BLOCK / 2;
    let rounds = RECORDS / at_once / PARTS;
    let mut chance = 12_345_u64;
    let mut parts: Vec<(Duration, Duration)> = Vec::new();
    for _ in 0..PARTS {
        let (mut writing, mut folding) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..rounds {
            let begin = Instant::now();
            for _ in 0..at_once {
                chance = chance
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let offset = (chance >> 33) % FILE_BLOCKS * BLOCK;
                writer
                    .write(&mut map, offset, &[2; BLOCK_BYTES], 5)
                    .expect("there is room");
            }
            let written = Instant::now();
            let folded = files.fold_lease(&node).expect("folding").expect("leased");
            folding += written.elapsed();
            writing += written - begin;
            writer.folded(folded.0, folded.1);
        }
        parts.push((writing, folding));
    }
    print(&parts, rounds * at_once, at_once);
}

/// Prints the time of one write and of applying one record.
fn print(parts: &[(Duration, Duration)], records: u64, at_once: u64) {
    let each = |pick: fn(&(Duration, Duration)) -> Duration| {
        let mut times: Vec<f64> = parts
            .iter()
            .map(|part| pick(part).as_nanos() as f64 / records as f64)
            .collect();
        times.sort_by(f64::total_cmp);
        (times[0], times[times.len() / 2])
    };
    let (write, fold) = (each(|part| part.0), each(|part| part.1));
    println!("ns for one, least and median of {PARTS} parts; {at_once} records at a time");
    println!("writing  {:6.1} {:6.1}", write.0, write.1);
    println!("folding  {:6.1} {:6.1}", fold.0, fold.1);
}
