//! Tinca's policies, as the Spindle paper describes them: every block alike, and roles.
//!
//! Tinca is Wei et al., "Transactional NVM cache with high performance and crash consistency",
//! SC 2017. It is not open source.
//!
//! ```text
//! block 0     what the cache is | head | tail
//! block 1 …   ring: disk blocks of the committing transaction, 8 bytes each
//! after it    entries, 16 bytes each: disk block; role, dirty, block before, block now
//! after them  cached blocks
//! ```
//!
//! A commit takes these steps, each with a flush and a fence of its own:
//!
//! | step | for | content |
//! | --- | --- | --- |
//! | 1 | each block | the whole block, data or metadata, into a free block of the region |
//! | 2 | each block | its entry: role *log*, the block before, the new block |
//! | 3 | each block | its disk block into the ring |
//! | 4 | each block | head |
//! | 5 | each block | role switch: *log* → *buffer* in its entry |
//! | 6 | once | tail = head: the transaction is committed |
//!
//! Recovery revokes each entry that has role *log* or is in the ring between tail and head, and
//! then moves tail. An entry changes in one store of 8 bytes, so that it is never half changed.
//!
//! Replacement: single blocks, least recently used first; see `area` for the flush of the disk.
//! Freed blocks are dropped after the commit, instead of being written to the disk later.

use std::collections::HashSet;
use std::sync::Arc;

use device::{Device, DeviceBlock, DeviceError};
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};

use super::area::{Area, Shape};
use super::disk::Disk;
use super::entries::Entries;
use super::order::Order;
use super::{
    Block, BlockRead, CacheCorruption, Counts, Kind, Limits, Replacement, TooSmall, Transaction,
    TransactionalCache,
};
use crate::baseline::journaling::deliberate::{self, Bug};

const MAGIC: u64 = u64::from_le_bytes(*b"TINCA-01");
const MAGIC_AT: Offset = Offset::new(0);
const REGION_BLOCKS_AT: Offset = Offset::new(8);
const DISK_BLOCKS_AT: Offset = Offset::new(16);
const HEAD_AT: Offset = Offset::new(64);
const TAIL_AT: Offset = Offset::new(128);
const RING_AT: Offset = Offset::new(BLOCK_BYTES as u64);
const RING_ENTRY_BYTES: u64 = 8;

/// A larger head is damage.
const HEAD_MAX: u64 = 1 << 60;

/// Blocks that a cache must have.
const BLOCKS_MIN: u64 = 32;

/// Role *log*: the block belongs to a transaction that is not committed.
const ROLE_LOG: u64 = 1 << 63;
/// The disk has another content.
const MODIFIED: u64 = 1 << 62;
const PLACE_BITS: u32 = 31;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// Where everything lies.
#[derive(Copy, Clone, Debug)]
struct Geometry {
    blocks: u64,
    entries_at: Offset,
    first: BlockNumber,
}

impl Geometry {
    fn of(region: &Region) -> Result<Geometry, TooSmall> {
        let region_blocks = region.length() / BLOCK_BYTES as u64;
        let ring = |blocks: u64| (blocks * RING_ENTRY_BYTES).div_ceil(BLOCK_BYTES as u64);
        let first = |blocks: u64| 1 + ring(blocks) + Entries::blocks(blocks);
        let mut blocks = (region_blocks * 512 / 515).min(PLACE_MASK - 1);
        while blocks > 0 && first(blocks) + blocks > region_blocks {
            blocks -= 1;
        }
        if blocks < BLOCKS_MIN {
            return Err(TooSmall {
                bytes: region.length(),
                least_bytes: (first(BLOCKS_MIN) + BLOCKS_MIN + 1) * BLOCK_BYTES as u64,
            });
        }
        Ok(Geometry {
            blocks,
            entries_at: BlockNumber::new(1 + ring(blocks)).offset(),
            first: BlockNumber::new(first(blocks)),
        })
    }

    fn ring_at(&self, position: u64) -> Offset {
        RING_AT + position % self.blocks * RING_ENTRY_BYTES
    }
}

/// The second word of an entry.
#[derive(Copy, Clone, Debug)]
struct Place {
    is_log: bool,
    is_modified: bool,
    before: Option<BlockNumber>,
    now: Option<BlockNumber>,
}

impl Place {
    fn word(self) -> u64 {
        let number = |place: Option<BlockNumber>| place.map_or(0, |place| place.get() + 1);
        let role = if self.is_log { ROLE_LOG } else { 0 };
        let modified = if self.is_modified { MODIFIED } else { 0 };
        role | modified | number(self.before) << PLACE_BITS | number(self.now)
    }

