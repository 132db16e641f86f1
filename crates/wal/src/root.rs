//! The two roots, which have the position where replay begins.

use crate::header::Mark;
use crate::ring::Ring;
use crate::{AlignedBuffer, Disk, LogError, UNIT_BYTES};
use pmem::crc32c;
use pmem::deliberate::{self, Bug};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// "PerdLog" and a zero.
pub(crate) const ROOT_MAGIC: u64 = u64::from_le_bytes(*b"PerdLog\0");
/// Format of the log.
pub(crate) const LOG_VERSION: u32 = 1;
/// A counter that is larger is damage: no log lives so long.
const COUNTER_MAX: u64 = 1 << 62;

/// The position where replay begins, and the last record in the image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Root {
    /// Number of this root; the larger one of two counts.
    pub generation: u64,
    /// The mount that wrote it.
    pub epoch: u64,
    /// Where replay begins: bytes since the log was made.
    pub position: u64,
    /// Number of the first batch to replay.
    pub number: u64,
    /// Check of the batch before.
    pub previous: u32,
    /// The image has all records up to this one.
    pub sequence: u64,
    /// Free for the caller.
    pub user: u64,
    /// Free for the caller, too: a number that no copy of the pool's files has.
    pub files: u64,
}

impl Root {
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            position: self.position,
            number: self.number,
            previous: self.previous,
            sequence: self.sequence,
        }
    }

    /// This root, moved to a mark.
    pub(crate) fn at(self, mark: Mark) -> Root {
        Root {
            position: mark.position,
            number: mark.number,
            previous: mark.previous,
            sequence: mark.sequence,
            ..self
        }
    }
}

/// A root on the disk: a unit, zeros behind these fields.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RootBlock {
    /// "PerdLog" and a zero.
    pub magic: u64,
    /// CRC32C of the unit's bytes behind this field.
    pub check: u32,
    /// Format of the log: 1.
    pub version: u32,
    /// Identity of the pool.
    pub identity: [u8; 16],
    /// Number of this root; the larger one of two counts.
    pub generation: u64,
    /// The mount that wrote it.
    pub epoch: u64,
    /// Where replay begins.
    pub position: u64,
    /// Number of the first batch to replay.
    pub number: u64,
    /// The image has all records up to this one.
    pub sequence: u64,
    /// Of the pool: the log does not read it.
    pub user: u64,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Check of the batch before the first one to replay.
    pub previous: u32,
    /// 0.
    pub reserved: u32,
    /// Of the pool, too.
    pub files: u64,
}

const _: () = assert!(size_of::<RootBlock>() == 104);
const _: () = assert!(offset_of!(RootBlock, version) == CHECKED_FROM);
const _: () = assert!(offset_of!(RootBlock, generation) == 32);
const _: () = assert!(offset_of!(RootBlock, ring_bytes) == 80);

/// The check covers the unit from this byte on.
const CHECKED_FROM: usize = 12;

/// Why a unit is not a root of this log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NoRoot {
    /// It is damaged or was never written.
    Invalid,
    /// It has another format.
    Version(u32),
}

impl RootBlock {
    fn of(root: &Root, identity: [u8; 16], ring: Ring) -> RootBlock {
        RootBlock {
            magic: ROOT_MAGIC,
            check: 0,
            version: LOG_VERSION,
            identity,
            generation: root.generation,
            epoch: root.epoch,
            position: root.position,
            number: root.number,
            sequence: root.sequence,
            user: root.user,
            ring_bytes: ring.bytes,
            previous: root.previous,
            reserved: 0,
            files: root.files,
        }
    }

    fn root(&self) -> Root {
        Root {
            generation: self.generation,
            epoch: self.epoch,
            position: self.position,
            number: self.number,
            previous: self.previous,
            sequence: self.sequence,
            user: self.user,
            files: self.files,
        }
    }

    /// The unit that holds it, with its check.
    #[doc(hidden)]
    pub fn unit(&self) -> AlignedBuffer {
        let mut unit = AlignedBuffer::with_capacity(UNIT_BYTES);
        unit.extend_from_slice(self.as_bytes());
        unit.resize(UNIT_BYTES);
        let check = crc32c(&unit[CHECKED_FROM..]);
        unit[offset_of!(RootBlock, check)..CHECKED_FROM].copy_from_slice(&check.to_le_bytes());
        unit
    }

    fn read(unit: &[u8]) -> Result<RootBlock, NoRoot> {
        let (block, _) = RootBlock::read_from_prefix(unit).map_err(|_| NoRoot::Invalid)?;
        if block.magic != ROOT_MAGIC || block.check != crc32c(&unit[CHECKED_FROM..]) {
            return Err(NoRoot::Invalid);
        }
        if block.version != LOG_VERSION {
            return Err(NoRoot::Version(block.version));
        }
        let counters = [block.generation, block.epoch, block.position, block.number];
        let is_possible = counters.iter().all(|&counter| counter < COUNTER_MAX)
            && block.position % UNIT_BYTES as u64 == 0;
        is_possible.then_some(block).ok_or(NoRoot::Invalid)
    }
}

/// Place of the block for a generation: the two alternate.
fn place(generation: u64) -> u64 {
    if deliberate::is(Bug::LogRootInPlace) {
        return 0;
    }
    generation % 2 * UNIT_BYTES as u64
}

/// Writes a root over the older one; durable when it returns.
pub(crate) fn write_root(
    disk: &dyn Disk,
    root: &Root,
    identity: [u8; 16],
    ring: Ring,
) -> Result<(), LogError> {
    let at = place(root.generation);
    let unit = RootBlock::of(root, identity, ring).unit();
    let result = if deliberate::is(Bug::LogRootNotDurable) {
        disk.write(at, &unit)
    } else {
        disk.write_durable(at, &unit)
    };
    result.map_err(|error| LogError::Write {
        disk: disk.name(),
        at,
        bytes: UNIT_BYTES,
        error: Arc::new(error),
    })
}

/// Reads both roots; the valid one with the larger generation counts.
pub(crate) fn read_root(disk: &dyn Disk, identity: [u8; 16], ring: Ring) -> Result<Root, LogError> {
    let mut newest: Option<RootBlock> = None;
    let mut version = None;
    let mut reason = "both are damaged".to_owned();
    for at in [0, UNIT_BYTES as u64] {
        let mut unit = AlignedBuffer::new();
        unit.resize(UNIT_BYTES);
        // A root that was torn by a power failure may be unreadable; the other one counts.
        if let Err(error) = disk.read(at, &mut unit) {
            reason = error.to_string();
            continue;
        }
        match RootBlock::read(&unit) {
            Ok(block) if newest.is_none_or(|other| block.generation > other.generation) => {
                newest = Some(block)
            }
            Ok(_) | Err(NoRoot::Invalid) => (),
            Err(NoRoot::Version(found)) => version = Some(found),
        }
    }
    let disk = || disk.name();
    let Some(block) = newest else {
        return Err(match version {
            Some(version) => LogError::Version {
                disk: disk(),
                version,
                known: LOG_VERSION,
            },
            None => LogError::NoRoot {
                disk: disk(),
                reason,
            },
        });
    };
    if block.identity != identity {
        return Err(LogError::Identity { disk: disk() });
    }
    if block.ring_bytes != ring.bytes {
        return Err(LogError::Length {
            disk: disk(),
            expected: block.ring_bytes,
            found: ring.bytes,
        });
    }
    Ok(block.root())
}
