//! A block map as it lies on the medium: the way from a file's block index to its block.
//!
//! A radix tree of 4 KiB nodes with 512 pointers. At height 0 the inode's root points to the only
//! block; at height h it points to a node of level h, whose pointers have level h − 1. The tree
//! lies in place on the medium: nothing is loaded or replayed when a file is opened.

use crate::format::map::{FANOUT, FANOUT_BITS, HEIGHT_MAX, capacity};
use crate::format::{InodeNumber, Pointer, Position, RawInode};
use crate::values::error::FsError;
use device::DeviceBlock;
use pmem::{BLOCK_BYTES, BlockNumber, Offset};
use scatter::Extent;
use txn::{Corruption, Store, Transaction};

/// Where the pointer to a file's block is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Slot {
    /// In the inode: the map has height 0.
    Root,
    /// In a node of the tree.
    Word(Offset),
    /// Nowhere yet: the tree has no node for it.
    Absent,
}

impl Slot {
    /// What is kept there will be loaded soon.
    #[inline]
    pub fn prefetch<S: Store>(self, store: &S) {
        if let Slot::Word(at) = self {
            store.prefetch(at);
        }
    }
}

/// A file's block map, as of some version of its inode.
#[derive(Clone, Copy, Debug)]
pub struct BlockMap {
    /// The file.
    pub inode: InodeNumber,
    /// Root pointer's word.
    pub root: u64,
    /// Levels above the data blocks.
    pub height: u8,
}

impl BlockMap {
    /// The map of inode `number`.
    #[inline]
    pub fn of(number: InodeNumber, raw: &RawInode) -> BlockMap {
        BlockMap {
            inode: number,
            root: raw.root,
            height: raw.height,
        }
    }

    #[inline]
    pub(super) fn position(&self, level: u8, file_block: u64) -> Position {
        Position {
            inode: self.inode,
            level,
            index: file_block >> (FANOUT_BITS * u32::from(level)),
        }
    }

    /// Reads a pointer to data: its check has to fit, and it has to stay inside the pool's memory
    /// or its device.
    #[inline]
    pub(super) fn read<S: Store>(
        &self,
        store: &S,
        word: u64,
        position: Position,
    ) -> Result<Option<Pointer>, DamagedAt> {
        match Pointer::read(word, position) {
            Ok(None) => Ok(None),
            Ok(Some(pointer)) if has_place(store, pointer) => Ok(Some(pointer)),
            _ => Err(DamagedAt(position)),
        }
    }

    /// Reads a pointer to a node: that is a written block of memory.
    #[inline]
    pub(super) fn read_node<S: Store>(
        &self,
        store: &S,
        word: u64,
        position: Position,
    ) -> Result<Option<BlockNumber>, DamagedAt> {
        match Pointer::read_metadata(word, position) {
            Ok(None) => Ok(None),
            Ok(Some(block)) if store.geometry().contains(block) => Ok(Some(block)),
            _ => Err(DamagedAt(position)),
        }
    }

    /// The place of the pointer to `file_block` in its lowest node, and `None` where the tree has
    /// no such node.
    ///
    /// At height 0 there is no node: the root itself is the pointer.
    #[inline]
    fn leaf<S: Store>(&self, store: &S, file_block: u64) -> Result<Option<Offset>, DamagedAt> {
        let mut level = self.height;
        let mut word = self.root;
        while let Some(node) = self.read_node(store, word, self.position(level, file_block))? {
            level -= 1;
            let at = slot_offset(node, level, file_block);
            if level == 0 {
                return Ok(Some(at));
            }
            word = store.load_word(at);
        }
        Ok(None)
    }

    /// Where the pointer to `file_block` is kept.
    ///
    /// # Errors
    ///
    /// A damaged pointer on the way.
    #[inline]
    pub fn slot<S: Store>(&self, store: &S, file_block: u64) -> Result<Slot, DamagedAt> {
        if file_block >= capacity(self.height) {
            return Ok(Slot::Absent);
        }
        if self.height == 0 {
            return Ok(Slot::Root);
        }
        Ok(self
            .leaf(store, file_block)?
            .map_or(Slot::Absent, Slot::Word))
    }

    /// Where the pointer to the lowest node on the way to `file_block` is kept. The map has such a
    /// node.
    ///
    /// # Errors
    ///
    /// A damaged pointer on the way.
    pub fn node_slot<S: Store>(&self, store: &S, file_block: u64) -> Result<Slot, DamagedAt> {
        let mut word = self.root;
        let mut found = Slot::Root;
        for level in (1..self.height).rev() {
            let position = self.position(level + 1, file_block);
            let Some(node) = self.read_node(store, word, position)? else {
                break;
            };
            let at = slot_offset(node, level, file_block);
            word = store.load_word(at);
            found = Slot::Word(at);
        }
        Ok(found)
    }

