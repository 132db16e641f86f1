//! All that a client knows, replaced as a whole in a child process.

use crate::client::Mount;
use crate::discover::Device;
use crate::socket::{Identity, close_inherited};
use locks::Mutex;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

/// Sockets that a child process closes. Of more mounts than these they stay open there.
const TRACES: usize = 16;

/// What a client knows.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// The mounts, by the number of the file system.
    pub(crate) mounts: Mutex<HashMap<Device, Arc<Mount>>>,
    traces: [OnceLock<(RawFd, Identity)>; TRACES],
}

impl World {
    /// Remembers a socket, so that a child process can close it without a lock.
    pub(crate) fn remember(&self, trace: (RawFd, Identity)) {
        let _ = self.traces.iter().any(|place| place.set(trace).is_ok());
    }
}

/// The world of this process, and of processes that it was forked from.
#[derive(Debug, Default)]
pub(crate) struct Worlds {
    current: AtomicPtr<World>,
}

impl Worlds {
    /// None yet.
    pub(crate) const fn new() -> Worlds {
        Worlds {
            current: AtomicPtr::new(null_mut()),
        }
    }

    /// That of this process.
    pub(crate) fn current(&self) -> &'static World {
        let found = self.current.load(Ordering::Acquire);
        // SAFETY: null or made below, and never freed: what other threads, or the parent's, still refer to cannot be told.
        if let Some(world) = unsafe { found.as_ref() } {
            return world;
        }
        let made = Box::into_raw(Box::<World>::default());
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        match self
            .current
            .compare_exchange(null_mut(), made, success, failure)
        {
            // SAFETY: it is the current one now, and never freed.
            Ok(_) => unsafe { &*made },
            Err(other) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: as above, and not null.
                unsafe { &*other }
            }
        }
    }

    /// Leaves the current world as it is, for ever, but closes its sockets, which are copies of the parent's.
    pub(crate) fn leave(&self) {
        let found = self.current.swap(null_mut(), Ordering::AcqRel);
        // SAFETY: as in `current`.
        let Some(world) = (unsafe { found.as_ref() }) else {
            return;
        };
        for (number, identity) in world.traces.iter().filter_map(OnceLock::get) {
            close_inherited(*number, *identity);
        }
    }
}

impl Drop for Worlds {
    fn drop(&mut self) {
        // The connections end; the rest is a few bytes that somebody may still refer to.
        if let Some(mut mounts) = self.current().mounts.try_lock() {
            mounts.clear();
        }
    }
}