    fn of(word: u64) -> Place {
        let place = |number: u64| number.checked_sub(1).map(BlockNumber::new);
        Place {
            is_log: word & ROLE_LOG != 0,
            is_modified: word & MODIFIED != 0,
            before: place(word >> PLACE_BITS & PLACE_MASK),
            now: place(word & PLACE_MASK),
        }
    }

    /// Of a block as the disk has it.
    fn clean(place: BlockNumber) -> u64 {
        let clean = Place {
            is_log: false,
            is_modified: false,
            before: None,
            now: Some(place),
        };
        clean.word()
    }

    /// The place and whether the disk lacks it; nothing while a transaction has the entry.
    fn decode(word: u64) -> Option<(BlockNumber, bool)> {
        let place = Place::of(word);
        let now = place.now.filter(|_| !place.is_log)?;
        Some((now, place.is_modified))
    }
}

/// A cache with Tinca's policies.
#[derive(Debug)]
pub struct Tinca {
    region: Arc<Region>,
    disk: Arc<Disk>,
    geometry: Geometry,
    area: Area,
    /// One transaction at a time; the head.
    head: Mutex<u64>,
}

/// A block on its way into the cache.
struct Member<'t> {
    block: DeviceBlock,
    content: &'t Block,
    slot: u32,
    before: Option<BlockNumber>,
    now: BlockNumber,
}

impl Tinca {
    /// Makes an empty cache in a region. The previous content of the region is lost.
    ///
    /// # Errors
    /// The region is too small.
    pub fn format(
        region: Arc<Region>,
        device: Arc<dyn Device>,
        replacement: Replacement,
    ) -> Result<Tinca, TooSmall> {
        let geometry = Geometry::of(&region)?;
        region.fence(region.store_u64(MAGIC_AT, 0).flush());
        let entries = Entries::new(
            Arc::clone(&region),
            geometry.entries_at,
            geometry.blocks as u32,
        );
        let mut batch = entries.format();
        for (at, word) in [
            (REGION_BLOCKS_AT, region.length() / BLOCK_BYTES as u64),
            (DISK_BLOCKS_AT, device.blocks()),
            (HEAD_AT, 0),
            (TAIL_AT, 0),
        ] {
            batch.join(region.store_u64(at, word).flush());
        }
        region.fence(batch);
        region.fence(region.store_u64(MAGIC_AT, MAGIC).flush());
        match Tinca::open(region, geometry, device, replacement) {
            Ok(tinca) => Ok(tinca),
            Err(corruption) => unreachable!("a new cache: {corruption}"),
        }
    }

    /// Opens the cache of a region, after a power failure or not.
    ///
    /// # Errors
    /// The region holds no cache of this size, or it is damaged.
    pub fn recover(
        region: Arc<Region>,
        device: Arc<dyn Device>,
        replacement: Replacement,
    ) -> Result<Tinca, CacheCorruption> {
        let geometry = Geometry::of(&region).map_err(|_| CacheCorruption::NotFormatted)?;
        let is_ours = region.load_u64(MAGIC_AT) == MAGIC
            && region.load_u64(REGION_BLOCKS_AT) == region.length() / BLOCK_BYTES as u64
            && region.load_u64(DISK_BLOCKS_AT) == device.blocks();
        if !is_ours {
            return Err(CacheCorruption::NotFormatted);
        }
        revoke(&region, &geometry)?;
        Tinca::open(region, geometry, device, replacement)
    }

    fn open(
        region: Arc<Region>,
        geometry: Geometry,
        device: Arc<dyn Device>,
        replacement: Replacement,
    ) -> Result<Tinca, CacheCorruption> {
        let disk = Arc::new(Disk::new(device));
        let slots = geometry.blocks as u32;
        let entries = Entries::new(Arc::clone(&region), geometry.entries_at, slots);
        let shape = Shape {
            first: geometry.first,
            clean_place: Place::clean,
            victims_per_flush: replacement.victims_per_flush.max(1),
        };
        let order = Order::recency(slots);
        let area = Area::open(entries, Arc::clone(&disk), shape, order, Place::decode)?;
        Ok(Tinca {
            head: Mutex::new(region.load_u64(HEAD_AT)),
            region,
            disk,
            geometry,
            area,
        })
    }

