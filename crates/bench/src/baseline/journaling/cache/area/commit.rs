//! The steps of a committing transaction in an area.

use device::{DeviceBlock, DeviceError};
use parking_lot::MutexGuard;
use pmem::{BLOCK_BYTES, BlockNumber, Flushed};

use super::{Area, Found};

impl Area {
    /// Finds a block and keeps it from being replaced until [`publish`](Self::publish) or
    /// [`release`](Self::release).
    pub(in super::super) fn hold(&self, block: DeviceBlock) -> Option<Found> {
        let mut state = self.state.lock();
        while state.filling.contains(&block) {
            self.ended.wait(&mut state);
        }
        let slot = *state.by_block.get(&block)?;
        let found = state.slot(slot);
        found.is_held = true;
        Some(Found {
            slot,
            place: found.place,
        })
    }

    /// The same for a block that must be there: it is read from the disk if it is missing.
    pub(in super::super) fn hold_or_fetch(&self, block: DeviceBlock) -> Result<Found, DeviceError> {
        loop {
            if let Some(found) = self.hold(block) {
                return Ok(found);
            }
            let mut state = self.state.lock();
            if state.by_block.contains_key(&block) || !state.filling.insert(block) {
                continue;
            }
            state.counts.misses += 1;
            drop(state);
            let mut contents = [(block, Box::new([0; BLOCK_BYTES]))];
            let read = self.disk.read(&mut contents);
            let outcome = read.and_then(|()| self.fill(&contents));
            self.end_filling(&contents);
            outcome?;
        }
    }

    /// Ends the hold of a block that the transaction has not changed.
    pub(in super::super) fn release(&self, found: Found) {
        self.state.lock().slot(found.slot).is_held = false;
    }

    /// Takes free blocks; replaces others until there are enough.
    pub(in super::super) fn reserve(&self, count: usize) -> Result<Vec<BlockNumber>, DeviceError> {
        let mut state = self.state.lock();
        let mut places = Vec::with_capacity(count);
        while places.len() < count {
            if let Some(place) = state.free_places.pop() {
                places.push(place);
                continue;
            }
            match self.make_room(&mut state) {
                Ok(true) => {}
                // Readers have the others for the moment.
                Ok(false) => MutexGuard::unlocked(&mut state, std::thread::yield_now),
                Err(error) => {
                    state.free_places.append(&mut places);
                    return Err(error);
                }
            }
        }
        Ok(places)
    }

    /// Gives a reserved block and a free entry back.
    pub(in super::super) fn return_slot(&self, slot: u32, place: BlockNumber) {
        let mut state = self.state.lock();
        state.free_slots.push(slot);
        state.free_places.push(place);
    }

    /// Takes a free entry for a block that was reserved.
    pub(in super::super) fn take_slot(&self) -> u32 {
        self.state.lock().take_slot()
    }

    /// Shows a committed block to readers, and frees the version before.
    pub(in super::super) fn publish(&self, block: DeviceBlock, slot: u32, place: BlockNumber) {
        let mut state = self.state.lock();
        if state.slots[slot as usize].is_none() {
            return state.insert(slot, block, place, true);
        }
        let found = state.slot(slot);
        let before = std::mem::replace(&mut found.place, place);
        found.version = found.version.wrapping_add(1);
        (found.is_dirty, found.is_held) = (true, false);
        state.order.touch(slot);
        if before != place {
            state.free_place(before);
        }
    }

    /// Drops the copies of blocks whose content is worth nothing. Durable when it returns.
    pub(in super::super) fn discard(&self, blocks: impl IntoIterator<Item = DeviceBlock>) {
        let mut state = self.state.lock();
        let mut batch = Flushed::nothing(self.region());
        let mut freed = Vec::new();
        for block in blocks {
            while let Some(&index) = state.by_block.get(&block) {
                // The old content must not reach the disk after the block's next content.
                if state.slot(index).is_leaving {
                    self.ended.wait(&mut state);
                    continue;
                }
                let place = state.forget(index);
                batch.join(self.entries.remove(index));
                freed.push((index, place));
            }
        }
        if freed.is_empty() {
            return;
        }
        self.region().fence(batch);
        for (index, place) in freed {
            state.free_slots.push(index);
            state.free_place(place);
        }
    }

    /// Counts a transaction.
    pub(in super::super) fn count_commit(&self, data_blocks: usize, metadata_blocks: usize) {
        let counts = &mut self.state.lock().counts;
        counts.commits += 1;
        counts.data_blocks += data_blocks as u64;
        counts.metadata_blocks += metadata_blocks as u64;
    }
}
