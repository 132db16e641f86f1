//! What this thread asked of the medium: flushes, fences, lines, bytes.
//!
//! Counts are per thread; a bench takes two snapshots around an operation and subtracts. They begin with the process's first snapshot: a process that never asks pays a load and a branch. (An addition in thread-local
//! memory takes as long as ten others in a library that is loaded before a program, and its store waits behind everything that is streamed.)

use std::cell::Cell;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicBool, Ordering};

/// Somebody has asked, or a medium is modelled, whose fences take as long as what they wait for.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);

/// From here on all threads count.
pub(crate) fn begin() {
    IS_COUNTING.store(true, Ordering::Relaxed);
}

#[inline]
fn is_counting() -> bool {
    IS_COUNTING.load(Ordering::Relaxed)
}

struct Cells {
    flushes: Cell<u64>,
    fences: Cell<u64>,
    lines: Cell<u64>,
    bytes: Cell<u64>,
    lines_at_last_fence: Cell<u64>,
}

thread_local! {
    static CELLS: Cells = const {
        Cells {
            flushes: Cell::new(0),
            fences: Cell::new(0),
            lines: Cell::new(0),
            bytes: Cell::new(0),
            lines_at_last_fence: Cell::new(0),
        }
    };
}

/// A reading of this thread's counters, or the difference of two.
#[derive(Copy, Clone, Eq, PartialEq, Default, Hash, Debug)]
pub struct Counters {
    /// Flush instructions (clwb, clflushopt or clflush), one per line.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Lines on their way to the medium: flushed, or written by non-temporal stores.
    pub lines: u64,
    /// Bytes stored, by ordinary and by non-temporal stores.
    pub bytes: u64,
}

impl Counters {
    /// What this thread has counted since the process's first snapshot, over all regions.
    pub fn snapshot() -> Counters {
        begin();
        CELLS.with(|cells| Counters {
            flushes: cells.flushes.get(),
            fences: cells.fences.get(),
            lines: cells.lines.get(),
            bytes: cells.bytes.get(),
        })
    }
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            flushes: self.flushes - earlier.flushes,
            fences: self.fences - earlier.fences,
            lines: self.lines - earlier.lines,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

impl Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        Counters {
            flushes: self.flushes + other.flushes,
            fences: self.fences + other.fences,
            lines: self.lines + other.lines,
            bytes: self.bytes + other.bytes,
        }
    }
}

#[inline]
fn add(cell: &Cell<u64>, amount: u64) {
    cell.set(cell.get().wrapping_add(amount));
}

#[inline]
pub(crate) fn count_stored(bytes: usize) {
    if is_counting() {
        CELLS.with(|cells| add(&cells.bytes, bytes as u64));
    }
}

#[inline]
pub(crate) fn count_streamed(bytes: usize, lines: u64) {
    if !is_counting() {
        return;
    }
    CELLS.with(|cells| {
        add(&cells.bytes, bytes as u64);
        add(&cells.lines, lines);
    });
}

#[inline]
pub(crate) fn count_flushed(lines: u64) {
    if !is_counting() {
        return;
    }
    CELLS.with(|cells| {
        add(&cells.flushes, lines);
        add(&cells.lines, lines);
    });
}

/// Counts a fence; returns the lines that this thread has sent to the medium since its last one, for which it waits.
#[inline]
pub(crate) fn count_fence() -> u64 {
    if !is_counting() {
        return 0;
    }
    CELLS.with(|cells| {
        add(&cells.fences, 1);
        let lines = cells.lines.get();
        lines - cells.lines_at_last_fence.replace(lines)
    })
}
