//! The holder's side: writes that ask nobody.

mod end;
mod in_place;

pub use in_place::InPlace;

use crate::judge::GROUP_RECORDS_MAX;
use crate::record::{NO_SLOT, Record, Salt};
use crate::ring::Ring;
use end::EndLine;
use in_place::Vouched;
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, Backoff, BlockNumber, Flushed, Region, crc32c};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Where a block of the file is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// Nowhere: it reads as zeros.
    Hole,
    /// In a block that reads as zeros until it is written.
    Unwritten(BlockNumber),
    /// There.
    At(BlockNumber),
}

/// The holder's map of the file.
pub trait FileMap {
    /// Where block `index` is; `None` if only the server knows, or if it is where the holder may not go.
    fn get(&self, index: u64) -> Option<Place>;
    /// Block `index` is in `block` now.
    fn set(&mut self, index: u64, block: BlockNumber);
}

/// A spare block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spare {
    /// Its number in the lease.
    pub slot: u32,
    /// The block.
    pub block: BlockNumber,
}

/// Why a write needs the server. Nothing happened.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// A block is a hole, lies far behind the end, is not in the map, or follows a dirty gap.
    #[error("block {index} of the file has no place that the lease could write")]
    NoPlace {
        /// Block of the file.
        index: u64,
    },
    /// Not enough spare blocks, until the server has folded some records.
    #[error("the lease has {available} spare blocks, the write needs {needed}")]
    NoSpareBlocks {
        /// Blocks that the write needs.
        needed: usize,
        /// Blocks that there are.
        available: usize,
    },
    /// The ring is full until the server has folded some records.
    #[error("the lease's ring of records is full")]
    RingFull,
    /// More than [`WRITE_BLOCKS_MAX`] blocks.
    #[error("the write is too long to be one")]
    TooLong,
}

/// Most blocks that one write may touch, and so most bytes that are all written or not at all.
pub const WRITE_BLOCKS_MAX: u64 = GROUP_RECORDS_MAX;

/// One block of a write.
#[derive(Clone, Copy)]
struct Step {
    index: u64,
    /// Where in the block, and where in the data.
    at: usize,
    data_at: usize,
    bytes: usize,
    before: Place,
    /// The block is written behind its end, in place.
    in_place: bool,
}

/// Bytes of the step's block that lie inside a file of this size. A record vouches for no more: what is behind the end may be written to by the next write, whose record may never come.
#[inline]
fn used_in(step: &Step, size_bytes: u64) -> usize {
    (size_bytes - step.index * BLOCK).min(BLOCK) as usize
}

/// Writes a leased file.
#[derive(Debug)]
pub struct Writer {
    region: Arc<Region>,
    ring: Ring,
    salt: Salt,
    /// Number of the next record.
    next: u64,
    /// All before this one are folded.
    folded: u64,
    /// Taken in turn, so that writes go round.
    spares: VecDeque<Spare>,
    size_bytes: u64,
    end_line: Option<EndLine>,
    /// What the newest record vouches for.
    vouched: Vouched,
    /// Time of the last record that says no more than that the file was overwritten in place.
    stamped_at: Option<i64>,
    /// Of overwrites of whole blocks.
    backoff: Backoff,
}

impl Writer {
    /// A writer for a file of `size_bytes`, whose first record is number `next`.
    pub fn new(
        region: Arc<Region>,
        ring: Ring,
        salt: Salt,
        next: u64,
        spares: impl IntoIterator<Item = Spare>,
        size_bytes: u64,
    ) -> Writer {
        Writer {
            region,
            ring,
            salt,
            next,
            folded: next,
            spares: spares.into_iter().collect(),
            size_bytes,
            end_line: None,
            vouched: Vouched::nothing(next),
            stamped_at: None,
            backoff: Backoff::new(salt.0),
        }
    }

    /// Bytes of the file.
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Number of the next record.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Spare blocks that there are.
    #[inline]
    pub fn spare_blocks(&self) -> usize {
        self.spares.len()
    }

    /// The server has folded all records before `next`, and filled these slots again.
    pub fn folded(&mut self, next: u64, refilled: impl IntoIterator<Item = Spare>) {
        self.folded = self.folded.max(next);
        self.spares.extend(refilled);
        if self.folded == self.next {
            self.vouched = Vouched::nothing(next);
        }
    }

    /// The last block, if a write at `offset` goes behind the end in it: what the holder says he is busy with.
    #[inline]
    pub fn block_in_place(&self, offset: u64) -> Option<u64> {
        let is_behind = offset >= self.size_bytes && !self.size_bytes.is_multiple_of(BLOCK);
        (is_behind && offset / BLOCK == self.size_bytes / BLOCK).then_some(offset / BLOCK)
    }

