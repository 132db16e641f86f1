//! Rows of the servers' processor time.

use super::MountOptions;
use super::bed::{Bed, Side, compare, rate_for};
use crate::collector::{Collector, Found};
use crate::direct::{fill, with_spread};
use crate::error::BenchError;
use crate::measure::{Places, median};
use crate::memory::Page;
use pmem::BLOCK_BYTES;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

pub(super) fn measure(collector: &mut Collector, options: &MountOptions, bed: &Bed) {
    collector.row("idle_cpu", || idle(options, bed));
    collector.row("cpu_per_op", || per_operation(options, bed));
}

/// Milliseconds of processor time in each second without a request, both mounts at once. Less than
/// one counts as none: a timer's tick now and then is no busy poll.
fn idle(options: &MountOptions, bed: &Bed) -> Result<Found, BenchError> {
    let settling = Duration::from_secs_f64(options.seconds.clamp(0.5, 1.0));
    let length = Duration::from_secs_f64(options.seconds.max(0.1));
    std::thread::sleep(settling);
    let processor_ns = || {
        let of = |side| bed.server(side).processor_ns();
        Ok::<_, BenchError>([of(Side::IoUring)?, of(Side::Classic)?])
    };
    let (before, begin) = (processor_ns()?, Instant::now());
    std::thread::sleep(length);
    let (after, seconds) = (processor_ns()?, begin.elapsed().as_secs_f64());
    let [ours, theirs] =
        [0, 1].map(|side: usize| (after[side] - before[side]) as f64 / 1e6 / seconds);
    Ok(Found {
        value: ours,
        against_value: theirs,
        ratio: ours.floor(),
        ..Found::default()
    }
    .noted(format!(
        "over {seconds:.1} s; the ratio is the whole milliseconds of processor time in a second, {:.0} and {:.0} us exactly",
        ours * 1e3,
        theirs * 1e3,
    )))
}

/// Microseconds of the server's processor time for a random operation on 4 KiB past the page cache:
/// a read and a write in turn.
fn per_operation(options: &MountOptions, bed: &Bed) -> Result<Found, BenchError> {
    let directories = bed.directories()?;
    let mut files = Vec::new();
    for directory in &directories {
        let path = directory.path().join("file");
        fill(&path, options.file_bytes)?;
        let mut how = File::options();
        how.read(true).write(true).custom_flags(libc::O_DIRECT);
        files.push(how.open(&path).map_err(BenchError::io("open", &path))?);
    }
    let block = BLOCK_BYTES as u64;
    let (mut page, mut places) = (Page::filled(), Places::new(1));
    let mut rates = [Vec::new(), Vec::new()];
    let rounds = compare(options.rounds, |side| {
        let (server, file) = (bed.server(side), &files[side as usize]);
        let before = server.processor_ns()?;
        let mut count = 0;
        let rate = rate_for(options.slice_seconds(), || {
            let offset = places.below(options.file_bytes / block) * block;
            count += 1;
            let moved = match count % 2 {
                0 => file.write_all_at(&page.0, offset),
                _ => file.read_exact_at(&mut page.0, offset),
            };
            moved.map_err(BenchError::io("move 4 KiB in", server.mountpoint()))
        })?;
        rates[side as usize].push(rate);
        Ok((server.processor_ns()? - before) as f64 / 1e3 / f64::from(count))
    })?;
    let note = format!(
        "{:.0} and {:.0} operations/s by one thread",
        median(&rates[0]),
        median(&rates[1])
    );
    Ok(with_spread(&rounds, &note))
}
