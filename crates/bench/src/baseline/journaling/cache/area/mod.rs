//! Cached blocks: which are there, reading them, replacing them.
//!
//! An area is an array of entries and as many blocks of the region. At most one entry leads to a
//! disk block. The index, the order of replacement and the free blocks are in memory; opening the
//! cache makes them anew from the entries.
//!
//! A block is replaced in this order: the victim is written to the disk, **the disk is flushed**,
//! the entry is freed durably, and then the block of the region may be used anew. Without the flush
//! a disk with a volatile cache loses the victim at a power failure; neither paper mentions it.

mod commit;
mod state;

use std::sync::Arc;

use device::{DeviceBlock, DeviceError};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Condvar, Mutex, MutexGuard};
use pmem::{BLOCK_BYTES, BlockNumber, Flushed, Region};

use super::disk::Disk;
use super::entries::Entries;
use super::order::Order;
use super::{Block, BlockRead, CacheCorruption, Counts};
use crate::baseline::journaling::deliberate::{self, Bug};
use state::{Slot, State};

/// A block that a transaction holds.
#[derive(Copy, Clone, Debug)]
pub(super) struct Found {
    pub(super) slot: u32,
    pub(super) place: BlockNumber,
}

/// How an area looks and behaves.
#[derive(Copy, Clone, Debug)]
pub(super) struct Shape {
    /// The first block of the region for content.
    pub(super) first: BlockNumber,
    /// How an entry says where a block lies that was read from the disk.
    pub(super) clean_place: fn(BlockNumber) -> u64,
    pub(super) victims_per_flush: usize,
}

/// Cached blocks.
#[derive(Debug)]
pub(super) struct Area {
    entries: Entries,
    disk: Arc<Disk>,
    shape: Shape,
    state: Mutex<State>,
    /// A fill or a replacement has ended.
    ended: Condvar,
}

impl Area {
    /// Makes an area from its entries. `decode` returns the place and whether the disk lacks it.
    pub(super) fn open(
        entries: Entries,
        disk: Arc<Disk>,
        shape: Shape,
        order: Order,
        decode: impl Fn(u64) -> Option<(BlockNumber, bool)>,
    ) -> Result<Area, CacheCorruption> {
        let end = shape.first + u64::from(entries.count());
        let mut state = State {
            slots: vec![None; entries.count() as usize],
            by_block: HashMap::default(),
            order,
            free_slots: Vec::new(),
            free_places: Vec::new(),
            pins: HashMap::default(),
            doomed: HashSet::default(),
            filling: HashSet::default(),
            counts: Counts::default(),
        };
        let mut used = HashSet::<BlockNumber, RandomState>::default();
        for (slot, block, word) in entries.iter() {
            let (place, is_dirty) = decode(word)
                .filter(|(place, _)| *place >= shape.first && *place < end)
                .filter(|_| block.get() < disk.blocks())
                .ok_or(CacheCorruption::Entry { slot })?;
            if !used.insert(place) || state.by_block.contains_key(&block) {
                return Err(CacheCorruption::Twice { block: block.get() });
            }
            state.insert(slot, block, place, is_dirty);
        }
        for index in (0..entries.count()).rev() {
            if state.slots[index as usize].is_none() {
                state.free_slots.push(index);
            }
            let place = shape.first + u64::from(index);
            if !used.contains(&place) {
                state.free_places.push(place);
            }
        }
        Ok(Area {
            entries,
            disk,
            shape,
            state: Mutex::new(state),
            ended: Condvar::new(),
        })
    }

    fn region(&self) -> &Region {
        self.entries.region()
    }

    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Blocks of the area.
    pub(super) fn capacity(&self) -> usize {
        self.entries.count() as usize
    }

    pub(super) fn add_counts(&self, counts: &mut Counts) {
        *counts += self.state.lock().counts;
    }

