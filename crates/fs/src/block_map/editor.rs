//! Changes of a block map inside a transaction.

use super::map::{BlockMap, free_block, slot_offset};
use crate::format::Pointer;
use crate::format::map::{FANOUT, HEIGHT_MAX, capacity};
use crate::values::error::FsError;
use pmem::{BlockNumber, Offset};
use scatter::{DomainId, Purpose};
use smallvec::SmallVec;
use txn::{Corruption, Store, Transaction};

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
        node_domain: DomainId,
    ) -> Result<(), FsError> {
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
        node_domain: DomainId,
    ) -> Result<(), FsError> {
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
        node_domain: DomainId,
    ) -> Result<(), FsError> {
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
        node_domain: DomainId,
    ) -> Result<BlockNumber, FsError> {
        let mut level = self.map.height;
        let position = self.map.position(level, file_block);
        let mut node = match self.map.read_node(self.store, self.map.root, position)? {
            Some(node) => node,
            None => {
                let node = self.new_node(transaction, node_domain)?;
                self.map.root = Pointer::Written(node).word(position);
                node
            }
        };
        while level > 1 {
            level -= 1;
            let position = self.map.position(level, file_block);
            let word = self.load(node, level, file_block);
            node = match self.map.read_node(self.store, word, position)? {
                Some(node) => node,
                None => {
                    let child = self.new_node(transaction, node_domain)?;
                    let word = Pointer::Written(child).word(position);
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
        node_domain: DomainId,
    ) -> Result<BlockNumber, FsError> {
        let block = transaction.allocate_one(node_domain, Purpose::Overwrite)?;
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
        node_domain: DomainId,
    ) -> Result<(), FsError> {
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
                self.map.root = Pointer::Written(node).word(position);
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
        match map.read_node(self.store, map.root, map.position(map.height, 0))? {
            Some(root) => self.remove_in_node(transaction, root, map.height - 1, 0, first, end),
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
                    .read_node(self.store, word, self.map.position(level, slot_first))?
            {
                self.remove_in_node(transaction, child, level - 1, slot_first, first, end)?;
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
        map.walk_word(self.store, word, level, first, &mut |pointer, _, _| {
            free_block(transaction, pointer);
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