    /// Writes all of `data` at `offset`. Durable at return, all or nothing after a power cut; one fence if only one block is touched, else two.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing happened.
    #[inline]
    pub fn write(
        &mut self,
        map: &mut impl FileMap,
        offset: u64,
        data: &[u8],
        now: i64,
    ) -> Result<(), Refusal> {
        if data.is_empty() {
            return Ok(());
        }
        let is_inside = |end: u64| end <= self.size_bytes;
        if data.len() == BLOCK_BYTES
            && offset.is_multiple_of(BLOCK)
            && offset.checked_add(BLOCK).is_some_and(is_inside)
        {
            return self.overwrite_block(map, offset / BLOCK, data, now);
        }
        self.write_steps(map, offset, data, now)
    }

    /// Overwrites one whole block. What stores comes before the data or behind the fence: behind 64 streaming stores each ordinary one waits for one of
    /// them to leave the processor.
    #[inline]
    fn overwrite_block(
        &mut self,
        map: &mut impl FileMap,
        index: u64,
        data: &[u8],
        now: i64,
    ) -> Result<(), Refusal> {
        let began_ticks = pmem::ticks();
        let Some(Place::At(old) | Place::Unwritten(old)) = map.get(index) else {
            return Err(Refusal::NoPlace { index });
        };
        if self.next - self.folded >= self.ring.records() {
            return Err(Refusal::RingFull);
        }
        let Some(Spare { slot, block }) = self.spares.pop_front() else {
            return Err(Refusal::NoSpareBlocks {
                needed: 1,
                available: 0,
            });
        };
        self.spares.push_back(Spare { slot, block: old });
        let sequence = self.next;
        self.next += 1;
        let at = self.ring.place(sequence);
        let to = block.offset();
        let (mut batch, data_checksum) = self.region.write_streaming_checksummed(to, data);
        let record = Record {
            sequence,
            index,
            size: self.size_bytes,
            modified: now,
            slot,
            continues: 0,
            data_at: 0,
            data_bytes: BLOCK_BYTES as u32,
            data_checksum,
            checksum: 0,
            reserved: 0,
        };
        let words = record.sealed_words(self.salt);
        batch.join(self.region.write_line_streaming(at, words));
        self.region.fence(batch);
        map.set(index, block);
        self.backoff.streamed(began_ticks);
        Ok(())
    }

    /// Writes anything else.
    #[inline(never)]
    fn write_steps(
        &mut self,
        map: &mut impl FileMap,
        offset: u64,
        data: &[u8],
        now: i64,
    ) -> Result<(), Refusal> {
        let steps = self.plan(map, offset, data.len())?;
        self.vouched = Vouched {
            next: self.next + steps.len() as u64,
            block: (steps.len() == 1).then(|| steps[0].index),
        };
        let end = offset + data.len() as u64;
        let size_bytes = self.size_bytes.max(end);
        let mut batch = Flushed::nothing(&self.region);
        let mut spares: SmallVec<[Spare; 4]> = SmallVec::new();
        let mut checksum = 0;
        for step in &steps {
            let data = &data[step.data_at..][..step.bytes];
            if step.in_place {
                let Place::At(block) = step.before else {
                    return Err(Refusal::NoPlace { index: step.index });
                };
                let to = block.offset() + step.at as u64;
                let (streamed, sum) = self.stream_behind_end(to, data);
                batch.join(streamed);
                checksum = sum;
                continue;
            }
            // As many as are needed were counted when the write was planned.
            let Some(spare) = self.spares.pop_front() else {
                return Err(Refusal::NoSpareBlocks {
                    needed: steps.len(),
                    available: 0,
                });
            };
            spares.push(spare);
            let (streamed, sum) = self.fill(spare.block, step, data, used_in(step, size_bytes));
            batch.join(streamed);
            checksum = sum;
        }
        self.write_records(&steps, &spares, size_bytes, now, batch, checksum);
        let mut spares = spares.iter();
        for step in steps.iter().filter(|step| !step.in_place) {
            if let Some(spare) = spares.next() {
                map.set(step.index, spare.block);
                if let Place::At(block) | Place::Unwritten(block) = step.before {
                    self.spares.push_back(Spare { block, ..*spare });
                }
            }
        }
        self.size_bytes = size_bytes;
        Ok(())
    }

