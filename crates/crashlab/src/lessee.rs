//! A process that has leased a file and writes it by itself, on the same emulated medium.

use crate::clock;
use crate::mapped::Mapped;
use fs::lease::{Grant, Holder, LeaseRemains, LeaseSize, TakenBack};
use fs::{FileSystem, FsError, Node};
use lease::{FileMap, InPlace, Place, Refusal, Trust, Writer};
use pmem::{BLOCK_BYTES, Region};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use txn::{Domain, PoolState, Segments};

/// So few that folding and refilling are needed within a short sequence.
const SIZE: LeaseSize = LeaseSize {
    ring_blocks: 1,
    spare_blocks: 5,
};
/// Blocks behind the end of which the lessee knows where they are.
const KNOWN_BEHIND: u64 = 8;
/// No block.
const NONE: u64 = u64::MAX;

/// How a process behaves.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// It answers nobody: its lease is forced from it.
    pub is_stopped: bool,
    /// It overwrites in place where it can.
    pub is_in_place: bool,
}

/// What the file system sees of the process.
#[derive(Debug)]
struct Process {
    has_ended: AtomicBool,
    manner: Manner,
    /// The block that a stopped process says it is storing into: the last one of the file when it was leased, or where it has overwritten in place.
    busy_block: AtomicU64,
}

impl Holder for Process {
    fn attributes_changed(&self) {}

    // Every write is over before the file system is asked for anything.
    fn is_idle(&self) -> bool {
        true
    }

    fn folded(&self, _next: u64, _refilled: &[lease::Spare]) {}

    fn take_back(&self) -> TakenBack {
        match self.manner.is_stopped {
            false => TakenBack {
                trust: Trust::All,
                busy_block: None,
            },
            true => TakenBack {
                trust: Trust::IfDataFits,
                busy_block: Some(self.busy_block.load(Ordering::Relaxed)).filter(|it| *it != NONE),
            },
        }
    }

    fn ended(&self, remains: LeaseRemains, _next: u64) {
        self.has_ended.store(true, Ordering::Relaxed);
        drop(remains);
    }
}

/// The process's map of the file. What lies outside of its owner's segments the process cannot have mapped: no place is known of that.
#[derive(Debug, Default)]
pub(crate) struct Map(pub(crate) BTreeMap<u64, Option<Place>>);

impl FileMap for Map {
    fn get(&self, index: u64) -> Option<Place> {
        self.0.get(&index).copied().unwrap_or(Some(Place::Hole))
    }

    fn set(&mut self, index: u64, block: pmem::BlockNumber) {
        self.0.insert(index, Some(Place::At(block)));
    }
}

/// A process with a lease.
#[derive(Debug)]
pub struct Lessee {
    node: Node,
    process: Arc<Process>,
    writer: Writer,
    map: Map,
    user: u32,
    mapped: Mapped,
}

impl Lessee {
    /// Leases a file.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn new(
        files: &FileSystem,
        region: &Arc<Region>,
        node: Node,
        manner: Manner,
    ) -> Result<Lessee, FsError> {
        let attributes = files.attributes(&node)?;
        let blocks = attributes.size_bytes.div_ceil(BLOCK_BYTES as u64);
        let (store, owner) = (files.store(), (attributes.uid, attributes.gid));
        let domain = store.domain_number(Domain::of_file(attributes.mode, owner.0, owner.1));
        let process = Arc::new(Process {
            has_ended: AtomicBool::new(false),
            manner,
            busy_block: blocks.checked_sub(1).unwrap_or(NONE).into(),
        });
        let holder: Arc<dyn Holder> = Arc::clone(&process) as _;
        let Grant {
            ring,
            salt,
            next,
            spares,
            size_bytes,
            ..
        } = files.lease(&node, SIZE, holder)?;
        let mut map = BTreeMap::new();
        files.places(&node, 0, blocks + KNOWN_BEHIND, |index, place| {
            let is_own = match place {
                None => false,
                Some(Place::Hole) => true,
                Some(Place::At(block) | Place::Unwritten(block)) => {
                    store.allocator().domain_of(block) == Some(domain)
                }
            };
            map.insert(index, place.filter(|_| is_own));
        })?;
        let writer = Writer::new(Arc::clone(region), ring, salt, next, spares, size_bytes);
        let mut mapped = Mapped::none();
        mapped.give(files, attributes.uid);
        Ok(Lessee {
            node,
            process,
            writer,
            map: Map(map),
            user: attributes.uid,
            mapped,
        })
    }

    /// Whether the lease has not ended.
    pub fn is_live(&self) -> bool {
        !self.process.has_ended.load(Ordering::Relaxed)
    }

    /// The process goes, and what it has written is taken over.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn leave(mut self, files: &FileSystem) -> Result<(), FsError> {
        let outcome = files.drop_lease(self.node);
        self.mapped.take_in(files);
        outcome
    }

    /// Writes by itself, or, if it cannot, through the file system.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn write(&mut self, files: &FileSystem, offset: u64, data: &[u8]) -> Result<(), FsError> {
        // As long as it has them they stay its user's.
        self.mapped.give(files, self.user);
        while self.is_live() {
            let now = clock::tick().nanoseconds();
            let had = (self.writer.spare_blocks(), self.writer.next());
            match self.write_once(offset, data, now) {
                Ok(()) => return Ok(()),
                Err(Refusal::NoSpareBlocks { .. } | Refusal::RingFull) => self.fold(files)?,
                Err(_) => break,
            }
            if had.0 == self.writer.spare_blocks() {
                break;
            }
        }
        files.write(&self.node, offset, data).map(drop)
    }

    /// Whether it would overwrite these bytes in place.
    pub fn goes_in_place(&self, offset: u64, bytes: usize) -> bool {
        let can = || self.writer.can_go_in_place(&self.map, offset, bytes);
        self.process.manner.is_in_place && self.is_live() && can()
    }

    fn write_once(&mut self, offset: u64, data: &[u8], now: i64) -> Result<(), Refusal> {
        if self.process.manner.is_in_place {
            let begin = |index| {
                self.process.busy_block.store(index, Ordering::Relaxed);
                true
            };
            let done = self
                .writer
                .overwrite_in_place(&self.map, offset, data, now, begin)?;
            if done == InPlace::Done {
                return Ok(());
            }
        }
        self.writer.write(&mut self.map, offset, data, now)
    }

    /// Has the file system fold what was written.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn fold(&mut self, files: &FileSystem) -> Result<(), FsError> {
        if let Some((next, refilled)) = files.fold_lease(&self.node)? {
            self.writer.folded(next, refilled);
        }
        Ok(())
    }
}
