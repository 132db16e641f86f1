//! What a holder's records are worth. The holder can write anything into his ring, at any moment.

use crate::record::{NO_SLOT, Record, Salt};
use crate::ring::{Medium, Ring};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber, crc32c};
use smallvec::SmallVec;
use std::collections::BTreeMap;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Most records that belong together: a write of 1 MiB that begins inside a block.
pub const GROUP_RECORDS_MAX: u64 = (1 << 20) / BLOCK + 1;

/// What the server knows of a lease when it judges.
#[derive(Debug)]
pub struct Terms<'l> {
    /// Where the records lie.
    pub ring: &'l Ring,
    /// The lease's salt.
    pub salt: Salt,
    /// Number of the first record that was not folded yet.
    pub next: u64,
    /// The spare blocks as they were after the record before; `None` where one has gone into the file.
    pub spares: &'l [Option<BlockNumber>],
    /// Size of the file then.
    pub size_bytes: u64,
    /// Largest size that the file may get.
    pub size_bytes_max: u64,
    /// Most records that are folded at a time.
    pub records_max: u64,
}

/// How far the newest record is to be believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trust {
    /// The holder may be writing: the newest record, and the data that shares its fence, may not be durable yet. It waits for the next time.
    AllButNewest,
    /// The holder is idle: all that he wrote is durable.
    All,
    /// The holder is dead, was stopped in the middle, or the power went: the newest record counts if its data fits.
    IfDataFits,
}

/// A record that an honest holder would not have written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The slot does not exist or has no block.
    #[error("record {sequence} exchanges spare block {slot}, which the lease does not have")]
    NoSuchSpare {
        /// Number of the record.
        sequence: u64,
        /// The slot.
        slot: u32,
    },
    /// The block is neither one of the file's nor the next one behind them.
    #[error("record {sequence} changes block {index}, which the file does not have")]
    NoSuchBlock {
        /// Number of the record.
        sequence: u64,
        /// Block of the file.
        index: u64,
    },
    /// The size shrinks, or does not end in the record's block, or is too large.
    #[error("record {sequence} gives the file the impossible size {size_bytes}")]
    Size {
        /// Number of the record.
        sequence: u64,
        /// The size.
        size_bytes: u64,
    },
    /// The data lies outside its block.
    #[error("record {sequence} has its data outside of the block")]
    Data {
        /// Number of the record.
        sequence: u64,
    },
}

/// What records do to the file and to the spare blocks, taken together.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Effects {
    /// New blocks of the file.
    pub placed: BTreeMap<u64, BlockNumber>,
    /// What the slots hold now, of those that changed.
    pub slots: BTreeMap<u32, Option<BlockNumber>>,
    /// Size of the file.
    pub size_bytes: u64,
    /// Time of the last of them, nanoseconds since the epoch; `None` if there is none.
    pub modified: Option<i64>,
    /// Number of the first record that is not among them.
    pub next: u64,
    /// Why the one after them was refused, if it was not just missing.
    pub fault: Option<Fault>,
}

/// Reads the records from `terms.next` on, up to the first one that is not there, not whole, not believable or not allowed; and adds up what they do. Records
/// that belong together count together. Nothing is changed.
///
/// `block_of` tells where a block of the file was after the record before: `None` is a hole.
///
/// # Errors
///
/// The first one of `block_of`.
pub fn judge<E>(
    medium: &impl Medium,
    terms: &Terms<'_>,
    trust: Trust,
    mut block_of: impl FnMut(u64) -> Result<Option<BlockNumber>, E>,
) -> Result<Effects, E> {
    let mut effects = Effects {
        size_bytes: terms.size_bytes,
        next: terms.next,
        ..Effects::default()
    };
    while effects.next - terms.next < terms.records_max {
        let (records, is_newest) = next_group(medium, terms, effects.next);
        let Some(last) = records.last() else { break };
        if is_newest && trust == Trust::AllButNewest {
            break;
        }
        let mut group = Group::behind(&effects);
        let outcome = records.iter().try_for_each(|record| {
            let before = match group.placed(record.index) {
                Some(block) => Some(block),
                None => block_of(record.index).map_err(Stop::Lookup)?,
            };
            group.add(terms, record, before).map_err(Stop::Fault)
        });
        match outcome {
            Err(Stop::Lookup(error)) => return Err(error),
            Err(Stop::Fault(fault)) => {
                effects.fault = Some(fault);
                break;
            }
            Ok(()) => {}
        }
        if is_newest && trust == Trust::IfDataFits && !group.has_its_data(medium, last) {
            break;
        }
        let Group {
            placed,
            slots,
            size_bytes,
            ..
        } = group;
        effects.placed.extend(placed);
        effects.slots.extend(slots);
        effects.size_bytes = size_bytes;
        effects.modified = Some(last.modified);
        effects.next += records.len() as u64;
    }
    Ok(effects)
}

