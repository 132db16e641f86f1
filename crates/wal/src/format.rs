//! Makes a log.

use crate::ring::Ring;
use crate::root::{Root, write_root};
use crate::{AlignedBuffer, Disk, LogError, ROOTS_BYTES};
use pmem::crc32c;
use std::sync::Arc;

/// Zeros of one write.
const WRITE_BYTES: usize = 4 << 20;

/// Makes a log: writes every byte of the ring once, flushes, and writes both roots. Calls
/// `progress` with the bytes written and the bytes in all. The first batch is number 1; the image
/// has all records up to `sequence`.
pub fn format(
    disk: &dyn Disk,
    identity: [u8; 16],
    sequence: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), LogError> {
    let ring = Ring::in_file(disk.length_bytes(), disk)?;
    let end = ROOTS_BYTES + ring.bytes;
    let mut zeros = AlignedBuffer::new();
    zeros.resize(WRITE_BYTES.min(ring.bytes as usize));
    // The roots first: the roots of an older log must not lead into a ring that is half erased.
    let mut at = 0;
    while at < end {
        let bytes = if at == 0 {
            ROOTS_BYTES
        } else {
            (end - at).min(WRITE_BYTES as u64)
        } as usize;
        let write = |at, bytes| {
            if at == 0 {
                disk.write_durable(at, bytes)
            } else {
                disk.write(at, bytes)
            }
        };
        write(at, &zeros[..bytes]).map_err(|error| LogError::Write {
            disk: disk.name(),
            at,
            bytes,
            error: Arc::new(error),
        })?;
        at += bytes as u64;
        progress(at - ROOTS_BYTES, ring.bytes);
    }
    disk.flush().map_err(|error| LogError::Flush {
        disk: disk.name(),
        error: Arc::new(error),
    })?;
    for generation in [1, 2] {
        let root = Root {
            generation,
            epoch: 0,
            position: 0,
            number: 1,
            previous: crc32c(&identity),
            sequence,
            user: 0,
            files: 0,
        };
        write_root(disk, &root, identity, ring)?;
    }
    Ok(())
}
