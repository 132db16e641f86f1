//! Protection domains: who may be handed a segment.
//!
//! `docs/DESIGN.md`, "Segments and domains". The allocator knows domains as small numbers; this module gives each
//! owner its number and keeps the segment table on the medium in step.

use crate::checksum::{Seal, seal, unseal};
use crate::layout::{Geometry, SegmentEntry};
use crate::sharing::{Content, HeldSegments, clear_blocks};
use parking_lot::{Mutex, MutexGuard};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, DurabilityClass, Flushed, Offset, Region};
use scatter::{DomainId, Extent, SegmentLedger, SegmentNumber};
use std::collections::HashMap;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Who the blocks of a segment belong to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Domain {
    /// The file system itself; never mapped by a client.
    Metadata,
    /// Several owners; only the server touches it.
    Mixed,
    /// One owner: files with this user, group and these read/write bits of the mode.
    Owner {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// Read/write bits for user, group, others: `rw rw rw` in six bits.
        class: u8,
    },
}

/// Domains that are compared one by one before the map is asked, under its lock.
const SCANNED: usize = 8;
/// Offsets of words in a segment's entry.
const SEAL_AT: u64 = offset_of!(SegmentEntry, seal) as u64;
const WEAR_AT: u64 = offset_of!(SegmentEntry, wear) as u64;
const CONTENT_AT: u64 = offset_of!(SegmentEntry, content) as u64;
const KIND_METADATA: u8 = 1;
const KIND_MIXED: u8 = 2;
const KIND_OWNER: u8 = 3;

impl Domain {
    /// The domain of a file with these attributes.
    pub fn of_file(mode: u32, uid: u32, gid: u32) -> Domain {
        let bits = |shift: u32| ((mode >> shift) & 0o6) as u8 >> 1;
        Domain::Owner {
            uid,
            gid,
            class: (bits(6) << 4) | (bits(3) << 2) | bits(0),
        }
    }

    /// The words `owner` and `seal` of a segment's entry that assign it to this domain.
    pub fn words(self, segment: u32) -> (u64, u64) {
        let (kind, class, owner) = match self {
            Domain::Metadata => (KIND_METADATA, 0, 0),
            Domain::Mixed => (KIND_MIXED, 0, 0),
            Domain::Owner { uid, gid, class } => {
                (KIND_OWNER, class, (u64::from(uid) << 32) | u64::from(gid))
            }
        };
        (owner, SegmentEntry::seal_word(segment, kind, class, owner))
    }
}

/// The entry of a segment fails its check: its owner is unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the segment's entry fails its check")]
pub struct DamagedEntry;

impl SegmentEntry {
    /// The domain that `segment` belongs to; `None` if it is free.
    ///
    /// # Errors
    ///
    /// [`DamagedEntry`]: the seal does not fit, or names a kind that does not exist.
    pub fn domain(&self, segment: u32) -> Result<Option<Domain>, DamagedEntry> {
        if self.seal == 0 {
            return Ok(None);
        }
        let (kind, class) = (self.seal as u8, (self.seal >> 8) as u8);
        // Only an owner's seal covers the owner word: an owner's segment becomes mixed by one 8-byte store.
        let owner = if kind == KIND_OWNER { self.owner } else { 0 };
        if self.seal != SegmentEntry::seal_word(segment, kind, class, owner) {
            return Err(DamagedEntry);
        }
        match kind {
            KIND_METADATA => Ok(Some(Domain::Metadata)),
            KIND_MIXED => Ok(Some(Domain::Mixed)),
            KIND_OWNER => Ok(Some(Domain::Owner {
                uid: (self.owner >> 32) as u32,
                gid: self.owner as u32,
                class,
            })),
            _ => Err(DamagedEntry),
        }
    }

    /// Whose content is in `segment`.
    pub fn content(&self, segment: u32) -> Content {
        Content::of_word(self.content, segment)
    }

    /// The wear saved for `segment`; 0 if it was never saved.
    pub fn wear(&self, segment: u32) -> u64 {
        unseal(self.wear, Seal::Wear, u64::from(segment)).unwrap_or(0)
    }
}

/// Told of a segment that is about to change hands, and of its next owner.
pub type Observer = Box<dyn Fn(SegmentNumber, Option<Domain>) + Send + Sync>;

/// The numbers of all domains seen since the pool was opened, and the way to the segment table.
#[derive(Debug)]
pub struct Domains {
    region: Arc<Region>,
    geometry: Geometry,
    /// Each domain at the index that is its number. Only grows, and is read without a lock: each creation of a file asks for its domain.
    domains: boxcar::Vec<Domain>,
    numbers: Mutex<HashMap<Domain, DomainId>>,
    observer: Watcher,
    held: HeldSegments,
    /// Users whose files use kept segments before fresh ones, and whether there are any.
    sparing: Mutex<Vec<u32>>,
    are_any_sparing: AtomicBool,
    /// Held while entries of the table change. Counts the changes: a thread that copies the table
    /// has to know.
    table: Mutex<u64>,
}

