//! Media models: memory that pretends to be slower, for experiments only.
//!
//! * [`crate::Region::read`] and [`crate::Region::load`] of 64 bytes and more take the read latency and the bytes' share of the read
//!   bandwidth, *in all*: the copy out of the memory behind the region is part of that time, and only the rest is waited for.
//!   Smaller loads are free: a file system makes them of words that were used a moment ago, and such words are in the processor's
//!   cache whatever the medium is.
//! * a fence takes the write latency, and the write bandwidth's share of all lines that the thread has flushed or streamed since its
//!   last fence (to this or another region), *beyond* what it takes anyway.
//!
//! Bandwidth is one budget for all threads: each transfer takes the next free piece of a time line that they share.

use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::LINE_BYTES;

/// Delays that make DRAM behave like another medium.
#[derive(Clone, PartialEq, Debug)]
pub struct MediaModel {
    /// What it is called in reports.
    pub name: String,
    /// Nanoseconds that a read of 64 bytes or more takes before its bytes come.
    pub read_latency_ns: f64,
    /// Bytes that all threads together can read in a second; infinite for no limit.
    pub read_bytes_per_second: f64,
    /// Nanoseconds added to a fence.
    pub write_latency_ns: f64,
    /// Bytes that all threads together can write in a second, whole lines counted; infinite for no limit.
    pub write_bytes_per_second: f64,
}

/// Why a text is not a media model.
#[derive(Debug, thiserror::Error)]
pub enum MediaModelError {
    /// Neither a preset nor a setting.
    #[error(
        "media model: `{part}` is not known; give dram, optane, pcm or cxl, or settings like \
         read=300,write=100,readbw=6.6e9,writebw=2.3e9 (nanoseconds, bytes per second)"
    )]
    Unknown {
        /// The part of the text.
        part: String,
    },
    /// A setting without a usable number.
    #[error(
        "media model: `{part}`: a latency is a number of nanoseconds from 0 to 1e9, a bandwidth is at least 1e3 bytes per second"
    )]
    Number {
        /// The part of the text.
        part: String,
    },
}

impl MediaModel {
    /// No delays.
    pub fn dram() -> MediaModel {
        MediaModel::preset("dram", 0.0, f64::INFINITY, 0.0, f64::INFINITY)
    }

    /// One Optane DIMM: a random read waits for 300 ns, then bytes come at 6.6 GB/s; writes are accepted as fast as DRAM's
    /// but drain at 2.3 GB/s.
    pub fn optane() -> MediaModel {
        MediaModel::preset("optane", 300.0, 6.6e9, 4.0, 2.3e9)
    }

    /// Phase-change memory as file-system papers have emulated it: 300 ns reads and 500 ns writes in all, and an eighth of
    /// DRAM's write bandwidth.
    pub fn pcm() -> MediaModel {
        MediaModel::preset("pcm", 300.0, 8e9, 400.0, 1.2e9)
    }

    /// Memory behind a CXL link.
    pub fn cxl() -> MediaModel {
        MediaModel::preset("cxl", 250.0, 28e9, 150.0, 24e9)
    }

    /// All presets.
    pub fn presets() -> [MediaModel; 4] {
        [
            MediaModel::dram(),
            MediaModel::optane(),
            MediaModel::pcm(),
            MediaModel::cxl(),
        ]
    }

    fn preset(
        name: &str,
        read_ns: f64,
        read_bandwidth: f64,
        write_ns: f64,
        write_bandwidth: f64,
    ) -> MediaModel {
        MediaModel {
            name: name.to_owned(),
            read_latency_ns: read_ns,
            read_bytes_per_second: read_bandwidth,
            write_latency_ns: write_ns,
            write_bytes_per_second: write_bandwidth,
        }
    }

    fn set(&mut self, part: &str) -> Result<(), MediaModelError> {
        let unknown = || MediaModelError::Unknown {
            part: part.to_owned(),
        };
        let number = || MediaModelError::Number {
            part: part.to_owned(),
        };
        let (key, value) = part.split_once('=').ok_or_else(unknown)?;
        let (field, range) = match key.trim() {
            "read" => (&mut self.read_latency_ns, 0.0..=1e9),
            "write" => (&mut self.write_latency_ns, 0.0..=1e9),
            "readbw" => (&mut self.read_bytes_per_second, 1e3..=f64::INFINITY),
            "writebw" => (&mut self.write_bytes_per_second, 1e3..=f64::INFINITY),
            _ => return Err(unknown()),
        };
        let value: f64 = value.trim().parse().map_err(|_| number())?;
        if !range.contains(&value) {
            return Err(number());
        }
        *field = value;
        Ok(())
    }
}

impl FromStr for MediaModel {
    type Err = MediaModelError;

    /// The name of a preset, settings like `read=300,writebw=1e9` (what is left out is as DRAM), or a preset and
    /// settings that change it: `optane,read=100`.
    fn from_str(text: &str) -> Result<MediaModel, MediaModelError> {
        let mut parts = text.split(',').map(str::trim).peekable();
        let first = parts.peek().copied().unwrap_or_default();
        let preset = MediaModel::presets()
            .into_iter()
            .find(|preset| preset.name == first);
        if preset.is_some() {
            parts.next();
        }
        let is_changed = preset.is_none() || parts.peek().is_some();
        let mut model = preset.unwrap_or_else(MediaModel::dram);
        for part in parts {
            model.set(part)?;
        }
        if is_changed {
            model.name = text.to_owned();
        }
        Ok(model)
    }
}

