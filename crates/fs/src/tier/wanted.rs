//! Bringing blocks back that are read again.

use crate::changes::device::bring_in;
use crate::format::InodeNumber;
use crate::mounted::file_system::Core;
use crate::mounted::tiering::Tiering;
use crate::values::error::FsError;
use txn::Store;

/// Blocks that are brought in between two looks at the memory.
const BLOCKS_AT_ONCE: usize = 64;

impl<S: Store> Core<S> {
    /// Brings in some of the blocks that readers want. Returns how many it has tried.
    pub(super) fn bring_wanted_in(&self, tier: &Tiering) -> usize {
        let mut wanted: Vec<(u64, u64)> = {
            let mut all = tier.wanted.lock();
            let count = all.len().min(BLOCKS_AT_ONCE);
            all.drain(..count).collect()
        };
        wanted.sort_unstable();
        wanted.dedup();
        for &(file, block) in &wanted {
            let brought = self
                .begin_change()
                .and_then(|()| self.node(InodeNumber::new(file)))
                .and_then(|node| bring_in(self, &node, (block, 1)));
            // A reader gets the error, if there still is one, and a full memory keeps what it has.
            if let Err(error) = brought
                && !matches!(error, FsError::NotFound | FsError::NoSpace)
            {
                tracing::debug!(inode = file, block, %error, "a block stays on the device");
            }
        }
        wanted.len()
    }
}
