//! Spindle as published (Yan et al., "Spindle: A Write-Optimized NVM Cache for Journaling File
//! System", sections 3.1 to 3.4), and with its commit points mended.
//!
//! Data blocks are written whole into free blocks of the region; the ring keeps where each was
//! before. Metadata blocks stay in the region and change in place, in units of an inode (256
//! bytes), after an undo log.
//!
//! Choices where the paper leaves something open or is wrong:
//!
//! * An entry beyond the tail is scanned: entries carry the lap of the ring, so that stale and
//!   half-written ones are ignored, and recovery moves the tail beyond the extra entry.
//! * Fences: only where an order is needed. A transaction of *n* ≥ 1 data blocks takes *n* + 3
//!   (published) or *n* + 2 (mended), and one of metadata alone takes 3.
//! * The undo log is removed by one store of a sequence, so that no part of it is removed alone.
//! * New metadata blocks have no undo log: their old content is worth nothing.
//! * Entries have no dirty mark: it is in memory, and after recovery every block counts as dirty.
//! * Failures during replacement, errors and the volatile cache of the disk: see `area`.
//! * A block that changes between data and metadata: the copy of the other kind is dropped first.
//! * Data of the running transaction is in memory. Blocks of the committing one are not replaced.
//! * Freed blocks are dropped after the commit, instead of being written to the disk later.
//!
//! # The two commit points
//!
//! Data commits with head = tail; metadata commits later, with the removal of the undo log. A power
//! failure between them keeps the data of a transaction and revokes its metadata. Published order
//! is kept in [`CommitPoints::Published`], and a test shows the state that it loses. In
//! [`CommitPoints::Mended`] the head's word has the sequence of the newest committed transaction
//! beside the position, and the undo log is valid while its sequence is larger: one store commits
//! both.

mod layout;
mod log;
mod recover;
mod ring;

use std::sync::Arc;

use device::{Device, DeviceBlock, DeviceError};
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, BlockNumber, Flushed, LINE_BYTES, Region};

use super::area::{Area, Found, Shape};
use super::disk::Disk;
use super::entries::Entries;
use super::order::Order;
use super::{
    Block, BlockRead, CacheCorruption, Counts, Kind, Limits, MetadataBlock, Replacement, TooSmall,
    Transaction, TransactionalCache,
};
use crate::baseline::journaling::deliberate::{self, Bug};
use layout::{
    DISK_BLOCKS_AT, Geometry, HEAD_AT, Head, IS_MENDED_AT, MAGIC, MAGIC_AT, Position,
    REGION_BLOCKS_AT, REMOVED_AT, SUB_BLOCK_BYTES, SUB_BLOCKS, TAIL_AT,
};
use log::MetadataLog;
use ring::{Before, Ring};

/// When the two halves of a transaction commit.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub enum CommitPoints {
    /// Data first, metadata later: a power failure between them leaves half a transaction.
    #[default]
    Published,
    /// Both with one store.
    Mended,
}

/// Where the next transaction begins.
#[derive(Copy, Clone, Debug)]
struct Committed {
    position: Position,
    /// Of the newest committed transaction.
    sequence: u64,
}

/// A cache as Spindle's paper describes it.
#[derive(Debug)]
pub struct Spindle {
    region: Arc<Region>,
    disk: Arc<Disk>,
    geometry: Geometry,
    points: CommitPoints,
    data: Area,
    metadata: Area,
    ring: Ring,
    log: MetadataLog,
    /// One transaction at a time.
    committed: Mutex<Committed>,
}

/// A data block on its way into the cache.
struct DataMember<'t> {
    content: &'t Block,
    before: Before,
    slot: u32,
    now: BlockNumber,
}

/// A metadata block that changes in place, or is new.
struct MetadataMember<'t> {
    change: MetadataBlock<'t>,
    slot: u32,
    place: BlockNumber,
    /// The block has no entry yet.
    needs_entry: bool,
}

/// The room of a transaction in the region, before the transaction is written.
#[derive(Default)]
struct Prepared<'t> {
    data: Vec<DataMember<'t>>,
    metadata: Vec<MetadataMember<'t>>,
}

fn place_of(word: u64) -> Option<(BlockNumber, bool)> {
    // Entries have no dirty mark.
    Some((BlockNumber::new(word), true))
}

impl Spindle {
    /// Makes an empty cache in a region. The previous content of the region is lost.
    ///
    /// # Errors
    /// The region is too small.
    pub fn format(
        region: Arc<Region>,
        device: Arc<dyn Device>,
        points: CommitPoints,
        replacement: Replacement,
    ) -> Result<Spindle, TooSmall> {
        let geometry = Geometry::of(&region)?;
        region.fence(region.store_u64(MAGIC_AT, 0).flush());
        let mut batch = geometry.format(&region);
        for (at, word) in [
            (REGION_BLOCKS_AT, region.length() / BLOCK_BYTES as u64),
            (DISK_BLOCKS_AT, device.blocks()),
            (IS_MENDED_AT, u64::from(points == CommitPoints::Mended)),
            (HEAD_AT, 0),
            (TAIL_AT, 0),
            (REMOVED_AT, 0),
        ] {
            batch.join(region.store_u64(at, word).flush());
        }
        region.fence(batch);
        region.fence(region.store_u64(MAGIC_AT, MAGIC).flush());
        match Spindle::recover(region, device, replacement) {
            Ok(spindle) => Ok(spindle),
            Err(corruption) => unreachable!("a new cache: {corruption}"),
        }
    }

