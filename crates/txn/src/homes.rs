//! Blocks of metadata that are named by an index, so that they can move: those of the inode table.
//!
//! An inode is changed in place, many times, by operations that find it by its number and hold no lock on the block that it shares with fifteen
//! others. So that such a block can move all the same, a transaction names its bytes by the *home* (index and byte), and only the commit, which holds a
//! journal, turns that into a place in the pool. A move holds all journals: whoever has a journal sees every home where it stays until his record is in place.

use pmem::{BLOCK_BYTES, BlockNumber, Offset};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A byte of a block that is named by its index. Ordered as the bytes of a file made of these blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HomeOffset(u64);

impl HomeOffset {
    /// Byte `byte` of the file that the blocks make.
    pub const fn new(byte: u64) -> HomeOffset {
        HomeOffset(byte)
    }

    /// Index of the block.
    pub const fn index(self) -> u64 {
        self.0 / BLOCK_BYTES as u64
    }

    const fn in_block(self) -> u64 {
        self.0 % BLOCK_BYTES as u64
    }
}

impl std::ops::Add<u64> for HomeOffset {
    type Output = HomeOffset;

    fn add(self, bytes: u64) -> HomeOffset {
        HomeOffset(self.0 + bytes)
    }
}

/// Where the blocks are. Only grows, and is read without a lock: an operation looks up its inode's place while its data is on the way to
/// the medium, and a locked instruction would wait for all of it.
#[derive(Debug, Default)]
pub struct Homes {
    blocks: boxcar::Vec<AtomicU64>,
    /// Counts the moves. Changes while all journals are held.
    version: AtomicU64,
}

impl Homes {
    /// Adds the next block. The caller sees to it that nobody else does at the same time.
    pub fn push(&self, block: BlockNumber) {
        self.blocks.push(AtomicU64::new(block.get()));
    }

    /// Blocks that there are.
    pub fn count(&self) -> u64 {
        self.blocks.count() as u64
    }

    /// Where block `index` is at this moment; `None` if there is none.
    ///
    /// Who has neither a journal nor the only reference must expect it to move: see [`read`](Self::read).
    #[inline]
    pub fn block(&self, index: u64) -> Option<BlockNumber> {
        let block = self.blocks.get(index as usize)?;
        Some(BlockNumber::new(block.load(Ordering::Relaxed)))
    }

    /// Where a byte is at this moment.
    #[inline]
    pub fn place(&self, home: HomeOffset) -> Option<Offset> {
        let block = self.block(home.index())?;
        Some(block.offset() + home.in_block())
    }

    /// Looks at what lies at `home`, without a lock: once more if it moved meanwhile, because its old place may hold something else by then. `None` if
    /// there is no such home.
    #[inline]
    pub fn read<R>(&self, home: HomeOffset, look: impl Fn(Offset) -> R) -> Option<R> {
        loop {
            let version = self.version();
            let found = look(self.place(home)?);
            // What was looked at was looked at before the version is read again.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return Some(found);
            }
        }
    }

    /// Changes with every move.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Block `index` is at `to` from now on. The caller holds all journals, and its old place keeps its bytes until the next checkpoint.
    pub(crate) fn relocate(&self, index: u64, to: BlockNumber) {
        if let Some(block) = self.blocks.get(index as usize) {
            block.store(to.get(), Ordering::Relaxed);
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_look_at_a_block_that_moves_is_repeated() {
        let homes = Homes::default();
        homes.push(BlockNumber::new(5));
        homes.push(BlockNumber::new(6));
        let home = HomeOffset::new(BLOCK_BYTES as u64 + 256);
        let looks = Cell::new(0);
        let found = homes.read(home, |at| {
            looks.set(looks.get() + 1);
            if looks.get() == 1 {
                homes.relocate(1, BlockNumber::new(9));
            }
            at
        });
        assert_eq!(found, Some(BlockNumber::new(9).offset() + 256));
        assert_eq!(looks.get(), 2);
        assert_eq!(homes.read(home + 2 * BLOCK_BYTES as u64, |at| at), None);
    }
}
