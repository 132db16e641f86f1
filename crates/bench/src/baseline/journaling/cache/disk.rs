//! The disk below a cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Device, DeviceBlock, DeviceError, Flushes, ReadRequest, WriteRequest};

use super::{Block, Counts};
use crate::baseline::journaling::deliberate::{self, Bug};

/// The disk, and the number of requests to it.
#[derive(Debug)]
pub(super) struct Disk {
    device: Arc<dyn Device>,
    flushes: Flushes,
    blocks_read: AtomicU64,
    blocks_written: AtomicU64,
    flushed: AtomicU64,
}

impl Disk {
    pub(super) fn new(device: Arc<dyn Device>) -> Disk {
        Disk {
            device,
            flushes: Flushes::default(),
            blocks_read: AtomicU64::new(0),
            blocks_written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
        }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.device.blocks()
    }

    /// Reads blocks in one request.
    pub(super) fn read(&self, blocks: &mut [(DeviceBlock, Box<Block>)]) -> Result<(), DeviceError> {
        let mut requests: Vec<ReadRequest<'_>> = blocks
            .iter_mut()
            .map(|(block, into)| ReadRequest {
                block: *block,
                into,
            })
            .collect();
        self.blocks_read
            .fetch_add(requests.len() as u64, Ordering::Relaxed);
        self.device.read(&mut requests)
    }

    /// Writes blocks and flushes the disk: they are durable when this returns.
    pub(super) fn write_durably(
        &self,
        blocks: &[(DeviceBlock, Box<Block>)],
    ) -> Result<(), DeviceError> {
        let begun = self.flushes.now();
        let requests: Vec<WriteRequest<'_>> = blocks
            .iter()
            .map(|(block, content)| WriteRequest {
                start: *block,
                bytes: &content[..],
            })
            .collect();
        self.blocks_written
            .fetch_add(blocks.len() as u64, Ordering::Relaxed);
        let written = self.device.write(&requests);
        let waited = written.and_then(|token| self.device.wait(token));
        if deliberate::is(Bug::BelieveDisk) {
            return Ok(());
        }
        waited?;
        if deliberate::is(Bug::EvictWithoutDiskFlush) {
            return Ok(());
        }
        self.flushed.fetch_add(1, Ordering::Relaxed);
        self.flushes.flush(&*self.device, begun)
    }

    pub(super) fn add_counts(&self, counts: &mut Counts) {
        counts.disk_blocks_read += self.blocks_read.load(Ordering::Relaxed);
        counts.disk_blocks_written += self.blocks_written.load(Ordering::Relaxed);
        counts.disk_flushes += self.flushed.load(Ordering::Relaxed);
    }
}