impl fmt::Display for MediaModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// A model in ticks of the processor's clock, and the time lines of its bandwidth.
#[derive(Default)]
pub(crate) struct Timing {
    read: Channel,
    write: Channel,
}

/// One direction.
#[derive(Default)]
struct Channel {
    latency_ticks: AtomicU64,
    /// Ticks per byte, in units of 2⁻²⁰.
    scaled_ticks_per_byte: AtomicU64,
    /// When the last transfer that was let in will be over. Apart from the settings: whoever begins has to know those first.
    busy_until: CachePadded<AtomicU64>,
}

impl Timing {
    pub(crate) fn set(&self, model: &MediaModel) {
        self.read
            .set(model.read_latency_ns, model.read_bytes_per_second);
        self.write
            .set(model.write_latency_ns, model.write_bytes_per_second);
    }

    pub(crate) fn is_free(&self) -> bool {
        self.read.is_free() && self.write.is_free()
    }

    /// A read of so many bytes begins: when it is over, in ticks.
    pub(crate) fn begin_read(&self, bytes: usize) -> u64 {
        self.read.transfer(bytes as u64)
    }

    pub(crate) fn wait_for_fence(&self, lines: u64) {
        wait_until(self.write.transfer(lines * LINE_BYTES as u64));
    }
}

impl Channel {
    fn set(&self, latency_ns: f64, bytes_per_second: f64) {
        let ticks_per_ns = ticks_per_nanosecond();
        self.latency_ticks
            .store((latency_ns * ticks_per_ns) as u64, Ordering::Relaxed);
        let scaled = 1e9 / bytes_per_second * ticks_per_ns * f64::from(1 << 20);
        self.scaled_ticks_per_byte
            .store(scaled as u64, Ordering::Relaxed);
        self.busy_until.store(0, Ordering::Relaxed);
    }

    fn is_free(&self) -> bool {
        self.latency_ticks.load(Ordering::Relaxed) == 0
            && self.scaled_ticks_per_byte.load(Ordering::Relaxed) == 0
    }

    /// Takes the next free piece of the time line. When the transfer will be over, in ticks; 0 if nothing limits it.
    fn transfer(&self, bytes: u64) -> u64 {
        if self.is_free() {
            return 0;
        }
        let now = ticks_after_loads();
        let scaled =
            u128::from(bytes) * u128::from(self.scaled_ticks_per_byte.load(Ordering::Relaxed));
        let transfer = (scaled >> 20) as u64;
        let mut end = now;
        if transfer > 0 {
            let mut busy_until = self.busy_until.load(Ordering::Relaxed);
            loop {
                end = busy_until.max(now) + transfer;
                match self.busy_until.compare_exchange_weak(
                    busy_until,
                    end,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => break,
                    Err(other) => busy_until = other,
                }
            }
        }
        end + self.latency_ticks.load(Ordering::Relaxed)
    }
}

/// Spins until the time has come.
pub(crate) fn wait_until(time_ticks: u64) {
    // No `pause` here: one can take as long as the delays that are to be modelled.
    while time_ticks != 0 && ticks() < time_ticks {}
}

/// The time stamp counter: ticks of a constant rate of some GHz.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 has rdtsc, and Linux lets user space use it.
    unsafe { _rdtsc() }
}

/// The same, not before everything that was loaded has come: a device is not asked before the address is known. A processor that computes ahead would
/// otherwise read the clock while it still waits for a block's address, and hide that wait in the delay.
fn ticks_after_loads() -> u64 {
    // SAFETY: every x86-64 has lfence.
    unsafe { _mm_lfence() };
    ticks()
}

/// The rate of the time stamp counter, measured once.
pub fn ticks_per_nanosecond() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (begin, begin_ticks) = (Instant::now(), ticks());
        while begin.elapsed() < Duration::from_millis(20) {}
        let end_ticks = ticks();
        (end_ticks - begin_ticks) as f64 / begin.elapsed().as_nanos() as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_models() {
        let model: MediaModel = "read=300, write=100,readbw=6.6e9".parse().expect("model");
        assert_eq!(
            (model.read_latency_ns, model.write_latency_ns),
            (300.0, 100.0)
        );
        assert_eq!(
            (model.read_bytes_per_second, model.write_bytes_per_second),
            (6.6e9, f64::INFINITY)
        );
        assert_eq!(model.name, "read=300, write=100,readbw=6.6e9");
        for preset in MediaModel::presets() {
            assert_eq!(preset.name.parse::<MediaModel>().expect("preset"), preset);
        }
        let changed: MediaModel = "optane,read=1".parse().expect("model");
        assert_eq!(
            (changed.read_latency_ns, changed.write_bytes_per_second),
            (1.0, 2.3e9)
        );
        assert_eq!(changed.to_string(), "optane,read=1");
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        for (text, message) in [
            ("", "`` is not known"),
            (
                "flash",
                "`flash` is not known; give dram, optane, pcm or cxl",
            ),
            ("dram,dram", "`dram` is not known"),
            ("read=300,colour=1", "`colour=1` is not known"),
            ("read=fast", "`read=fast`: a latency is a number"),
            ("read=-1", "`read=-1`: a latency"),
            ("readbw=0", "a bandwidth is at least"),
            ("write=NaN", "`write=NaN`: a latency"),
        ] {
            let error = text.parse::<MediaModel>().expect_err(text).to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
