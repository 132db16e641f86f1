//! What may look over a region's shoulder: an emulator, a media model, a wear record, the tracking of stores.
//!
//! All of it is behind one flag byte of the region, so that a plain mapped region pays one predictable branch.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::address::lines_touched;
use crate::emulator::Emulator;
use crate::media::{MediaModel, Timing};
use crate::{BLOCK_BYTES, BlockNumber, LINE_BYTES, Offset, Region};

/// Everything optional about a region.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) emulator: Option<Emulator>,
    pub(crate) timing: Timing,
    /// Bytes written to the medium, per block.
    wear: OnceLock<Box<[AtomicU64]>>,
    stored: OnceLock<Mutex<StoredLines>>,
}

impl Watch {
    pub(crate) fn new(emulator: Option<Emulator>) -> Watch {
        Watch {
            emulator,
            ..Watch::default()
        }
    }
}

/// The flag byte: not zero when anything watches.
pub(crate) struct Flags(AtomicU8);

impl Flags {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const EMULATED: u8 = 1;
    const SLOWED: u8 = 2;
    const WEAR: u8 = 4;
    const TRACKED: u8 = 8;

    pub(crate) fn new(flags: u8) -> Flags {
        Flags(AtomicU8::new(flags))
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Flags::NONE
    }

    fn set(&self, flag: u8, on: bool) {
        if on {
            self.0.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!flag, Ordering::Relaxed);
        }
    }
}

/// A set of lines.
struct StoredLines {
    is_stored: Vec<u64>,
    list: Vec<usize>,
}

impl Region {
    /// Lays a media model over the region: from now on it is as slow as that. For experiments only.
    pub fn set_media(&self, model: &MediaModel) {
        crate::counters::begin();
        self.watch.timing.set(model);
        self.flags.set(Flags::SLOWED, !self.watch.timing.is_free());
    }

    /// Begins to count the bytes that go to the medium, per 4 KiB block: 64 for each line flushed, and those of
    /// non-temporal stores. Counting never ends.
    pub fn record_wear(&self) {
        let blocks = self.length().div_ceil(BLOCK_BYTES as u64);
        self.watch
            .wear
            .get_or_init(|| (0..blocks).map(|_| AtomicU64::new(0)).collect());
        self.flags.set(Flags::WEAR, true);
    }

    /// Bytes written to each block since [`Region::record_wear`]; empty if that was never called.
    pub fn wear(&self) -> Vec<u64> {
        let counts = self.watch.wear.get().map_or(&[][..], |wear| wear);
        counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect()
    }

    /// Bytes written to the blocks from `first` on, `count` of them, since [`Region::record_wear`]; 0 if that was never called.
    ///
    /// # Panics
    /// If they lie outside of the region.
    pub fn wear_of(&self, first: BlockNumber, count: u64) -> u64 {
        let Some(wear) = self.watch.wear.get() else {
            return 0;
        };
        let first = first.get() as usize;
        let blocks = wear[first..first + count as usize].iter();
        blocks.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn count_wear(&self, at: Offset, bytes: u64) {
        let Some(wear) = self.watch.wear.get() else {
            return;
        };
        let (mut at, end) = (at.get(), at.get() + bytes);
        while at < end {
            let block = at / BLOCK_BYTES as u64;
            let next = end.min((block + 1) * BLOCK_BYTES as u64);
            wear[block as usize].fetch_add(next - at, Ordering::Relaxed);
            at = next;
        }
    }

    /// Begins to remember which lines are stored to.
    pub(crate) fn track_stores(&self) {
        let lines = (self.length() / LINE_BYTES as u64) as usize;
        let none = || {
            Mutex::new(StoredLines {
                is_stored: vec![0; lines.div_ceil(64)],
                list: Vec::new(),
            })
        };
        self.watch.stored.get_or_init(none);
        self.flags.set(Flags::TRACKED, true);
    }

    pub(crate) fn remember_stored(&self, at: Offset, length: usize) {
        let Some(stored) = self.watch.stored.get() else {
            return;
        };
        let mut stored = stored.lock();
        let first = (at.get() / LINE_BYTES as u64) as usize;
        for line in first..first + lines_touched(at, length) as usize {
            let (word, bit) = (line / 64, 1 << (line % 64));
            if stored.is_stored[word] & bit == 0 {
                stored.is_stored[word] |= bit;
                stored.list.push(line);
            }
        }
    }

    /// The lines that were stored to since the last call.
    pub(crate) fn take_stored_lines(&self) -> Vec<usize> {
        let Some(stored) = self.watch.stored.get() else {
            return Vec::new();
        };
        let mut stored = stored.lock();
        let list = std::mem::take(&mut stored.list);
        for line in &list {
            stored.is_stored[line / 64] = 0;
        }
        list
    }
}
