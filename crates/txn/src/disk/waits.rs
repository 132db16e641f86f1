//! Tells a server that one of its threads waits for the log, and can do nothing else meanwhile.

use super::logger::Logger;
use std::sync::{Arc, OnceLock};

/// Is told of waits for the log, in the thread that waits. Both calls are short.
pub trait Waits: std::fmt::Debug + Send + Sync {
    /// This thread waits from now on.
    fn begins(&self);
    /// This thread goes on.
    fn ends(&self);
}

/// The watcher, if there is one.
#[derive(Debug, Default)]
pub(super) struct Watch(OnceLock<Arc<dyn Waits>>);

/// A wait, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'w>(Option<&'w Arc<dyn Waits>>);

impl Watch {
    #[must_use]
    pub(super) fn begin(&self) -> Waiting<'_> {
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
        // A second server of one open pool cannot be.
        let _ = self.shared.watch.0.set(waits);
    }
}