enum Stop<E> {
    Lookup(E),
    Fault(Fault),
}

/// The records from `first` on that belong together, none if they are not all there; and whether nothing comes behind them.
fn next_group(
    medium: &impl Medium,
    terms: &Terms<'_>,
    first: u64,
) -> (SmallVec<[Record; 4]>, bool) {
    let whole = |sequence: u64| {
        let record = terms.ring.load(medium, sequence);
        record.is_whole(sequence, terms.salt).then_some(record)
    };
    let mut records = SmallVec::new();
    while let Some(record) = whole(first + records.len() as u64) {
        let is_last = record.continues != 1;
        records.push(record);
        if is_last {
            let is_newest = whole(first + records.len() as u64).is_none();
            return (records, is_newest);
        }
        if records.len() as u64 == GROUP_RECORDS_MAX {
            break;
        }
    }
    (SmallVec::new(), true)
}

/// What records that belong together change, beside what those before them did.
struct Group<'e> {
    before: &'e Effects,
    placed: SmallVec<[(u64, BlockNumber); 4]>,
    slots: SmallVec<[(u32, Option<BlockNumber>); 4]>,
    size_bytes: u64,
    /// Where the data of the last record is.
    data_in: Option<BlockNumber>,
}

impl<'e> Group<'e> {
    fn behind(before: &'e Effects) -> Group<'e> {
        Group {
            before,
            placed: SmallVec::new(),
            slots: SmallVec::new(),
            size_bytes: before.size_bytes,
            data_in: None,
        }
    }

    /// Where a record of this judgement has put the block.
    fn placed(&self, index: u64) -> Option<BlockNumber> {
        let own = self.placed.iter().rev().find(|(at, _)| *at == index);
        own.map(|(_, block)| *block)
            .or_else(|| self.before.placed.get(&index).copied())
    }

    fn spare(&self, terms: &Terms<'_>, slot: u32) -> Option<BlockNumber> {
        let own = self.slots.iter().rev().find(|(at, _)| *at == slot);
        own.map(|(_, block)| *block)
            .or_else(|| self.before.slots.get(&slot).copied())
            .unwrap_or_else(|| terms.spares.get(slot as usize).copied().flatten())
    }

    /// Adds a record whose block of the file was `before`.
    fn add(
        &mut self,
        terms: &Terms<'_>,
        record: &Record,
        before: Option<BlockNumber>,
    ) -> Result<(), Fault> {
        let Record {
            sequence,
            index,
            slot,
            ..
        } = *record;
        if !record.has_possible_data() {
            return Err(Fault::Data { sequence });
        }
        let behind_end = self.size_bytes.div_ceil(BLOCK);
        let is_known = if slot == NO_SLOT {
            index.checked_add(1) == Some(behind_end) && before.is_some()
        } else {
            index == behind_end || (index < behind_end && before.is_some())
        };
        if !is_known && !deliberate::is(Bug::BelieveHoldersBlock) {
            return Err(Fault::NoSuchBlock { sequence, index });
        }
        let grows_in_its_block = record.size / BLOCK == index || record.size == (index + 1) * BLOCK;
        let is_possible = record.size == self.size_bytes
            || (record.size > self.size_bytes
                && record.size <= terms.size_bytes_max
                && grows_in_its_block);
        let is_possible = is_possible || deliberate::is(Bug::BelieveHoldersSize);
        if !is_possible || (index == behind_end && record.size == self.size_bytes) {
            return Err(Fault::Size {
                sequence,
                size_bytes: record.size,
            });
        }
        self.data_in = before;
        if slot != NO_SLOT {
            let spare = self
                .spare(terms, slot)
                .ok_or(Fault::NoSuchSpare { sequence, slot })?;
            self.placed.push((index, spare));
            self.slots.push((slot, before));
            self.data_in = Some(spare);
        }
        self.size_bytes = record.size;
        Ok(())
    }

    /// Whether the data that shares the last record's fence is there.
    fn has_its_data(&self, medium: &impl Medium, last: &Record) -> bool {
        if last.data_bytes == 0 || deliberate::is(Bug::SkipLeaseDataCheck) {
            return true;
        }
        let Some(block) = self.data_in else {
            return false;
        };
        let mut data = [0; BLOCK_BYTES];
        let data = &mut data[..last.data_bytes as usize];
        medium.read(block.offset() + u64::from(last.data_at), data);
        crc32c(data) == last.data_checksum
    }
}