/// Who wants to know, if anybody does.
#[derive(Default)]
struct Watcher(OnceLock<Observer>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("Watcher")
            .field(&self.0.get().is_some())
            .finish()
    }
}

impl Domains {
    /// Starts with the two domains that every pool has.
    pub fn new(region: Arc<Region>, geometry: Geometry) -> Arc<Domains> {
        let domains = boxcar::vec![Domain::Metadata, Domain::Mixed];
        let numbers = HashMap::from([
            (Domain::Metadata, DomainId::METADATA),
            (Domain::Mixed, DomainId::MIXED),
        ]);
        Arc::new(Domains {
            region,
            geometry,
            domains,
            numbers: Mutex::new(numbers),
            observer: Watcher::default(),
            held: HeldSegments::none_of(geometry.segments),
            sparing: Mutex::default(),
            are_any_sparing: AtomicBool::new(false),
            table: Mutex::new(0),
        })
    }

    /// The segments that stay with their owners.
    pub fn held(&self) -> &HeldSegments {
        &self.held
    }

    /// Has files of these users, and of no others, use kept segments before fresh ones.
    pub(crate) fn spare_segments(&self, users: Vec<u32>) {
        let mut sparing = self.sparing.lock();
        self.are_any_sparing
            .store(!users.is_empty(), Ordering::Relaxed);
        *sparing = users;
    }

    fn is_sparing(&self, number: DomainId) -> bool {
        self.are_any_sparing.load(Ordering::Relaxed)
            && match self.domain(number) {
                Domain::Owner { uid, .. } => self.sparing.lock().contains(&uid),
                _ => false,
            }
    }

    /// The number of `domain`.
    pub fn number(&self, domain: Domain) -> DomainId {
        let mut first = (0..SCANNED).map_while(|index| self.domains.get(index));
        if let Some(index) = first.position(|known| *known == domain) {
            return DomainId(index as u32);
        }
        let mut numbers = self.numbers.lock();
        *numbers
            .entry(domain)
            .or_insert_with(|| DomainId(self.domains.push(domain) as u32))
    }

    /// The domain with this number.
    pub fn domain(&self, number: DomainId) -> Domain {
        self.domains[number.0 as usize]
    }

    /// Has `observer` told of each segment before it changes hands, under the lock of its allocation group: it must not call the allocator. One for
    /// each opening of the pool; for experiments.
    pub fn observe(&self, observer: Observer) {
        let installed = self.observer.0.set(observer);
        debug_assert!(installed.is_ok(), "one observer");
    }

    fn tell(&self, segment: SegmentNumber, next: Option<Domain>) {
        if let Some(observer) = self.observer.0.get() {
            observer(segment, next);
        }
    }

    /// The entry of `segment` on the medium.
    pub fn entry(&self, segment: u32) -> SegmentEntry {
        self.region.load(self.geometry.segment_entry(segment))
    }

    /// The domain of every segment, as the table says; a damaged entry counts as `Mixed` (the
    /// blocks in it stay reachable by the server, no client is handed them; fsck repairs the entry).
    pub fn segment_domains(&self) -> Vec<Option<DomainId>> {
        (0..self.geometry.segments)
            .map(|segment| match self.entry(segment).domain(segment) {
                Ok(domain) => domain.map(|domain| self.number(domain)),
                Err(DamagedEntry) => Some(DomainId::MIXED),
            })
            .collect()
    }

    /// Saved wear of every segment.
    pub fn segment_wear(&self) -> Vec<u64> {
        (0..self.geometry.segments)
            .map(|segment| self.entry(segment).wear(segment))
            .collect()
    }

    /// Saves the wear of every segment.
    pub fn save_wear(&self, wear: &[u64]) {
        let _change = self.change_table();
        let mut batch = Flushed::nothing(&self.region);
        for (segment, &blocks) in wear.iter().enumerate() {
            let at = self.geometry.segment_entry(segment as u32) + WEAR_AT;
            let word = seal(
                blocks.min(crate::checksum::SEALED_MAX),
                Seal::Wear,
                segment as u64,
            );
            batch.join(self.region.store_u64(at, word).flush());
        }
        self.region.fence(batch);
    }

