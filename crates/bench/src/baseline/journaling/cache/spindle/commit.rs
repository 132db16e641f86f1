//! The steps of a commit.

use device::{DeviceBlock, DeviceError};
use pmem::{BLOCK_BYTES, BlockNumber, Flushed, LINE_BYTES};

use super::super::area::Found;
use super::super::{Block, MetadataBlock, Transaction};
use super::layout::{HEAD_AT, Head, Position, REMOVED_AT, SUB_BLOCK_BYTES, SUB_BLOCKS, TAIL_AT};
use super::ring::Before;
use super::{CommitPoints, Committed, Spindle};
use crate::baseline::journaling::deliberate::{self, Bug};

/// A data block on its way into the cache.
pub(super) struct DataMember<'t> {
    pub(super) content: &'t Block,
    pub(super) before: Before,
    pub(super) slot: u32,
    pub(super) now: BlockNumber,
}

/// A metadata block that changes in place, or is new.
pub(super) struct MetadataMember<'t> {
    pub(super) change: MetadataBlock<'t>,
    pub(super) slot: u32,
    pub(super) place: BlockNumber,
    /// The block has no entry yet.
    pub(super) needs_entry: bool,
}

/// The room of a transaction in the region, before the transaction is written.
#[derive(Default)]
pub(super) struct Prepared<'t> {
    pub(super) data: Vec<DataMember<'t>>,
    pub(super) metadata: Vec<MetadataMember<'t>>,
}

