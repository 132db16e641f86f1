//! Copying dirty blocks to the device.
//!
//! Blocks are taken by the age of their file, and those of a file in order, so that a file lies
//! together below. A batch is one or a few large writes and one flush, whatever the number of
//! files. No lock is held while the device works (D3).
//!
//! No record is written: in memory the block is known to be clean, and the block below has no
//! pointer. A power cut makes it dirty again.

use crate::block_map::BlockMap;
use crate::changes::relocate::{BLOCKS_AT_ONCE, copy_block};
use crate::format::{BLOCK, InodeNumber, Pointer};
use crate::mounted::file_system::Core;
use crate::mounted::tiering::Tiering;
use crate::values::error::FsError;
use device::{DeviceBlock, Residents, Ticket, Twin};
use pmem::{BLOCK_BYTES, BlockNumber};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tier::Dirty;
use txn::{DeviceFault, Outgoing, PoolDevice, Store};

/// Blocks of a batch: 4 MiB, behind which a disk of 100 MB/s is as fast as it gets.
const BATCH_BLOCKS: usize = 1024;
/// First pause after a failure; each further one doubles it.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// A block that is being copied.
struct Copied {
    block: BlockNumber,
    inode: InodeNumber,
    /// Its index in the file.
    index: u64,
    checksum: u32,
}

/// Blocks that go to the device together.
struct Batch<'r> {
    residents: &'r Residents,
    ticket: Ticket,
    blocks: Vec<Copied>,
    bytes: Vec<[u8; BLOCK_BYTES]>,
    /// Entries taken from the list, to be put back if the batch fails.
    taken: Vec<Dirty>,
}

impl Batch<'_> {
    /// Leaves the blocks alone whose content was not read.
    fn leave_unread(&mut self) {
        for copied in self.blocks.drain(self.bytes.len()..) {
            self.residents.give_up_copy(copied.block, self.ticket);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Of a batch that succeeded no block has this ticket.
        for copied in &self.blocks {
            self.residents.give_up_copy(copied.block, self.ticket);
        }
    }
}

impl<S: Store> Core<S> {
    /// Copies a batch of blocks that are dirty since `until` or before. Returns how many are clean
    /// now or were looked at in vain; 0 if there is nothing to do.
    ///
    /// # Errors
    ///
    /// The device failed, or is full: nothing is clean, and the blocks keep their age.
    pub(super) fn copy_dirty(&self, tier: &Tiering, until: Instant) -> Result<usize, FsError> {
        let Some((device, residents)) = self.tiered() else {
            return Ok(0);
        };
        let mut batch = Batch {
            residents,
            ticket: residents.ticket(),
            blocks: Vec::new(),
            bytes: Vec::new(),
            taken: Vec::new(),
        };
        self.fill(tier, &mut batch, until);
        let files = batch.taken.len();
        if batch.blocks.is_empty() {
            return Ok(files);
        }
        let begun = Instant::now();
        let outcome = self.write_batch(device, &mut batch);
        match outcome {
            Ok(count) => {
                tier.wrote(batch.blocks.len(), begun.elapsed());
                tier.counters
                    .copied
                    .fetch_add(count as u64, Ordering::Relaxed);
                Ok(files + count)
            }
            Err(error) => {
                tier.failed();
                let mut files = tier.files.lock();
                batch
                    .taken
                    .iter()
                    .rev()
                    .for_each(|dirty| files.put_back(*dirty));
                Err(error)
            }
        }
    }

    /// The device with what is known of the blocks of memory, if there is a tier.
    pub(super) fn tiered(&self) -> Option<(&PoolDevice, &Residents)> {
        let device = self.store.device()?;
        Some((device, device.residents()?))
    }

    fn fill(&self, tier: &Tiering, batch: &mut Batch<'_>, until: Instant) {
        while batch.blocks.len() < BATCH_BLOCKS {
            let Some(dirty) = tier.files.lock().take_dirty(until) else {
                return;
            };
            batch.taken.push(dirty);
            match self.take_blocks(tier, batch, dirty) {
                Ok(None) => (),
                Ok(Some(from_block)) => tier.files.lock().put_back(Dirty {
                    from_block,
                    ..dirty
                }),
                Err(error) => {
                    // The file can be read as little as it can be copied.
                    batch.leave_unread();
                    tracing::warn!(inode = dirty.file, %error, "a file is not copied to the device");
                }
            }
        }
    }

