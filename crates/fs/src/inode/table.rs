//! The inode table: a file of inodes, sixteen to a block, and the numbers that are free.
//!
//! The table's own inode lies in the root area, so the table's blocks can be anywhere. They do not stay there: a few thousand inodes that change all
//! the time are a small and hot corner, so blocks that change often move. Where they are is known to
//! the store ([`Homes`](txn::Homes)), because only a commit can tell for sure.

use crate::block_map::{BlockMap, MapEditor};
use crate::format::inode::{INODE_BYTES, INODES_PER_BLOCK};
use crate::format::{InodeNumber, Pointer, RawInode, Timestamp};
use crate::values::clock::Clock;
use crate::values::error::{FsError, damaged_inode};
use parking_lot::Mutex;
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::{DomainId, Extent, Purpose};
use smallvec::SmallVec;
use txn::{HomeOffset, Store, Transaction};

/// Most free numbers that one list takes from another at once.
const TAKEN_OVER_MAX: usize = 64;
/// In place of an inode's first word: no inode's checksum fits then.
pub(crate) const SPOILT: u64 = u64::MAX;
/// Most blocks that the table grows by at once.
const GROWTH_BLOCKS_MAX: u64 = 16;

/// Where inodes are and which numbers are free.
pub(crate) struct InodeTable {
    /// Free numbers, one list per core so that creators do not meet.
    free: Box<[FreeNumbers]>,
    /// The table's own inode; held while the table grows or one of its blocks moves.
    own: Mutex<RawInode>,
}

#[derive(Default)]
#[repr(align(128))]
struct FreeNumbers(Mutex<Vec<u32>>);

impl InodeTable {
    /// Takes over the table whose inode is `own`, and whose blocks the store knows.
    pub(crate) fn new(own: RawInode, shards: usize) -> InodeTable {
        InodeTable {
            free: (0..shards.max(1)).map(|_| FreeNumbers::default()).collect(),
            own: Mutex::new(own),
        }
    }

    /// Inodes that the table holds, free ones included.
    pub(crate) fn capacity<S: Store>(store: &S) -> u64 {
        store.homes().count() * INODES_PER_BLOCK
    }

    /// Free inodes that the table holds.
    pub(crate) fn free_count(&self) -> u64 {
        let lists = self.free.iter();
        lists.map(|list| list.0.lock().len() as u64).sum()
    }

    /// Where inode `number` lies in the table. Any number, one that a damaged directory names too: then there is no such home.
    #[inline]
    pub(crate) fn home(number: InodeNumber) -> HomeOffset {
        HomeOffset::new(number.get().saturating_mul(INODE_BYTES as u64))
    }

    /// Marks numbers as free, as found by recovery.
    pub(crate) fn add_free(&self, shard: usize, numbers: &[u32]) {
        let mut list = self.free[shard % self.free.len()].0.lock();
        list.extend_from_slice(numbers);
    }

    /// A number is free again. Its slot is only ever written through the log, so it can be reused at once.
    pub(crate) fn release(&self, number: InodeNumber) {
        self.add_free(txn::transaction::thread_slot(), &[number.get() as u32]);
    }

    /// All free numbers, for a clean unmount.
    pub(crate) fn free_numbers(&self) -> Vec<u32> {
        self.free
            .iter()
            .flat_map(|list| list.0.lock().clone())
            .collect()
    }

    /// Takes a free number, growing the table if there is none.
    pub(crate) fn take<S: Store>(&self, store: &S, clock: Clock) -> Result<InodeNumber, FsError> {
        let home = txn::transaction::thread_slot() % self.free.len();
        loop {
            if let Some(number) = self.free[home].0.lock().pop() {
                return Ok(InodeNumber::new(u64::from(number)));
            }
            if let Some(number) = self.take_over(home) {
                return Ok(number);
            }
            self.grow(store, clock.now())?;
        }
    }

    /// Takes a number from another list, and a batch of its neighbours into the list `home`: who removes files collects numbers that
    /// others then need, and one by one they would meet at his list each time.
    #[cold]
    fn take_over(&self, home: usize) -> Option<InodeNumber> {
        let others = (1..self.free.len()).map(|step| (home + step) % self.free.len());
        for other in others {
            let mut list = self.free[other].0.lock();
            let Some(number) = list.pop() else {
                continue;
            };
            // Only tried, because another thread may be taking over in the opposite direction. Both at once, because a number in
            // neither list would be missed by who looks for the last one.
            if let Some(mut own) = self.free[home].0.try_lock() {
                let rest = list.len() - (list.len() / 2).min(TAKEN_OVER_MAX);
                own.extend(list.drain(rest..));
            }
            return Some(InodeNumber::new(u64::from(number)));
        }
        None
    }

    /// Adds blocks of zeroed inodes: a transaction of its own.
    fn grow<S: Store>(&self, store: &S, now: Timestamp) -> Result<(), FsError> {
        let mut own = self.own.lock();
        if self.free_count() > 0 {
            return Ok(());
        }
        let first = store.homes().count();
        if (first + 1) * INODES_PER_BLOCK > InodeNumber::MAX.get() {
            return Err(FsError::NoInodes);
        }
        let wanted = first.clamp(1, GROWTH_BLOCKS_MAX);
        let added = match self.append(store, &mut own, (first, wanted), now) {
            // A nearly full pool: one block is better than none.
            Err(FsError::NoSpace) if wanted > 1 => self.append(store, &mut own, (first, 1), now)?,
            added => added?,
        };
        // In order, because `own` is held.
        for &block in &added {
            store.homes().push(block);
        }
        let start = (first * INODES_PER_BLOCK) as u32;
        let count = added.len() as u32 * INODES_PER_BLOCK as u32;
        // Popped from the end: low numbers first.
        let numbers: Vec<u32> = (start..start + count)
            .rev()
            .filter(|&number| number > 1)
            .collect();
        self.add_free(txn::transaction::thread_slot(), &numbers);
        Ok(())
    }

