//! Block maps: from a file's block index to the block that holds it.
//!
//! A radix tree of 4 KiB nodes with 512 pointers. At height 0 the inode's root points to the only
//! block; at height h it points to a node of level h, whose pointers have level h − 1. The tree lies in place on the
//! medium: nothing is loaded or replayed when a file is opened.

use crate::format::{InodeNumber, Pointer, Position, RawInode};
use pmem::{BLOCK_BYTES, BlockNumber, Offset};
use smallvec::SmallVec;
use txn::{Corruption, Store, Transaction};

/// Pointers in a node, as a power of two.
pub const FANOUT_BITS: u32 = 9;
/// Pointers in a node.
pub const FANOUT: u64 = 1 << FANOUT_BITS;
/// Most levels: 2^36 blocks, 256 TiB.
pub const HEIGHT_MAX: u8 = 4;

/// Blocks that a map of this height can hold.
pub const fn capacity(height: u8) -> u64 {
    1 << (FANOUT_BITS * height as u32)
}

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
    fn position(&self, level: u8, file_block: u64) -> Position {
        Position {
            inode: self.inode,
            level,
            index: file_block >> (FANOUT_BITS * u32::from(level)),
        }
    }

    /// Checks a pointer's word: its check, and that it stays inside the pool.
    #[inline]
    fn read<S: Store>(
        &self,
        store: &S,
        word: u64,
        position: Position,
    ) -> Result<Option<Pointer>, DamagedAt> {
        match Pointer::read(word, position) {
            Ok(None) => Ok(None),
            Ok(Some(pointer)) if store.geometry().contains(pointer.block) => Ok(Some(pointer)),
            _ => Err(DamagedAt(position)),
        }
    }

    /// The place of the pointer to `file_block` in its lowest node, and `None` where the tree has no such node.
    ///
    /// At height 0 there is no node: the root itself is the pointer.
    #[inline]
    fn leaf<S: Store>(&self, store: &S, file_block: u64) -> Result<Option<Offset>, DamagedAt> {
        let mut level = self.height;
        let mut word = self.root;
        while let Some(node) = self.read(store, word, self.position(level, file_block))? {
            level -= 1;
            let at = slot_offset(node.block, level, file_block);
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

    /// Where the pointer to the lowest node on the way to `file_block` is kept. The map has such a node.
    ///
    /// # Errors
    ///
    /// A damaged pointer on the way.
    pub fn node_slot<S: Store>(&self, store: &S, file_block: u64) -> Result<Slot, DamagedAt> {
        let mut word = self.root;
        let mut found = Slot::Root;
        for level in (1..self.height).rev() {
            let Some(node) = self.read(store, word, self.position(level + 1, file_block))? else {
                break;
            };
            let at = slot_offset(node.block, level, file_block);
            word = store.load_word(at);
            found = Slot::Word(at);
        }
        Ok(found)
    }

    /// The word that makes `block` the lowest node on the way to `file_block`.
    pub fn node_word(&self, file_block: u64, block: BlockNumber) -> u64 {
        Pointer::written(block).word(self.position(1, file_block))
    }

    /// The pointer to `file_block`, which is kept in `slot`.
    ///
    /// # Errors
    ///
    /// It is damaged.
    #[inline]
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
        Pointer::written(block).word(self.position(0, file_block))
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

    /// The first block at or after `from` (and before `end`) that is mapped and written (`data`) or not (`!data`).
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
                Some(pointer) if !pointer.unwritten => {
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

    /// The first block at or after `from` that has a place, be it unwritten. Skips absent subtrees as a whole.
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

    /// Descends towards `file_block`; the level at which the path ends and the pointer found at level 0.
    fn deepest<S: Store>(
        &self,
        store: &S,
        file_block: u64,
    ) -> Result<(u8, Option<Pointer>), Corruption> {
        let mut level = self.height;
        let mut word = self.root;
        loop {
            let pointer = self.read(store, word, self.position(level, file_block))?;
            match pointer {
                Some(node) if level > 0 => {
                    level -= 1;
                    word = store.load_word(slot_offset(node.block, level, file_block));
                }
                _ => return Ok((level, pointer)),
            }
        }
    }

    /// Visits every block that the map owns: `visit(block, level, first file block)`; level 0 is data.
    ///
    /// # Errors
    ///
    /// A damaged pointer, or the first error of `visit`.
    pub fn walk<S: Store>(
        &self,
        store: &S,
        visit: &mut impl FnMut(BlockNumber, u8, u64) -> Result<(), Corruption>,
    ) -> Result<(), Corruption> {
        if self.height > HEIGHT_MAX {
            return Err(Corruption::new(
                format!("inode {}", self.inode),
                "its block map is too high",
            ));
        }
        self.walk_word(store, self.root, self.height, 0, visit)
    }

    fn walk_word<S: Store>(
        &self,
        store: &S,
        word: u64,
        level: u8,
        first: u64,
        visit: &mut impl FnMut(BlockNumber, u8, u64) -> Result<(), Corruption>,
    ) -> Result<(), Corruption> {
        let Some(pointer) = self.read(store, word, self.position(level, first))? else {
            return Ok(());
        };
        visit(pointer.block, level, first)?;
        if level == 0 {
            return Ok(());
        }
        let mut node = [0; BLOCK_BYTES];
        store.read(pointer.block.offset(), &mut node);
        for (slot, bytes) in node.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            if word != 0 {
                let first = first + slot as u64 * capacity(level - 1);
                self.walk_word(store, word, level - 1, first, visit)?;
            }
        }
        Ok(())
    }
}

/// Where a node at `block` keeps the pointer of `level` towards `file_block`.
#[inline]
fn slot_offset(block: BlockNumber, level: u8, file_block: u64) -> Offset {
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

impl From<DamagedAt> for crate::FsError {
    fn from(damaged: DamagedAt) -> crate::FsError {
        crate::FsError::Corrupt(damaged.into())
    }
}

/// Changes a block map inside a transaction.
///
/// New nodes are built in DRAM and written to fresh blocks at [`finish`](MapEditor::finish); pointers in nodes that
/// exist are logged. Within one editor every file block is set at most once.
#[derive(Debug)]
pub struct MapEditor<'a, S: Store> {
    store: &'a S,
    map: BlockMap,
    /// Nodes that this transaction creates.
    fresh: SmallVec<[(BlockNumber, Box<[u64; FANOUT as usize]>); 2]>,
    /// Pointers to nodes that this transaction logged in existing nodes.
    linked: SmallVec<[(Offset, u64); 4]>,
    /// Blocks taken and given back, nodes included.
    pub added: u64,
    /// Blocks given back, nodes included.
    pub removed: u64,
}

impl<'a, S: Store> MapEditor<'a, S> {
    /// Starts from `map`.
    pub fn new(store: &'a S, map: BlockMap) -> MapEditor<'a, S> {
        MapEditor {
            store,
            map,
            fresh: SmallVec::new(),
            linked: SmallVec::new(),
            added: 0,
            removed: 0,
        }
    }

    /// Points the file's blocks from `first` on to `pointers`. Blocks that were there are *not* freed.
    ///
    /// # Errors
    ///
    /// No space for a node, or a damaged pointer.
    pub fn set<T: Transaction>(
        &mut self,
        transaction: &mut T,
        first: u64,
        pointers: &[Pointer],
        node_domain: scatter::DomainId,
    ) -> Result<(), crate::FsError> {
        let mut done = 0;
        while done < pointers.len() {
            let block = first + done as u64;
            let in_node = (FANOUT - (block & (FANOUT - 1))) as usize;
            let part = &pointers[done..pointers.len().min(done + in_node)];
            self.grow(transaction, block + part.len() as u64, node_domain)?;
            self.set_in_node(transaction, block, part, node_domain)?;
            done += part.len();
        }
        Ok(())
    }

    fn set_in_node<T: Transaction>(
        &mut self,
        transaction: &mut T,
        first: u64,
        pointers: &[Pointer],
        node_domain: scatter::DomainId,
    ) -> Result<(), crate::FsError> {
        let word = |map: &BlockMap, index: usize| {
            let block = first + index as u64;
            pointers[index].word(map.position(0, block))
        };
        if self.map.height == 0 {
            self.map.root = word(&self.map, 0);
            return Ok(());
        }
        let node = self.descend(transaction, first, node_domain)?;
        let slot = (first & (FANOUT - 1)) as usize;
        if let Some((_, words)) = self.fresh.iter_mut().find(|(block, _)| *block == node) {
            for index in 0..pointers.len() {
                words[slot + index] = word(&self.map, index);
            }
            return Ok(());
        }
        let at = node.offset() + slot as u64 * 8;
        if pointers.len() == 1 {
            transaction.store_word(at, word(&self.map, 0));
            return Ok(());
        }
        let bytes: SmallVec<[u8; 512]> = (0..pointers.len())
            .flat_map(|index| word(&self.map, index).to_le_bytes())
            .collect();
        transaction.store(at, &bytes);
        Ok(())
    }

    /// Makes the file's block `file_block` a hole; the block that was there goes on belonging to somebody.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub fn forget<T: Transaction>(
        &mut self,
        transaction: &mut T,
        file_block: u64,
        node_domain: scatter::DomainId,
    ) -> Result<(), crate::FsError> {
        if self.map.height == 0 {
            self.map.root = 0;
            return Ok(());
        }
        let node = self.descend(transaction, file_block, node_domain)?;
        self.link(transaction, node, 0, file_block, 0);
        Ok(())
    }

    /// The lowest node on the way to `file_block`; creates nodes that are missing.
    fn descend<T: Transaction>(
        &mut self,
        transaction: &mut T,
        file_block: u64,
        node_domain: scatter::DomainId,
    ) -> Result<BlockNumber, crate::FsError> {
        let mut level = self.map.height;
        let position = self.map.position(level, file_block);
        let mut node = match self.map.read(self.store, self.map.root, position)? {
            Some(pointer) => pointer.block,
            None => {
                let node = self.new_node(transaction, node_domain)?;
                self.map.root = Pointer::written(node).word(position);
                node
            }
        };
        while level > 1 {
            level -= 1;
            let position = self.map.position(level, file_block);
            let word = self.load(node, level, file_block);
            node = match self.map.read(self.store, word, position)? {
                Some(pointer) => pointer.block,
                None => {
                    let child = self.new_node(transaction, node_domain)?;
                    let word = Pointer::written(child).word(position);
                    self.link(transaction, node, level, file_block, word);
                    child
                }
            };
        }
        Ok(node)
    }

    fn new_node<T: Transaction>(
        &mut self,
        transaction: &mut T,
        node_domain: scatter::DomainId,
    ) -> Result<BlockNumber, crate::FsError> {
        let block = transaction.allocate_one(node_domain, scatter::Purpose::Overwrite)?;
        self.fresh.push((block, Box::new([0; FANOUT as usize])));
        self.added += 1;
        Ok(block)
    }

    fn load(&self, node: BlockNumber, level: u8, file_block: u64) -> u64 {
        let at = slot_offset(node, level, file_block);
        if let Some((_, words)) = self.fresh.iter().find(|(block, _)| *block == node) {
            return words[(at.get() - node.offset().get()) as usize / 8];
        }
        let logged = self.linked.iter().find(|(offset, _)| *offset == at);
        logged.map_or_else(|| self.store.load_word(at), |(_, word)| *word)
    }

    fn link<T: Transaction>(
        &mut self,
        transaction: &mut T,
        node: BlockNumber,
        level: u8,
        file_block: u64,
        word: u64,
    ) {
        let at = slot_offset(node, level, file_block);
        if let Some((_, words)) = self.fresh.iter_mut().find(|(block, _)| *block == node) {
            words[(at.get() - node.offset().get()) as usize / 8] = word;
        } else {
            self.linked.push((at, word));
            transaction.store_word(at, word);
        }
    }

    /// Raises the root until `blocks` blocks fit.
    fn grow<T: Transaction>(
        &mut self,
        transaction: &mut T,
        blocks: u64,
        node_domain: scatter::DomainId,
    ) -> Result<(), crate::FsError> {
        while capacity(self.map.height) < blocks {
            let old = self.map.read(
                self.store,
                self.map.root,
                self.map.position(self.map.height, 0),
            )?;
            let height = self.map.height + 1;
            debug_assert!(height <= HEIGHT_MAX, "the caller limits the file's size");
            if let Some(old) = old {
                let node = self.new_node(transaction, node_domain)?;
                let word = old.word(self.map.position(self.map.height, 0));
                self.link(transaction, node, self.map.height, 0, word);
                let position = self.map.position(height, 0);
                self.map.root = Pointer::written(node).word(position);
            }
            self.map.height = height;
        }
        Ok(())
    }

    /// Removes and frees every block of the file in `first..end`, and the nodes that become unreachable.
    ///
    /// # Errors
    ///
    /// A damaged pointer.
    pub fn remove<T: Transaction>(
        &mut self,
        transaction: &mut T,
        first: u64,
        end: u64,
    ) -> Result<(), Corruption> {
        let end = end.min(capacity(self.map.height));
        if first >= end {
            return Ok(());
        }
        if first == 0 && end == capacity(self.map.height) {
            let map = self.map;
            self.free_tree(transaction, map.root, map.height, 0)?;
            self.map.root = 0;
            self.map.height = 0;
            return Ok(());
        }
        let map = self.map;
        match map.read(self.store, map.root, map.position(map.height, 0))? {
            Some(root) => {
                self.remove_in_node(transaction, root.block, map.height - 1, 0, first, end)
            }
            None => Ok(()),
        }
    }

    /// `node` covers file blocks from `base` on; its pointers have `level`.
    fn remove_in_node<T: Transaction>(
        &mut self,
        transaction: &mut T,
        node: BlockNumber,
        level: u8,
        base: u64,
        first: u64,
        end: u64,
    ) -> Result<(), Corruption> {
        let span = capacity(level);
        let slot_of = |block: u64| (block.clamp(base, base + span * FANOUT) - base) / span;
        let last_slot = slot_of(end.saturating_sub(1)).min(FANOUT - 1);
        let (mut clear_from, mut clear_to) = (FANOUT, 0);
        for slot in slot_of(first)..=last_slot {
            let slot_first = base + slot * span;
            let word = self.load(node, level, slot_first);
            if word == 0 {
                continue;
            }
            if first <= slot_first && end >= slot_first + span {
                self.free_tree(transaction, word, level, slot_first)?;
                clear_from = clear_from.min(slot);
                clear_to = clear_to.max(slot + 1);
            } else if let Some(child) =
                self.map
                    .read(self.store, word, self.map.position(level, slot_first))?
            {
                self.remove_in_node(transaction, child.block, level - 1, slot_first, first, end)?;
            }
        }
        if clear_from < clear_to {
            let at = node.offset() + clear_from * 8;
            transaction.zero(at, ((clear_to - clear_from) * 8) as usize);
        }
        Ok(())
    }

    fn free_tree<T: Transaction>(
        &mut self,
        transaction: &mut T,
        word: u64,
        level: u8,
        first: u64,
    ) -> Result<(), Corruption> {
        let mut removed = 0;
        let map = self.map;
        map.walk_word(self.store, word, level, first, &mut |block, _, _| {
            transaction.free(scatter::Extent {
                start: block,
                blocks: 1,
            });
            removed += 1;
            Ok(())
        })?;
        self.removed += removed;
        Ok(())
    }

    /// Writes the new nodes and returns the map's new root and height.
    pub fn finish<T: Transaction>(self, transaction: &mut T) -> (u64, u8) {
        for (block, words) in &self.fresh {
            transaction.write_fresh(*block, 0, zerocopy::IntoBytes::as_bytes(&words[..]));
        }
        (self.map.root, self.map.height)
    }
}
