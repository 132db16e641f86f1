//! Blocks held in DRAM instead of copied, and the state of the read cache.

use crate::format::BLOCK;
use crate::inode::copies::ReadCacheState;
use crate::inode::node::Node;
use crate::mounted::file_system::FileSystem;
use pmem::BLOCK_BYTES;
use readcache::{FileStatistics, Page, ReadCache, Statistics};
use std::ops::Range;
use txn::Store;

/// Bytes of a file that are held where they are.
pub struct Held {
    page: Page,
    bytes: Range<usize>,
}

impl Held {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.page.bytes()[self.bytes.clone()]
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl<S: Store> FileSystem<S> {
    /// What [`read`](Self::read) would read, held in DRAM instead of copied, if it lies in one block that has a copy there. The bytes are the file's at some
    /// moment of the call, and do not change afterwards; hold them for a moment only, because the copy cannot go as long.
    #[inline]
    pub fn hold(&self, node: &Node, offset: u64, length: usize) -> Option<Held> {
        let copies = node.copies()?;
        let snapshot = self.believable(node)?;
        let in_block = (offset % BLOCK) as usize;
        let left = snapshot.size.saturating_sub(offset);
        let length = (length as u64).min(left) as usize;
        if length == 0 || in_block + length > BLOCK_BYTES {
            return None;
        }
        let page = copies.hold(offset / BLOCK)?;
        let bytes = in_block..in_block + length;
        node.view()
            .is_current(&snapshot)
            .then_some(Held { page, bytes })
    }

    /// What became of [`MountOptions::read_cache`](crate::MountOptions::read_cache).
    pub fn read_cache_state(&self) -> ReadCacheState {
        self.core.copies.state
    }

    /// What the read cache did and holds; `None` without one.
    pub fn read_cache_statistics(&self) -> Option<Statistics> {
        self.core.copies.cache.as_ref().map(ReadCache::statistics)
    }

    /// The same for each file with copies, by the number of its inode; those with most hits first.
    pub fn read_cache_files(&self) -> Vec<FileStatistics> {
        let cache = self.core.copies.cache.as_ref();
        cache.map(ReadCache::files).unwrap_or_default()
    }
}
