//! Which writes a flush has made durable, on a device that reports a failed flush once.
//!
//! Kernels report a lost write to one caller of `fsync`, and succeed for the next one. So a flush
//! that succeeds says nothing of a write if another flush has failed since that write was begun
//! (D2).

use crate::device::{Device, DeviceError};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the flushes of one device that failed.
#[derive(Debug, Default)]
pub struct Flushes {
    failed: AtomicU64,
    /// One flush at a time, its count included: a good one that ended before the bad one is counted
    /// would be believed.
    one: Mutex<()>,
}

/// Stands for the moment at which a write was begun.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WrittenSince(u64);

impl Flushes {
    /// The present, before a write is begun.
    pub fn now(&self) -> WrittenSince {
        WrittenSince(self.failed.load(Ordering::SeqCst))
    }

    /// Flushes the device. Writes that were begun since `begun`, and waited for, are durable then.
    ///
    /// # Errors
    ///
    /// Those of [`Device::flush`]; [`DeviceError::FlushFailed`] if another one failed meanwhile.
    pub fn flush(&self, device: &dyn Device, begun: WrittenSince) -> Result<(), DeviceError> {
        let _one = self.one.lock();
        if let Err(error) = device.flush() {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Err(error);
        }
        // Another caller may have had the report of this caller's write.
        match self.now() == begun {
            true => Ok(()),
            false => Err(DeviceError::FlushFailed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty::{Fault, Faulty};

    #[test]
    fn a_good_flush_behind_a_bad_one_says_nothing_of_writes_before() {
        let device = Faulty::new(8);
        let flushes = Flushes::default();
        let begun = flushes.now();
        device.arm(Fault::Flush, 0);
        assert!(flushes.flush(&device, begun).is_err());
        assert_eq!(flushes.flush(&device, begun), Err(DeviceError::FlushFailed));
        assert_eq!(flushes.flush(&device, flushes.now()), Ok(()));
    }
}
