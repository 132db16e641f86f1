//! What time it is.

use crate::format::Timestamp;
use std::cell::Cell;

/// How far the time stamp counter moves while [`Clock::about_now`] trusts what it knows: a quarter of a second at 1 GHz, less on any
/// processor of today.
const TRUSTED_TICKS: u64 = 1 << 28;

thread_local! {
    /// The system's clock as this thread saw it last, and the time stamp counter then.
    static SEEN: Cell<(u64, Timestamp)> = const { Cell::new((0, Timestamp::from_nanoseconds(0))) };
}

/// Where a mount has the time from.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The kernel's coarse clock: what kernel file systems stamp files with, and several times cheaper than the precise one.
    #[default]
    System,
    /// One of the caller's. Whoever wants the same bytes from the same calls brings his own.
    Custom(fn() -> Timestamp),
}

impl Clock {
    /// The present.
    #[inline]
    pub fn now(self) -> Timestamp {
        match self {
            Clock::System => system_now(),
            Clock::Custom(clock) => clock(),
        }
    }

    /// The present or a moment up to a quarter of a second ago: for questions about days. Reads ask it each time, and the system's
    /// clock would cost them 190 instructions.
    #[inline]
    pub(crate) fn about_now(self) -> Timestamp {
        if let Clock::Custom(clock) = self {
            return clock();
        }
        let ticks = pmem::ticks();
        let (seen_at, seen) = SEEN.get();
        if ticks.wrapping_sub(seen_at) < TRUSTED_TICKS {
            return seen;
        }
        let now = system_now();
        SEEN.set((ticks, now));
        now
    }
}

fn system_now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp::from_parts(now.tv_sec, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_now_is_now_but_for_a_moment() {
        for _ in 0..3 {
            let now = Clock::System.now().nanoseconds();
            let about = Clock::System.about_now().nanoseconds();
            assert!((now - about).abs() < 1_000_000_000, "{about} at {now}");
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        let noon = || Timestamp::from_parts(43_200, 7);
        assert_eq!(Clock::Custom(noon).about_now(), noon());
    }
}