    /// The word that makes `block` the lowest node on the way to `file_block`.
    pub fn node_word(&self, file_block: u64, block: BlockNumber) -> u64 {
        Pointer::Written(block).word(self.position(1, file_block))
    }

    /// The pointer to `file_block`, which is kept in `slot`.
    ///
    /// # Errors
    ///
    /// It is damaged.
    // Overwrites do this between their data and its fence, where a call costs thirty instructions.
    #[inline(always)]
    pub fn pointer<S: Store>(
        &self,
        store: &S,
        slot: Slot,
        file_block: u64,
    ) -> Result<Option<Pointer>, DamagedAt> {
        let word = match slot {
            Slot::Absent => return Ok(None),
            Slot::Root => self.root,
            Slot::Word(at) => store.load_word(at),
        };
        self.read(store, word, self.position(0, file_block))
    }

    /// The word that makes `file_block` point to `block`, written.
    #[inline]
    pub fn word(&self, file_block: u64, block: BlockNumber) -> u64 {
        Pointer::Written(block).word(self.position(0, file_block))
    }

    /// The block that holds `file_block`.
    ///
    /// # Errors
    ///
    /// A damaged pointer on the way.
    #[inline]
    pub fn lookup<S: Store>(
        &self,
        store: &S,
        file_block: u64,
    ) -> Result<Option<Pointer>, DamagedAt> {
        let slot = self.slot(store, file_block)?;
        self.pointer(store, slot, file_block)
    }

    /// The pointers of `count` blocks from `first` on, one descent per node.
    ///
    /// # Errors
    ///
    /// A damaged pointer.
    pub fn lookup_range<S: Store>(
        &self,
        store: &S,
        first: u64,
        count: u64,
        mut visit: impl FnMut(u64, Option<Pointer>),
    ) -> Result<(), Corruption> {
        let mut block = first;
        let end = first + count;
        while block < end {
            let node_end = (block | (FANOUT - 1)).saturating_add(1).min(end);
            let leaf = if block >= capacity(self.height) || self.height == 0 {
                None
            } else {
                self.leaf(store, block)?
            };
            for index in block..node_end {
                let pointer = match leaf {
                    Some(at) => {
                        let word = store.load_word(at + (index - block) * 8);
                        self.read(store, word, self.position(0, index))?
                    }
                    None if self.height == 0 && index == 0 => {
                        self.read(store, self.root, self.position(0, 0))?
                    }
                    None => None,
                };
                visit(index, pointer);
            }
            block = node_end;
        }
        Ok(())
    }

    /// The first block at or after `from` (and before `end`) that is mapped and written (`data`) or
    /// not (`!data`).
    ///
    /// Skips absent subtrees as a whole, so a sparse file costs what it holds.
    ///
    /// # Errors
    ///
    /// A damaged pointer.
    pub fn seek<S: Store>(
        &self,
        store: &S,
        from: u64,
        end: u64,
        data: bool,
    ) -> Result<Option<u64>, Corruption> {
        let mut block = from;
        while block < end {
            if block >= capacity(self.height) {
                return Ok(if data { None } else { Some(block) });
            }
            let (level, pointer) = self.deepest(store, block)?;
            match pointer {
                Some(Pointer::Written(_) | Pointer::Device(_)) => {
                    if data {
                        return Ok(Some(block));
                    }
                    block += 1;
                }
                Some(_) if data => block += 1,
                None if data => block = (block | (capacity(level) - 1)) + 1,
                _ => return Ok(Some(block)),
            }
        }
        Ok(None)
    }

    /// The first block at or after `from` that has a place, be it unwritten. Skips absent subtrees
    /// as a whole.
    ///
    /// # Errors
    ///
    /// A damaged pointer.
    pub fn next_mapped<S: Store>(&self, store: &S, from: u64) -> Result<Option<u64>, Corruption> {
        let mut block = from;
        while block < capacity(self.height) {
            let (level, pointer) = self.deepest(store, block)?;
            if pointer.is_some() {
                return Ok(Some(block));
            }
            block = (block | (capacity(level) - 1)) + 1;
        }
        Ok(None)
    }