impl Spindle {
    /// Finds room for all blocks and brings metadata into the region; nothing of the transaction is
    /// durable when that fails.
    pub(super) fn prepare<'t>(
        &self,
        transaction: &Transaction<'t>,
    ) -> Result<Prepared<'t>, DeviceError> {
        let (data, metadata) = (&transaction.data, &transaction.metadata);
        // Blocks that were free and had another kind before.
        let blocks = data.iter().map(|(block, _)| *block);
        self.metadata.discard(blocks);
        let blocks = metadata.iter().map(|change| change.block);
        self.data.discard(blocks);

        let mut prepared = Prepared::default();
        let outcome = self
            .prepare_metadata(metadata, &mut prepared)
            .and_then(|()| self.prepare_data(data, &mut prepared));
        match outcome {
            Ok(()) => Ok(prepared),
            Err(error) => {
                for member in prepared
                    .metadata
                    .iter()
                    .filter(|member| !member.needs_entry)
                {
                    self.metadata.release(member.found());
                }
                for member in prepared.metadata.iter().filter(|member| member.needs_entry) {
                    self.metadata.return_slot(member.slot, member.place);
                }
                Err(error)
            }
        }
    }

    fn prepare_metadata<'t>(
        &self,
        changes: &[MetadataBlock<'t>],
        prepared: &mut Prepared<'t>,
    ) -> Result<(), DeviceError> {
        let mut missing = Vec::new();
        for &change in changes {
            match self.metadata.hold(change.block) {
                Some(found) => prepared.add_metadata(change, found, false),
                None => missing.push(change),
            }
        }
        for change in missing {
            if change.is_new {
                let place = self.metadata.reserve(1)?[0];
                let slot = self.metadata.take_slot();
                prepared.add_metadata(change, Found { slot, place }, true);
            } else {
                let found = self.metadata.hold_or_fetch(change.block)?;
                prepared.add_metadata(change, found, false);
            }
        }
        Ok(())
    }

    fn prepare_data<'t>(
        &self,
        blocks: &[(DeviceBlock, &'t Block)],
        prepared: &mut Prepared<'t>,
    ) -> Result<(), DeviceError> {
        let held: Vec<_> = blocks
            .iter()
            .map(|(block, _)| self.data.hold(*block))
            .collect();
        let places = match self.data.reserve(blocks.len()) {
            Ok(places) => places,
            Err(error) => {
                held.into_iter()
                    .flatten()
                    .for_each(|found| self.data.release(found));
                return Err(error);
            }
        };
        for ((&(block, content), found), now) in blocks.iter().zip(held).zip(places) {
            prepared.data.push(DataMember {
                content,
                before: Before {
                    block,
                    place: found.map(|found| found.place),
                },
                slot: found.map_or_else(|| self.data.take_slot(), |found| found.slot),
                now,
            });
        }
        Ok(())
    }

    /// Saves what changes in place, and writes new metadata blocks, to which nothing leads yet.
    fn save(&self, metadata: &[MetadataMember<'_>], sequence: u64) -> Flushed {
        let mut batch = Flushed::nothing(&self.region);
        let mut slot = 0;
        for member in metadata {
            if member.change.is_new {
                let at = member.place.offset();
                batch.join(self.region.write_streaming(at, member.change.content));
                continue;
            }
            for sub_block in 0..SUB_BLOCKS {
                let lines = SUB_BLOCK_BYTES / LINE_BYTES;
                if member.change.changed.within(sub_block * lines, lines) != 0 {
                    batch.join(self.log.save(slot, sequence, member.place, sub_block));
                    slot += 1;
                }
            }
        }
        batch
    }

    /// Changes metadata in place. The undo log is durable.
    fn change(&self, metadata: &[MetadataMember<'_>]) -> Flushed {
        let mut batch = Flushed::nothing(&self.region);
        for member in metadata {
            let change = &member.change;
            if member.needs_entry {
                let word = member.place.get();
                let entries = self.metadata.entries();
                batch.join(entries.insert(member.slot, change.block, word));
            }
            if change.is_new {
                continue;
            }
            for line in 0..BLOCK_BYTES / LINE_BYTES {
                if change.changed.within(line, 1) != 0 {
                    let bytes = &change.content[line * LINE_BYTES..][..LINE_BYTES];
                    let at = member.place.offset() + (line * LINE_BYTES) as u64;
                    batch.join(self.region.store(at, bytes).flush());
                }
            }
        }
        batch
    }

    /// Writes all of a transaction; it is not committed afterwards. Returns the tail.
    ///
    /// The entry of one block and the ring entry and content of the next share a fence: whatever
    /// becomes durable first, the ring has where each changed entry led before, at most one entry
    /// beyond the tail.
    pub(super) fn write(&self, prepared: &Prepared<'_>, committed: Committed) -> Position {
        let region = &*self.region;
        let sequence = committed.sequence + 1;
        let mut position = committed.position;
        let mut batch = self.save(&prepared.metadata, sequence);
        let mut is_changed = false;
        let mut change = |batch: &mut Flushed| {
            if !std::mem::replace(&mut is_changed, true) {
                batch.join(self.change(&prepared.metadata));
            }
        };
        if deliberate::is(Bug::ChangeBeforeUndo) {
            change(&mut batch);
        }
        for member in &prepared.data {
            batch.join(self.ring.write(position, member.before));
            batch.join(region.write_streaming(member.now.offset(), member.content));
            region.fence(batch);
            batch = Flushed::nothing(region);
            change(&mut batch);
            let (entries, word) = (self.data.entries(), member.now.get());
            batch.join(match member.before.place {
                Some(_) => entries.set_place(member.slot, word),
                None => entries.insert(member.slot, member.before.block, word),
            });
            position = position.next();
            batch.join(region.store_u64(TAIL_AT, position.word()).flush());
        }
        if prepared.data.is_empty() {
            region.fence(batch);
            batch = Flushed::nothing(region);
            change(&mut batch);
        }
        if !deliberate::is(Bug::HeadBeforeEntries) {
            region.fence(batch);
        }
        position
    }

    /// Commits what was written. In published order the head is about data alone.
    pub(super) fn move_head(&self, committed: Committed, has_data: bool) {
        let region = &*self.region;
        let head = Head {
            position: committed.position,
            sequence: committed.sequence,
        };
        let is_published = self.points == CommitPoints::Published;
        if has_data || !is_published {
            region.fence(region.store_u64(HEAD_AT, head.word()).flush());
        }
        if is_published {
            let removed = region.store_u64(REMOVED_AT, committed.sequence);
            region.fence(removed.flush());
        }
    }
}

impl<'t> Prepared<'t> {
    fn add_metadata(&mut self, change: MetadataBlock<'t>, found: Found, needs_entry: bool) {
        self.metadata.push(MetadataMember {
            change,
            slot: found.slot,
            place: found.place,
            needs_entry,
        });
    }
}

impl MetadataMember<'_> {
    fn found(&self) -> Found {
        Found {
            slot: self.slot,
            place: self.place,
        }
    }
}
