//! What all parts of a mounted file system share.

use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use pmem::{BlockNumber, Offset, Region};

use super::Options;
use super::error::{Corruption, PmfsError};
use super::in_use::{InUseList, NotInUse};
use super::inode::Inode;
use super::inode_table::InodeTable;
use super::journal::Journal;
use super::layout::{Geometry, InodeNumber, Record};
use super::truncate_list::TruncateList;

/// The region and what its size decides: all that reading needs.
#[derive(Clone, Debug)]
pub(super) struct Medium {
    pub(super) region: Arc<Region>,
    pub(super) geometry: Geometry,
}

impl Medium {
    /// The block pointer at `at`.
    #[inline]
    pub(super) fn pointer(&self, at: Offset) -> Result<Option<BlockNumber>, Corruption> {
        self.geometry.block(self.region.load_u64(at))
    }

    pub(super) fn record(&self, at: Offset) -> Result<Record, Corruption> {
        Record::load(&self.region, &self.geometry, at)
    }
}

/// Independent locks of the inode cache.
const SHARDS: usize = 64;

type Shard = Mutex<HashMap<InodeNumber, Arc<Inode>, RandomState>>;

/// A mounted file system.
///
/// Order of the locks: directory, file, name cache; then a reservation in the journal; then inode table, truncate list, in-use list.
pub(super) struct Volume {
    pub(super) medium: Medium,
    pub(super) options: Options,
    pub(super) journal: Journal,
    pub(super) in_use: Mutex<InUseList>,
    pub(super) table: Mutex<InodeTable>,
    pub(super) truncations: Mutex<TruncateList>,
    /// The inodes in memory, as the kernel's inode cache: nothing presses them out.
    inodes: [Shard; SHARDS],
    this: Weak<Volume>,
}

impl Volume {
    /// A volume whose journal and truncate list are empty.
    pub(super) fn new(
        medium: Medium,
        options: Options,
        in_use: InUseList,
        table: InodeTable,
    ) -> Arc<Volume> {
        Arc::new_cyclic(|this| Volume {
            journal: Journal::open(&medium.region, &medium.geometry),
            medium,
            options,
            in_use: Mutex::new(in_use),
            table: Mutex::new(table),
            truncations: Mutex::default(),
            inodes: std::array::from_fn(|_| Shard::default()),
            this: Weak::clone(this),
        })
    }

    #[inline]
    pub(super) fn region(&self) -> &Region {
        &self.medium.region
    }

    fn shard(&self, number: InodeNumber) -> &Shard {
        &self.inodes[number.get() as usize % SHARDS]
    }

    /// The inode of a number that a directory entry holds.
    pub(super) fn inode(&self, number: InodeNumber) -> Result<Arc<Inode>, Corruption> {
        if let Some(inode) = self.shard(number).lock().get(&number) {
            return Ok(Arc::clone(inode));
        }
        let at = self.table.lock().address(&self.medium, number)?;
        let record = self.medium.record(at)?;
        let mut shard = self.shard(number).lock();
        if let Some(inode) = shard.get(&number) {
            return Ok(Arc::clone(inode));
        }
        let inode = Arc::new(Inode::new(Weak::clone(&self.this), number, at, record)?);
        shard.insert(number, Arc::clone(&inode));
        Ok(inode)
    }

    /// Puts a new inode into the cache.
    pub(super) fn remember(
        &self,
        number: InodeNumber,
        at: Offset,
        record: Record,
    ) -> Result<Arc<Inode>, Corruption> {
        let inode = Arc::new(Inode::new(Weak::clone(&self.this), number, at, record)?);
        self.shard(number).lock().insert(number, Arc::clone(&inode));
        Ok(inode)
    }

    /// Takes an inode without names out of the cache; it goes when its last handle does.
    ///
    /// The caller drops what is returned after it has released its locks.
    pub(super) fn forget(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        self.shard(number).lock().remove(&number)
    }
}

impl From<NotInUse> for Corruption {
    fn from(NotInUse(block): NotInUse) -> Corruption {
        Corruption::InUseList {
            number: block.get(),
            is_listed: false,
        }
    }
}

impl From<NotInUse> for PmfsError {
    fn from(error: NotInUse) -> PmfsError {
        PmfsError::Corrupt(error.into())
    }
}