    /// Descends towards `file_block`; the level at which the path ends and the pointer found at
    /// level 0.
    fn deepest<S: Store>(
        &self,
        store: &S,
        file_block: u64,
    ) -> Result<(u8, Option<Pointer>), Corruption> {
        let mut level = self.height;
        let mut word = self.root;
        loop {
            let position = self.position(level, file_block);
            if level == 0 {
                return Ok((level, self.read(store, word, position)?));
            }
            let Some(node) = self.read_node(store, word, position)? else {
                return Ok((level, None));
            };
            level -= 1;
            word = store.load_word(slot_offset(node, level, file_block));
        }
    }

    /// Visits every block that the map owns: `visit(pointer, level, first file block)`; level 0 is
    /// data, all others lie in memory.
    ///
    /// # Errors
    ///
    /// A damaged pointer, or the first error of `visit`.
    pub fn walk<S: Store>(
        &self,
        store: &S,
        visit: &mut impl FnMut(Pointer, u8, u64) -> Result<(), Corruption>,
    ) -> Result<(), Corruption> {
        if self.height > HEIGHT_MAX {
            return Err(Corruption::new(
                format!("inode {}", self.inode),
                "its block map is too high",
            ));
        }
        self.walk_word(store, self.root, self.height, 0, visit)
    }

    pub(super) fn walk_word<S: Store>(
        &self,
        store: &S,
        word: u64,
        level: u8,
        first: u64,
        visit: &mut impl FnMut(Pointer, u8, u64) -> Result<(), Corruption>,
    ) -> Result<(), Corruption> {
        let position = self.position(level, first);
        if level == 0 {
            let pointer = self.read(store, word, position)?;
            return pointer.map_or(Ok(()), |pointer| visit(pointer, level, first));
        }
        let Some(node) = self.read_node(store, word, position)? else {
            return Ok(());
        };
        visit(Pointer::Written(node), level, first)?;
        let mut content = [0; BLOCK_BYTES];
        store.read(node.offset(), &mut content);
        for (slot, bytes) in content.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            if word != 0 {
                let first = first + slot as u64 * capacity(level - 1);
                self.walk_word(store, word, level - 1, first, visit)?;
            }
        }
        Ok(())
    }
}

/// Whether what the pointer names is there.
#[inline]
fn has_place<S: Store>(store: &S, pointer: Pointer) -> bool {
    match pointer {
        Pointer::Written(block) | Pointer::Unwritten(block) => store.geometry().contains(block),
        Pointer::Device(block) => is_on_device(store, block),
    }
}

#[cold]
fn is_on_device<S: Store>(store: &S, block: DeviceBlock) -> bool {
    store.device().is_some_and(|device| device.contains(block))
}

/// Where a node at `block` keeps the pointer of `level` towards `file_block`.
#[inline]
pub(super) fn slot_offset(block: BlockNumber, level: u8, file_block: u64) -> Offset {
    block.offset() + ((file_block >> (FANOUT_BITS * u32::from(level))) & (FANOUT - 1)) * 8
}

/// A pointer that fails its check. Small, so that the way through a map stays in registers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DamagedAt(pub Position);

impl From<DamagedAt> for Corruption {
    #[cold]
    #[inline(never)]
    fn from(DamagedAt(position): DamagedAt) -> Corruption {
        Corruption::new(
            format!("block map of inode {}", position.inode),
            format!(
                "pointer {} of level {} fails its check",
                position.index, position.level
            ),
        )
    }
}

impl From<DamagedAt> for FsError {
    fn from(damaged: DamagedAt) -> FsError {
        FsError::Corrupt(damaged.into())
    }
}

/// Reads a part of a block of a file. A hole reads as zeros, and so does an unwritten block.
///
/// # Errors
///
/// The block lies on the device, which is not asked here: the caller may hold locks.
#[inline]
pub(crate) fn read_block<S: Store>(
    store: &S,
    pointer: Option<Pointer>,
    in_block: usize,
    into: &mut [u8],
) -> Result<(), DeviceBlock> {
    match pointer {
        Some(Pointer::Written(block)) => store.read_data(block, in_block, into),
        Some(Pointer::Device(block)) => return Err(block),
        Some(Pointer::Unwritten(_)) | None => into.fill(0),
    }
    Ok(())
}

/// Gives back the block that a pointer to data names.
#[inline]
pub(crate) fn free_block(transaction: &mut impl Transaction, pointer: Pointer) {
    match pointer {
        Pointer::Written(start) | Pointer::Unwritten(start) => {
            transaction.free(Extent { start, blocks: 1 });
        }
        Pointer::Device(block) => transaction.free_device(block),
    }
}