    /// Finds room for all blocks; nothing durable has changed when that fails.
    fn gather<'t>(&self, transaction: &Transaction<'t>) -> Result<Vec<Member<'t>>, DeviceError> {
        let metadata = transaction.metadata.iter();
        let blocks: Vec<(DeviceBlock, &'t Block)> = transaction
            .data
            .iter()
            .copied()
            .chain(metadata.map(|change| (change.block, change.content)))
            .collect();
        let held: Vec<_> = blocks
            .iter()
            .map(|(block, _)| self.area.hold(*block))
            .collect();
        let places = match self.area.reserve(blocks.len()) {
            Ok(places) => places,
            Err(error) => {
                held.into_iter()
                    .flatten()
                    .for_each(|found| self.area.release(found));
                return Err(error);
            }
        };
        let members = blocks.into_iter().zip(held).zip(places);
        Ok(members
            .map(|(((block, content), found), now)| Member {
                block,
                content,
                slot: found.map_or_else(|| self.area.take_slot(), |found| found.slot),
                before: found.map(|found| found.place),
                now,
            })
            .collect())
    }

    /// Steps 1 to 4 for one block.
    fn log(&self, member: &Member<'_>, head: &mut u64) {
        let region = &*self.region;
        let content = region.write_streaming(member.now.offset(), member.content);
        region.fence(content);
        let place = Place {
            is_log: !deliberate::is(Bug::SkipLogRole),
            is_modified: true,
            before: member.before,
            now: Some(member.now),
        };
        let entries = self.area.entries();
        region.fence(match member.before {
            Some(_) => entries.set_place(member.slot, place.word()),
            None => entries.insert(member.slot, member.block, place.word()),
        });
        let at = self.geometry.ring_at(*head);
        region.fence(region.store_u64(at, member.block.get()).flush());
        *head += 1;
        region.fence(region.store_u64(HEAD_AT, *head).flush());
    }

    /// Step 6: commits.
    fn move_tail(&self, head: u64) {
        let tail = self.region.store_u64(TAIL_AT, head);
        self.region.fence(tail.flush());
    }

    /// Step 5 for one block.
    fn switch_role(&self, member: &Member<'_>) {
        let place = Place {
            is_log: false,
            is_modified: true,
            before: member.before,
            now: Some(member.now),
        };
        let entries = self.area.entries();
        self.region
            .fence(entries.set_place(member.slot, place.word()));
    }
}

/// Revokes what belongs to a transaction that is not committed. Can be interrupted and repeated.
fn revoke(region: &Arc<Region>, geometry: &Geometry) -> Result<(), CacheCorruption> {
    let entries = Entries::new(
        Arc::clone(region),
        geometry.entries_at,
        geometry.blocks as u32,
    );
    let (head, tail) = (region.load_u64(HEAD_AT), region.load_u64(TAIL_AT));
    let count = head.checked_sub(tail).ok_or(CacheCorruption::Ring)?;
    if count > geometry.blocks || head > HEAD_MAX {
        return Err(CacheCorruption::Ring);
    }
    let in_ring: HashSet<u64> = (tail..head)
        .filter(|_| !deliberate::is(Bug::IgnoreRing))
        .map(|position| region.load_u64(geometry.ring_at(position)))
        .collect();
    for (slot, block, word) in entries.iter() {
        let place = Place::of(word);
        if !place.is_log && !in_ring.contains(&block.get()) {
            continue;
        }
        let revoked = Place {
            is_log: false,
            // Whether the disk has the version before is not known.
            is_modified: true,
            before: place.before,
            now: place.before,
        };
        region.fence(match place.before {
            Some(_) => entries.set_place(slot, revoked.word()),
            None => entries.remove(slot),
        });
    }
    region.fence(region.store_u64(TAIL_AT, head).flush());
    Ok(())
}

impl TransactionalCache for Tinca {
    fn label(&self) -> &'static str {
        "Tinca's policies"
    }

    fn disk_blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn limits(&self) -> Limits {
        // While a transaction commits, the region has two versions of each of its blocks.
        let quarter = self.area.capacity() / 4;
        Limits {
            data_blocks: quarter,
            metadata_blocks: quarter,
        }
    }

    fn read(&self, _kind: Kind, requests: &mut [BlockRead<'_>]) -> Result<(), DeviceError> {
        self.area.read(requests)
    }

    fn commit(&self, transaction: &Transaction<'_>) -> Result<(), DeviceError> {
        let mut head = self.head.lock();
        let members = self.gather(transaction)?;
        for member in &members {
            self.log(member, &mut head);
        }
        if deliberate::is(Bug::TailBeforeRoles) {
            self.move_tail(*head);
        }
        for member in &members {
            self.switch_role(member);
        }
        self.move_tail(*head);
        for member in &members {
            self.area.publish(member.block, member.slot, member.now);
        }
        self.area.discard(transaction.freed.iter().copied());
        let (data, metadata) = (transaction.data.len(), transaction.metadata.len());
        self.area.count_commit(data, metadata);
        Ok(())
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.area.add_counts(&mut counts);
        self.disk.add_counts(&mut counts);
        counts
    }

    fn region(&self) -> &Region {
        &self.region
    }

    fn verify(&self) -> Result<(), CacheCorruption> {
        self.area.verify(Place::decode)
    }
}
