//! Which process a handle was made in (C4).
//!
//! A child of `fork` has its parent's pool mapped, and handles that look as good as the parent's. Two processes that change one pool destroy it.

use crate::boundary::{Answer, sound};
use crate::client;
use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// How often this memory was copied by `fork`. A child made without the C library (`clone` by hand)
/// is not noticed.
static FORKS: AtomicU32 = AtomicU32::new(0);
static IS_WATCHING: AtomicBool = AtomicBool::new(false);

/// Belongs to every handle.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Born(u32);

impl Born {
    /// In this process.
    pub(crate) fn now() -> Answer<Born> {
        watch()?;
        Ok(Born(FORKS.load(Relaxed)))
    }

    /// Whether this is the process that the handle was made in.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Relaxed)
    }

    /// Refuses in a child of that process, and after a panic.
    #[inline]
    pub(crate) fn check(self) -> Answer<()> {
        match self.is_here() {
            true => sound(),
            false => Err(Failure::new(
                libc::EPERM,
                "the parent process opened this, and a pool has one process at a time; in a child of fork() open the pool anew, after the parent has closed it",
            )),
        }
    }
}

/// Sees to it that children know that they are. Two threads may both do so: a child that counts
/// twice is a child.
fn watch() -> Answer<()> {
    if IS_WATCHING.load(Relaxed) {
        return Ok(());
    }
    // SAFETY: the function is as the C library wants it, locks nothing, and is never unloaded (`-z nodelete`).
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => IS_WATCHING.store(true, Relaxed),
        errno => return Err(Failure::new(errno, "no memory to watch fork() with")),
    }
    Ok(())
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
    client::forget();
}