    /// What the write does to each block; refuses what needs the server.
    #[inline]
    fn plan(
        &self,
        map: &impl FileMap,
        offset: u64,
        bytes: usize,
    ) -> Result<SmallVec<[Step; 4]>, Refusal> {
        let first = offset / BLOCK;
        let end = offset.checked_add(bytes as u64).ok_or(Refusal::TooLong)?;
        let last = (end - 1) / BLOCK;
        let count = last - first + 1;
        if count > WRITE_BLOCKS_MAX {
            return Err(Refusal::TooLong);
        }
        if self.next + count - self.folded > self.ring.records() {
            return Err(Refusal::RingFull);
        }
        let behind_end = self.size_bytes.div_ceil(BLOCK);
        if first > behind_end {
            return Err(Refusal::NoPlace { index: first });
        }
        if offset > self.size_bytes {
            self.require_zeros_behind_end(map)?;
        }
        let mut steps = SmallVec::new();
        let mut needed = 0;
        for index in first..=last {
            let from = (index * BLOCK).max(offset);
            let to = ((index + 1) * BLOCK).min(end);
            let before = map.get(index).ok_or(Refusal::NoPlace { index })?;
            if index < behind_end && before == Place::Hole {
                return Err(Refusal::NoPlace { index });
            }
            let in_place =
                index < behind_end && from >= self.size_bytes && matches!(before, Place::At(_));
            needed += usize::from(!in_place);
            steps.push(Step {
                index,
                at: (from - index * BLOCK) as usize,
                data_at: (from - offset) as usize,
                bytes: (to - from) as usize,
                before,
                in_place,
            });
        }
        if needed > self.spares.len() {
            return Err(Refusal::NoSpareBlocks {
                needed,
                available: self.spares.len(),
            });
        }
        Ok(steps)
    }

    /// Fills a spare block with the data and what is around it: bytes of the block before, zeros if there is none and behind the end. The checksum is that of its first
    /// `used` bytes.
    #[inline]
    fn fill(
        &mut self,
        block: BlockNumber,
        step: &Step,
        data: &[u8],
        used: usize,
    ) -> (Flushed, u32) {
        if data.len() == BLOCK_BYTES {
            return self
                .region
                .write_streaming_checksummed(block.offset(), data);
        }
        self.fill_around(block, step, data, used)
    }

    /// The same for a part of a block. By itself, so that no two blocks are on the stack of a thread at once, which may be the smallest that there is.
    #[inline(never)]
    fn fill_around(
        &mut self,
        block: BlockNumber,
        step: &Step,
        data: &[u8],
        used: usize,
    ) -> (Flushed, u32) {
        let mut whole = [0; BLOCK_BYTES];
        if let Place::At(before) = step.before {
            self.region.read(before.offset(), &mut whole);
        }
        whole[step.at..step.at + data.len()].copy_from_slice(data);
        if used < BLOCK_BYTES {
            self.remember_end(block, &whole, used);
        }
        let streamed = self.region.write_streaming(block.offset(), &whole);
        (streamed, crc32c(&whole[..used]))
    }

    /// Writes the records. The last one's fence is the moment at which the write happened.
    #[inline]
    fn write_records(
        &mut self,
        steps: &[Step],
        spares: &[Spare],
        size_bytes: u64,
        now: i64,
        mut batch: Flushed,
        checksum: u32,
    ) {
        let is_alone = steps.len() == 1;
        let mut spares = spares.iter();
        for (number, step) in steps.iter().enumerate() {
            let is_last = number + 1 == steps.len();
            if is_last && !is_alone && !deliberate::is(Bug::SkipLeaseDataFence) {
                self.region.fence(batch);
                batch = Flushed::nothing(&self.region);
            }
            let slot = match step.in_place {
                true => NO_SLOT,
                false => spares.next().map_or(NO_SLOT, |spare| spare.slot),
            };
            let (data_at, data_bytes) = match (is_alone, step.in_place) {
                (false, _) => (0, 0),
                (true, true) => (step.at as u32, step.bytes as u32),
                (true, false) => (0, used_in(step, size_bytes) as u32),
            };
            let end_of_step = (step.index + 1) * BLOCK;
            let record = Record {
                sequence: self.next,
                index: step.index,
                size: size_bytes.min(end_of_step).max(self.size_bytes),
                modified: now,
                slot,
                continues: u32::from(!is_last),
                data_at,
                data_bytes,
                data_checksum: if is_alone { checksum } else { 0 },
                checksum: 0,
                reserved: 0,
            };
            let words = record.sealed_words(self.salt);
            let at = self.ring.place(self.next);
            batch.join(self.region.write_line_streaming(at, words));
            self.next += 1;
        }
        self.region.fence(batch);
    }
}
