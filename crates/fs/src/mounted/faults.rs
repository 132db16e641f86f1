//! Log lines for a device that fails: each names file, block and device (D8), and their rate is
//! bounded.

use super::file_system::Core;
use crate::format::InodeNumber;
use crate::values::error::FsError;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use txn::{DeviceFault, Store};

/// Lines in a period. A device that is gone fails thousands of calls in a second.
const LINES_MAX: u32 = 20;
const PERIOD: Duration = Duration::from_secs(10);

/// Lines of the present period.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Period>);

#[derive(Debug, Default)]
struct Period {
    began: Option<Instant>,
    lines: u32,
}

impl Faults {
    /// Allows another line, and returns how many were suppressed in the period before.
    fn may_speak(&self, now: Instant) -> Option<u32> {
        let mut period = self.0.lock();
        let is_over = |began: Instant| now.duration_since(began) >= PERIOD;
        if period.began.is_none_or(is_over) {
            let unsaid = period.lines.saturating_sub(LINES_MAX);
            *period = Period {
                began: Some(now),
                lines: 1,
            };
            return Some(unsaid);
        }
        period.lines = period.lines.saturating_add(1);
        (period.lines <= LINES_MAX).then_some(0)
    }
}

impl<S: Store> Core<S> {
    /// Logs that the device failed with a block of a file, and returns the caller's error (D8).
    #[cold]
    #[inline(never)]
    pub(crate) fn device_failed(
        &self,
        number: InodeNumber,
        file_block: u64,
        fault: DeviceFault,
    ) -> FsError {
        if let Some(unsaid) = self.faults.may_speak(Instant::now()) {
            tracing::error!(
                inode = number.get(),
                file_block,
                device = %fault.device,
                device_block = fault.block.get(),
                error = %fault.error,
                unsaid,
                "a block of a file could not be read or written"
            );
        }
        FsError::Device(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_gone_does_not_flood_the_log() {
        let (faults, begin) = (Faults::default(), Instant::now());
        let said = (0..1000).filter(|_| faults.may_speak(begin).is_some());
        assert_eq!(said.count(), LINES_MAX as usize);
        assert_eq!(faults.may_speak(begin + PERIOD), Some(1000 - LINES_MAX));
        assert_eq!(faults.may_speak(begin + PERIOD), Some(0));
    }
}
