//! Changes of one directory that are planned, but not yet durable.

use pmem::deliberate::{self, Bug};
use smallvec::SmallVec;

use super::free_space::BlockSpace;
use super::name_index::{IndexEntry, NameIndex};
use super::name_tag::name_tag;
use super::names::Candidate;
use super::record::{self, DENTRY_BYTES_MAX, Entry, HEADER_BYTES, NAME_AT};
use super::state::{Directory, stored_inode};
use super::{
    BLOCK_BYTES, BLOCKS_MAX, DentryOffset, FileType, UNIT_BYTES, name_is_valid, record_bytes,
};
use crate::format::InodeNumber;

/// Longest edit: a dentry and the header of the free range behind it.
const EDIT_BYTES_MAX: usize = DENTRY_BYTES_MAX + HEADER_BYTES;

/// Bytes to be written at one place of the directory file, never across a block.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The first byte, from the start of the directory; a multiple of 8.
    pub offset: u64,
    /// A multiple of 8 bytes.
    pub bytes: SmallVec<[u8; EDIT_BYTES_MAX]>,
}

/// What the index has to learn at commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Insert {
        tag: u32,
        offset: DentryOffset,
        inode: InodeNumber,
    },
    Remove {
        tag: u32,
        offset: DentryOffset,
    },
    Replace {
        tag: u32,
        offset: DentryOffset,
        inode: InodeNumber,
    },
}

impl Change {
    /// Does a name go, or is it given to another inode?
    pub(super) fn is_departure(&self) -> bool {
        !matches!(self, Change::Insert { .. })
    }
}

/// One transaction's changes of one directory. Calls see what earlier calls of the same plan did to the free ranges (space
/// of a removed dentry may be used at once); [`Directory::find`] does not see them. Hand the plan to
/// [`Directory::commit`] once the transaction is durable, or drop it.
///
/// The directory must not change between [`Directory::plan`] and [`Directory::commit`].
#[derive(Debug)]
#[must_use = "a plan that is not committed leaves the DRAM state behind the medium"]
pub struct Plan {
    pub(super) directory: InodeNumber,
    pub(super) generation: u64,
    /// The blocks that change, with their state after the plan.
    pub(super) touched: SmallVec<[(usize, BlockSpace); 2]>,
    pub(super) changes: SmallVec<[Change; 2]>,
    /// Blocks from here on are gone, or were added by the plan.
    pub(super) kept: usize,
    /// Blocks of the directory after the plan.
    pub(super) blocks: usize,
}

impl Directory {
    /// Starts a plan.
    pub fn plan(&self) -> Plan {
        Plan {
            directory: self.number,
            generation: self.generation,
            touched: SmallVec::new(),
            changes: SmallVec::new(),
            kept: self.free.blocks(),
            blocks: self.free.blocks(),
        }
    }

    /// Follows a plan whose transaction is durable.
    ///
    /// # Panics
    /// If the plan was made for another directory, or the directory changed since.
    pub fn commit(&mut self, plan: Plan) {
        assert_eq!(
            plan.directory, self.number,
            "a plan belongs to its directory"
        );
        assert_eq!(
            plan.generation, self.generation,
            "the directory changed behind the plan's back"
        );
        self.generation += 1;
        self.free.truncate(plan.kept);
        for (block, space) in &plan.touched {
            if *block < plan.kept {
                self.free.replace(*block, space);
            } else {
                // New blocks were touched in order.
                self.free.push(space);
            }
        }
        debug_assert_eq!(self.free.blocks(), plan.blocks);
        let departs = plan.changes.iter().any(Change::is_departure);
        self.names.change(departs, |index| {
            for change in &plan.changes {
                Self::apply(index, *change);
            }
        });
    }

    fn apply(index: &mut NameIndex, change: Change) {
        let known = match change {
            Change::Insert { tag, offset, inode } => {
                index.insert(&IndexEntry {
                    tag,
                    offset: offset.units(),
                    inode: stored_inode(inode),
                });
                true
            }
            Change::Remove { .. } if deliberate::is(Bug::StaleIndex) => true,
            Change::Remove { tag, offset } => index.remove(tag, offset.units()),
            Change::Replace { tag, offset, inode } => {
                index.set_inode(tag, offset.units(), stored_inode(inode))
            }
        };
        debug_assert!(
            known,
            "a name was removed or replaced that the index does not have"
        );
    }
}

impl Plan {
    /// A block that changes; it exists before the plan, and after it unless the directory shrinks.
    pub(crate) fn changed_block(&self) -> Option<u64> {
        self.touched.first().map(|&(block, _)| block as u64)
    }

    /// Plans a new dentry for `name`, which must not exist in the directory: it takes the front of the first free range
    /// that is large enough. `None` if there is no such range; then [`Plan::insert_in_new_block`] helps.
    ///
    /// # Panics
    /// If [`name_is_valid`] denies the name, or the inode number is 0 or above [`InodeNumber::MAX`].
    pub fn insert(
        &mut self,
        directory: &Directory,
        name: &[u8],
        inode: InodeNumber,
        file_type: FileType,
    ) -> Option<Edit> {
        assert_storable(name, inode);
        let length = record_bytes(name.len());
        let units = length / UNIT_BYTES;
        let (block, range) = self.take(directory, units)?;
        let offset = DentryOffset::new(block as u64, range.start);
        let rest = (range.length - units) * UNIT_BYTES;
        let mut bytes = SmallVec::from_elem(
            0,
            if rest > 0 {
                length + HEADER_BYTES
            } else {
                length
            },
        );
        record::write_dentry(
            self.directory,
            &Entry {
                offset,
                inode,
                file_type,
                name,
            },
            &mut bytes[..length],
        );
        if rest > 0 {
            let rest_at = DentryOffset::new(block as u64, range.start + units);
            bytes[length..].copy_from_slice(&record::free_header(self.directory, rest_at, rest));
        }
        self.changes.push(Change::Insert {
            tag: name_tag(name),
            offset,
            inode,
        });
        Some(Edit {
            offset: offset.bytes(),
            bytes,
        })
    }

