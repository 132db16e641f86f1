//! The DRAM state of one directory.

use smallvec::SmallVec;
use std::sync::Arc;

use super::free_map::FreeMap;
use super::free_space::{BlockSpace, FreeSpace};
use super::name_index::IndexEntry;
use super::name_tag::name_tag;
use super::names::{Candidate, MapRoot, Names};
use super::record::{self, Record};
use super::{BLOCK_BYTES, BLOCKS_MAX, DentryFault, UNIT_BYTES, UNITS_PER_BLOCK, record_bytes};
use crate::format::InodeNumber;

/// Most dentries of a block.
const ENTRIES_PER_BLOCK_MAX: usize = BLOCK_BYTES / record_bytes(1);

/// An inode number as the index stores it; the format has no larger ones.
pub(super) fn stored_inode(inode: InodeNumber) -> u32 {
    debug_assert!(inode <= InodeNumber::MAX);
    inode.get() as u32
}

/// Names and free ranges of one directory, in DRAM. See the module for how it changes.
#[derive(Debug)]
pub struct Directory {
    pub(super) number: InodeNumber,
    pub(super) names: Arc<Names>,
    /// What lookups know, if they know anything.
    map: Option<MapRoot>,
    pub(super) free: FreeSpace,
    /// Counts commits, to notice a plan that was made for another state.
    pub(super) generation: u64,
}

impl Directory {
    /// A directory without blocks.
    pub fn new(number: InodeNumber) -> Self {
        Self::over(number, Arc::default())
    }

    /// A directory without blocks that shares its names with lookups, once they are open.
    pub fn over(number: InodeNumber, names: Arc<Names>) -> Self {
        Self {
            number,
            names,
            map: None,
            free: FreeSpace::default(),
            generation: 0,
        }
    }

    /// Takes in the next block of the directory (they come in order). If the block is faulty, nothing changes.
    ///
    /// # Panics
    /// If `block_index` is not [`Directory::blocks`].
    pub fn load_block(
        &mut self,
        block_index: u64,
        block: &[u8; BLOCK_BYTES],
    ) -> Result<(), DentryFault> {
        assert_eq!(
            block_index,
            self.blocks(),
            "blocks of a directory are loaded in order"
        );
        assert!(
            block_index < BLOCKS_MAX,
            "a directory has at most {BLOCKS_MAX} blocks"
        );
        let mut map = FreeMap::EMPTY;
        let mut found = SmallVec::<[IndexEntry; ENTRIES_PER_BLOCK_MAX]>::new();
        for record in record::records(block, block_index, self.number) {
            if let Record::Entry(entry) = record? {
                map.mark_used(
                    entry.offset.unit_in_block(),
                    record_bytes(entry.name.len()) / UNIT_BYTES,
                );
                found.push(IndexEntry {
                    tag: name_tag(entry.name),
                    offset: entry.offset.units(),
                    inode: stored_inode(entry.inode),
                });
            }
        }
        self.free.push(&BlockSpace::new(map));
        self.names.change(false, |index| {
            for entry in &found {
                index.insert(entry);
            }
        });
        self.generation += 1;
        Ok(())
    }

    /// Finds the dentry of a name. The index knows tags of names only, so `verify` has to look at the medium: it returns
    /// something if the candidate's dentry has the name, `None` if not (once in thousands of calls), or an error.
    /// [`has_name`](super::has_name) is what it should ask.
    pub fn find<T, E>(
        &self,
        name: &[u8],
        verify: impl FnMut(Candidate) -> Result<Option<T>, E>,
    ) -> Result<Option<(Candidate, T)>, E> {
        self.names.find(name, verify)
    }

    /// All blocks are loaded, and are found by `map`: lookups may come. To be called again whenever the map has another root.
    #[inline]
    pub(crate) fn open(&mut self, map: MapRoot) {
        if self.map != Some(map) {
            self.names.open(map);
            self.map = Some(map);
        }
    }

    /// Until the next [`open`](Self::open) lookups have to wait for who holds the directory's lock.
    pub(crate) fn shut(&mut self) {
        self.names.shut();
        self.map = None;
    }

    /// The directory's inode number.
    pub fn number(&self) -> InodeNumber {
        self.number
    }

    /// Names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Has the directory no names?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks.
    pub fn blocks(&self) -> u64 {
        self.free.blocks() as u64
    }

    /// Bytes in free ranges.
    pub fn free_bytes(&self) -> u64 {
        self.free.free_units() * UNIT_BYTES as u64
    }

    /// Bytes of DRAM that this state takes, itself included.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.names.heap_bytes() + self.free.heap_bytes()
    }

    /// The free ranges of a block in order: byte in the block, and length in bytes. For `fsck`, which compares
    /// them with the medium.
    pub fn free_ranges(&self, block_index: u64) -> impl Iterator<Item = (usize, usize)> + '_ {
        debug_assert_eq!(BLOCK_BYTES, UNITS_PER_BLOCK * UNIT_BYTES);
        let map = self.free.map(block_index as usize);
        map.ranges()
            .map(|range| (range.start * UNIT_BYTES, range.length * UNIT_BYTES))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.names.close();
    }
}

#[cfg(test)]
impl Directory {
    pub(super) fn assert_consistent(&self) {
        self.names.change(false, |index| index.assert_consistent());
    }
}
