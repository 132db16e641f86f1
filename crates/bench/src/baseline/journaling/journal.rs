//! The running transaction, as JBD2 has one: the changes since the last commit.
//!
//! One lock guards it. An operation loads what it needs, makes room, and then changes; no change
//! can fail. So an error leaves no half of an operation in the transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{DeviceBlock, DeviceError};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::RwLock;
use pmem::BLOCK_BYTES;

use super::Options;
use super::bitmap::Bitmap;
use super::cache::{
    Block, BlockRead, Kind, Limits, Lines, MetadataBlock, Transaction, TransactionalCache,
};
use super::deliberate::{self, Bug};
use super::error::FsError;
use super::layout::{InodeNumber, SuperBlock};

/// Data blocks of the running transaction, which readers need.
#[derive(Debug, Default)]
pub(super) struct Overlay(RwLock<BTreeMap<DeviceBlock, Arc<Block>>>);

impl Overlay {
    pub(super) fn get(&self, block: DeviceBlock) -> Option<Arc<Block>> {
        self.0.read().get(&block).cloned()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }
}

/// A change of a metadata block.
#[derive(Copy, Clone, Debug, Default)]
struct Change {
    lines: Lines,
    is_new: bool,
}

/// The running transaction, and metadata in memory.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) superblock: SuperBlock,
    cache: Arc<dyn TransactionalCache>,
    limits: Limits,
    options: Options,
    /// Metadata blocks in memory, as the kernel's buffer cache: nothing replaces them.
    buffers: HashMap<DeviceBlock, Box<Block>, RandomState>,
    overlay: Arc<Overlay>,
    changed: BTreeMap<DeviceBlock, Change>,
    freed: Vec<DeviceBlock>,
    freed_inodes: Vec<InodeNumber>,
    operations: u32,
    pub(super) blocks: Bitmap,
    pub(super) inodes: Bitmap,
    /// Where the last block was allocated.
    last_block: u64,
}

impl Journal {
    /// Reads superblock and bitmaps.
    pub(super) fn open(
        cache: Arc<dyn TransactionalCache>,
        superblock: SuperBlock,
        options: Options,
    ) -> Result<Journal, DeviceError> {
        let empty = || Bitmap::of_blocks(0, 0, []);
        let mut journal = Journal {
            limits: cache.limits(),
            cache,
            superblock,
            options,
            buffers: HashMap::default(),
            overlay: Arc::default(),
            changed: BTreeMap::new(),
            freed: Vec::new(),
            freed_inodes: Vec::new(),
            operations: 0,
            blocks: empty(),
            inodes: empty(),
            last_block: superblock.data_at,
        };
        let (blocks, inodes) = (superblock.block_bitmap_at, superblock.inode_bitmap_at);
        journal.blocks = journal.bitmap(
            blocks,
            superblock.block_bitmap_blocks(),
            superblock.disk_blocks,
        )?;
        journal.inodes =
            journal.bitmap(inodes, superblock.inode_bitmap_blocks(), superblock.inodes)?;
        Ok(journal)
    }

    fn bitmap(&mut self, at: u64, blocks: u64, bits: u64) -> Result<Bitmap, DeviceError> {
        let blocks: Vec<DeviceBlock> = (at..at + blocks).map(DeviceBlock::new).collect();
        self.load(&blocks)?;
        let contents = blocks.iter().map(|block| &*self.buffers[block]);
        Ok(Bitmap::of_blocks(at, bits, contents))
    }

