//! The interface of a device.

use crate::block::{DeviceBlock, Run};
use pmem::BLOCK_BYTES;

/// One block to be read.
#[derive(Debug)]
pub struct ReadRequest<'b> {
    /// The block.
    pub block: DeviceBlock,
    /// Where its bytes go. After an error they may be anything.
    pub into: &'b mut [u8; BLOCK_BYTES],
}

/// Blocks to be written.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest<'b> {
    /// The first of them.
    pub start: DeviceBlock,
    /// Their bytes: a whole number of blocks, one at least.
    pub bytes: &'b [u8],
}

/// Stands for a write that was begun.
#[derive(Debug, Eq, PartialEq)]
#[must_use = "a write that nobody waits for may have failed"]
pub struct Token(pub u64);

/// Why a device did not do what it was asked for. Nothing that it was asked for can be believed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device is not there: it was not found, or it is gone.
    #[error("the device is not there")]
    Missing,
    /// The device says that it cannot.
    #[error("the device failed: {0}")]
    Failed(String),
    /// A flush failed since the write was begun, so the write may be lost although it was
    /// acknowledged.
    #[error("a flush of the device failed, and what was written before it may be lost")]
    FlushFailed,
    /// The bytes are not those that were written last: the device gave other, old or torn ones.
    #[error("the device gave other bytes than were written there")]
    OtherBytes,
}

/// Where data blocks are that are not memory.
///
/// Every method may be called by any number of threads at a time, may take milliseconds, and is
/// never called while a journal or the lock of an inode is held (D3). After an error a later call
/// may succeed: the device is asked again each time.
pub trait Device: Send + Sync + std::fmt::Debug + 'static {
    /// Geometry: blocks that it has.
    fn blocks(&self) -> u64;

    /// Reads blocks, in any order.
    ///
    /// # Errors
    ///
    /// One of them could not be read; the outcome of the others is open as well.
    fn read(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError>;

    /// Begins to write blocks. The bytes are the caller's again when this returns.
    ///
    /// # Errors
    ///
    /// Nothing was begun, or some of it was: the blocks hold anything.
    fn write(&self, requests: &[WriteRequest<'_>]) -> Result<Token, DeviceError>;

    /// Returns when the write is done, or can have no effect any more: the blocks may be used anew.
    /// The next [`flush`](Self::flush) makes it durable.
    ///
    /// # Errors
    ///
    /// The write failed; the blocks hold anything.
    fn wait(&self, token: Token) -> Result<(), DeviceError>;

    /// Makes every write durable that [`wait`](Self::wait) has returned for.
    ///
    /// # Errors
    ///
    /// Any write since the last flush that succeeded may be lost. A device may report that only
    /// once; see [`Flushes`](crate::Flushes).
    fn flush(&self) -> Result<(), DeviceError>;

    /// Tells the device that the content of these blocks is not needed. The device may forget it,
    /// or do nothing. It does not wait, because the caller may hold locks.
    fn trim(&self, runs: &[Run]);
}
