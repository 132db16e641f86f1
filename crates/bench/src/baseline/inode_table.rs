//! The inode table: a file of inodes that grows by a unit at a time.
//!
//! A free inode is found as in PMFS: from a hint on, one inode after the other.

use pmem::Offset;

use super::block_map;
use super::error::{Corruption, PmfsError};
use super::layout::{
    BLOCK, HEIGHT_MAX, INODE_BYTES, InodeNumber, RECORD_BYTES, Record, TABLE_INODE_AT,
};
use super::transaction::{Transaction, entries_for};
use super::volume::{Medium, Volume};

/// The first number that is given to files; 0 means none, 1 is the root directory.
const FIRST_FREE: u64 = 2;

/// The table, under one lock.
#[derive(Debug)]
pub(super) struct InodeTable {
    record: Record,
    /// No inode below it is free.
    hint: u64,
    free: u64,
}

impl InodeTable {
    /// The table that `record` describes, with so many free inodes.
    pub(super) fn new(record: Record, free: u64) -> InodeTable {
        InodeTable {
            record,
            hint: FIRST_FREE,
            free,
        }
    }

    /// Inodes that the table has room for, number 0 included.
    pub(super) fn capacity(&self) -> u64 {
        capacity(&self.record)
    }

    pub(super) fn free(&self) -> u64 {
        self.free
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// Where an inode lies.
    pub(super) fn address(
        &self,
        medium: &Medium,
        number: InodeNumber,
    ) -> Result<Offset, Corruption> {
        address(medium, &self.record, number)
    }

    /// Finds a free inode. Whoever keeps the lock until the inode says that it is in use has it for himself.
    pub(super) fn claim(
        &mut self,
        medium: &Medium,
    ) -> Result<Option<(InodeNumber, Offset)>, Corruption> {
        let per_unit = medium.geometry.inodes_per_unit();
        let mut number = self.hint;
        while number < self.capacity() {
            let unit_end = (number / per_unit + 1) * per_unit;
            let mut at = self.address(medium, InodeNumber::new(number))?;
            while number < unit_end {
                let [code, ..] = medium.region.load_u64(at).to_le_bytes();
                if code == 0 {
                    self.hint = number + 1;
                    self.free = self.free.saturating_sub(1);
                    return Ok(Some((InodeNumber::new(number), at)));
                }
                number += 1;
                at = at + INODE_BYTES;
            }
        }
        self.hint = number;
        Ok(None)
    }

    /// Notes that an inode says on the medium that it is free.
    pub(super) fn freed(&mut self, number: InodeNumber) {
        self.hint = self.hint.min(number.get());
        self.free += 1;
    }
}

fn capacity(record: &Record) -> u64 {
    record.size_bytes / INODE_BYTES
}

/// Where an inode lies in the table of that record.
pub(super) fn address(
    medium: &Medium,
    record: &Record,
    number: InodeNumber,
) -> Result<Offset, Corruption> {
    let missing = Corruption::NoInode { number };
    if number.get() == 0 || number.get() >= capacity(record) {
        return Err(missing);
    }
    let per_unit = medium.geometry.inodes_per_unit();
    let unit = block_map::find(medium, record, number.get() / per_unit)?.ok_or(missing)?;
    let at = unit.offset() + number.get() % per_unit * INODE_BYTES;
    match at.get() + INODE_BYTES <= medium.region.length() {
        true => Ok(at),
        false => Err(missing),
    }
}

/// Makes sure that a free inode can be found, unless somebody else takes it first.
pub(super) fn provide(volume: &Volume) -> Result<(), PmfsError> {
    if volume.table.lock().free > 0 {
        return Ok(());
    }
    grow(volume)
}

/// Adds a unit of free inodes.
pub(super) fn grow(volume: &Volume) -> Result<(), PmfsError> {
    let entries = entries_for(RECORD_BYTES as u64) + u32::from(HEIGHT_MAX);
    let mut transaction = Transaction::begin(volume, entries);
    let mut table = volume.table.lock();
    if table.free > 0 {
        return Ok(());
    }
    match add_unit(volume, &table.record, &mut transaction) {
        Ok(record) => {
            transaction.commit();
            table.record = record;
            table.free += volume.medium.geometry.inodes_per_unit();
            Ok(())
        }
        Err(error) => {
            // Taken back under the lock that guards what it logged.
            drop(transaction);
            drop(table);
            Err(error)
        }
    }
}

/// The table's record with one unit more.
fn add_unit(
    volume: &Volume,
    old: &Record,
    transaction: &mut Transaction<'_>,
) -> Result<Record, PmfsError> {
    let geometry = &volume.medium.geometry;
    let unit_blocks = geometry.table_unit_blocks;
    let mut record = *old;
    let logged = transaction.log(TABLE_INODE_AT, RECORD_BYTES as u64);
    let unit = capacity(&record) / geometry.inodes_per_unit();
    block_map::allocate(transaction, &mut record, unit_blocks, unit..unit + 1)?;
    let first = block_map::find(&volume.medium, &record, unit)?.ok_or(PmfsError::NoSpace)?;
    let bytes = unit_blocks * BLOCK;
    transaction.fresh(volume.region().zero_streaming(first.offset(), bytes));
    record.size_bytes += bytes;
    transaction.change(&logged, TABLE_INODE_AT, &record.bytes());
    Ok(record)
}