    fn append<S: Store>(
        &self,
        store: &S,
        own: &mut RawInode,
        (first, count): (u64, u64),
        now: Timestamp,
    ) -> Result<SmallVec<[BlockNumber; 16]>, FsError> {
        let mut transaction = store.begin();
        let extents = transaction.allocate(DomainId::METADATA, count as u32, Purpose::Ordinary)?;
        let blocks: SmallVec<[BlockNumber; 16]> = extents
            .iter()
            .flat_map(|extent| (0..u64::from(extent.blocks)).map(|index| extent.start + index))
            .collect();
        for &block in &blocks {
            transaction.write_fresh(block, 0, &[0; BLOCK_BYTES]);
        }
        let pointers: SmallVec<[Pointer; 16]> = blocks
            .iter()
            .map(|&block| Pointer::Written(block))
            .collect();
        let mut new = *own;
        let mut editor = MapEditor::new(store, BlockMap::of(InodeNumber::TABLE, own));
        editor.set(&mut transaction, first, &pointers, DomainId::METADATA)?;
        new.blocks += count + editor.added;
        (new.root, new.height) = editor.finish(&mut transaction);
        new.size = (first + count) * BLOCK_BYTES as u64;
        new.touch_modified(now);
        log_own(store, own, &mut new, &mut transaction);
        transaction.commit()?;
        *own = new;
        Ok(blocks)
    }

    /// Moves block `index` of the table to a fresh place; the old one was written whole `wear_blocks` times more often than the allocator
    /// knows: a transaction of its own. `false` if there is no room, or somebody else changes the
    /// table at this moment.
    pub(crate) fn move_block<S: Store>(
        &self,
        store: &S,
        index: u64,
        wear_blocks: u64,
    ) -> Result<bool, FsError> {
        let Some(mut own) = self.own.try_lock() else {
            return Ok(false);
        };
        let Some(from) = store.homes().block(index) else {
            return Ok(false);
        };
        let mut transaction = store.begin();
        let Ok(to) = transaction.allocate_one(DomainId::METADATA, Purpose::Ordinary) else {
            return Ok(false);
        };
        let mut new = *own;
        let mut editor = MapEditor::new(store, BlockMap::of(InodeNumber::TABLE, &own));
        let pointers = [Pointer::Written(to)];
        editor.set(&mut transaction, index, &pointers, DomainId::METADATA)?;
        (new.root, new.height) = editor.finish(&mut transaction);
        if new.root != own.root {
            log_own(store, &own, &mut new, &mut transaction);
        }
        transaction.free(Extent {
            start: from,
            blocks: 1,
        });
        // Repair finds lost blocks of the table by their content, and must not find this one.
        transaction.store_word(from.offset(), SPOILT);
        transaction.move_home(index, to);
        transaction.commit()?;
        *own = new;
        store.allocator().charge(from, wear_blocks);
        Ok(true)
    }

    /// Reads inode `number` from the medium, unchecked.
    pub(crate) fn load<S: Store>(
        &self,
        store: &S,
        number: InodeNumber,
    ) -> Result<RawInode, FsError> {
        if number == InodeNumber::TABLE {
            return Err(damaged_inode(
                number,
                "the inode table was referred to as a file",
            ));
        }
        let found = store.homes().read(Self::home(number), |at| store.load(at));
        found.ok_or(FsError::NotFound)
    }
}

/// Logs the next version of the table's own inode.
fn log_own<S: Store>(
    store: &S,
    old: &RawInode,
    new: &mut RawInode,
    transaction: &mut impl Transaction,
) {
    new.log_changes(old, InodeNumber::TABLE, |at, bytes| {
        transaction.store(store.root_area() + at, bytes);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_all_tables_has_no_home() {
        let homes = txn::Homes::default();
        homes.push(BlockNumber::new(9));
        for number in [16, 1 << 32, u64::MAX >> 8, u64::MAX] {
            let home = InodeTable::home(InodeNumber::new(number));
            assert_eq!(homes.place(home), None, "{number}");
        }
    }

    #[test]
    fn numbers_are_taken_over_by_the_batch_and_none_is_lost() {
        let table = InodeTable::new(RawInode::ZERO, 2);
        let all: Vec<u32> = (2..300).rev().collect();
        table.add_free(1, &all);
        assert_eq!(table.take_over(0), Some(InodeNumber::new(2)));
        let own = table.free[0].0.lock().clone();
        assert_eq!(own, (3..67).rev().collect::<Vec<u32>>());
        let mut rest = table.free_numbers();
        rest.sort_unstable();
        assert_eq!(rest, (3..300).collect::<Vec<u32>>());
        // The last one of a list goes as well.
        let table = InodeTable::new(RawInode::ZERO, 2);
        table.add_free(1, &[9]);
        assert_eq!(table.take_over(0), Some(InodeNumber::new(9)));
        assert_eq!(table.take_over(0), None);
    }
}