    /// Plans a new dentry in a new block behind the last one, and fills `block` with all of its bytes: no edit is
    /// needed, but the block has to be durable before the transaction that links it. Returns the block's index in the
    /// directory, or `None` if the directory has [`BLOCKS_MAX`] blocks.
    ///
    /// # Panics
    /// As [`Plan::insert`].
    pub fn insert_in_new_block(
        &mut self,
        name: &[u8],
        inode: InodeNumber,
        file_type: FileType,
        block: &mut [u8; BLOCK_BYTES],
    ) -> Option<u64> {
        assert_storable(name, inode);
        let index = self.blocks as u64;
        if index >= BLOCKS_MAX {
            return None;
        }
        record::write_fresh_block(self.directory, index, name, inode, file_type, block);
        let mut space = BlockSpace::EMPTY;
        space.take(record_bytes(name.len()) / UNIT_BYTES)?;
        self.touched.push((self.blocks, space));
        self.blocks += 1;
        self.changes.push(Change::Insert {
            tag: name_tag(name),
            offset: DentryOffset::new(index, 0),
            inode,
        });
        Some(index)
    }

    /// Plans the removal of the dentry that [`Directory::find`] found for `name`: it becomes a free range, merged with free
    /// neighbours in its block.
    pub fn remove(&mut self, directory: &Directory, name: &[u8], found: Candidate) -> Edit {
        let offset = found.offset;
        let units = record_bytes(name.len()) / UNIT_BYTES;
        let range = self
            .touch(directory, offset.block_index() as usize)
            .release(offset.unit_in_block(), units);
        let start = DentryOffset::new(offset.block_index(), range.start);
        let header = record::free_header(self.directory, start, range.length * UNIT_BYTES);
        self.changes.push(Change::Remove {
            tag: name_tag(name),
            offset,
        });
        Edit {
            offset: start.bytes(),
            bytes: SmallVec::from_slice(&header),
        }
    }

    /// Plans that the dentry that [`Directory::find`] found for `name` refers to another inode.
    ///
    /// # Panics
    /// As [`Plan::insert`].
    pub fn replace(
        &mut self,
        name: &[u8],
        found: Candidate,
        inode: InodeNumber,
        file_type: FileType,
    ) -> Edit {
        assert_storable(name, inode);
        let offset = found.offset;
        let mut bytes = SmallVec::from_elem(0, record_bytes(name.len()));
        record::write_dentry(
            self.directory,
            &Entry {
                offset,
                inode,
                file_type,
                name,
            },
            &mut bytes,
        );
        // The name stays; only header and inode number change.
        bytes.truncate(NAME_AT);
        self.changes.push(Change::Replace {
            tag: name_tag(name),
            offset,
            inode,
        });
        Edit {
            offset: offset.bytes(),
            bytes,
        }
    }

    /// Plans that wholly free blocks at the directory's end go, at most `limit` of them. Returns the number of blocks that
    /// the directory has afterwards; the caller unlinks the others in the same transaction. Edits that lie in them need not be
    /// written.
    pub fn shrink(&mut self, directory: &Directory, limit: u64) -> u64 {
        let least = self.blocks.saturating_sub(limit as usize);
        while self.blocks > least && self.is_free(directory, self.blocks - 1) {
            self.blocks -= 1;
        }
        self.kept = self.kept.min(self.blocks);
        self.touched.retain(|(block, _)| *block < self.blocks);
        self.blocks as u64
    }

    fn is_free(&self, directory: &Directory, block: usize) -> bool {
        match self.touched.iter().find(|(index, _)| *index == block) {
            Some((_, space)) => space.is_empty(),
            None => directory.free.block(block).is_empty(),
        }
    }

    /// The state of a block in this plan.
    fn touch(&mut self, directory: &Directory, block: usize) -> &mut BlockSpace {
        let position = match self.touched.iter().position(|(index, _)| *index == block) {
            Some(position) => position,
            None => {
                self.touched.push((block, directory.free.block(block)));
                self.touched.len() - 1
            }
        };
        &mut self.touched[position].1
    }

    /// Takes the front of a range with `units`: in a block that changes anyway, or the first one that has such a range.
    fn take(
        &mut self,
        directory: &Directory,
        units: usize,
    ) -> Option<(usize, super::free_map::FreeRange)> {
        for (block, space) in &mut self.touched {
            if let Some(range) = space.take(units) {
                return Some((*block, range));
            }
        }
        let mut from = 0;
        loop {
            let block = directory
                .free
                .first_block_with(units, from)
                .filter(|block| *block < self.kept)?;
            if !self.touched.iter().any(|(index, _)| *index == block) {
                let range = self.touch(directory, block).take(units)?;
                return Some((block, range));
            }
            // What the directory knows about this block is older than what the plan knows: it has no room any more.
            from = block + 1;
        }
    }
}

fn assert_storable(name: &[u8], inode: InodeNumber) {
    assert!(name_is_valid(name), "not a name for a dentry: {name:?}");
    assert!(
        inode.get() != 0 && inode <= InodeNumber::MAX,
        "inode number {} cannot be stored",
        inode.get()
    );
}
