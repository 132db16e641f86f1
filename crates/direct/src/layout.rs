//! What lies where in the memory that a process and the server see both of.
//!
//! For each attached file there is one that the server writes and processes can only read: a head, the ring's blocks, refills of spare blocks, and the map of the file's blocks. The holder of a lease maps
//! its map privately, and changes his copy. For each process there is one that the process writes: a line for each lease, in which it says what it is busy with, and counts.

use lease::Place;
use pmem::{BLOCK_BYTES, BlockNumber};

/// Byte offsets of the words in the head.
pub mod head {
    /// The attachment's state, for [`lease::State`] and [`lease::Holding`].
    pub const STATE: usize = 0;
    /// Records before this number are folded.
    pub const FOLDED: usize = 8;
    /// Refills that there have been.
    pub const REFILLS: usize = 16;
    /// Changes whenever somebody changes an attribute of the file (links, owner, mode, times) by another way than this attachment, and before he who did is told that it is done.
    pub const ATTRIBUTES: usize = 24;
    /// Bytes.
    pub const BYTES: usize = 64;
}

/// Entries that the server fills in at once: a page of them, so that it never writes to a page that a holder has changed.
pub const MAP_CHUNK: u64 = (BLOCK_BYTES / size_of::<u64>()) as u64;

/// Fewest blocks that a map has room for: 1 GiB. What is not used takes no memory.
pub const CAPACITY_BLOCKS_MIN: u64 = 1 << 18;
/// Most: 16 TiB.
pub const CAPACITY_BLOCKS_MAX: u64 = 1 << 32;

/// Leases that one process may hold.
pub const SLOTS: usize = 1024;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 64;

/// Bytes of the memory that a process writes.
pub const PROCESS_BYTES: usize = SLOTS * SLOT_BYTES + BLOCK_BYTES;

/// Where a process says what it is busy with.
pub const fn slot_at(slot: usize) -> usize {
    slot * SLOT_BYTES
}

/// Where a process says which attachment it has left, of those that had the slot ([`lease::leave`]).
pub const fn left_at(slot: usize) -> usize {
    slot * SLOT_BYTES + size_of::<u64>()
}

/// Where a process counts.
pub const fn counter_at(counter: Counter) -> usize {
    SLOTS * SLOT_BYTES + counter as usize * size_of::<u64>()
}

/// What a process counts. Nobody relies on it: it is shown to users.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counter {
    /// Reads done directly.
    Reads = 0,
    /// Bytes of them.
    ReadBytes,
    /// Writes done directly.
    Writes,
    /// Bytes of them.
    WrittenBytes,
    /// Operations on files of the mount that went to the kernel because the file was not attached yet.
    NotAttached,
    /// … because the server refused to attach it.
    Refused,
    /// … because the attachment was taken back.
    TakenBack,
    /// … because a block is where the process may not go, or nowhere.
    NoPlace,
    /// … because of what the operation is, or how the file was opened.
    NotOffered,
    /// … because the lease had no room for it.
    NoRoom,
}

/// Number of [`Counter`]s.
pub const COUNTERS: usize = Counter::NoRoom as usize + 1;

/// Where the parts of a file's memory are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layout {
    /// Blocks of the ring; 0 if it is no lease.
    pub ring_blocks: u64,
    /// Slots for spare blocks.
    pub spare_blocks: u64,
    /// Blocks that the map has room for: a multiple of [`MAP_CHUNK`].
    pub capacity_blocks: u64,
}

impl Layout {
    /// Where the number of the ring's block `index` is.
    pub fn ring_at(&self, index: u64) -> usize {
        head::BYTES + index as usize * size_of::<u64>()
    }

    /// Where refill number `count` is: two words, slot and block. As many as there are slots, and round again: no slot is filled twice before it was emptied.
    pub fn refill_at(&self, count: u64) -> usize {
        let index = count % self.spare_blocks.max(1);
        self.ring_at(self.ring_blocks) + index as usize * 2 * size_of::<u64>()
    }

    /// Where the map begins, on a page of its own.
    pub fn map_at(&self) -> usize {
        let refills_end =
            self.ring_at(self.ring_blocks) + self.spare_blocks as usize * 2 * size_of::<u64>();
        refills_end.next_multiple_of(BLOCK_BYTES)
    }

    /// Where the entry of block `index` is.
    pub fn entry_at(&self, index: u64) -> usize {
        self.map_at() + index as usize * size_of::<u64>()
    }

    /// All bytes.
    pub fn bytes(&self) -> usize {
        self.entry_at(self.capacity_blocks)
    }

    /// Whether a process should believe it.
    pub fn is_sound(&self) -> bool {
        self.ring_blocks <= 1 << 20
            && self.spare_blocks <= 1 << 20
            && self.capacity_blocks <= CAPACITY_BLOCKS_MAX
            && self.capacity_blocks.is_multiple_of(MAP_CHUNK)
    }
}

/// An entry of the map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Entry {
    /// The server has not been asked.
    Unknown,
    /// There.
    Place(Place),
    /// Where processes may not go.
    Elsewhere,
}

const UNKNOWN: u64 = 0;
const HOLE: u64 = 1;
const ELSEWHERE: u64 = 2;
const AT: u64 = 4;
const UNWRITTEN: u64 = 5;
const TAG_BITS: u32 = 3;

impl Entry {
    /// As a word.
    #[inline]
    pub fn word(self) -> u64 {
        match self {
            Entry::Unknown => UNKNOWN,
            Entry::Elsewhere => ELSEWHERE,
            Entry::Place(Place::Hole) => HOLE,
            Entry::Place(Place::At(block)) => block.get() << TAG_BITS | AT,
            Entry::Place(Place::Unwritten(block)) => block.get() << TAG_BITS | UNWRITTEN,
        }
    }

    /// Of a word.
    #[inline]
    pub fn of(word: u64) -> Entry {
        let block = BlockNumber::new(word >> TAG_BITS);
        match word & ((1 << TAG_BITS) - 1) {
            AT => Entry::Place(Place::At(block)),
            UNWRITTEN => Entry::Place(Place::Unwritten(block)),
            HOLE => Entry::Place(Place::Hole),
            UNKNOWN => Entry::Unknown,
            _ => Entry::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_their_words() {
        for entry in [
            Entry::Unknown,
            Entry::Elsewhere,
            Entry::Place(Place::Hole),
            Entry::Place(Place::At(BlockNumber::new(1 << 40))),
            Entry::Place(Place::Unwritten(BlockNumber::new(7))),
        ] {
            assert_eq!(Entry::of(entry.word()), entry);
        }
    }

    #[test]
    fn parts_do_not_overlap() {
        let layout = Layout {
            ring_blocks: 64,
            spare_blocks: 1024,
            capacity_blocks: CAPACITY_BLOCKS_MIN,
        };
        assert!(head::ATTRIBUTES < head::BYTES && layout.ring_at(0) == head::BYTES);
        assert!(layout.refill_at(0) >= layout.ring_at(63) + 8);
        assert!(layout.map_at() >= layout.refill_at(1023) + 16);
        assert!(layout.map_at().is_multiple_of(BLOCK_BYTES));
        assert_eq!(layout.refill_at(1024), layout.refill_at(0));
        assert_eq!(layout.bytes(), layout.map_at() + (8 << 18));
        assert!(layout.is_sound());
    }
}
