//! How many crash states a second the emulator and a scratch region make, without any code under test.
//!
//!     cargo run --release -p perdure-pmem --example crash_states

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use perdure_pmem::emulator::Scratch;
use perdure_pmem::{Offset, Region};

const IMAGE_BYTES: u64 = 2 << 20;
const OPERATIONS: u64 = 500;

#[derive(Default)]
struct Found {
    scratch: Option<Scratch>,
    hashes: HashSet<u64>,
    tried: u64,
}

/// The pattern of a file system's operation: a block and a record, streamed; a few words in place, not flushed.
fn operation(region: &Region, number: u64) {
    let block = Offset::new((256 + number % 200) * 4096);
    region.fence(region.write_streaming(block, &[number as u8; 4096]));
    let record = Offset::new(number % 1000 * 256);
    region.fence(region.write_streaming(record, &[number as u8; 192]));
    let inode = Offset::new((128 << 12) + number % 100 * 256);
    region
        .store(inode, &[number as u8; 40])
        .leave_to_checkpoint();
    if number % 100 == 99 {
        region.persist(Offset::new(128 << 12), 100 * 256);
    }
}

fn main() {
    let region = Region::emulated(IMAGE_BYTES);
    let begin = Instant::now();
    (0..OPERATIONS).for_each(|number| operation(&region, number));
    let each = begin.elapsed().as_nanos() as f64 / OPERATIONS as f64 / 1000.0;
    println!("emulated operation (4 KiB block, 192 B record, 40 B in place): {each:.1} us");

    let found: Arc<Mutex<Found>> = Arc::default();
    let inside = Arc::clone(&found);
    if let Some(emulator) = region.emulator() {
        emulator.on_fence(move |fence| {
            let point = fence.crash_point();
            let Ok(mut found) = inside.lock() else { return };
            let Found {
                scratch,
                hashes,
                tried,
            } = &mut *found;
            let scratch = scratch.get_or_insert_with(|| Scratch::new(&point));
            for choice in point.enumerate(64, fence.number()) {
                *tried += 1;
                if hashes.insert(point.hash(&choice)) {
                    scratch.apply(&point, &choice);
                }
            }
        });
    }
    let begin = Instant::now();
    (0..OPERATIONS).for_each(|number| operation(&region, number));
    let seconds = begin.elapsed().as_secs_f64();
    if let Ok(found) = found.lock() {
        let (distinct, tried) = (found.hashes.len(), found.tried);
        println!(
            "{tried} choices, {distinct} distinct images of {IMAGE_BYTES} bytes in {seconds:.2} s: {:.0} images/s",
            distinct as f64 / seconds
        );
    }

    let image = vec![1; IMAGE_BYTES as usize];
    let mut private = Region::from_image(&image);
    let begin = Instant::now();
    (0..200).for_each(|_| private.refill(&image));
    println!(
        "refill of a private region: {:.0} us",
        begin.elapsed().as_micros() as f64 / 200.0
    );
    let begin = Instant::now();
    (0..50).for_each(|_| drop(Region::from_image(&image)));
    println!(
        "a new private region: {:.0} us",
        begin.elapsed().as_micros() as f64 / 50.0
    );
    let begin = Instant::now();
    (0..50).for_each(|_| drop(Region::emulated_from(&image)));
    println!(
        "a new emulated region: {:.0} us",
        begin.elapsed().as_micros() as f64 / 50.0
    );
}
