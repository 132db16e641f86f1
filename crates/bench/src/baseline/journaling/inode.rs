//! Inodes in memory.

use parking_lot::{Mutex, RwLock};
use zerocopy::{FromBytes, IntoBytes};

use super::directory::Directory;
use super::error::{Corruption, FsError};
use super::journal::Journal;
use super::layout::{
    BLOCK, CHANGED_AT, DiskInode, FILE_BLOCKS_MAX, FileKind, INODE_BYTES, INODES_PER_BLOCK,
    InodeNumber, MODIFIED_AT, SIZE_AT, now_ns,
};
use super::map::Map;

/// A file or a directory.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: InodeNumber,
    pub(super) kind: FileKind,
    /// Readers share it; everything else is alone.
    pub(super) state: RwLock<State>,
    pub(super) lifetime: Mutex<Lifetime>,
}

/// The part of an inode that operations change.
#[derive(Debug)]
pub(super) struct State {
    pub(super) size_bytes: u64,
    pub(super) map: Map,
    /// Names; empty in a file.
    pub(super) directory: Directory,
}

/// How long an inode stays.
#[derive(Debug, Default)]
pub(super) struct Lifetime {
    /// Handles.
    pub(super) open: u32,
    /// Its entry in the list of files without names, while there is one.
    pub(super) orphan: Option<usize>,
    pub(super) is_removed: bool,
}

/// Reads an inode from the inode table in memory.
pub(super) fn record(journal: &Journal, number: InodeNumber) -> DiskInode {
    let (block, at) = journal.superblock.inode_at(number);
    let bytes = &journal.content(block)[at..at + INODE_BYTES];
    match DiskInode::read_from_bytes(bytes) {
        Ok(inode) => inode,
        Err(_) => unreachable!("an inode's bytes are {INODE_BYTES}"),
    }
}

impl Inode {
    /// Brings an inode in use into memory, with its map and its names.
    pub(super) fn load(journal: &mut Journal, number: InodeNumber) -> Result<Inode, FsError> {
        let is_known = u64::from(number.get()) < journal.superblock.inodes;
        if !is_known || !journal.inodes.is_used(u64::from(number.get())) {
            return Err(Corruption::Inode { number }.into());
        }
        journal.load(&[journal.superblock.inode_at(number).0])?;
        let found = record(journal, number);
        let kind = FileKind::of_code(found.kind).ok_or(Corruption::Inode { number })?;
        let blocks = found.size_bytes.div_ceil(BLOCK);
        if blocks > FILE_BLOCKS_MAX {
            return Err(Corruption::Inode { number }.into());
        }
        let map = Map::load(journal, number, &found, blocks as usize)?;
        let directory = match kind {
            FileKind::Regular => Directory::default(),
            FileKind::Directory => Directory::load(journal, number, &map, blocks as usize)?,
        };
        Ok(Inode {
            number,
            kind,
            state: RwLock::new(State {
                size_bytes: found.size_bytes,
                map,
                directory,
            }),
            lifetime: Mutex::default(),
        })
    }

    /// An inode without content. Its block of the inode table is in memory.
    pub(super) fn create(journal: &mut Journal, number: InodeNumber, kind: FileKind) -> Inode {
        let (block, at) = journal.superblock.inode_at(number);
        journal.change(block, at, DiskInode::new(kind, now_ns()).as_bytes());
        Inode {
            number,
            kind,
            state: RwLock::new(State {
                size_bytes: 0,
                map: Map::default(),
                directory: Directory::default(),
            }),
            lifetime: Mutex::default(),
        }
    }

    pub(super) fn require(&self, kind: FileKind) -> Result<(), FsError> {
        match (self.kind == kind, kind) {
            (true, _) => Ok(()),
            (false, FileKind::Directory) => Err(FsError::NotADirectory),
            (false, FileKind::Regular) => Err(FsError::IsADirectory),
        }
    }
}

/// Changes a field of an inode.
pub(super) fn set_field(journal: &mut Journal, number: InodeNumber, field_at: usize, bytes: &[u8]) {
    let (block, at) = journal.superblock.inode_at(number);
    journal.change(block, at + field_at, bytes);
}

/// Notes that an inode's content has changed now.
pub(super) fn set_modified(journal: &mut Journal, number: InodeNumber) {
    let now = now_ns().to_le_bytes();
    set_field(journal, number, MODIFIED_AT, &now);
    set_field(journal, number, CHANGED_AT, &now);
}

pub(super) fn set_size(journal: &mut Journal, number: InodeNumber, size_bytes: u64) {
    set_field(journal, number, SIZE_AT, &size_bytes.to_le_bytes());
}

/// Brings the inode-table block of a new inode into memory. A block without an inode in use is not
/// read: it may hold anything.
pub(super) fn load_table_block(journal: &mut Journal, number: InodeNumber) -> Result<(), FsError> {
    let block = journal.superblock.inode_at(number).0;
    if journal.is_loaded(block) {
        return Ok(());
    }
    let first = u64::from(number.get()) / INODES_PER_BLOCK * INODES_PER_BLOCK;
    let end = (first + INODES_PER_BLOCK).min(journal.inodes.bits());
    let others = (first..end).filter(|&other| other != u64::from(number.get()));
    if others
        .into_iter()
        .any(|other| journal.inodes.is_used(other))
    {
        return Ok(journal.load(&[block])?);
    }
    journal.create(block);
    Ok(())
}
