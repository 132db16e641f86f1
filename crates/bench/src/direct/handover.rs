//! How far two processors are from each other.

use crate::measure::Pinned;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Lines that are handed over; some take three times as long as others, so the fastest counts.
const LINES: usize = 10;
/// How often each goes there and back.
const TIMES: u64 = 1000;
/// Looks at a line before the other thread, which may need this processor, is let go on.
const LOOKS: u32 = 4096;

/// A line of memory, with the one that is fetched beside it.
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    /// Waits until it says `turn`, then hands it on.
    fn hand_on(&self, turn: u64) {
        let mut looks = 0;
        while self.0.load(Ordering::Acquire) != turn {
            looks += 1;
            match looks % LOOKS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        self.0.store(turn + 1, Ordering::Release);
    }
}

/// Nanoseconds that a line which one processor has written takes to the other: two that have a cache in common, and one way to memory, are much nearer than two that have not.
///
/// A virtual machine cannot see where its processors are, and may be moved.
pub(super) fn handover_nanoseconds([first, second]: [usize; 2]) -> f64 {
    let lines: [Line; LINES] = std::array::from_fn(|_| Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _pin = Pinned::to(second);
            for line in &lines {
                (0..TIMES).for_each(|time| line.hand_on(2 * time + 1));
            }
        });
        let _pin = Pinned::to(first);
        let nanoseconds = lines.iter().map(|line| {
            // Both are there.
            line.hand_on(0);
            let begin = Instant::now();
            (1..TIMES).for_each(|time| line.hand_on(2 * time));
            begin.elapsed().as_nanos() as f64 / (2 * TIMES - 2) as f64
        });
        nanoseconds.fold(f64::INFINITY, f64::min)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::processors;

    #[test]
    fn lines_go_from_one_to_another_even_where_there_is_one_processor_only() {
        for other in [processors()[0], *processors().last().expect("one")] {
            let nanoseconds = handover_nanoseconds([processors()[0], other]);
            assert!(nanoseconds > 1.0 && nanoseconds < 1e9, "{nanoseconds}");
        }
    }
}