    /// Reads parts of blocks; missing blocks are read from the disk in one request and cached.
    pub(super) fn read(&self, requests: &mut [BlockRead<'_>]) -> Result<(), DeviceError> {
        let mut waiting: Vec<usize> = (0..requests.len()).collect();
        let mut is_again = false;
        while !waiting.is_empty() {
            let (mut found, mut missing, mut busy) = (Vec::new(), Vec::new(), Vec::new());
            let mut state = self.state.lock();
            for index in waiting {
                let block = requests[index].block;
                if let Some(&slot) = state.by_block.get(&block) {
                    let place = state.slot(slot).place;
                    state.pin(place);
                    state.order.touch(slot);
                    found.push((index, place));
                } else if state.filling.insert(block) {
                    missing.push(index);
                } else {
                    busy.push(index);
                }
            }
            state.counts.hits += if is_again { 0 } else { found.len() as u64 };
            state.counts.misses += missing.len() as u64;
            if found.is_empty() && missing.is_empty() {
                self.ended.wait(&mut state);
            }
            drop(state);
            self.copy_pinned(&found, requests);
            self.read_missing(&missing, requests)?;
            (waiting, is_again) = (busy, true);
        }
        Ok(())
    }

    fn copy_pinned(&self, found: &[(usize, BlockNumber)], requests: &mut [BlockRead<'_>]) {
        if found.is_empty() {
            return;
        }
        for &(index, place) in found {
            let request = &mut requests[index];
            self.region()
                .read(place.offset() + request.at as u64, request.into);
        }
        let mut state = self.state.lock();
        for &(_, place) in found {
            state.unpin(place);
        }
    }

    fn read_missing(
        &self,
        missing: &[usize],
        requests: &mut [BlockRead<'_>],
    ) -> Result<(), DeviceError> {
        if missing.is_empty() {
            return Ok(());
        }
        let mut contents: Vec<(DeviceBlock, Box<Block>)> = missing
            .iter()
            .map(|&index| (requests[index].block, Box::new([0; BLOCK_BYTES])))
            .collect();
        let outcome = self.disk.read(&mut contents);
        if outcome.is_ok() {
            for (&index, (_, content)) in missing.iter().zip(&contents) {
                let request = &mut requests[index];
                let end = request.at + request.into.len();
                request.into.copy_from_slice(&content[request.at..end]);
            }
            // Without room the blocks are not cached. The reader has their content.
            let _uncached = self.fill(&contents);
        }
        self.end_filling(&contents);
        outcome
    }

    fn end_filling(&self, contents: &[(DeviceBlock, Box<Block>)]) {
        let mut state = self.state.lock();
        for (block, _) in contents {
            state.filling.remove(block);
        }
        drop(state);
        self.ended.notify_all();
    }

    /// Caches blocks as the disk has them. The caller has marked them as filling.
    fn fill(&self, contents: &[(DeviceBlock, Box<Block>)]) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        let mut places = Vec::with_capacity(contents.len());
        let mut failure = Ok(());
        while places.len() < contents.len() {
            if let Some(place) = state.free_places.pop() {
                places.push(place);
                continue;
            }
            match self.make_room(&mut state) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    failure = Err(error);
                    break;
                }
            }
        }
        drop(state);
        let mut batch = Flushed::nothing(self.region());
        for ((_, content), place) in contents.iter().zip(&places) {
            batch.join(self.region().write_streaming(place.offset(), &content[..]));
        }
        let durable = self.region().fence(batch);
        durable.assert_of(self.region());
        let mut state = self.state.lock();
        let mut batch = Flushed::nothing(self.region());
        for ((block, _), &place) in contents.iter().zip(&places) {
            let index = state.take_slot();
            let word = (self.shape.clean_place)(place);
            batch.join(self.entries.insert(index, *block, word));
            state.insert(index, *block, place, false);
        }
        // A commit by another thread may rely on the entry.
        self.region().fence(batch);
        failure
    }

    /// Replaces blocks. Returns whether a block became free, or may have become free meanwhile.
    fn make_room(&self, state: &mut MutexGuard<'_, State>) -> Result<bool, DeviceError> {
        let victims = state.take_victims(self.shape.victims_per_flush);
        if victims.is_empty() {
            return Ok(false);
        }
        let dirty: Vec<&Slot> = victims
            .iter()
            .map(|(_, slot)| slot)
            .filter(|slot| slot.is_dirty)
            .collect();
        let outcome = match dirty.is_empty() {
            true => Ok(()),
            false => MutexGuard::unlocked(state, || self.write_back(&dirty)),
        };
        let mut batch = Flushed::nothing(self.region());
        let mut freed = Vec::new();
        for (index, seen) in &victims {
            let slot = state.slot(*index);
            slot.is_leaving = false;
            let is_old = slot.version != seen.version || slot.is_held;
            let is_same = !is_old || deliberate::is(Bug::DropChangedVictim);
            if outcome.is_ok() && is_same && !state.pins.contains_key(&seen.place) {
                state.forget(*index);
                batch.join(self.entries.remove(*index));
                freed.push((*index, seen.place));
            }
        }
        if !deliberate::is(Bug::ReuseBeforeEntryIsFree) {
            // Before the block is used anew: the entry would lead to another block's content.
            self.region().fence(batch);
        }
        state.counts.evictions += freed.len() as u64;
        for (index, place) in freed {
            state.free_slots.push(index);
            state.free_place(place);
        }
        self.ended.notify_all();
        outcome.map(|()| true)
    }

    fn write_back(&self, dirty: &[&Slot]) -> Result<(), DeviceError> {
        if deliberate::is(Bug::DropDirtyVictim) {
            return Ok(());
        }
        let content = |slot: &&Slot| {
            let mut content = Box::new([0; BLOCK_BYTES]);
            self.region().read_block(slot.place.offset(), &mut content);
            (slot.block, content)
        };
        self.disk
            .write_durably(&dirty.iter().map(content).collect::<Vec<_>>())
    }

    /// Compares memory and region.
    pub(super) fn verify(
        &self,
        decode: impl Fn(u64) -> Option<(BlockNumber, bool)>,
    ) -> Result<(), CacheCorruption> {
        let state = self.state.lock();
        let memory = |what| Err(CacheCorruption::Memory { what });
        let mut used = HashSet::<BlockNumber, RandomState>::default();
        for (index, block, word) in self.entries.iter() {
            let Some(slot) = state.slots[index as usize].filter(|slot| slot.block == block) else {
                return memory("an entry is not in memory");
            };
            if decode(word).map(|(place, _)| place) != Some(slot.place) {
                return memory("place");
            }
            if state.by_block.get(&block) != Some(&index) || !used.insert(slot.place) {
                return Err(CacheCorruption::Twice { block: block.get() });
            }
            if slot.is_held || slot.is_leaving {
                return memory("a hold without a transaction");
            }
        }
        if used.len() != state.by_block.len()
            || used.len() + state.free_slots.len() != self.capacity()
        {
            return memory("count of entries");
        }
        let free: HashSet<BlockNumber, RandomState> = state.free_places.iter().copied().collect();
        if free.len() != state.free_places.len()
            || used.len() + free.len() != self.capacity()
            || !free.is_disjoint(&used)
        {
            return memory("free blocks");
        }
        match state.pins.is_empty() && state.doomed.is_empty() && state.filling.is_empty() {
            true => Ok(()),
            false => memory("a reader"),
        }
    }
}