    /// Takes dirty blocks of a file into the batch. Returns where the next batch goes on.
    fn take_blocks(
        &self,
        tier: &Tiering,
        batch: &mut Batch<'_>,
        dirty: Dirty,
    ) -> Result<Option<u64>, FsError> {
        let number = InodeNumber::new(dirty.file);
        let node = match self.node(number) {
            Err(FsError::NotFound) => return Ok(None),
            node => node?,
        };
        node.0.is_noted.store(false, Ordering::SeqCst);
        let mut next = dirty.from_block;
        loop {
            let room = BATCH_BLOCKS - batch.blocks.len();
            let body = node.read();
            if body.require_regular().is_err() {
                return Ok(None);
            }
            if body.lease.is_some() {
                // A process writes it. Its end of the lease notes the file, but nothing is lost by
                // another look.
                drop(body);
                tier.note(&node);
                return Ok(None);
            }
            let map = BlockMap::of(number, &body.raw);
            let Some(first) = map.next_mapped(&self.store, next)? else {
                return Ok(None);
            };
            if room == 0 {
                return Ok(Some(first));
            }
            let count = BLOCKS_AT_ONCE.min(room as u64);
            let begin = batch.blocks.len();
            map.lookup_range(&self.store, first, count, |index, pointer| {
                if let Some(Pointer::Written(block)) = pointer
                    && batch.residents.begin_copy(block, batch.ticket)
                {
                    batch.blocks.push(Copied {
                        block,
                        inode: number,
                        index,
                        checksum: 0,
                    });
                }
            })?;
            let size = body.raw.size;
            // From here on a change tears the ticket, and so does a new owner of the block.
            drop(body);
            for copied in &mut batch.blocks[begin..] {
                let mut content = [0; BLOCK_BYTES];
                let place = (copied.index, Pointer::Written(copied.block));
                copy_block(self, place, size, &mut content)?;
                copied.checksum = pmem::crc32c(&content);
                batch.bytes.push(content);
            }
            next = first + count;
        }
    }

    /// Writes a batch to fresh blocks of the device. Returns how many of its blocks are clean.
    fn write_batch(&self, device: &PoolDevice, batch: &mut Batch<'_>) -> Result<usize, FsError> {
        let count = batch.blocks.len() as u32;
        let (inode, index) = (batch.blocks[0].inode, batch.blocks[0].index);
        let failed = |fault: DeviceFault| self.device_failed(inode, index, fault);
        let mut outgoing = Outgoing::new(device);
        let mut runs = outgoing.take(count);
        if runs.is_none() {
            self.store.checkpoint();
            runs = outgoing.take(count);
        }
        let runs = runs.ok_or(FsError::NoSpace)?;
        let mut rest = batch.bytes.as_slice();
        for run in &runs {
            let (part, tail) = rest.split_at(run.blocks as usize);
            outgoing
                .write(run.start, part.as_flattened())
                .map_err(failed)?;
            rest = tail;
        }
        outgoing.redeem().map_err(failed)?;
        let places: Vec<DeviceBlock> = runs.iter().flat_map(|run| run.iter()).collect();
        let (mut clean, mut unused) = (0, Vec::new());
        for (copied, &block) in batch.blocks.iter().zip(&places) {
            let twin = Twin {
                block,
                checksum: copied.checksum,
            };
            match batch
                .residents
                .finish_copy(copied.block, batch.ticket, twin)
            {
                true => clean += 1,
                false => unused.push(block),
            }
        }
        outgoing.keep_but(&unused);
        Ok(clean)
    }
}

impl Tiering {
    /// Notes how fast the device has written.
    fn wrote(&self, blocks: usize, time: Duration) {
        let now = time.as_nanos() as u64 / blocks.max(1) as u64;
        let before = self.block_ns.load(Ordering::Relaxed);
        self.block_ns
            .store((before * 7 + now) / 8, Ordering::Relaxed);
        *self.failing.lock() = Default::default();
    }

    fn failed(&self) {
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        let mut failing = self.failing.lock();
        let pause = RETRY_FIRST * 2_u32.pow(failing.attempts.min(16));
        failing.attempts += 1;
        failing.since.get_or_insert_with(Instant::now);
        failing.until = Some(Instant::now() + pause.min(RETRY_LONGEST));
    }

    /// Whether the device failed so lately that it is left alone.
    pub(super) fn is_resting(&self, now: Instant) -> bool {
        self.failing.lock().until.is_some_and(|until| now < until)
    }
}

/// Bytes of a batch, for the limit of the rate.
pub(super) const BATCH_BYTES: u64 = BATCH_BLOCKS as u64 * BLOCK;
