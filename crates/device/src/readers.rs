//! Readers of blocks that may be freed meanwhile.
//!
//! Reading a block takes long, and holds no lock. So a reader *pins* the present before it reads,
//! and a freed block is used anew only after all readers have left that began before it was freed
//! (D4). A read of any length takes one pin. Its cost is small against the read itself, so a mutex
//! suffices.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;

/// A moment in the life of a device. A later one is larger.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Moment(u64);

#[derive(Debug, Default)]
struct Inside {
    now: u64,
    /// Readers that began at this moment.
    reading: BTreeMap<u64, u32>,
}

/// Readers of one device.
#[derive(Debug, Default)]
pub struct Readers {
    inside: Mutex<Inside>,
    has_left: Condvar,
}

/// Stands for a reader: blocks that are freed after its begin keep their content until it is
/// dropped.
#[derive(Debug)]
#[must_use = "the blocks are safe as long as this lives"]
pub struct Pin<'r> {
    readers: &'r Readers,
    since: u64,
}

impl Readers {
    /// Begins to read.
    pub fn pin(&self) -> Pin<'_> {
        let mut inside = self.inside.lock();
        let since = inside.now;
        *inside.reading.entry(since).or_default() += 1;
        Pin {
            readers: self,
            since,
        }
    }

    /// Notes that a block has just been freed. Returns the moment to ask
    /// [`are_gone`](Self::are_gone) about.
    pub fn freed(&self) -> Moment {
        let mut inside = self.inside.lock();
        let moment = Moment(inside.now);
        inside.now += 1;
        moment
    }

    /// Whether all readers have left that had begun by that moment.
    pub fn are_gone(&self, moment: Moment) -> bool {
        let inside = self.inside.lock();
        let oldest = inside.reading.keys().next();
        oldest.is_none_or(|&since| since > moment.0)
    }

    /// Waits until all readers have left that had begun by that moment.
    pub fn wait(&self, moment: Moment) {
        let mut inside = self.inside.lock();
        let is_reading = |inside: &Inside| {
            let oldest = inside.reading.keys().next();
            oldest.is_some_and(|&since| since <= moment.0)
        };
        while is_reading(&inside) {
            self.has_left.wait(&mut inside);
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut inside = self.readers.inside.lock();
        if let Some(count) = inside.reading.get_mut(&self.since) {
            *count -= 1;
            if *count == 0 {
                inside.reading.remove(&self.since);
                self.readers.has_left.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_waits_for_those_who_began_before_it_was_freed() {
        let readers = Readers::default();
        let before = readers.pin();
        let also_before = readers.pin();
        let freed = readers.freed();
        let after = readers.pin();
        assert!(!readers.are_gone(freed));
        drop(before);
        assert!(!readers.are_gone(freed));
        drop(also_before);
        assert!(readers.are_gone(freed));
        let later = readers.freed();
        assert!(!readers.are_gone(later));
        drop(after);
        assert!(readers.are_gone(later));
    }

    #[test]
    fn waiting_ends_with_the_last_reader() {
        let readers = Readers::default();
        let pin = readers.pin();
        let freed = readers.freed();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| readers.wait(freed));
            drop(pin);
            waits.join().expect("no panic");
        });
        assert!(readers.are_gone(freed));
    }
}
