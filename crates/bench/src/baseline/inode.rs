//! Inodes in memory.

use std::sync::Weak;
use std::sync::atomic::AtomicU64;

use parking_lot::RwLock;
use pmem::Offset;

use super::block_map;
use super::error::{Corruption, PmfsError};
use super::layout::{FileType, InodeNumber, RECORD_BYTES, Record, now_seconds};
use super::names::NameCache;
use super::transaction::{Transaction, entries_for};
use super::volume::Volume;

/// A file or a directory that is in memory; what of it is on the medium is always as new.
///
/// When an inode without names leaves the memory, because its last handle was closed, its number and its blocks become free.
pub(super) struct Inode {
    pub(super) number: InodeNumber,
    /// Where it lies on the medium.
    pub(super) at: Offset,
    pub(super) file_type: FileType,
    /// The kernel's i_mutex, with the record that it guards: readers of a file share it, everything else is alone.
    pub(super) record: RwLock<Record>,
    /// Of a directory: the names that are known.
    pub(super) names: NameCache,
    /// Of a directory: the block in which the last search found its name.
    pub(super) search_from: AtomicU64,
    volume: Weak<Volume>,
}

impl Inode {
    pub(super) fn new(
        volume: Weak<Volume>,
        number: InodeNumber,
        at: Offset,
        record: Record,
    ) -> Result<Inode, Corruption> {
        Ok(Inode {
            number,
            at,
            file_type: record.file_type.ok_or(Corruption::NoInode { number })?,
            record: RwLock::new(record),
            names: NameCache::default(),
            search_from: AtomicU64::new(0),
            volume,
        })
    }

    pub(super) fn require_directory(&self) -> Result<(), PmfsError> {
        match self.file_type {
            FileType::Directory => Ok(()),
            FileType::Regular => Err(PmfsError::NotADirectory),
        }
    }

    pub(super) fn require_file(&self) -> Result<(), PmfsError> {
        match self.file_type {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(PmfsError::IsADirectory),
        }
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        let record = *self.record.get_mut();
        if record.links > 0 {
            return;
        }
        // Without a volume, or on a damaged one, it stays on the truncate list.
        if let Some(volume) = self.volume.upgrade() {
            let _left_to_recovery = evict(&volume, self.number, self.at, &record);
        }
    }
}

/// Frees an inode without names, takes it off the truncate list, and then frees its blocks.
fn evict(
    volume: &Volume,
    number: InodeNumber,
    at: Offset,
    record: &Record,
) -> Result<(), Corruption> {
    const LINK_BYTES: u64 = 8;
    let entries = entries_for(RECORD_BYTES as u64) + entries_for(LINK_BYTES);
    let mut transaction = Transaction::begin(volume, entries);
    let mut table = volume.table.lock();
    let mut truncations = volume.truncations.lock();
    let logged = transaction.log(at, RECORD_BYTES as u64);
    transaction.change(&logged, at, &record.freed(now_seconds()).bytes());
    if let Some(unlinking) = truncations.unlinking(number) {
        let logged = transaction.log(unlinking.link_at, LINK_BYTES);
        transaction.change(&logged, unlinking.link_at, &unlinking.next.to_le_bytes());
    }
    transaction.commit();
    truncations.forget(number);
    table.freed(number);
    drop(truncations);
    drop(table);
    block_map::release(volume, record)
}
