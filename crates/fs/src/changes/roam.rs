//! Hot blocks roam: what is changed in place over and over does not stay where it is.
//!
//! Data that is overwritten by the block goes to a fresh place each time; inodes, names, pointers and small pieces of data do not, so a few blocks would take
//! the writes of the whole pool. SanGuo (section III.B) levels what it allocates; this levels the rest.
//! [Lots](crate::mounted::roaming) say which block moves.
//!
//! A move is a transaction of its own, right behind the operation that drew the lot and under its locks; blocks of the inode table, which belong to sixteen
//! inodes, move while all journals are held (`txn::homes`). Failing to move, for want of room for instance, is no failure of the operation.

use super::relocate::move_one;
use crate::block_map::{BlockMap, Slot};
use crate::format::{InodeNumber, Pointer};
use crate::inode::node::Body;
use crate::mounted::file_system::Core;
use crate::mounted::roaming::{Change, note};
use crate::values::error::FsError;
use pmem::{BlockNumber, LINE_BYTES};
use scatter::DomainId;
use std::ops::Range;
use txn::Store;

impl<S: Store> Core<S> {
    /// Draws the lots of a change of bytes `in_block` of `block`, in place; that is block `index` of a file that the caller has locked.
    #[inline]
    pub(crate) fn changed_data(
        &self,
        number: InodeNumber,
        body: &mut Body,
        (index, block): (u64, BlockNumber),
        in_block: Range<usize>,
    ) {
        let lines = in_block.end.div_ceil(LINE_BYTES) - in_block.start / LINE_BYTES;
        if self.roaming.draw_lines(lines as u32) {
            self.store.allocator().charge(block, 1);
        }
        if self.roaming.draw(Change::Data) {
            self.move_block(number, body, index, Change::Data);
        }
    }

    /// Moves block `index` of a file or directory that the caller has locked.
    #[cold]
    #[inline(never)]
    pub(crate) fn move_block(
        &self,
        number: InodeNumber,
        body: &mut Body,
        index: u64,
        change: Change,
    ) {
        let moved = self.try_move_block(number, body, index, change);
        note("a block", number, moved);
    }

    fn try_move_block(
        &self,
        number: InodeNumber,
        body: &mut Body,
        index: u64,
        change: Change,
    ) -> Result<(), FsError> {
        let map = BlockMap::of(number, &body.raw);
        let slot = map.slot(&self.store, index)?;
        match map.pointer(&self.store, slot, index)? {
            Some(Pointer::Written(from)) => {
                let home = (from, body.domain);
                move_one(self, number, body, home, slot, |to| map.word(index, to))?;
                self.charge_moved(from, change);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Moves the lowest node on the way to block `index` of a file that the caller has locked.
    #[cold]
    #[inline(never)]
    pub(crate) fn move_node(&self, number: InodeNumber, body: &mut Body, index: u64) {
        note("a node", number, self.try_move_node(number, body, index));
    }

    fn try_move_node(
        &self,
        number: InodeNumber,
        body: &mut Body,
        index: u64,
    ) -> Result<(), FsError> {
        let map = BlockMap::of(number, &body.raw);
        let Slot::Word(at) = map.slot(&self.store, index)? else {
            return Ok(());
        };
        let slot = map.node_slot(&self.store, index)?;
        let home = (at.block(), DomainId::METADATA);
        move_one(self, number, body, home, slot, |to| {
            map.node_word(index, to)
        })?;
        self.charge_moved(home.0, Change::Pointer);
        Ok(())
    }

    fn charge_moved(&self, from: BlockNumber, change: Change) {
        let wear_blocks = self.roaming.wear_blocks(change);
        self.store.allocator().charge(from, wear_blocks);
    }
}

#[cfg(test)]
mod tests {

    use pmem::BLOCK_BYTES;
    use txn::{Metadata, PoolState};

    /// What the allocator levels by is what went to the medium, pieces of data in place included.
    #[test]
    fn the_allocator_knows_what_is_appended_in_pieces() {
        let filesystem = crate::testing::empty(64 << 20);
        let new = crate::NewInode::file(0o600);
        let log = filesystem.create_unnamed(&new).expect("a file");
        let store = filesystem.store();
        let known = || store.allocator().wear().iter().sum::<u64>();
        let before = known();
        store.region().record_wear();
        for _ in 0..20_000 {
            filesystem.append(&log, &[7; 512]).expect("room");
        }
        filesystem.checkpoint();
        let geometry = store.geometry();
        let written: u64 = store.region().wear()[geometry.header_blocks as usize..]
            .iter()
            .sum();
        let (known, written) = (known() - before, written / BLOCK_BYTES as u64);
        assert!(
            known.abs_diff(written) < written / 10,
            "{known} of {written} blocks"
        );
    }
}
