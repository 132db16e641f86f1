//! Content of files: reads into a buffer that each thread keeps, writes, holes, copies.

use std::cell::RefCell;

use fs::AllocateOptions;
use fuser::{Errno, INodeNo, WriteFlags};
use txn::Store;

use super::Handler;
use crate::edge::Refusal;

/// fuser's own limit of a request. The kernel asks for 1 MiB at most unless its administrator allows more.
const READ_BYTES_MAX: usize = 16 << 20;

/// One step of `copy_file_range`, and one transaction of its target.
const COPY_STEP_BYTES: usize = 1 << 20;

/// A longer copy is answered as a short one, and the caller asks again: no request keeps a thread for long.
const COPY_BYTES_MAX: u64 = 16 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with this thread's buffer, `bytes` long. Its content is left over from the use before.
pub(super) fn with_buffer<T>(bytes: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        work(&mut buffer[..bytes])
    })
}

/// The length of a read, if it is one that the kernel can ask for.
pub(super) fn checked_read_length(size: u32) -> Option<usize> {
    usize::try_from(size)
        .ok()
        .filter(|bytes| *bytes <= READ_BYTES_MAX)
}

impl<S: Store> Handler<S> {
    pub(super) fn read_into(
        &self,
        number: INodeNo,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, Refusal> {
        let bytes = self.fs().read(&self.node(number)?, offset, into)?;
        self.shared.statistics.add_read_bytes(bytes);
        Ok(bytes)
    }

    pub(super) fn write_from(
        &self,
        number: INodeNo,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u32, Refusal> {
        let node = self.node(number)?;
        if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            self.drop_set_id(&node)?;
        }
        let written = self.fs().write(&node, offset, data)?;
        self.shared.statistics.add_written_bytes(written);
        Ok(written as u32)
    }

    pub(super) fn allocate_range(
        &self,
        number: INodeNo,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<(), Refusal> {
        const OFFERED: i32 =
            libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if mode & !OFFERED != 0 {
            return Err(Refusal::Request(
                Errno::EOPNOTSUPP,
                "this mode of fallocate is not offered",
            ));
        }
        let options = AllocateOptions {
            keep_size: mode & libc::FALLOC_FL_KEEP_SIZE != 0,
            punch_hole: mode & libc::FALLOC_FL_PUNCH_HOLE != 0,
            zero_range: mode & libc::FALLOC_FL_ZERO_RANGE != 0,
        };
        Ok(self
            .fs()
            .allocate(&self.node(number)?, offset, length, options)?)
    }

    pub(super) fn seek(&self, number: INodeNo, offset: i64, whence: i32) -> Result<i64, Refusal> {
        let beyond = Refusal::Request(Errno::ENXIO, "offset outside of the file");
        let start = u64::try_from(offset).map_err(|_| beyond)?;
        let node = self.node(number)?;
        let found = match whence {
            libc::SEEK_DATA => self.fs().seek_data(&node, start)?,
            libc::SEEK_HOLE => self.fs().seek_hole(&node, start)?,
            _ => {
                return Err(Refusal::Request(
                    Errno::EINVAL,
                    "only SEEK_DATA and SEEK_HOLE come here",
                ));
            }
        };
        i64::try_from(found)
            .map_err(|_| Refusal::Request(Errno::EOVERFLOW, "offset beyond what lseek can say"))
    }

    /// Copies inside the server. The kernel has written back the source's dirty pages, drops the target's, and refuses
    /// ranges of one file that overlap. Each step is a transaction.
    pub(super) fn copy_range(
        &self,
        (from, mut from_offset): (INodeNo, u64),
        (to, mut to_offset): (INodeNo, u64),
        length: u64,
    ) -> Result<u32, Refusal> {
        let (source, target) = (self.node(from)?, self.node(to)?);
        let wanted = length.min(COPY_BYTES_MAX);
        let mut copied = 0;
        with_buffer(COPY_STEP_BYTES, |buffer| {
            while copied < wanted {
                let step = (wanted - copied).min(COPY_STEP_BYTES as u64) as usize;
                let bytes = self.fs().read(&source, from_offset, &mut buffer[..step])?;
                if bytes == 0 {
                    break;
                }
                match self.fs().write(&target, to_offset, &buffer[..bytes]) {
                    Ok(_) => {}
                    // What was copied stays copied; the next request meets the error again.
                    Err(_) if copied > 0 => break,
                    Err(error) => return Err(error.into()),
                }
                copied += bytes as u64;
                from_offset += bytes as u64;
                to_offset += bytes as u64;
            }
            self.shared.statistics.add_written_bytes(copied as usize);
            Ok(copied as u32)
        })
    }
}
