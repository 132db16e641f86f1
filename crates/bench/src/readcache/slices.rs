//! One side of a round: some milliseconds of requests, timed. All sides run these loops.

use super::bed::BLOCK;
use crate::error::BenchError;
use crate::measure::Stopwatch;
use crate::memory::Page;
use std::hint::black_box;

/// Nanoseconds of one request of 4 KiB of these, each of which reads the block with that number.
#[inline]
pub(super) fn read(
    blocks: &[u32],
    page: &mut Page,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, BenchError>,
) -> Result<f64, BenchError> {
    let mut wrong = 0;
    let watch = Stopwatch::of_thread();
    for &block in blocks {
        wrong |= read_one(block, page, &mut read)?;
    }
    let nanoseconds = watch.nanoseconds();
    require_right(wrong)?;
    Ok(nanoseconds / blocks.len() as f64)
}

/// Reads a block; 0 if it is the right one.
#[inline]
pub(super) fn read_one(
    block: u32,
    page: &mut Page,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<usize, BenchError>,
) -> Result<u64, BenchError> {
    let length = read(u64::from(block) * BLOCK, &mut page.0)?;
    black_box(&mut *page);
    Ok(page.first_word() ^ u64::from(block) | length as u64 ^ BLOCK)
}

/// Nanoseconds of one request of 4 KiB of these, each of which writes the block with that number.
#[inline]
pub(super) fn write(
    blocks: &[u32],
    page: &mut Page,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let watch = Stopwatch::of_thread();
    for &block in blocks {
        page.number(block.into());
        write(u64::from(block) * BLOCK, &page.0)?;
    }
    Ok(watch.nanoseconds() / blocks.len() as f64)
}

/// What was read must be what was written.
pub(super) fn require_right(wrong: u64) -> Result<(), BenchError> {
    match wrong {
        0 => Ok(()),
        _ => Err(BenchError::WrongData(
            "a block that was read is another one".to_owned(),
        )),
    }
}

/// Megabytes per second of requests that take so many nanoseconds each.
pub(super) fn megabytes_per_second(request_ns: f64) -> f64 {
    BLOCK as f64 / request_ns * 1e3
}
