//! Directories: blocks of 64-byte entries, and their names in memory.
//!
//! The names in memory stand for the kernel's cache of names and for ext4's index: a look-up does
//! not search blocks. An insertion and a removal change one entry.

use std::collections::BTreeSet;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use zerocopy::{FromBytes, IntoBytes};

use super::error::{Corruption, FsError};
use super::inode::{set_modified, set_size};
use super::journal::Journal;
use super::layout::{
    BLOCK, DIR_ENTRIES_PER_BLOCK, DIR_ENTRY_BYTES, DirEntryRecord, FileKind, InodeNumber,
};
use super::map::Map;

/// A name's entry.
#[derive(Copy, Clone, Debug)]
pub(super) struct Named {
    pub(super) inode: InodeNumber,
    pub(super) kind: FileKind,
    entry: u32,
}

/// The names of a directory.
#[derive(Debug, Default)]
pub(super) struct Directory {
    names: HashMap<Box<[u8]>, Named, RandomState>,
    free: BTreeSet<u32>,
}

fn place(entry: u32) -> (usize, usize) {
    let entry = entry as usize;
    (
        entry / DIR_ENTRIES_PER_BLOCK,
        entry % DIR_ENTRIES_PER_BLOCK * DIR_ENTRY_BYTES,
    )
}

impl Directory {
    /// Reads all entries.
    pub(super) fn load(
        journal: &mut Journal,
        number: InodeNumber,
        map: &Map,
        blocks: usize,
    ) -> Result<Directory, FsError> {
        let corrupt = || Corruption::Entry { number };
        let all: Option<Vec<_>> = (0..blocks).map(|index| map.get(index)).collect();
        let all = all.ok_or_else(corrupt)?;
        journal.load(&all)?;
        let mut directory = Directory::default();
        for (index, block) in all.into_iter().enumerate() {
            let records = journal.content(block).chunks_exact(DIR_ENTRY_BYTES);
            for (position, bytes) in records.enumerate() {
                let record = DirEntryRecord::read_from_bytes(bytes).map_err(|_| corrupt())?;
                let entry = (index * DIR_ENTRIES_PER_BLOCK + position) as u32;
                if record.inode == 0 {
                    directory.free.insert(entry);
                    continue;
                }
                let named = Named {
                    inode: InodeNumber::new(record.inode),
                    kind: FileKind::of_code(record.kind).ok_or_else(corrupt)?,
                    entry,
                };
                let is_twice = directory
                    .names
                    .insert(record.name().into(), named)
                    .is_some();
                if is_twice || record.name_bytes == 0 {
                    return Err(corrupt().into());
                }
            }
        }
        Ok(directory)
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Named> {
        self.names.get(name).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Named)> {
        self.names.iter().map(|(name, named)| (&**name, *named))
    }

    /// Does the next name need another block?
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Adds a name. The caller has made room for a block if the directory is full.
    pub(super) fn insert(
        &mut self,
        journal: &mut Journal,
        number: InodeNumber,
        (map, size_bytes): (&mut Map, &mut u64),
        (name, inode, kind): (&[u8], InodeNumber, FileKind),
    ) {
        if self.free.is_empty() {
            let index = (*size_bytes / BLOCK) as usize;
            let block = map.allocate(journal, number, index);
            journal.create(block);
            *size_bytes += BLOCK;
            set_size(journal, number, *size_bytes);
            let first = (index * DIR_ENTRIES_PER_BLOCK) as u32;
            self.free
                .extend(first..first + DIR_ENTRIES_PER_BLOCK as u32);
        }
        let Some(entry) = self.free.pop_first() else {
            unreachable!("a block of entries was added");
        };
        let record = DirEntryRecord::new(inode, kind, name);
        store(journal, map, entry, record.as_bytes());
        set_modified(journal, number);
        self.names.insert(name.into(), Named { inode, kind, entry });
    }

    /// Removes a name that is there.
    pub(super) fn remove(
        &mut self,
        journal: &mut Journal,
        number: InodeNumber,
        map: &Map,
        name: &[u8],
    ) {
        let Some(named) = self.names.remove(name) else {
            unreachable!("the name was looked up");
        };
        store(journal, map, named.entry, &[0; DIR_ENTRY_BYTES]);
        set_modified(journal, number);
        self.free.insert(named.entry);
    }
}

fn store(journal: &mut Journal, map: &Map, entry: u32, bytes: &[u8]) {
    let (index, at) = place(entry);
    match map.get(index) {
        Some(block) => journal.change(block, at, bytes),
        None => unreachable!("an entry is in a block"),
    }
}
