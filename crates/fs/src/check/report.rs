//! What a check found: faults, each with its place, its consequence and its repair, and counts.

use super::kind::{FaultKind, Severity};
use crate::format::InodeNumber;
use std::collections::HashSet;
use std::fmt;

/// Most faults that a report lists; more are only counted.
pub const LISTED_FAULTS_MAX: usize = 1000;

/// Where a fault is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// The pool as a whole.
    Pool,
    /// A copy of the superblock, 1 or 2.
    Superblock(u8),
    /// A part of the state block.
    StateBlock(&'static str),
    /// A journal.
    Journal(u32),
    /// An entry of the segment table.
    Segment(u32),
    /// A block of the inode table.
    TableBlock(u64),
    /// An inode; number 0 is the inode table's own.
    Inode(InodeNumber),
    /// A block pointer.
    Pointer {
        /// The inode that owns it.
        inode: InodeNumber,
        /// Level of the block map: 0 = points to data.
        level: u8,
        /// Index among the pointers of the level.
        index: u64,
    },
    /// An inode's extended attributes.
    Attributes(InodeNumber),
    /// A record of a directory.
    Record {
        /// The directory.
        directory: InodeNumber,
        /// Byte in the directory at which the record starts.
        byte: u64,
    },
    /// The volatile state that a clean unmount saved.
    SavedState,
}

impl Place {
    /// The inode that it is about.
    pub(super) fn inode(&self) -> Option<InodeNumber> {
        match *self {
            Place::Inode(number) | Place::Attributes(number) => Some(number),
            Place::Pointer { inode, .. } => Some(inode),
            Place::Record { directory, .. } => Some(directory),
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Place::Pool => formatter.write_str("pool"),
            Place::Superblock(copy) => write!(formatter, "superblock, copy {copy}"),
            Place::StateBlock(part) => write!(formatter, "state block, {part}"),
            Place::Journal(index) => write!(formatter, "journal {index}"),
            Place::Segment(segment) => write!(formatter, "segment {segment}"),
            Place::TableBlock(index) => write!(formatter, "inode table, block {index}"),
            Place::Inode(InodeNumber::TABLE) => formatter.write_str("inode table"),
            Place::Inode(number) => write!(formatter, "inode {number}"),
            Place::Pointer {
                inode,
                level,
                index,
            } => {
                write!(
                    formatter,
                    "{}, pointer {index} of level {level}",
                    Place::Inode(inode)
                )
            }
            Place::Attributes(number) => write!(formatter, "extended attributes of inode {number}"),
            Place::Record { directory, byte } => {
                write!(formatter, "directory {directory}, byte {byte}")
            }
            Place::SavedState => formatter.write_str("saved state"),
        }
    }
}

/// Something that contradicts `docs/FORMAT.md`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What; it knows severity, consequence and repair.
    pub kind: FaultKind,
    /// Numbers and names that belong to it; may be empty.
    pub detail: String,
    /// A name of the file or directory, from the root on, if it is about one that has a name.
    pub path: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.place)?;
        if let Some(path) = &self.path {
            write!(formatter, " (`{path}`)")?;
        }
        write!(formatter, ": {}", self.kind.summary())?;
        if self.detail.is_empty() {
            Ok(())
        } else {
            write!(formatter, " ({})", self.detail)
        }
    }
}

/// What a pool holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them, the root included.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Pipes, sockets and devices.
    pub others: u64,
    /// Inodes without a name, which the next mount frees: unlinked, but open when the power went.
    pub orphans: u64,
    /// Names in directories.
    pub names: u64,
    /// Blocks in use, journals included.
    pub blocks_used: u64,
    /// Blocks of all segments.
    pub blocks: u64,
    /// Bytes of all regular files, as their sizes say.
    pub bytes: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.inodes += other.inodes;
        self.directories += other.directories;
        self.files += other.files;
        self.symlinks += other.symlinks;
        self.others += other.others;
        self.orphans += other.orphans;
        self.names += other.names;
        self.blocks_used += other.blocks_used;
        self.blocks += other.blocks;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// The first [`LISTED_FAULTS_MAX`] faults.
    pub faults: Vec<Fault>,
    /// All faults, listed or not.
    pub faults_total: u64,
    /// The worst severity among all faults.
    pub worst: Option<Severity>,
    /// What the pool holds, as far as it could be read.
    pub counts: Counts,
    /// Whether everything could be looked at; false if a superblock or the inode table is missing.
    pub complete: bool,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.faults_total == 0 && self.complete
    }

    pub(super) fn add(&mut self, place: Place, kind: FaultKind, detail: impl Into<String>) {
        self.faults_total += 1;
        self.worst = self.worst.max(Some(kind.severity()));
        if self.faults.len() < LISTED_FAULTS_MAX {
            self.faults.push(Fault {
                place,
                kind,
                detail: detail.into(),
                path: None,
            });
        }
    }

    /// Takes over damage of inodes of which nothing was said yet.
    pub(super) fn add_new_damage(&mut self, later: &Report) {
        let known: HashSet<_> = self
            .faults
            .iter()
            .map(|fault| fault.place.inode())
            .collect();
        let is_new = |fault: &&Fault| {
            let inode = fault.place.inode();
            inode.is_some() && !known.contains(&inode) && fault.kind.severity() == Severity::Damage
        };
        for fault in later.faults.iter().filter(is_new) {
            self.faults_total += 1;
            if self.faults.len() < LISTED_FAULTS_MAX {
                self.faults.push(fault.clone());
            }
        }
    }

    /// Takes over what another part of the check found.
    pub(super) fn merge(&mut self, other: Report) {
        self.faults_total += other.faults_total;
        self.worst = self.worst.max(other.worst);
        let room = LISTED_FAULTS_MAX - self.faults.len();
        self.faults.extend(other.faults.into_iter().take(room));
        self.counts.add(&other.counts);
    }
}
