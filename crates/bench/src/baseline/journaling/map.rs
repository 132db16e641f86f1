//! Block maps: which block of the disk has which block of a file.
//!
//! The whole map of an inode is in memory while the inode is. On the disk it is pointers of 4 bytes
//! in the inode, in leaves, and in roots that lead to leaves.

use device::DeviceBlock;

use super::error::FsError;
use super::journal::Journal;
use super::layout::{
    DIRECT, DIRECT_AT, DIRECT_LEAVES, DiskInode, InodeNumber, LEAF, LEAVES_AT, POINTER_BYTES,
    ROOTS, ROOTS_AT,
};

/// A block map. Pointer 0 means that there is no block.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    blocks: Vec<u32>,
    leaves: Vec<u32>,
    roots: [u32; ROOTS],
}

/// Where a pointer lies.
#[derive(Copy, Clone, Debug)]
struct Pointer {
    block: DeviceBlock,
    at: usize,
}

fn leaf_of(index: usize) -> Option<usize> {
    Some(index.checked_sub(DIRECT)? / LEAF)
}

fn root_of(leaf: usize) -> Option<usize> {
    Some(leaf.checked_sub(DIRECT_LEAVES)? / LEAF)
}

fn pointers(content: &[u8]) -> impl Iterator<Item = u32> {
    let chunks = content.as_chunks::<POINTER_BYTES>().0;
    chunks.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

fn block(pointer: u32) -> DeviceBlock {
    DeviceBlock::new(u64::from(pointer))
}

impl Map {
    /// Reads the map of an inode.
    pub(super) fn load(
        journal: &mut Journal,
        number: InodeNumber,
        inode: &DiskInode,
        blocks: usize,
    ) -> Result<Map, FsError> {
        let superblock = journal.superblock;
        let checked = |pointer: u32| superblock.pointer(pointer);
        let mut map = Map::default();
        for (root, &pointer) in map.roots.iter_mut().zip(&inode.roots) {
            *root = checked(pointer)?;
        }
        for &leaf in &inode.leaves {
            map.leaves.push(checked(leaf)?);
        }
        let leaf_count = leaf_of(blocks.max(1) - 1).map_or(0, |last| last + 1);
        let loaded = |pointers: &[u32]| -> Vec<DeviceBlock> {
            let used = pointers.iter().filter(|&&pointer| pointer != 0);
            used.map(|&pointer| block(pointer)).collect()
        };
        journal.load(&loaded(&map.roots))?;
        for root in map.roots {
            if map.leaves.len() >= leaf_count {
                break;
            }
            map.extend_leaves(journal, root)?;
        }
        map.leaves.truncate(leaf_count);
        journal.load(&loaded(&map.leaves))?;
        for &pointer in &inode.direct {
            map.blocks.push(checked(pointer)?);
        }
        for leaf in map.leaves.clone() {
            match leaf {
                0 => map.blocks.resize(map.blocks.len() + LEAF, 0),
                leaf => {
                    for pointer in pointers(journal.content(block(leaf))) {
                        map.blocks.push(checked(pointer)?);
                    }
                }
            }
        }
        let beyond = map.blocks.iter().skip(blocks).any(|&pointer| pointer != 0);
        map.blocks.truncate(blocks);
        match beyond {
            true => Err(super::Corruption::Inode { number }.into()),
            false => Ok(map),
        }
    }

    fn extend_leaves(&mut self, journal: &Journal, root: u32) -> Result<(), FsError> {
        if root == 0 {
            self.leaves.resize(self.leaves.len() + LEAF, 0);
            return Ok(());
        }
        for pointer in pointers(journal.content(block(root))) {
            self.leaves.push(journal.superblock.pointer(pointer)?);
        }
        Ok(())
    }

    /// Returns the block of a file's block, if there is one.
    pub(super) fn get(&self, index: usize) -> Option<DeviceBlock> {
        let pointer = *self.blocks.get(index)?;
        (pointer != 0).then(|| block(pointer))
    }

    /// Blocks that writing a range of file blocks takes, with leaves and roots.
    pub(super) fn missing(&self, range: std::ops::Range<usize>) -> u64 {
        let holes = range.clone().filter(|&index| self.get(index).is_none());
        let mut count = holes.count() as u64;
        let (first, last) = (leaf_of(range.start), leaf_of(range.end - 1));
        let Some(last_leaf) = last else {
            return count;
        };
        let is_absent =
            |pointers: &[u32], index: usize| pointers.get(index).is_none_or(|&p| p == 0);
        let first_leaf = first.unwrap_or(0);
        let leaves = (first_leaf..=last_leaf).filter(|&leaf| is_absent(&self.leaves, leaf));
        count += leaves.count() as u64;
        if let Some(last_root) = root_of(last_leaf) {
            let first_root = root_of(first_leaf).unwrap_or(0);
            let roots = (first_root..=last_root).filter(|&root| is_absent(&self.roots, root));
            count += roots.count() as u64;
        }
        count
    }

    /// Gives a file block a block of the disk, with the leaf and the root that it needs.
    pub(super) fn allocate(
        &mut self,
        journal: &mut Journal,
        number: InodeNumber,
        index: usize,
    ) -> DeviceBlock {
        if let Some(found) = self.get(index) {
            return found;
        }
        let goal = index.checked_sub(1).and_then(|before| self.get(before));
        let goal = goal.map(|before| DeviceBlock::new(before.get() + 1));
        let pointer = self.pointer_at(journal, number, index);
        let found = journal.allocate(goal);
        if self.blocks.len() <= index {
            self.blocks.resize(index + 1, 0);
        }
        self.blocks[index] = found.get() as u32;
        set(journal, pointer, found);
        found
    }

    /// Makes the map cover so many blocks of the file, without allocating any.
    pub(super) fn grow(&mut self, blocks: usize) {
        if self.blocks.len() < blocks {
            self.blocks.resize(blocks, 0);
        }
    }

    fn pointer_at(&mut self, journal: &mut Journal, number: InodeNumber, index: usize) -> Pointer {
        let (inode_block, inode_at) = journal.superblock.inode_at(number);
        let Some(leaf) = leaf_of(index) else {
            return Pointer {
                block: inode_block,
                at: inode_at + DIRECT_AT + index * POINTER_BYTES,
            };
        };
        if self.leaves.len() <= leaf {
            self.leaves.resize(leaf + 1, 0);
        }
        if self.leaves[leaf] == 0 {
            let at = match root_of(leaf) {
                None => Pointer {
                    block: inode_block,
                    at: inode_at + LEAVES_AT + leaf * POINTER_BYTES,
                },
                Some(root) => {
                    if self.roots[root] == 0 {
                        let at = Pointer {
                            block: inode_block,
                            at: inode_at + ROOTS_AT + root * POINTER_BYTES,
                        };
                        self.roots[root] = create(journal, at);
                    }
                    Pointer {
                        block: block(self.roots[root]),
                        at: (leaf - DIRECT_LEAVES) % LEAF * POINTER_BYTES,
                    }
                }
            };
            self.leaves[leaf] = create(journal, at);
        }
        Pointer {
            block: block(self.leaves[leaf]),
            at: (index - DIRECT) % LEAF * POINTER_BYTES,
        }
    }

    /// Returns all blocks: of content, and of the map itself.
    pub(super) fn all(&self) -> impl Iterator<Item = DeviceBlock> {
        let content = self.blocks.iter();
        let map = self.leaves.iter().chain(&self.roots);
        let used = content.chain(map).filter(|&&pointer| pointer != 0);
        used.map(|&pointer| block(pointer))
    }
}

fn set(journal: &mut Journal, pointer: Pointer, to: DeviceBlock) {
    let number = to.get() as u32;
    journal.change(pointer.block, pointer.at, &number.to_le_bytes());
}

/// Makes an empty block of pointers.
fn create(journal: &mut Journal, pointer: Pointer) -> u32 {
    let found = journal.allocate(None);
    journal.create(found);
    set(journal, pointer, found);
    found.get() as u32
}
