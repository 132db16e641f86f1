//! Records that only a killed server's memory has become durable before recovery retires them
//! there (L4): another kill would find them in no journal.
//!
//! If the ring has no room for them, the image gets what the log has, and the log is trimmed. The
//! memory cannot be written to the image instead: it has the records that the log lacks (L3).

use super::batch::{self, BatchBuilder};
use super::cut::BATCHES_OF_RING;
use super::dirty::DirtyBlocks;
use super::image::Image;
use super::is_inside;
use super::reader::Read;
use crate::error::{Corruption, OpenError};
use crate::layout::Superblock;
use crate::pool::io_error;
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, DurabilityClass, Offset, Region};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;
use wal::{AlignedBuffer, Log, LogError};

/// Blocks of one write.
const RUN_BLOCKS_MAX: usize = 256;

/// Memory of a killed server, and its disks.
pub(super) struct Tail<'t> {
    pub(super) path: &'t Path,
    pub(super) superblock: &'t Superblock,
    pub(super) region: &'t Region,
    pub(super) dirty: &'t DirtyBlocks,
    pub(super) log: &'t Log,
    pub(super) image: &'t Image,
}

impl Tail<'_> {
    /// Logs the records that only memory has, in the order of their numbers.
    pub(super) fn save(&self, records: Vec<Read>) -> Result<(), OpenError> {
        if deliberate::is(Bug::ForgetTail) {
            return Ok(());
        }
        let mut records = VecDeque::from(records);
        let mut is_first = true;
        while let Some(first) = records.front().map(|read| read.sequence) {
            let mut batch = self.next_batch(&mut records);
            if is_first {
                // Not older than any record (L7).
                let geometry = self.superblock.geometry();
                let [table, end] =
                    [0, geometry.segments].map(|index| geometry.segment_entry(index));
                batch.copy(table, end.get() - table.get());
                is_first = false;
            }
            let last = batch.last;
            let bytes = batch.payload_bytes();
            let mut placed = self.log.place(batch.finish().0, first, last, true);
            if let Err(wal::Full(again)) = placed {
                self.make_room()?;
                placed = self.log.place(again, first, last, true);
            }
            let placed = placed.map_err(|_| OpenError::TailTooLarge {
                path: self.path.to_path_buf(),
                bytes,
            })?;
            self.log.write(placed).map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// Data is as the last record left it, so a batch has all records that changed what it copies
    /// (L2).
    fn next_batch(&self, records: &mut VecDeque<Read>) -> BatchBuilder<'_> {
        let mut batch = BatchBuilder::new(self.region, self.dirty, self.log.buffer());
        let wanted = self.log.ring_bytes() / BATCHES_OF_RING;
        while batch.payload_bytes() < wanted as usize
            && let Some(read) = records.pop_front()
        {
            batch.add(&read);
        }
        while let Some(changing) = records.iter().rposition(|read| batch.is_changed_by(read)) {
            for read in records.drain(..=changing) {
                batch.add(&read);
            }
        }
        batch
    }

    /// The image gets what the log has, and the log is trimmed.
    fn make_room(&self) -> Result<(), OpenError> {
        let bytes = self.superblock.geometry().total_bytes();
        let state = Region::anonymous_of(bytes, DurabilityClass::Log);
        let loaded = DirtyBlocks::new(bytes);
        let mut fault = None;
        let read = self.log.reopen().read(&mut |batch| {
            if fault.is_none() {
                fault = self.apply(&state, &loaded, batch.payload).err();
            }
        });
        read.map_err(|error| self.failed(error))?;
        if let Some(fault) = fault {
            return Err(fault);
        }
        self.write(&state, &loaded.take())
            .map_err(io_error(self.path, "write the image beside it"))?;
        let advanced = self.log.advance(self.log.durable_root());
        advanced.map_err(|error| self.failed(error))
    }

    /// Applies a batch to the image's blocks, which are read if they were not yet.
    fn apply(&self, state: &Region, loaded: &DirtyBlocks, payload: &[u8]) -> Result<(), OpenError> {
        let geometry = self.superblock.geometry();
        let mut buffer = AlignedBuffer::with_capacity(BLOCK_BYTES);
        for (_, entry) in crate::record::all_entries(payload) {
            if !is_inside(&geometry, entry.at, entry.length) {
                // Refused below.
                continue;
            }
            let last = entry.at + (entry.length as u64).saturating_sub(1);
            for block in entry.at.block().get()..=last.block().get() {
                let at = Offset::new(block * BLOCK_BYTES as u64);
                if loaded.has(at) {
                    continue;
                }
                buffer.resize(BLOCK_BYTES);
                let read = self.image.read(at.get(), &mut buffer);
                read.map_err(io_error(self.path, "read the image beside it"))?;
                state.store(at, &buffer).leave_to_checkpoint();
                loaded.mark(at, 1);
            }
        }
        let inside = |at, length| is_inside(&geometry, at, length);
        batch::apply((state, None), loaded, inside, payload).map_err(|fault| {
            Corruption::new(self.path.display().to_string(), fault.to_string()).into()
        })
    }

    /// As a checkpoint: stamp, blocks, stamp, flush.
    fn write(&self, state: &Region, runs: &[Range<u64>]) -> io::Result<()> {
        let root = self.log.durable_root();
        self.image
            .change_stamp(|stamp| stamp.get_changes(root.sequence))?;
        let mut buffer = AlignedBuffer::new();
        for run in runs {
            for start in run.clone().step_by(RUN_BLOCKS_MAX) {
                let blocks = (run.end - start).min(RUN_BLOCKS_MAX as u64);
                buffer.resize(blocks as usize * BLOCK_BYTES);
                let at = start * BLOCK_BYTES as u64;
                state.read(Offset::new(at), &mut buffer);
                self.image.write(at, &buffer)?;
            }
        }
        self.image
            .change_stamp(|stamp| stamp.complete = stamp.complete.max(root.position))?;
        self.image.flush(|_| ())
    }

    fn failed(&self, error: LogError) -> OpenError {
        OpenError::Log {
            path: self.path.to_path_buf(),
            error,
        }
    }
}
