//! A clock that only ever steps: the same calls get the same times in every run.
//!
//! How often it steps is the workload's choice. Operations within one tick leave more of an inode as it is than others do.

use fs::Timestamp;
use std::cell::Cell;

const START_NANOSECONDS: i64 = 1_700_000_000_000_000_000;
const STEP_NANOSECONDS: i64 = 1_000;

/// A thread's clock.
#[derive(Clone, Copy)]
struct Clock {
    calls: i64,
    calls_per_tick: i64,
}

thread_local! {
    static CLOCK: Cell<Clock> = const { Cell::new(Clock { calls: 0, calls_per_tick: 1 }) };
}

/// The clock of every mount in this crate; one per thread.
pub fn tick() -> Timestamp {
    let mut clock = CLOCK.get();
    clock.calls += 1;
    CLOCK.set(clock);
    let ticks = clock.calls / clock.calls_per_tick;
    Timestamp::from_nanoseconds(START_NANOSECONDS + ticks * STEP_NANOSECONDS)
}

/// Turns this thread's clock back to the beginning. From here on it steps with every `calls_per_tick`th look at it.
pub fn restart(calls_per_tick: u32) {
    CLOCK.set(Clock {
        calls: 0,
        calls_per_tick: i64::from(calls_per_tick),
    });
}

/// Runs `look` and turns the clock back to where it was: how many states are looked at must not change the run
/// that they are states of.
pub fn aside<R>(look: impl FnOnce() -> R) -> R {
    let before = CLOCK.get();
    let result = look();
    CLOCK.set(before);
    result
}
