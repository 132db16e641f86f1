//! One operation: a transaction and what it charges to quotas.

use crate::format::inode::INODES_PER_BLOCK;
use crate::format::{InodeNumber, RawInode};
use crate::inode::table::InodeTable;
use crate::mounted::file_system::Core;
use crate::mounted::quotas::Charges;
use crate::mounted::roaming::{Change, note};
use crate::values::error::FsError;
use crate::values::quota::Subject;
use device::{DeviceBlock, Runs, Twin};
use pmem::{BlockNumber, Offset};
use scatter::{DomainId, Extent, Extents, OutOfSpace, Purpose};
use txn::{CommitError, DeviceFault, HomeOffset, Store, Transaction};
use zerocopy::IntoBytes;

/// A transaction of the mounted file system. Dropping it aborts: charges go back, nothing happened.
pub(crate) struct Operation<'c, S: Store> {
    core: &'c Core<S>,
    transaction: S::Transaction<'c>,
    charges: Charges<'c>,
    /// Whose block of the inode table moves after the commit.
    roamer: Option<InodeNumber>,
}

impl<S: Store> Core<S> {
    /// Starts an operation.
    #[inline]
    pub(crate) fn begin(&self) -> Operation<'_, S> {
        Operation {
            core: self,
            transaction: self.store.begin(),
            charges: Charges::new(&self.quotas),
            roamer: None,
        }
    }

    /// Moves the block of the inode table that holds `number`.
    #[cold]
    #[inline(never)]
    fn move_inode(&self, number: InodeNumber) {
        let index = number.get() / INODES_PER_BLOCK;
        let moved = self
            .table
            .move_block(&self.store, index, self.roaming.wear_blocks(Change::Inode))
            .map(drop);
        note("a block of the inode table", number, moved);
    }
}

impl<S: Store> Operation<'_, S> {
    /// Logs `new` as the version of the inode that follows `old`, and charges the difference to its owner. Often there is none: a
    /// directory that gets two names within one tick of the clock.
    ///
    /// # Errors
    ///
    /// [`FsError::QuotaExceeded`].
    #[inline]
    pub(crate) fn log_inode(
        &mut self,
        number: InodeNumber,
        old: &RawInode,
        new: &mut RawInode,
    ) -> Result<(), FsError> {
        if new.as_bytes() == old.as_bytes() {
            return Ok(());
        }
        match self.charges.charge(old, new) {
            Err(FsError::QuotaExceeded(subject)) => self.charge_again(subject, old, new)?,
            charged => charged?,
        }
        self.log_charged(number, old, new);
        Ok(())
    }

    /// Counts anew what processes keep: this very operation may use some of it.
    #[cold]
    fn charge_again(
        &mut self,
        subject: Subject,
        old: &RawInode,
        new: &RawInode,
    ) -> Result<(), FsError> {
        if !self.core.quotas.counts_kept(subject) {
            return Err(FsError::QuotaExceeded(subject));
        }
        self.core.count_kept();
        self.charges.charge(old, new)
    }

    /// The same for what somebody was told is durable: no limit refuses it.
    pub(crate) fn log_promised(&mut self, number: InodeNumber, old: &RawInode, new: &mut RawInode) {
        if new.as_bytes() != old.as_bytes() {
            self.charges.charge_promised(old, new);
            self.log_charged(number, old, new);
        }
    }

    #[inline]
    fn log_charged(&mut self, number: InodeNumber, old: &RawInode, new: &mut RawInode) {
        if self.core.roaming.draw(Change::Inode) {
            self.roamer = Some(number);
        }
        self.transaction.concerns(number.get());
        let home = InodeTable::home(number);
        new.log_changes(old, number, |at, bytes| {
            self.transaction.store_at_home(home + at, bytes);
        });
    }
}

impl<S: Store> Transaction for Operation<'_, S> {
    #[inline]
    fn store(&mut self, at: Offset, bytes: &[u8]) {
        self.transaction.store(at, bytes);
    }

    #[inline]
    fn store_at_home(&mut self, home: HomeOffset, bytes: &[u8]) {
        self.transaction.store_at_home(home, bytes);
    }

    fn move_home(&mut self, index: u64, to: BlockNumber) {
        self.transaction.move_home(index, to);
    }

    #[inline]
    fn store_word(&mut self, at: Offset, word: u64) {
        self.transaction.store_word(at, word);
    }

    #[inline]
    fn zero(&mut self, at: Offset, length: usize) {
        self.transaction.zero(at, length);
    }

    #[inline]
    fn allocate(
        &mut self,
        domain: DomainId,
        blocks: u32,
        purpose: Purpose,
    ) -> Result<Extents, OutOfSpace> {
        self.transaction.allocate(domain, blocks, purpose)
    }

    #[inline]
    fn allocate_one(
        &mut self,
        domain: DomainId,
        purpose: Purpose,
    ) -> Result<BlockNumber, OutOfSpace> {
        self.transaction.allocate_one(domain, purpose)
    }

    #[inline]
    fn write_fresh(&mut self, block: BlockNumber, offset: usize, bytes: &[u8]) {
        self.transaction.write_fresh(block, offset, bytes);
    }

    #[inline]
    fn take_turn(&mut self) {
        self.transaction.take_turn();
    }

    #[inline]
    fn concerns(&mut self, object: u64) {
        self.transaction.concerns(object);
    }

    #[inline]
    fn free(&mut self, extent: Extent) {
        self.transaction.free(extent);
    }

    fn allocate_device(&mut self, blocks: u32) -> Option<Runs> {
        self.transaction.allocate_device(blocks)
    }

    fn write_device(&mut self, start: DeviceBlock, bytes: &[u8]) -> Result<(), DeviceFault> {
        self.transaction.write_device(start, bytes)
    }

    fn redeem(&mut self) -> Result<(), DeviceFault> {
        self.transaction.redeem()
    }

    fn changes_in_place(&mut self, block: BlockNumber) {
        self.transaction.changes_in_place(block);
    }

    fn adopt_device(&mut self, twins: &[Twin]) {
        self.transaction.adopt_device(twins);
    }

    fn free_device(&mut self, block: DeviceBlock) {
        self.transaction.free_device(block);
    }

    #[inline]
    fn record_bytes(&self) -> (usize, usize) {
        self.transaction.record_bytes()
    }

    #[inline]
    fn commit(&mut self) -> Result<(), CommitError> {
        self.transaction.commit()?;
        self.charges.keep();
        if let Some(number) = self.roamer {
            self.core.move_inode(number);
        }
        Ok(())
    }
}
