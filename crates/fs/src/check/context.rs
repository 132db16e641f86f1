//! What all parts of a check share.

use super::claims::Claims;
use super::kind::FaultKind;
use super::plan::Plan;
use super::report::{Place, Report};
use crate::format::lease::RawLease;
use crate::format::{FileType, InodeNumber, RawInode};
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};
use std::collections::{HashMap, HashSet};
use txn::{Domain, Geometry, Superblock};

/// What is looked at.
pub(super) struct Scan<'a> {
    pub(super) region: &'a Region,
    pub(super) superblock: Superblock,
    pub(super) geometry: Geometry,
    pub(super) claims: &'a Claims,
    /// Whose processes may map each segment; nobody's, or root's only: `None`.
    pub(super) mappers: Vec<Option<u32>>,
}

impl Scan<'_> {
    /// Whether processes of a user who is not root may map a block that the pool has.
    pub(super) fn is_seen_by_somebody(&self, block: BlockNumber) -> bool {
        self.mappers[self.claims.segment_of(block)].is_some()
    }

    /// Whether processes of another user than this one, who is not root, may map a block that the pool has.
    pub(super) fn is_seen_by_others(&self, block: BlockNumber, user: u32) -> bool {
        self.mappers[self.claims.segment_of(block)].is_some_and(|mapper| mapper != user)
    }
}

/// A lease that has not ended.
#[derive(Debug)]
pub(super) struct LeaseFound {
    pub(super) number: InodeNumber,
    pub(super) raw: RawInode,
    pub(super) words: RawLease,
    /// Whether no pointer to one of its blocks was damaged.
    pub(super) is_map_whole: bool,
    /// The blocks of its ring, as far as they are there.
    pub(super) ring: Vec<BlockNumber>,
}

/// Users and groups of the inodes that are beyond doubt.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) users: HashSet<u32>,
    pub(super) groups: HashSet<u32>,
    last: Option<(u32, u32)>,
}

impl Known {
    /// Adds an owner. Most inodes have the owner of the one before.
    pub(super) fn add(&mut self, owner: (u32, u32)) {
        if self.last != Some(owner) {
            self.users.insert(owner.0);
            self.groups.insert(owner.1);
            self.last = Some(owner);
        }
    }

    pub(super) fn merge(&mut self, other: Known) {
        self.users.extend(other.users);
        self.groups.extend(other.groups);
    }
}

/// What one part of the check found and would change.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) report: Report,
    pub(super) plan: Plan,
    /// Bytes behind the end that are not zero.
    pub(super) tails: Vec<Tail>,
    /// Files whose lease had not ended.
    pub(super) leased: Vec<u64>,
    /// These leases.
    pub(super) leases: Vec<LeaseFound>,
    /// Files whose direct writes wait.
    pub(super) written_directly: Vec<InodeNumber>,
    /// Segments with spare blocks of these leases, and whose they are.
    pub(super) leased_segments: HashMap<u32, Domain>,
    /// Owners of all other inodes than the next ones.
    pub(super) known: Known,
    /// Inodes that are kept although their checksum does not match, as they will be.
    pub(super) doubtful: Vec<(InodeNumber, RawInode)>,
    /// Those among them that lose their names.
    pub(super) exiled: HashSet<InodeNumber>,
}

/// Bytes of a file's last block, from `used` on, that should be zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) inode: InodeNumber,
    pub(super) block: BlockNumber,
    pub(super) used: usize,
}

impl Findings {
    /// Reports a fault.
    pub(super) fn fault(&mut self, place: Place, kind: FaultKind, detail: impl Into<String>) {
        self.report.add(place, kind, detail);
    }

    /// Takes over what another part found.
    pub(super) fn merge(&mut self, other: Findings) {
        self.report.merge(other.report);
        self.plan.merge(other.plan);
        self.tails.extend(other.tails);
        self.leased.extend(other.leased);
        self.leases.extend(other.leases);
        self.leased_segments.extend(other.leased_segments);
        self.known.merge(other.known);
        self.doubtful.extend(other.doubtful);
    }

    /// Reports bytes behind the end, but for leased files: there they may belong to what the next mount folds, and it makes the others zeros.
    pub(super) fn judge_tails(&mut self) {
        let leased: HashSet<u64> = std::mem::take(&mut self.leased).into_iter().collect();
        for Tail { inode, block, used } in std::mem::take(&mut self.tails) {
            if leased.contains(&inode.get()) {
                continue;
            }
            self.fault(
                Place::Inode(inode),
                FaultKind::TailNotZero,
                format!("block {block}"),
            );
            self.plan
                .bytes(block.offset() + used as u64, vec![0; BLOCK_BYTES - used]);
        }
    }
}

/// What the second half of the check has to know of an inode.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum State {
    /// Its block of the table is missing.
    #[default]
    Unknown,
    Free,
    Used(FileType),
}

/// An inode in a few words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    pub(super) state: State,
    pub(super) links: u32,
    pub(super) parent: u32,
    /// Names that lead to it.
    pub(super) names: u32,
    /// Directories that are named in it.
    pub(super) subdirectories: u32,
}

/// A directory whose blocks are known.
#[derive(Debug)]
pub(super) struct DirectoryBlocks {
    pub(super) number: InodeNumber,
    /// Index in the directory and block, ascending.
    pub(super) blocks: Vec<(u64, BlockNumber)>,
}

/// All inodes.
#[derive(Debug, Default)]
pub(super) struct Inodes {
    pub(super) summaries: Vec<Summary>,
    pub(super) directories: Vec<DirectoryBlocks>,
    /// Where each block of the table lies; `None` is missing.
    pub(super) table: Vec<Option<BlockNumber>>,
}

impl Inodes {
    /// The summary of an inode; `None` beyond the table.
    pub(super) fn get(&self, number: InodeNumber) -> Option<&Summary> {
        self.summaries.get(usize::try_from(number.get()).ok()?)
    }

    pub(super) fn get_mut(&mut self, number: InodeNumber) -> Option<&mut Summary> {
        self.summaries.get_mut(usize::try_from(number.get()).ok()?)
    }

    /// Where an inode lies.
    pub(super) fn offset(&self, number: InodeNumber) -> Option<Offset> {
        use crate::format::inode::{INODE_BYTES, INODES_PER_BLOCK};
        let block = (*self
            .table
            .get(usize::try_from(number.get() / INODES_PER_BLOCK).ok()?)?)?;
        Some(block.offset() + number.get() % INODES_PER_BLOCK * INODE_BYTES as u64)
    }

    /// Whether a block of the table is missing, so that nobody knows what is in use.
    pub(super) fn is_incomplete(&self) -> bool {
        self.table.contains(&None)
    }
}
