//! What PMFS's policies cost: names against the time of create, lookup and unlink, ranges in the in-use list against the time of a free.
//!
//! ```text
//! cargo run --release -p perdure-bench --example baseline -- [names|ranges] …
//! ```
//!
//! Each line is a region of its own, in private memory whose pages are touched. Times are processor times of operations on names or
//! blocks in random order, the best of ten parts.

use perdure_bench::baseline::{Options, Pmfs, PmfsError};
use pmem::{BLOCK_BYTES, Region};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |what: &str| arguments.is_empty() || arguments.iter().any(|one| one == what);
    if is_wanted("names") {
        println!("names    cache  create   open known  open first  unlink     (ns)");
        for names in [1024, 8192, 32_768] {
            for dentry_cache in [true, false] {
                measure_names(names, Options { dentry_cache })?;
            }
        }
    }
    if is_wanted("ranges") {
        println!("ranges   free one block  file of 64 blocks, per block     (ns)");
        for ranges in [1, 1000, 8000, 32_000, 128_000] {
            measure_ranges(ranges)?;
        }
    }
    Ok(())
}

/// A sequence without order that is the same each time.
fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    let mut state = 1_u64;
    for last in (1..numbers.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(last, (state >> 33) as usize % (last + 1));
    }
    numbers
}

/// This thread's processor time: what others do on the machine counts little.
fn processor_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of an operation on each of some numbers: the mean of the best tenth of the time, which was disturbed least.
fn best_ns(
    numbers: &[u64],
    mut operation: impl FnMut(u64) -> Result<(), PmfsError>,
) -> Result<f64, PmfsError> {
    let mut best = f64::INFINITY;
    let part = numbers.len().div_ceil(10);
    for numbers in numbers.chunks(part) {
        let start = processor_ns();
        for &number in numbers {
            operation(number)?;
        }
        best = best.min((processor_ns() - start) / numbers.len() as f64);
    }
    Ok(best)
}

fn region(bytes: u64) -> Region {
    let region = Region::anonymous(bytes);
    region.fence(region.zero_streaming(pmem::Offset::new(0), bytes));
    region
}

/// A directory of so many names: 1,000 of them are opened, removed, and others made in their place.
fn measure_names(names: u64, options: Options) -> Result<(), Box<dyn Error>> {
    let pmfs = Pmfs::format(region(1 << 30), options)?;
    let path = |number: u64| format!("/{number:08}");
    for number in 0..names {
        pmfs.create(path(number))?;
    }
    let order = shuffled(names);
    let picked = &order[..1000];
    let open = |number| pmfs.open(path(number)).map(drop);
    let known = best_ns(picked, open)?;
    // Opened anew, no name is known.
    let image = pmfs.region().image();
    drop(pmfs);
    let pmfs = Pmfs::recover(Region::from_image(image), options)?;
    let open = |number| pmfs.open(path(number)).map(drop);
    let first = best_ns(picked, open)?;
    let unlink = best_ns(picked, |number| pmfs.unlink(path(number)))?;
    let create = best_ns(picked, |number| {
        pmfs.create(path(number + 10_000_000)).map(drop)
    })?;
    let cache = if options.dentry_cache { "on" } else { "off" };
    println!("{names:<8} {cache:<6} {create:<8.0} {known:<11.0} {first:<11.0} {unlink:<8.0}");
    Ok(())
}

/// So many ranges in the in-use list: every second block is free. 1,000 blocks far from one another are freed, and files of 64 blocks.
fn measure_ranges(ranges: u64) -> Result<(), Box<dyn Error>> {
    let pmfs = Pmfs::format(region(2 << 30), Options::default())?;
    let block = [1; BLOCK_BYTES];
    let path = |number: u64| format!("/{number:08}");
    // Neighbours: one stays, one goes. Many handles and no names, so that what is measured is not the directory.
    let count = ranges.max(1000);
    let mut stay = Vec::new();
    let mut go = Vec::new();
    for number in 0..count {
        for list in [&mut stay, &mut go] {
            let handle = pmfs.create(path(number))?;
            pmfs.append(&handle, &block)?;
            pmfs.unlink(path(number))?;
            list.push(handle);
        }
    }
    let large = pmfs.create("/large")?;
    if ranges > 1 {
        go.clear();
    }
    let now = pmfs.statistics().in_use_ranges;
    let picked = shuffled(count);
    let freed = best_ns(&picked[..1000], |number| {
        pmfs.truncate(&stay[number as usize], 0)
    })?;
    let mut per_block = f64::INFINITY;
    for _ in 0..5 {
        pmfs.append(&large, &[1; 64 * BLOCK_BYTES])?;
        let free = |_| pmfs.truncate(&large, 0);
        per_block = per_block.min(best_ns(&[0], free)? / 64.0);
    }
    println!("{now:<8} {freed:<15.0} {per_block:.0}");
    Ok(())
}
