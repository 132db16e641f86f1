//! The interface of a transaction.

use crate::device::DeviceFault;
use crate::homes::HomeOffset;
use device::{DeviceBlock, Runs, Twin};
use pmem::{BlockNumber, Offset};
use scatter::{DomainId, Extent, Extents, OutOfSpace, Purpose};

/// Why a transaction could not be committed. Nothing of it happened.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CommitError {
    /// The record is larger than half a journal.
    #[error(
        "a change of {bytes} bytes of metadata does not fit the journal ({maximum} bytes); make the pool with larger journals or split the operation"
    )]
    TooLarge {
        /// Bytes of the record.
        bytes: usize,
        /// Largest record.
        maximum: usize,
    },
    /// Data did not reach the device.
    #[error(transparent)]
    Device(Box<DeviceFault>),
}

impl From<DeviceFault> for CommitError {
    #[cold]
    fn from(fault: DeviceFault) -> CommitError {
        CommitError::Device(Box::new(fault))
    }
}

/// One operation's changes: all or nothing, durable when [`commit`](Transaction::commit) returns.
///
/// Dropping a transaction aborts it: its blocks go back, nothing else happened.
pub trait Transaction {
    /// Changes `bytes` of metadata at `at`. Visible to loads only after commit.
    fn store(&mut self, at: Offset, bytes: &[u8]);
    /// Changes `bytes` of metadata at `home`, which lie in one block, wherever that block is at the
    /// commit.
    fn store_at_home(&mut self, home: HomeOffset, bytes: &[u8]);
    /// Moves block `index` of the [homes](crate::Homes) to `to`, a block that this transaction
    /// took, with its content at the commit.
    ///
    /// The transaction also changes the pointer to the block and frees the old one, and it writes
    /// no other data. It may invalidate the old one, so that no reader takes it for the block.
    fn move_home(&mut self, index: u64, to: BlockNumber);
    /// Changes the 8 bytes at `at`.
    fn store_word(&mut self, at: Offset, word: u64);
    /// Fills metadata with zeros.
    fn zero(&mut self, at: Offset, length: usize);
    /// Takes `blocks` fresh blocks, in as few runs as possible.
    ///
    /// # Errors
    ///
    /// [`OutOfSpace`]; nothing is taken then.
    fn allocate(
        &mut self,
        domain: DomainId,
        blocks: u32,
        purpose: Purpose,
    ) -> Result<Extents, OutOfSpace>;
    /// Takes one fresh block.
    ///
    /// # Errors
    ///
    /// [`OutOfSpace`]; nothing is taken then.
    fn allocate_one(
        &mut self,
        domain: DomainId,
        purpose: Purpose,
    ) -> Result<BlockNumber, OutOfSpace>;
    /// Writes bulk data directly into a block taken by this transaction, or one that no record ever
    /// published as written (R2). It becomes reachable and durable with the commit.
    ///
    /// A single piece that the transaction does not change otherwise shares the fence of the
    /// record; any other data costs one more.
    fn write_fresh(&mut self, block: BlockNumber, offset: usize, bytes: &[u8]);
    /// Takes the journal ahead of the commit: call it when all locks of the operation are held and
    /// before the first [`write_fresh`](Self::write_fresh) of much data.
    ///
    /// A locked instruction waits for all streaming stores. After this call the commit executes
    /// none before the record is on its way.
    fn take_turn(&mut self);
    /// Names an object that the transaction changes, whose lock is held: an answer that shows it
    /// waits for this change, where calls are durable when they return.
    fn concerns(&mut self, object: u64);
    /// Gives blocks back. They are not reused before this transaction is retired (R1).
    fn free(&mut self, extent: Extent);
    /// Takes fresh blocks of the device, in as few runs as possible; `None` if there are not so
    /// many, or there is no device. It may wait for a checkpoint, so call it before locks are
    /// taken.
    fn allocate_device(&mut self, blocks: u32) -> Option<Runs>;
    /// Begins to write whole blocks of the device, taken by this transaction. They become reachable
    /// and durable with the commit.
    ///
    /// # Errors
    ///
    /// [`DeviceFault`]; the transaction can only be dropped then.
    fn write_device(&mut self, start: DeviceBlock, bytes: &[u8]) -> Result<(), DeviceFault>;
    /// Waits until all writes to the device are durable. The commit does so as well, but while the
    /// operation's locks are held: call it before they are taken.
    ///
    /// # Errors
    ///
    /// [`DeviceFault`]; the transaction can only be dropped then.
    fn redeem(&mut self) -> Result<(), DeviceFault>;
    /// Notes that this transaction changes a data block in place. Its commit tells the device's
    /// part of the pool, which may have a copy of the block.
    fn changes_in_place(&mut self, block: BlockNumber);
    /// Seals blocks of the device that were written before this transaction, durably, so that the
    /// record can point to them. They are the caller's until the commit.
    fn adopt_device(&mut self, twins: &[Twin]);
    /// Gives a block of the device back. It is not reused before this transaction is retired, and
    /// its readers have left (R1, D4).
    fn free_device(&mut self, block: DeviceBlock);
    /// Bytes that the record has now, and the most it may have.
    fn record_bytes(&self) -> (usize, usize);
    /// Makes everything durable and visible, in this order. Afterwards the transaction can only be
    /// dropped.
    ///
    /// Takes `&mut self`: moving the struct would stall on store forwarding (narrow stores, wide
    /// load) behind the data's stores.
    ///
    /// # Errors
    ///
    /// [`CommitError`]; nothing happened, and dropping the transaction aborts it.
    fn commit(&mut self) -> Result<(), CommitError>;
}