    pub(super) fn overlay(&self) -> Arc<Overlay> {
        Arc::clone(&self.overlay)
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Metadata blocks of the largest operation without new leaves of a block map.
    pub(super) fn metadata_max(superblock: &SuperBlock) -> usize {
        superblock.block_bitmap_blocks() as usize + 8
    }

    /// Brings metadata blocks into memory.
    pub(super) fn load(&mut self, blocks: &[DeviceBlock]) -> Result<(), DeviceError> {
        let is_missing = |block: &&DeviceBlock| !self.buffers.contains_key(*block);
        let mut missing: Vec<(DeviceBlock, Box<Block>)> = blocks
            .iter()
            .filter(is_missing)
            .map(|&block| (block, Box::new([0; BLOCK_BYTES])))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut requests: Vec<BlockRead<'_>> = missing
            .iter_mut()
            .map(|(block, content)| BlockRead {
                block: *block,
                at: 0,
                into: &mut content[..],
            })
            .collect();
        self.cache.read(Kind::Metadata, &mut requests)?;
        self.buffers.extend(missing);
        Ok(())
    }

    pub(super) fn is_loaded(&self, block: DeviceBlock) -> bool {
        self.buffers.contains_key(&block)
    }

    /// Returns a metadata block in memory.
    pub(super) fn content(&self, block: DeviceBlock) -> &Block {
        match self.buffers.get(&block) {
            Some(content) => content,
            None => unreachable!("metadata block {block} was loaded"),
        }
    }

    /// Changes bytes of a metadata block in memory.
    pub(super) fn change(&mut self, block: DeviceBlock, at: usize, bytes: &[u8]) {
        let Some(content) = self.buffers.get_mut(&block) else {
            unreachable!("metadata block {block} was loaded");
        };
        content[at..at + bytes.len()].copy_from_slice(bytes);
        let change = self.changed.entry(block).or_default();
        change.lines.add(at..at + bytes.len());
    }

    /// Begins a metadata block of zeros in a block that was free.
    pub(super) fn create(&mut self, block: DeviceBlock) {
        self.buffers.insert(block, Box::new([0; BLOCK_BYTES]));
        let change = Change {
            lines: Lines::ALL,
            is_new: true,
        };
        self.changed.insert(block, change);
    }

    pub(super) fn write_data(&mut self, block: DeviceBlock, content: Arc<Block>) {
        self.overlay.0.write().insert(block, content);
    }

    /// Takes a free block near `goal`, or near the last one. The caller has asked for room.
    pub(super) fn allocate(&mut self, goal: Option<DeviceBlock>) -> DeviceBlock {
        let goal = goal.map_or(self.last_block, DeviceBlock::get);
        let Some(index) = self.blocks.take(goal) else {
            unreachable!("the free blocks were counted");
        };
        self.last_block = index;
        self.mark(|journal| &journal.blocks, index, true);
        DeviceBlock::new(index)
    }

    /// Frees a block of data or metadata when the transaction has committed.
    pub(super) fn free(&mut self, block: DeviceBlock) {
        self.mark(|journal| &journal.blocks, block.get(), false);
        self.buffers.remove(&block);
        self.changed.remove(&block);
        self.overlay.0.write().remove(&block);
        if deliberate::is(Bug::ReuseInTransaction) {
            return self.blocks.give(block.get());
        }
        self.freed.push(block);
    }

    /// Takes the first free inode, so that those in use share few blocks of the inode table.
    pub(super) fn allocate_inode(&mut self) -> Option<InodeNumber> {
        let number = self.inodes.take_first()?;
        self.mark(|journal| &journal.inodes, number, true);
        Some(InodeNumber::new(number as u32))
    }

    pub(super) fn free_inode(&mut self, number: InodeNumber) {
        self.mark(|journal| &journal.inodes, u64::from(number.get()), false);
        self.freed_inodes.push(number);
    }

    fn mark(&mut self, bitmap: impl Fn(&Journal) -> &Bitmap, index: u64, is_used: bool) {
        let (block, byte, bit) = bitmap(self).place(index);
        if deliberate::is(Bug::ForgetBitmap) {
            return;
        }
        let old = self.content(block)[byte];
        let new = match is_used {
            true => old | 1 << bit,
            false => old & !(1 << bit),
        };
        self.change(block, byte, &[new]);
    }

    /// Makes room for an operation of so many blocks: in the transaction, and of free blocks.
    pub(super) fn begin(
        &mut self,
        data_blocks: usize,
        metadata_blocks: usize,
        free_blocks: u64,
    ) -> Result<(), FsError> {
        let is_full = self.overlay.0.read().len() + data_blocks > self.limits.data_blocks
            || self.changed.len() + metadata_blocks > self.limits.metadata_blocks;
        let is_short = self.blocks.free() < free_blocks && !self.freed.is_empty();
        if is_full || is_short {
            self.commit()?;
        }
        match self.blocks.free() < free_blocks {
            true => Err(FsError::NoSpace),
            false => Ok(()),
        }
    }

    /// Ends an operation: commits if enough of them have ended since the last commit.
    pub(super) fn end(&mut self) -> Result<(), FsError> {
        self.operations += 1;
        match self.operations >= self.options.operations_per_commit {
            true => self.commit(),
            false => Ok(()),
        }
    }

    /// Makes durable what operations have changed.
    pub(super) fn commit(&mut self) -> Result<(), FsError> {
        let overlay = self.overlay.0.read();
        if overlay.is_empty() && self.changed.is_empty() {
            self.operations = 0;
            return Ok(());
        }
        let buffers = &self.buffers;
        let metadata = self.changed.iter().map(|(&block, change)| MetadataBlock {
            block,
            content: &buffers[&block],
            changed: change.lines,
            is_new: change.is_new,
        });
        let transaction = Transaction {
            data: overlay
                .iter()
                .map(|(block, content)| (*block, &**content))
                .collect(),
            metadata: metadata.collect(),
            freed: &self.freed,
        };
        self.cache.commit(&transaction)?;
        drop(transaction);
        drop(overlay);
        self.overlay.0.write().clear();
        self.changed.clear();
        for block in self.freed.drain(..) {
            self.blocks.give(block.get());
        }
        for number in self.freed_inodes.drain(..) {
            self.inodes.give(u64::from(number.get()));
        }
        self.operations = 0;
        Ok(())
    }
}
