//! Which cold blocks were read before.
//!
//! A block is brought into memory when it is read for the second time while its first reading is
//! remembered. So a scan, which reads each block once, brings nothing in and evicts nothing. The
//! table has one tag a slot, and a later reading takes the slot of an earlier one: the table
//! remembers about as many readings as it has slots.

use foldhash::quality::FixedState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};

/// Tags of blocks that were read lately.
#[derive(Debug)]
pub struct Touches {
    slots: Box<[AtomicU32]>,
}

impl Touches {
    /// Remembers about `readings` readings.
    pub fn new(readings: u64) -> Touches {
        let slots = readings.max(64).next_power_of_two();
        Touches {
            slots: (0..slots).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// A block was read. Returns whether it was read before, lately; its first reading is forgotten
    /// then.
    pub fn touch(&self, file: u64, block: u64) -> bool {
        let mixed = FixedState::default().hash_one((file, block));
        let slot = &self.slots[mixed as usize & (self.slots.len() - 1)];
        // Never zero, which is an empty slot.
        let tag = (mixed >> 32) as u32 | 1;
        let is_known = slot.load(Ordering::Relaxed) == tag;
        slot.store(if is_known { 0 } else { tag }, Ordering::Relaxed);
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_reading_counts_and_a_scan_does_not() {
        let touches = Touches::new(1024);
        assert!(!touches.touch(5, 9));
        assert!(touches.touch(5, 9));
        assert!(!touches.touch(5, 9), "the first readings are used up");
        let scan = (0..100_000).filter(|&block| touches.touch(6, block));
        assert!(scan.count() < 10, "tags of 31 bits rarely agree");
        assert!(!touches.touch(5, 9), "the scan has taken its slot");
    }
}
