//! Reading files: their content, and where there is some.

use super::elsewhere::Elsewhere;
use super::reading::Reading;
use crate::block_map::BlockMap;
use crate::format::BLOCK;
use crate::inode::node::{Body, Node};
use crate::locks::view::Snapshot;
use crate::mounted::file_system::FileSystem;
use crate::values::error::FsError;
use crate::values::types::AccessTime;
use parking_lot::RwLockReadGuard;
use pmem::BLOCK_BYTES;
use txn::{Store, Transaction};

const DAY_NANOSECONDS: i64 = 86_400_000_000_000;

impl<S: Store> FileSystem<S> {
    /// Reads up to `into.len()` bytes from `offset` on; fewer at the end of the file.
    ///
    /// # Errors
    ///
    /// [`FsError::IsADirectory`], [`FsError::InvalidArgument`] if it is no file,
    /// [`FsError::Corrupt`], [`FsError::Device`].
    #[inline]
    pub fn read(&self, node: &Node, offset: u64, into: &mut [u8]) -> Result<usize, FsError> {
        self.core.shown(node.number(), || {
            if let Some(length) = self.read_unlocked(node, offset, into) {
                return Ok(length);
            }
            self.read_locked(node, offset, into)
        })
    }

    /// Reads without the lock; `None` if somebody changes the file meanwhile, or the access time,
    /// or if there is any doubt, or if a block lies on the device.
    #[inline]
    fn read_unlocked(&self, node: &Node, offset: u64, into: &mut [u8]) -> Option<usize> {
        let core = &*self.core;
        node.prefetch_copy(offset / BLOCK);
        let snapshot = self.believable(node)?;
        let left = snapshot.size.saturating_sub(offset);
        let length = (into.len() as u64).min(left) as usize;
        if length > 0 {
            let map = BlockMap {
                inode: node.number(),
                root: snapshot.root,
                height: snapshot.height,
            };
            let into = &mut into[..length];
            let in_block = (offset % BLOCK) as usize;
            let reading = Reading {
                core,
                node,
                snapshot: Some(&snapshot),
            };
            if in_block + length > BLOCK_BYTES {
                let mut is_memory = true;
                let note = |_, _: &mut [u8]| is_memory = false;
                reading.range(&map, offset, into, note).ok()?;
                is_memory.then_some(())?;
            } else {
                reading.one_block(&map, offset / BLOCK, in_block, into)?;
            }
        }
        node.view().is_current(&snapshot).then_some(length)
    }

    /// What a reader without the lock sees of a file, unless somebody changes it, or the reader
    /// would have to.
    #[inline]
    pub(crate) fn believable(&self, node: &Node) -> Option<Snapshot> {
        let snapshot = node.view().snapshot()?;
        let is_stale = access_is_stale(&self.core.options, snapshot.accessed);
        (!is_stale).then_some(snapshot)
    }

    #[cold]
    fn read_locked(&self, node: &Node, offset: u64, into: &mut [u8]) -> Result<usize, FsError> {
        let core = &*self.core;
        let body = self.read_unleased(node)?;
        body.require_regular()?;
        if offset >= body.raw.size || into.is_empty() {
            return Ok(0);
        }
        let length = (into.len() as u64).min(body.raw.size - offset) as usize;
        let into = &mut into[..length];
        let reading = Reading {
            core,
            node,
            snapshot: None,
        };
        let mut elsewhere = Elsewhere::NOTHING;
        let map = BlockMap::of(node.number(), &body.raw);
        let note = |place, into| elsewhere.note(&core.store, place, into);
        reading.range(&map, offset, into, note)?;
        let stale = access_is_stale(&core.options, body.raw.access_since_change());
        // Nothing changes as long as the lock is held; the noted blocks keep their content
        // afterwards.
        let snapshot = node.view().snapshot();
        drop(body);
        elsewhere.fetch(core, node, snapshot.as_ref())?;
        if stale {
            self.touch_accessed(node)?;
        }
        Ok(length)
    }

    /// The first offset at or after `offset` that holds data (`SEEK_DATA`).
    ///
    /// # Errors
    ///
    /// [`FsError::NoData`] if there is none, [`FsError::Corrupt`].
    pub fn seek_data(&self, node: &Node, offset: u64) -> Result<u64, FsError> {
        self.core.shown(node.number(), || {
            self.seek(node, offset, true)?.ok_or(FsError::NoData)
        })
    }

    /// The first offset at or after `offset` in a hole (`SEEK_HOLE`); the end of the file is one.
    ///
    /// # Errors
    ///
    /// [`FsError::NoData`] beyond the end, [`FsError::Corrupt`].
    pub fn seek_hole(&self, node: &Node, offset: u64) -> Result<u64, FsError> {
        self.core.shown(node.number(), || {
            let end = self.read_unleased(node)?.raw.size;
            Ok(self
                .seek(node, offset, false)?
                .map_or(end, |found| found.min(end)))
        })
    }

    fn seek(&self, node: &Node, offset: u64, data: bool) -> Result<Option<u64>, FsError> {
        let body = self.read_unleased(node)?;
        body.require_regular()?;
        if offset >= body.raw.size {
            return Err(FsError::NoData);
        }
        let map = BlockMap::of(node.number(), &body.raw);
        let end = body.raw.size.div_ceil(BLOCK);
        let block = map.seek(&self.core.store, offset / BLOCK, end, data)?;
        Ok(block.map(|block| (block * BLOCK).max(offset)))
    }

    /// Locks a file for reading, whose lease, if it has one, ends before.
    fn read_unleased<'n>(&self, node: &'n Node) -> Result<RwLockReadGuard<'n, Body>, FsError> {
        loop {
            let body = node.read();
            if body.lease.is_none() {
                return Ok(body);
            }
            drop(body);
            self.end_lease(node)?;
        }
    }

    /// Updates the access time: one transaction.
    #[cold]
    fn touch_accessed(&self, node: &Node) -> Result<(), FsError> {
        let core = &*self.core;
        let mut body = node.write();
        let mut new = body.raw;
        new.accessed = core.now().nanoseconds();
        let mut transaction = core.begin();
        transaction.log_inode(node.number(), &body.raw, &mut new)?;
        transaction.commit()?;
        body.raw = new;
        Ok(())
    }
}

/// Whether a read has to renew the access time, which is
/// [`RawInode::access_since_change`](crate::format::RawInode::access_since_change).
#[inline]
fn access_is_stale(options: &crate::MountOptions, accessed: i64) -> bool {
    if options.read_only {
        return false;
    }
    match options.access_time {
        AccessTime::Never => false,
        AccessTime::Strict => true,
        AccessTime::Relative if accessed <= 0 => is_new_tick(options, accessed),
        AccessTime::Relative => {
            let now = options.clock.about_now().nanoseconds();
            now.saturating_sub(accessed) > DAY_NANOSECONDS
        }
    }
}

/// Whether the clock has moved since an access that came at the same tick as the last change. Until
/// then the time would be renewed for nothing, with a transaction for each read of a file that is
/// being written.
#[cold]
#[inline(never)]
fn is_new_tick(options: &crate::MountOptions, negated: i64) -> bool {
    options.clock.now().nanoseconds() != negated.wrapping_neg()
}
