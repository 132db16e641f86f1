//! Tells a server that one of its threads waits for the log or the device, and is idle meanwhile.

use super::logger::Logger;
use std::sync::{Arc, OnceLock};

/// Is told of waits for the log or the device, in the thread that waits. Both calls are short.
pub trait Waits: std::fmt::Debug + Send + Sync {
    /// This thread waits from now on.
    fn begins(&self);
    /// This thread goes on.
    fn ends(&self);
}

/// The watcher, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Watch(OnceLock<Arc<dyn Waits>>);

/// A wait, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'w>(Option<&'w Arc<dyn Waits>>);

impl Watch {
    /// Has `waits` told of all waits from now on; only the first call counts.
    pub(crate) fn set(&self, waits: Arc<dyn Waits>) {
        // A second server of one open pool cannot be.
        let _ = self.0.set(waits);
    }

    #[must_use]
    pub(crate) fn begin(&self) -> Waiting<'_> {
        let waits = self.0.get();
        if let Some(waits) = waits {
            waits.begins();
        }
        Waiting(waits)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(waits) = self.0 {
            waits.ends();
        }
    }
}

impl Logger {
    /// Has `waits` told of all waits from now on; only the first call counts.
    pub fn watch_waits(&self, waits: Arc<dyn Waits>) {
        self.shared.watch.set(waits);
    }
}
