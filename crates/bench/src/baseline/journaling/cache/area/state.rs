//! The state of an area in memory.

use device::DeviceBlock;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use pmem::BlockNumber;

use super::super::Counts;
use super::super::order::Order;

/// An entry in memory.
#[derive(Copy, Clone, Debug)]
pub(super) struct Slot {
    pub(super) block: DeviceBlock,
    pub(super) place: BlockNumber,
    /// The disk holds another content.
    pub(super) is_dirty: bool,
    /// The committing transaction has this block.
    pub(super) is_held: bool,
    /// The block is on its way to the disk.
    pub(super) is_leaving: bool,
    /// Counts the changes of the content.
    pub(super) version: u32,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) slots: Vec<Option<Slot>>,
    pub(super) by_block: HashMap<DeviceBlock, u32, RandomState>,
    pub(super) order: Order,
    pub(super) free_slots: Vec<u32>,
    pub(super) free_places: Vec<BlockNumber>,
    /// Readers of each place.
    pub(super) pins: HashMap<BlockNumber, u32, RandomState>,
    /// Places that become free with their last reader.
    pub(super) doomed: HashSet<BlockNumber, RandomState>,
    /// Blocks that are being read from the disk.
    pub(super) filling: HashSet<DeviceBlock, RandomState>,
    pub(super) counts: Counts,
}

impl State {
    pub(super) fn insert(
        &mut self,
        index: u32,
        block: DeviceBlock,
        place: BlockNumber,
        is_dirty: bool,
    ) {
        self.by_block.insert(block, index);
        self.order.add(index);
        self.slots[index as usize] = Some(Slot {
            block,
            place,
            is_dirty,
            is_held: false,
            is_leaving: false,
            version: 0,
        });
    }

    pub(super) fn slot(&mut self, index: u32) -> &mut Slot {
        match &mut self.slots[index as usize] {
            Some(slot) => slot,
            None => unreachable!("slot {index} is in use"),
        }
    }

    pub(super) fn take_slot(&mut self) -> u32 {
        match self.free_slots.pop() {
            Some(slot) => slot,
            None => unreachable!("an entry in use has a block, and a block was free"),
        }
    }

    pub(super) fn pin(&mut self, place: BlockNumber) {
        *self.pins.entry(place).or_insert(0) += 1;
    }

    pub(super) fn unpin(&mut self, place: BlockNumber) {
        let Some(pins) = self.pins.get_mut(&place) else {
            unreachable!("{place} was pinned");
        };
        *pins -= 1;
        if *pins == 0 {
            self.pins.remove(&place);
            if self.doomed.remove(&place) {
                self.free_places.push(place);
            }
        }
    }

    pub(super) fn free_place(&mut self, place: BlockNumber) {
        match self.pins.contains_key(&place) {
            true => {
                self.doomed.insert(place);
            }
            false => self.free_places.push(place),
        }
    }

    /// The slot stays taken until its entry is durably free.
    pub(super) fn forget(&mut self, index: u32) -> BlockNumber {
        let slot = *self.slot(index);
        self.slots[index as usize] = None;
        self.by_block.remove(&slot.block);
        self.order.remove(index);
        slot.place
    }

    /// The next blocks to be replaced, marked as leaving.
    pub(super) fn take_victims(&mut self, count: usize) -> Vec<(u32, Slot)> {
        let mut victims = Vec::with_capacity(count);
        while victims.len() < count {
            let may_go = |index: u32| {
                self.slots[index as usize].is_some_and(|slot| {
                    !slot.is_held && !slot.is_leaving && !self.pins.contains_key(&slot.place)
                })
            };
            let Some(index) = self.order.victim(may_go) else {
                break;
            };
            let slot = self.slot(index);
            slot.is_leaving = true;
            victims.push((index, *slot));
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_not_reused_while_it_is_read() {
        let mut state = State {
            slots: vec![None; 2],
            by_block: HashMap::default(),
            order: Order::recency(2),
            free_slots: Vec::new(),
            free_places: Vec::new(),
            pins: HashMap::default(),
            doomed: HashSet::default(),
            filling: HashSet::default(),
            counts: Counts::default(),
        };
        let [first, second] = [10, 11].map(BlockNumber::new);
        state.insert(0, DeviceBlock::new(5), first, true);
        state.insert(1, DeviceBlock::new(6), second, false);
        state.pin(first);
        state.pin(first);
        // The oldest is being read, so the other one goes.
        let victims = state.take_victims(2);
        let blocks: Vec<u64> = victims.iter().map(|(_, slot)| slot.block.get()).collect();
        assert_eq!(blocks, [6]);
        // A transaction replaces the version that is being read.
        state.free_place(first);
        assert!(state.free_places.is_empty());
        state.unpin(first);
        assert!(state.free_places.is_empty());
        state.unpin(first);
        assert_eq!(state.free_places, [first]);
    }
}
