//! One operation: a transaction and what it charges to quotas.

use crate::error::FsError;
use crate::file_system::Core;
use crate::format::{InodeNumber, RawInode};
use crate::quota::Charges;
use pmem::{BlockNumber, Offset};
use scatter::{DomainId, Extent, Extents, OutOfSpace, Purpose};
use txn::{CommitError, Store, Transaction};
use zerocopy::IntoBytes;

/// A transaction of the mounted file system. Dropping it aborts: charges go back, nothing happened.
pub(crate) struct Operation<'c, S: Store> {
    core: &'c Core<S>,
    transaction: S::Transaction<'c>,
    charges: Charges<'c>,
}

impl<S: Store> Core<S> {
    /// Starts an operation.
    #[inline]
    pub(crate) fn begin(&self) -> Operation<'_, S> {
        Operation {
            core: self,
            transaction: self.store.begin(),
            charges: Charges::new(&self.quotas),
        }
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
        self.charges.charge(old, new)?;
        new.log_changes(
            old,
            number,
            self.core.inode_offset(number),
            &mut self.transaction,
        );
        Ok(())
    }
}

impl<S: Store> Transaction for Operation<'_, S> {
    #[inline]
    fn store(&mut self, at: Offset, bytes: &[u8]) {
        self.transaction.store(at, bytes);
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
    fn free(&mut self, extent: Extent) {
        self.transaction.free(extent);
    }

    #[inline]
    fn record_bytes(&self) -> (usize, usize) {
        self.transaction.record_bytes()
    }

    #[inline]
    fn commit(&mut self) -> Result<(), CommitError> {
        self.transaction.commit()?;
        self.charges.keep();
        Ok(())
    }
}
