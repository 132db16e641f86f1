//! A region that becomes one crash image after another, in time proportional to what differs.

use std::sync::Arc;

use super::crash::{Choice, CrashPoint};
use crate::{LINE_BYTES, Offset, Region, WORD_BYTES};

/// A private region for trying crash images: choose one, let recovery run on it, choose the next.
///
/// It follows the durable image from crash point to crash point and takes back, line by line, both what the choice wrote
/// and what the code under test wrote afterwards. Nothing costs a copy of the image except the first crash point.
#[derive(Debug)]
pub struct Scratch {
    /// The durable image of the crash point that was followed last.
    durable: Vec<u8>,
    /// How many settled words of the emulator `durable` has seen.
    followed: u64,
    generation: u64,
    region: Arc<Region>,
}

impl Scratch {
    /// A scratch region that holds the durable image of a crash point.
    pub fn new(point: &CrashPoint<'_>) -> Scratch {
        let region = Region::from_image(point.durable);
        region.track_stores();
        Scratch {
            durable: point.durable.to_vec(),
            followed: end_of(point),
            generation: point.generation,
            region: Arc::new(region),
        }
    }

    /// The region; what it holds is settled by [`Scratch::apply`]. Let go of clones before the next one.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Makes the region hold the image of a choice; all that was stored since the last one is undone.
    ///
    /// A crash point of another region, or of one that was refilled, costs a new copy and makes a new region.
    pub fn apply(&mut self, point: &CrashPoint<'_>, choice: &Choice) -> &Arc<Region> {
        self.rewind();
        self.follow(point);
        point.surviving_words(choice, |index, value| {
            self.region
                .store_u64(Offset::new(index * WORD_BYTES as u64), value)
                .leave_to_checkpoint();
        });
        &self.region
    }

    /// Undoes all stores since the last choice, and the choice.
    fn rewind(&mut self) {
        for line in self.region.take_stored_lines() {
            let at = line * LINE_BYTES;
            self.region
                .restore(Offset::new(at as u64), &self.durable[at..at + LINE_BYTES]);
        }
    }

    /// Catches up with what fences made durable.
    fn follow(&mut self, point: &CrashPoint<'_>) {
        let unseen = self
            .followed
            .checked_sub(point.settled_before)
            .and_then(|seen| point.settled.get(seen as usize..))
            .filter(|_| self.generation == point.generation);
        let Some(unseen) = unseen else {
            // The emulator has forgotten, or was refilled, or is another one.
            *self = Scratch::new(point);
            return;
        };
        for (index, value) in unseen {
            let at = *index as usize * WORD_BYTES;
            self.durable[at..at + WORD_BYTES].copy_from_slice(&value.to_le_bytes());
            self.region.poke_word(at as u64, *value);
        }
        self.followed = end_of(point);
    }
}

/// How many words the emulator had settled at a crash point.
fn end_of(point: &CrashPoint<'_>) -> u64 {
    point.settled_before + point.settled.len() as u64
}