    /// Makes "`segment` belongs to `domain`" durable, by one 8-byte store of the sealed word.
    ///
    /// A segment with blocks in use only ever turns from an owner's into a mixed one, and at no moment looks free. A free
    /// one that gets an owner has its owner word written first, while its seal still says free. That its content may be somebody else's from now on is durable before the assignment is.
    pub fn write_assignment(&self, segment: u32, domain: Option<Domain>) {
        let _change = self.change_table();
        let at = self.geometry.segment_entry(segment);
        let (owner, word) = domain.map_or((0, 0), |domain| domain.words(segment));
        let before = self.entry(segment).content(segment);
        let content = domain.map_or(before, |domain| before.joined_by(domain));
        let joined = (content != before).then(|| self.store_content(segment, content));
        if matches!(domain, Some(Domain::Owner { .. })) {
            if self.region.load_u64(at + SEAL_AT) != 0 {
                self.region
                    .fence(self.region.store_u64(at + SEAL_AT, 0).flush());
            }
            let mut batch = self.region.store_u64(at, owner).flush();
            joined.into_iter().for_each(|content| batch.join(content));
            self.region.fence(batch);
        } else if let Some(content) = joined {
            self.region.fence(content);
        }
        self.region
            .fence(self.region.store_u64(at + SEAL_AT, word).flush());
    }

    /// Says whose content is in these segments, durably.
    pub fn write_content(&self, segments: Range<u32>, content: Content) {
        let _change = self.change_table();
        let mut batch = Flushed::nothing(&self.region);
        for segment in segments {
            batch.join(self.store_content(segment, content));
        }
        self.region.fence(batch);
    }

    fn change_table(&self) -> MutexGuard<'_, u64> {
        let mut table = self.table.lock();
        *table += 1;
        table
    }

    /// How often the table was changed.
    pub(crate) fn table_version(&self) -> u64 {
        *self.table.lock()
    }

    /// Has `read` look at the whole table, if it was changed since `version`. Nothing changes
    /// meanwhile. The version that was read.
    pub(crate) fn read_table(&self, read: impl FnOnce(Offset, u64), version: u64) -> u64 {
        let table = self.table.lock();
        if *table != version {
            let first = self.geometry.segment_entry(0);
            let end = self.geometry.segment_entry(self.geometry.segments);
            read(first, end.get() - first.get());
        }
        *table
    }

    fn store_content(&self, segment: u32, content: Content) -> Flushed {
        let at = self.geometry.segment_entry(segment) + CONTENT_AT;
        self.region.store_u64(at, content.word(segment)).flush()
    }
}

/// The allocator's way to the segment table.
#[derive(Debug)]
pub struct Ledger(pub Arc<Domains>);

impl SegmentLedger for Ledger {
    fn assign(&self, segment: SegmentNumber, domain: DomainId) {
        let domain = self.0.domain(domain);
        self.0.tell(segment, Some(domain));
        let bytes = self.0.geometry.segment_bytes();
        self.0.held.change_hands(segment, bytes);
        self.0.write_assignment(segment.0, Some(domain));
    }

    fn release(&self, segment: SegmentNumber) {
        self.0.tell(segment, None);
        self.0.write_assignment(segment.0, None);
    }

    fn is_held(&self, segment: SegmentNumber) -> bool {
        self.0.held.is_held(segment)
    }

    fn may_be_shared(&self, segment: SegmentNumber) -> bool {
        !self.0.held.are_pages_given(segment)
    }

    fn may_move(&self, domain: DomainId) -> bool {
        !self.0.is_sparing(domain)
    }

    fn has_residue(&self, segment: SegmentNumber) -> bool {
        if self.0.held.are_pages_left(segment) {
            return true;
        }
        let entry = self.0.entry(segment.0);
        let domain = entry.domain(segment.0).ok().flatten();
        domain.is_some_and(|domain| entry.content(segment.0).is_kept_from(domain))
    }

    fn clear(&self, extent: Extent) -> u32 {
        let segment_blocks = self.0.geometry.segment_blocks;
        let index = extent.start.get() - self.0.geometry.first_block().get();
        let (segment, at) = (index / segment_blocks, index % segment_blocks);
        let segment = SegmentNumber(segment as u32);
        let [at, bytes] = [at, u64::from(extent.blocks)].map(|blocks| blocks * BLOCK_BYTES as u64);
        match self.0.held.renew(segment, at, bytes) {
            true => extent.blocks,
            false => clear_blocks(&self.0.region, extent),
        }
    }

    fn cleared(&self, segment: SegmentNumber) {
        self.0.held.renewed(segment);
        if self.0.region.class() == DurabilityClass::Log && !deliberate::is(Bug::ShowImageResidue) {
            // The zeros are in no record: after a power failure it is as it was in the image.
            return;
        }
        let domain = self.0.entry(segment.0).domain(segment.0);
        if let Ok(Some(Domain::Owner { uid, .. })) = domain {
            self.0
                .write_content(segment.0..segment.0 + 1, Content::Users(uid));
        }
    }
}
