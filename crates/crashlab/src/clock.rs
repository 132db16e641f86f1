//! A clock that only ever steps: the same calls get the same times in every run, and every operation gets a new one.

use fs::Timestamp;
use std::cell::Cell;

const START_NANOSECONDS: i64 = 1_700_000_000_000_000_000;
const STEP_NANOSECONDS: i64 = 1_000;

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(START_NANOSECONDS) };
}

/// The clock of every mount in this crate; one per thread.
pub fn tick() -> Timestamp {
    NOW.with(|now| {
        now.set(now.get() + STEP_NANOSECONDS);
        Timestamp::from_nanoseconds(now.get())
    })
}

/// Turns this thread's clock back to the beginning.
pub fn restart() {
    NOW.with(|now| now.set(START_NANOSECONDS));
}

/// Runs `look` and turns the clock back to where it was: how many states are looked at must not change the run
/// that they are states of.
pub fn aside<R>(look: impl FnOnce() -> R) -> R {
    let before = NOW.with(Cell::get);
    let result = look();
    NOW.with(|now| now.set(before));
    result
}
