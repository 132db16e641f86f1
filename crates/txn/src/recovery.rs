//! Replay of journals after a crash (and, trivially, after a clean unmount).
//!
//! Idempotent: a crash at any point of it, any number of times, leads to the same state.

use crate::checkpoint::write_checkpoint;
use crate::checksum::{Seal, unseal};
use crate::error::Corruption;
use crate::layout::{CHECKPOINT_AT, CLEAN_AT, STATE_BLOCK, Superblock};
use crate::live::Live;
use crate::lost::{self, LostRecords};
use crate::places::{HalfName, HalfPlace, read_places};
use crate::record::Record;
use pmem::deliberate::{self, Bug};
use pmem::{Flushed, Region};

/// What the journals held.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Replay {
    /// Records that were applied.
    pub records: u64,
    /// Last sequence number seen; everything up to it is retired now.
    pub sequence: u64,
    /// Nothing was alive, and the last unmount had said so.
    pub was_clean: bool,
}

/// Number of the last checkpoint.
///
/// # Errors
///
/// The checkpoint word is damaged.
pub fn checkpoint_sequence(region: &Region) -> Result<u64, Corruption> {
    let word = region.load_u64(STATE_BLOCK.offset() + CHECKPOINT_AT);
    unseal(word, Seal::Checkpoint, 0)
        .ok_or_else(|| Corruption::new("checkpoint word in the state block", "its check fails"))
}

/// Durable records that [`replay`] could not apply. None if the last unmount was clean.
///
/// # Errors
///
/// A damaged checkpoint word or place of a journal.
pub(crate) fn lost_records(
    region: &Region,
    superblock: &Superblock,
) -> Result<Vec<LostRecords>, Corruption> {
    let checkpoint = checkpoint_sequence(region)?;
    if is_marked_clean(region, checkpoint) {
        return Ok(Vec::new());
    }
    let places = read_places(region, superblock)?;
    let places: Vec<_> = places.as_flattened().iter().copied().map(Some).collect();
    Ok(lost::lost_records(region, superblock, &places, checkpoint))
}

fn is_marked_clean(region: &Region, checkpoint: u64) -> bool {
    let clean_mark = region.load_u64(STATE_BLOCK.offset() + CLEAN_AT);
    unseal(clean_mark, Seal::Clean, 0) == Some(checkpoint)
}

/// Applies every live record and retires it.
///
/// # Errors
///
/// A damaged checkpoint word or place of a journal. Nothing was written then.
pub fn replay(region: &Region, superblock: &Superblock) -> Result<Replay, Corruption> {
    let places = read_places(region, superblock)?;
    replay_from(
        region,
        superblock,
        &places
            .as_flattened()
            .iter()
            .copied()
            .map(Some)
            .collect::<Vec<_>>(),
    )
}

/// As [`replay`], with the journals' halves where `places` says, in order; what a lost half held is lost.
///
/// # Errors
///
/// A damaged checkpoint word. Nothing was written then.
pub fn replay_from(
    region: &Region,
    superblock: &Superblock,
    places: &[Option<HalfPlace>],
) -> Result<Replay, Corruption> {
    let checkpoint = checkpoint_sequence(region)?;
    let live = Live::read(region, superblock, places, checkpoint);
    let Some(sequence) = live.newest() else {
        let was_clean = is_marked_clean(region, checkpoint);
        return Ok(Replay {
            records: 0,
            sequence: checkpoint,
            was_clean,
        });
    };
    let mut records = live.happened(region);
    if deliberate::is(Bug::ReplayOutOfOrder) {
        records.reverse();
    }
    apply(region, &records);
    // Records that did not happen are retired as well: their numbers are not given out again.
    write_checkpoint(region, sequence);
    Ok(Replay {
        records: records.len() as u64,
        sequence,
        was_clean: false,
    })
}

/// Makes each half another use of its place, so that no record in it passes any more. Journals were replayed: nothing in them is alive.
///
/// The power may have left a record of which only the number is missing, or another of its words. That number is given out again, so a
/// record of the next mount that is torn in its turn, at the same place, could be what makes the old one whole.
///
/// # Errors
///
/// A damaged place of a journal. Nothing was written then.
pub(crate) fn forget_torn(region: &Region, superblock: &Superblock) -> Result<(), Corruption> {
    if deliberate::is(Bug::KeepTornRecords) {
        return Ok(());
    }
    let places = read_places(region, superblock)?;
    let places: Vec<_> = places.as_flattened().iter().copied().map(Some).collect();
    forget_records(region, superblock, &places);
    Ok(())
}

/// Makes each half at `places` another use of its place: no record that lies there counts any more.
pub fn forget_records(region: &Region, superblock: &Superblock, places: &[Option<HalfPlace>]) {
    let mut batch = Flushed::nothing(region);
    for (name, place) in HalfName::all(superblock.journals).zip(places) {
        if let Some(place) = place {
            let word = place.followed_by(place.start).word(name);
            batch.join(region.store_u64(name.word_at(), word).flush());
        }
    }
    region.fence(batch);
}

/// Applies records and makes the result durable.
fn apply(region: &Region, records: &[Record]) {
    let mut batch = Flushed::nothing(region);
    for record in records {
        for (_, entry) in record.entries() {
            let dirty = match entry.payload {
                Some(payload) => region.store(entry.at, payload),
                None => region.fill_zero(entry.at, entry.length as u64),
            };
            batch.join(dirty.flush());
        }
    }
    region.fence(batch);
}
