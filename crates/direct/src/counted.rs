//! How many leases this process holds.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Leases of this process.
static LEASES: AtomicUsize = AtomicUsize::new(0);

/// Whether this process has any; a child of one that had may hear yes as well.
#[inline]
pub(crate) fn are_there_any() -> bool {
    LEASES.load(Relaxed) > 0
}

/// One more lease of this process, as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted;

impl Counted {
    pub(crate) fn new() -> Counted {
        LEASES.fetch_add(1, Relaxed);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LEASES.fetch_sub(1, Relaxed);
    }
}
