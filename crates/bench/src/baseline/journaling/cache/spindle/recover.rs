//! Recovery: the ring, one entry beyond its tail, the head, and the metadata log.
//!
//! Each step can be interrupted and repeated.

use std::sync::Arc;

use device::DeviceBlock;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use pmem::{Flushed, Region};

use super::super::CacheCorruption;
use super::super::entries::Entries;
use super::layout::{Geometry, HEAD_AT, Head, Position, REMOVED_AT, TAIL_AT};
use super::log::MetadataLog;
use super::ring::Ring;
use super::{CommitPoints, Committed};
use crate::baseline::journaling::deliberate::{self, Bug};

/// Revokes a transaction that is not committed; returns where the next one begins.
pub(super) fn recover(
    region: &Arc<Region>,
    geometry: &Geometry,
    entries: &Entries,
    points: CommitPoints,
) -> Result<Committed, CacheCorruption> {
    let head = Head::of_word(region.load_u64(HEAD_AT));
    let tail = revoke_data(region, geometry, entries, head.position)?;
    let log = MetadataLog::new(region, geometry);
    let undo = |sequence| !deliberate::is(Bug::SkipUndo) && log.restore(sequence);
    match points {
        CommitPoints::Published => {
            let moved = Head {
                position: tail,
                ..head
            };
            region.fence(region.store_u64(HEAD_AT, moved.word()).flush());
            let mut removed = region.load_u64(REMOVED_AT);
            if removed > Head::SEQUENCE_MAX {
                return Err(CacheCorruption::Ring);
            }
            if undo(removed + 1) {
                removed += 1;
                region.fence(region.store_u64(REMOVED_AT, removed).flush());
            }
            Ok(Committed {
                position: tail,
                sequence: removed,
            })
        }
        CommitPoints::Mended => {
            let sequence = head.sequence + u64::from(undo(head.sequence + 1));
            let moved = Head {
                position: tail,
                sequence,
            };
            region.fence(region.store_u64(HEAD_AT, moved.word()).flush());
            Ok(Committed {
                position: tail,
                sequence,
            })
        }
    }
}

/// Revokes data cache entries; returns the tail, which is durable.
///
/// The tail moves beyond the extra entry: its position must not be written twice in one lap,
/// because a half-written entry would then pass for a whole one.
fn revoke_data(
    region: &Arc<Region>,
    geometry: &Geometry,
    entries: &Entries,
    head: Position,
) -> Result<Position, CacheCorruption> {
    let ring = Ring::new(region, geometry);
    let mut tail = Position::of_word(region.load_u64(TAIL_AT));
    let count = head.until(tail);
    if count > ring.entries() {
        return Err(CacheCorruption::Ring);
    }
    let by_block: HashMap<DeviceBlock, u32, RandomState> = entries
        .iter()
        .map(|(slot, block, _)| (block, slot))
        .collect();
    let mut batch = Flushed::nothing(region);
    let mut position = head;
    let extra = u64::from(!deliberate::is(Bug::SkipExtraEntry));
    for index in 0..count + extra {
        match ring.read(position) {
            Some(before) => {
                if let Some(&slot) = by_block.get(&before.block) {
                    batch.join(match before.place {
                        Some(place) => entries.set_place(slot, place.get()),
                        None => entries.remove(slot),
                    });
                }
                if index == count {
                    tail = tail.next();
                }
            }
            None if index < count => return Err(CacheCorruption::Ring),
            None => {}
        }
        position = position.next();
    }
    region.fence(batch);
    region.fence(region.store_u64(TAIL_AT, tail.word()).flush());
    Ok(tail)
}
