//! Nodes of a leased file's block map, from the blocks that its lease keeps for them.

use crate::mounted::operation::Operation;
use device::{DeviceBlock, Runs, Twin};
use pmem::{BlockNumber, Offset};
use scatter::{DomainId, Extent, Extents, OutOfSpace, Purpose};
use txn::{CommitError, DeviceFault, HomeOffset, Store, Transaction};

/// A transaction that takes nodes of the file's block map from those that the lease has: acknowledged appends are folded even if the pool is full.
pub(super) struct WithNodes<'t, 'c, S: Store> {
    pub(super) inner: &'t mut Operation<'c, S>,
    pub(super) nodes: Vec<(u64, BlockNumber)>,
    /// Places in the lease of those that were taken.
    pub(super) used: Vec<u64>,
}

impl<S: Store> Transaction for WithNodes<'_, '_, S> {
    fn store(&mut self, at: Offset, bytes: &[u8]) {
        self.inner.store(at, bytes);
    }

    fn store_at_home(&mut self, home: HomeOffset, bytes: &[u8]) {
        self.inner.store_at_home(home, bytes);
    }

    fn move_home(&mut self, index: u64, to: BlockNumber) {
        self.inner.move_home(index, to);
    }

    fn store_word(&mut self, at: Offset, word: u64) {
        self.inner.store_word(at, word);
    }

    fn zero(&mut self, at: Offset, length: usize) {
        self.inner.zero(at, length);
    }

    fn allocate(
        &mut self,
        domain: DomainId,
        blocks: u32,
        purpose: Purpose,
    ) -> Result<Extents, OutOfSpace> {
        self.inner.allocate(domain, blocks, purpose)
    }

    fn allocate_one(
        &mut self,
        domain: DomainId,
        purpose: Purpose,
    ) -> Result<BlockNumber, OutOfSpace> {
        match self.nodes.pop() {
            Some((index, block)) => {
                self.used.push(index);
                Ok(block)
            }
            None => self.inner.allocate_one(domain, purpose),
        }
    }

    fn write_fresh(&mut self, block: BlockNumber, offset: usize, bytes: &[u8]) {
        self.inner.write_fresh(block, offset, bytes);
    }

    fn take_turn(&mut self) {
        self.inner.take_turn();
    }

    fn concerns(&mut self, object: u64) {
        self.inner.concerns(object);
    }

    fn free(&mut self, extent: Extent) {
        self.inner.free(extent);
    }

    fn allocate_device(&mut self, blocks: u32) -> Option<Runs> {
        self.inner.allocate_device(blocks)
    }

    fn write_device(&mut self, start: DeviceBlock, bytes: &[u8]) -> Result<(), DeviceFault> {
        self.inner.write_device(start, bytes)
    }

    fn redeem(&mut self) -> Result<(), DeviceFault> {
        self.inner.redeem()
    }

    fn changes_in_place(&mut self, block: BlockNumber) {
        self.inner.changes_in_place(block);
    }

    fn adopt_device(&mut self, twins: &[Twin]) {
        self.inner.adopt_device(twins);
    }

    fn free_device(&mut self, block: DeviceBlock) {
        self.inner.free_device(block);
    }

    fn record_bytes(&self) -> (usize, usize) {
        self.inner.record_bytes()
    }

    fn commit(&mut self) -> Result<(), CommitError> {
        self.inner.commit()
    }
}
