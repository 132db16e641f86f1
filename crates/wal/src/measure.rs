//! Measures how many writes in flight pay on a disk.

use crate::acknowledge::Order;
use crate::ring::Ring;
use crate::{AlignedBuffer, Disk, Log, LogError, UNIT_BYTES};
use pmem::deliberate::{self, Bug};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Numbers of writes in flight that are tried.
const DEPTHS: [usize; 4] = [1, 2, 4, 8];
/// Units that are under way at a time in each trial, in as many writes as its depth: batches are
/// the larger the fewer of them are under way.
const GROUP_UNITS: u64 = 16;
/// This part of the rate with one write in flight counts: threads that arrive during a write wait
/// for its end, so each of them uses every second one.
const ALONE: f64 = 0.6;
/// The longest trial.
const TRIAL_MAX: Duration = Duration::from_millis(30);
/// A depth is enough if it reaches this share of the best rate.
const ENOUGH: f64 = 0.9;
/// The measurement needs so many free units, and uses so many at most.
const UNITS_MIN: u64 = 16;
const UNITS_MAX: u64 = 16 << 10;
/// Bytes of a large write.
const LARGE_BYTES: u64 = 1 << 20;

/// Measured speed of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskSpeed {
    /// Durable writes in flight that pay: 1 to 8.
    pub depth: usize,
    /// Median time of a durable write of 4 KiB when there is no other.
    pub sync_us: f64,
    /// Rate of durable writes of 1 MiB, one after the other.
    pub bytes_per_second: f64,
}

/// Measures an idle disk with durable writes of zeros in the free part of the ring, for `patience`
/// at most. Zeros are not a batch, so the log has what it had. Batches cannot be placed meanwhile.
pub fn measure_depth(log: &Log, patience: Duration) -> Result<DiskSpeed, LogError> {
    let shared = &log.shared;
    if let Some(failure) = log.failure() {
        return Err(failure);
    }
    let result = {
        let order = shared.order();
        let scratch = Scratch::behind(&order, &*shared.disk, shared.ring)?;
        scratch.measure((patience / (DEPTHS.len() as u32 + 2)).min(TRIAL_MAX))
    };
    result.map_err(|(at, bytes, error)| {
        shared.latch(LogError::Write {
            disk: shared.disk.name(),
            at,
            bytes,
            error: Arc::new(error),
        })
    })
}

type Failure = (u64, usize, io::Error);

/// Units of the ring that no batch uses.
struct Scratch<'a> {
    disk: &'a dyn Disk,
    ring: Ring,
    position: u64,
    units: u64,
}

impl<'a> Scratch<'a> {
    fn behind(order: &Order, disk: &'a dyn Disk, ring: Ring) -> Result<Scratch<'a>, LogError> {
        let free = ring.bytes - order.used_bytes();
        let units = (free / UNIT_BYTES as u64).min(UNITS_MAX);
        if units < UNITS_MIN {
            return Err(LogError::NoRoomToMeasure {
                disk: disk.name(),
                free,
            });
        }
        let is_wrong = deliberate::is(Bug::LogMeasuresOverBatches);
        Ok(Scratch {
            disk,
            ring,
            position: if is_wrong {
                order.root().position
            } else {
                order.head().position
            },
            units,
        })
    }

    fn measure(&self, trial: Duration) -> Result<DiskSpeed, Failure> {
        let mut rates = [0.0; DEPTHS.len()];
        let mut single = self.rate(1, 1, trial)?.1;
        single.sort_unstable();
        for (rate, depth) in rates.iter_mut().zip(DEPTHS) {
            let units = GROUP_UNITS / depth as u64;
            *rate = self.rate(depth, units, trial)?.0 * units as f64;
        }
        rates[0] *= ALONE;
        Ok(DiskSpeed {
            depth: smallest_enough(rates),
            sync_us: single[single.len() / 2].as_secs_f64() * 1e6,
            bytes_per_second: self.large_rate(trial)?,
        })
    }

    /// Writes of so many units per second with `depth` threads, and how long each write took.
    fn rate(
        &self,
        depth: usize,
        units: u64,
        trial: Duration,
    ) -> Result<(f64, Vec<Duration>), Failure> {
        let slots = self.units / units;
        let next = AtomicU64::new(0);
        let started = Instant::now();
        let one = || {
            let mut unit = AlignedBuffer::new();
            unit.resize(units as usize * UNIT_BYTES);
            let mut times = Vec::new();
            while times.is_empty() || started.elapsed() < trial {
                let index = next.fetch_add(1, Ordering::Relaxed) % slots * units;
                let begun = Instant::now();
                self.write(self.position + index * UNIT_BYTES as u64, &unit)?;
                times.push(begun.elapsed());
            }
            Ok(times)
        };
        let times = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..depth).map(|_| scope.spawn(one)).collect();
            let mut times = Vec::new();
            for thread in threads {
                times.extend(thread.join().expect("no panic")?);
            }
            Ok(times)
        })?;
        Ok((times.len() as f64 / started.elapsed().as_secs_f64(), times))
    }

    fn large_rate(&self, trial: Duration) -> Result<f64, Failure> {
        let large = LARGE_BYTES.min(self.units * UNIT_BYTES as u64);
        let mut zeros = AlignedBuffer::new();
        zeros.resize(large as usize);
        let slots = self.units * UNIT_BYTES as u64 / large;
        let (started, mut writes) = (Instant::now(), 0);
        while writes == 0 || started.elapsed() < trial {
            self.write(self.position + writes % slots * large, &zeros)?;
            writes += 1;
        }
        Ok((writes * large) as f64 / started.elapsed().as_secs_f64())
    }

    fn write(&self, position: u64, bytes: &[u8]) -> Result<(), Failure> {
        for piece in self.ring.pieces(position, bytes.len()) {
            if !piece.bytes.is_empty() {
                let bytes = &bytes[piece.bytes];
                self.disk
                    .write_durable(piece.at, bytes)
                    .map_err(|error| (piece.at, bytes.len(), error))?;
            }
        }
        Ok(())
    }
}

/// The smallest depth that reaches nine tenths of the best rate.
fn smallest_enough(rates: [f64; DEPTHS.len()]) -> usize {
    let best = rates.iter().copied().fold(0.0, f64::max);
    let index = rates
        .iter()
        .position(|&rate| rate >= best * ENOUGH)
        .unwrap_or(0);
    DEPTHS[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_depth_that_is_nearly_as_fast_as_the_best_is_taken() {
        assert_eq!(smallest_enough([100.0, 100.0, 100.0, 105.0]), 1);
        assert_eq!(smallest_enough([100.0, 190.0, 200.0, 180.0]), 2);
        assert_eq!(smallest_enough([100.0, 150.0, 250.0, 300.0]), 8);
        assert_eq!(smallest_enough([100.0, 20.0, 10.0, 5.0]), 1);
    }
}
