//! A process that has the segments of its user, and may change any byte in them at any time: also while the power fails.
//!
//! What it stores is its own affair. So each image is recovered with other bytes in these segments; when it is mounted they
//! are put back, and everything must be as if nobody had touched them.

use fs::FileSystem;
use pmem::{BLOCK_BYTES, Offset, Region};
use scatter::SegmentNumber;
use std::collections::BTreeMap;
use std::ops::Range;
use txn::checksum::mix64;
use txn::{Domain, Metadata, PoolState, Segments};

const WORD: u64 = size_of::<u64>() as u64;

/// Which bytes of the pool the process has mapped for writing.
#[derive(Clone, Debug, Default)]
pub struct Mapped {
    segments: BTreeMap<SegmentNumber, Range<u64>>,
}

/// What the process has stored over: each word and what it was.
#[must_use = "the bytes are to be put back"]
pub struct Scrambled(Vec<(Offset, u64)>);

impl Mapped {
    /// Gives the process all segments of a user, as the server does it.
    pub fn give(&mut self, files: &FileSystem, user: u32) {
        let store = files.store();
        let geometry = *store.allocator().geometry();
        for segment in (0..store.geometry().segments).map(SegmentNumber) {
            if self.segments.contains_key(&segment) {
                continue;
            }
            match store.hand_out(segment) {
                Some(Domain::Owner { uid, .. }) if uid == user => {
                    let (is_ready, _) = store.prepare(segment, u64::MAX);
                    assert!(is_ready, "all of it was looked at");
                    let first = geometry.first_block_of(segment).offset().get();
                    let bytes = geometry.blocks_per_segment * BLOCK_BYTES as u64;
                    self.segments.insert(segment, first..first + bytes);
                }
                Some(_) => drop(store.take_in(segment)),
                None => {}
            }
        }
    }

    /// The process has gone.
    pub fn take_in(&mut self, files: &FileSystem) {
        for (segment, _) in std::mem::take(&mut self.segments) {
            files.store().take_in(segment);
        }
    }

    /// The process is gone with its server, or was never there.
    pub fn none() -> Mapped {
        Mapped::default()
    }

    /// Tells two sets of segments apart; 0 if there are none.
    pub fn hash(&self) -> u64 {
        let add = |hash: u64, range: &Range<u64>| mix64(hash ^ range.start);
        self.segments.values().fold(0, add)
    }

    /// Changes every byte.
    pub fn scramble(&self, region: &Region) -> Scrambled {
        let words = self
            .segments
            .values()
            .cloned()
            .flatten()
            .step_by(WORD as usize);
        let change = |at: u64| {
            let at = Offset::new(at);
            let was = region.load_u64(at);
            region.store_u64(at, noise(at)).leave_to_checkpoint();
            (at, was)
        };
        Scrambled(words.map(change).collect())
    }
}

impl Scrambled {
    /// Puts back what nobody has changed since: recovery writes the bytes of small writes again.
    pub fn undo(self, region: &Region) {
        for (at, was) in self.0 {
            let mut word = region.load_u64(at).to_le_bytes();
            let noise = noise(at).to_le_bytes();
            for (index, was) in was.to_le_bytes().into_iter().enumerate() {
                if word[index] == noise[index] {
                    word[index] = was;
                }
            }
            let word = u64::from_le_bytes(word);
            region.store_u64(at, word).leave_to_checkpoint();
        }
    }
}

/// Bytes that are even and not 0, which no [operation](crate::operation::pattern) writes: so they can be told from what
/// recovery writes.
fn noise(at: Offset) -> u64 {
    const EVEN: u64 = 0xfefe_fefe_fefe_fefe;
    const NOT_ZERO: u64 = 0x0202_0202_0202_0202;
    mix64(at.get()) & EVEN | NOT_ZERO
}
