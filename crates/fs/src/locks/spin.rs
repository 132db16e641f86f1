//! Trying to take a lock for a while before sleeping.
//!
//! Most operations hold an inode for a microsecond or two, and sleeping and being woken up takes longer. Two threads that create and remove
//! in one directory do 1.5 times as much with it.

/// Attempts before the thread sleeps: a few microseconds in all.
const ATTEMPTS: usize = 40;
/// Pauses between two attempts, so that the line with the lock is not taken from its holder all the time.
const PAUSES: usize = 8;

/// What `attempt` gives, or `wait` if it has given nothing for some microseconds.
#[inline]
pub(crate) fn then_wait<G>(attempt: impl Fn() -> Option<G>, wait: impl FnOnce() -> G) -> G {
    match attempt() {
        Some(guard) => guard,
        None => spin(attempt).unwrap_or_else(wait),
    }
}

#[cold]
#[inline(never)]
fn spin<G>(attempt: impl Fn() -> Option<G>) -> Option<G> {
    for _ in 0..ATTEMPTS {
        for _ in 0..PAUSES {
            std::hint::spin_loop();
        }
        let found = attempt();
        if found.is_some() {
            return found;
        }
    }
    None
}