    /// Opens the cache of a region, after a power failure or not. The region says which commit
    /// points it was formatted for.
    ///
    /// # Errors
    /// The region holds no cache of this size, or it is damaged.
    pub fn recover(
        region: Arc<Region>,
        device: Arc<dyn Device>,
        replacement: Replacement,
    ) -> Result<Spindle, CacheCorruption> {
        let geometry = Geometry::of(&region).map_err(|_| CacheCorruption::NotFormatted)?;
        let is_ours = region.load_u64(MAGIC_AT) == MAGIC
            && region.load_u64(REGION_BLOCKS_AT) == region.length() / BLOCK_BYTES as u64
            && region.load_u64(DISK_BLOCKS_AT) == device.blocks();
        if !is_ours {
            return Err(CacheCorruption::NotFormatted);
        }
        let points = match region.load_u64(IS_MENDED_AT) {
            0 => CommitPoints::Published,
            _ => CommitPoints::Mended,
        };
        let slots = geometry.data_blocks as u32;
        let entries = Entries::new(Arc::clone(&region), geometry.data_entries_at, slots);
        let committed = recover::recover(&region, &geometry, &entries, points)?;
        let disk = Arc::new(Disk::new(device));
        let shape = |first| Shape {
            first,
            clean_place: BlockNumber::get,
            victims_per_flush: replacement.victims_per_flush.max(1),
        };
        let order = Order::recency(slots);
        let data_shape = shape(geometry.data_first);
        let data = Area::open(entries, Arc::clone(&disk), data_shape, order, place_of)?;
        let slots = geometry.metadata_blocks as u32;
        let entries = Entries::new(Arc::clone(&region), geometry.metadata_entries_at, slots);
        let order = Order::counter(slots);
        let metadata_shape = shape(geometry.metadata_first);
        let metadata = Area::open(entries, Arc::clone(&disk), metadata_shape, order, place_of)?;
        Ok(Spindle {
            ring: Ring::new(&region, &geometry),
            log: MetadataLog::new(&region, &geometry),
            region,
            disk,
            geometry,
            points,
            data,
            metadata,
            committed: Mutex::new(committed),
        })
    }

    /// Finds room for all blocks and brings metadata into the region; nothing of the transaction is
    /// durable when that fails.
    fn prepare<'t>(&self, transaction: &Transaction<'t>) -> Result<Prepared<'t>, DeviceError> {
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
    fn write(&self, prepared: &Prepared<'_>, committed: Committed) -> Position {
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
    fn move_head(&self, committed: Committed, has_data: bool) {
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

impl TransactionalCache for Spindle {
    fn label(&self) -> &'static str {
        match self.points {
            CommitPoints::Published => "Spindle as published",
            CommitPoints::Mended => "Spindle, commit points mended",
        }
    }

    fn disk_blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn limits(&self) -> Limits {
        Limits {
            data_blocks: self.geometry.transaction_data() as usize,
            metadata_blocks: self.geometry.transaction_metadata() as usize,
        }
    }

    fn read(&self, kind: Kind, requests: &mut [BlockRead<'_>]) -> Result<(), DeviceError> {
        match kind {
            Kind::Data => self.data.read(requests),
            Kind::Metadata => self.metadata.read(requests),
        }
    }

    fn commit(&self, transaction: &Transaction<'_>) -> Result<(), DeviceError> {
        let mut committed = self.committed.lock();
        let prepared = self.prepare(transaction)?;
        let position = self.write(&prepared, *committed);
        *committed = Committed {
            position,
            sequence: committed.sequence + 1,
        };
        self.move_head(*committed, !prepared.data.is_empty());
        for member in &prepared.data {
            self.data
                .publish(member.before.block, member.slot, member.now);
        }
        for member in &prepared.metadata {
            self.metadata
                .publish(member.change.block, member.slot, member.place);
        }
        self.data.discard(transaction.freed.iter().copied());
        self.metadata.discard(transaction.freed.iter().copied());
        self.data
            .count_commit(prepared.data.len(), prepared.metadata.len());
        Ok(())
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.data.add_counts(&mut counts);
        self.metadata.add_counts(&mut counts);
        self.disk.add_counts(&mut counts);
        counts
    }

    fn region(&self) -> &Region {
        &self.region
    }

    fn verify(&self) -> Result<(), CacheCorruption> {
        self.data.verify(place_of)?;
        self.metadata.verify(place_of)
    }
}
