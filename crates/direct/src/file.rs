//! skeleton
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

/// A file of a mount in this process. Any number of threads may use it at once.
///
/// Each operation is done as a whole, or it returns `None` and did nothing: then the caller asks the kernel. `descriptor` must be one of the file that is open for what the operation does.
#[derive(Debug)]
pub struct File {}

impl File {
    /// Reads as `preadv`: bytes read, 0 at the end of the file.
    pub fn read_at(
        &self,
        _descriptor: BorrowedFd<'_>,
        _into: &mut [IoSliceMut<'_>],
        _offset: u64,
    ) -> Option<usize> {
        None
    }
    /// Writes as `pwritev`, durable at return: bytes written, which are all.
    pub fn write_at(
        &self,
        _descriptor: BorrowedFd<'_>,
        _data: &[IoSlice<'_>],
        _offset: u64,
    ) -> Option<usize> {
        None
    }
    /// Writes at the end of the file, wherever that is: bytes written, and the end of the file behind them.
    pub fn append(
        &self,
        _descriptor: BorrowedFd<'_>,
        _data: &[IoSlice<'_>],
    ) -> Option<(usize, u64)> {
        None
    }
    /// Bytes of the file, if this process knows.
    pub fn size_bytes(&self) -> Option<u64> {
        None
    }
    /// Whether all that this process has written to the file is durable without asking anybody, and nobody else can have written: `fsync` has nothing left to do.
    pub fn is_durable(&self) -> bool {
        false
    }
    /// A descriptor of the file was opened for the kernel's eyes only (mapped, submitted to io_uring …): counts it, so that `perdure stat --clients` can say why.
    pub fn count_kernel_path(&self) {}
    /// The last descriptor of this process is closed: lets the file go. Using it again attaches it again.
    pub fn close(&self) {}
}
