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

mod commit;
mod layout;
mod log;
mod recover;
mod ring;

use std::sync::Arc;

use device::{Device, DeviceError};
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, BlockNumber, Region};

use super::area::{Area, Shape};
use super::disk::Disk;
use super::entries::Entries;
use super::order::Order;
use super::{
    BlockRead, CacheCorruption, Counts, Kind, Limits, Replacement, TooSmall, Transaction,
    TransactionalCache,
};
use layout::{
    DISK_BLOCKS_AT, Geometry, HEAD_AT, IS_MENDED_AT, MAGIC, MAGIC_AT, Position, REGION_BLOCKS_AT,
    REMOVED_AT, TAIL_AT,
};
use log::MetadataLog;
use ring::Ring;

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
