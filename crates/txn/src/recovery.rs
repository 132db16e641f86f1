//! Replay of journals after a crash (and, trivially, after a clean unmount).
//!
//! Idempotent: a crash at any point of it, any number of times, leads to the same state.

use crate::checkpoint::write_checkpoint;
use crate::checksum::{Seal, unseal};
use crate::error::Corruption;
use crate::layout::{CHECKPOINT_AT, JOURNALS_AT, STATE_BLOCK, Superblock};
use crate::live::Live;
use crate::record::Record;
use pmem::deliberate::{self, Bug};
use pmem::{BlockNumber, Flushed, Offset, Region};

/// What the journals held.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Replay {
    /// Records that were applied.
    pub records: u64,
    /// Last sequence number seen; everything up to it is retired now.
    pub sequence: u64,
}

/// Where the journals of a pool start.
///
/// # Errors
///
/// A journal pointer that is damaged or points outside the segments.
pub fn journal_starts(region: &Region, superblock: &Superblock) -> Result<Vec<Offset>, Corruption> {
    let geometry = superblock.geometry();
    (0..u64::from(superblock.journals))
        .map(|index| {
            let word = region.load_u64(STATE_BLOCK.offset() + JOURNALS_AT + index * 8);
            let corrupt =
                |detail: &str| Corruption::new(format!("pointer to journal {index}"), detail);
            let start =
                unseal(word, Seal::Journal, index).ok_or_else(|| corrupt("its check fails"))?;
            let last = start.saturating_add(superblock.journal_blocks - 1);
            if !geometry.contains(BlockNumber::new(start))
                || !geometry.contains(BlockNumber::new(last))
            {
                return Err(corrupt("it points outside the segments"));
            }
            Ok(BlockNumber::new(start).offset())
        })
        .collect()
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

/// Applies every live record and retires it.
///
/// # Errors
///
/// A damaged checkpoint word or journal pointer. Nothing was written then.
pub fn replay(region: &Region, superblock: &Superblock) -> Result<Replay, Corruption> {
    let checkpoint = checkpoint_sequence(region)?;
    let starts = journal_starts(region, superblock)?;
    let live = Live::read(region, superblock, &starts, checkpoint);
    let Some(sequence) = live.newest() else {
        return Ok(Replay {
            records: 0,
            sequence: checkpoint,
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
    })
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
