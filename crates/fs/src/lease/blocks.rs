//! The blocks of a lease: how many there may be, and where they are.

use super::own::OwnSegments;
use crate::block_map::BlockMap;
use crate::format::lease::{NODE_BLOCKS, RawLease};
use crate::format::{InodeNumber, Pointer, RawInode};
use crate::inode::lease_blocks::LeaseBlocks;
use crate::inode::leaves::Leaves;
use crate::mounted::file_system::Core;
use crate::values::error::{FsError, damaged_inode};
use lease::{GROUP_RECORDS_MAX, RECORDS_AT_ONCE_MAX, RECORDS_PER_BLOCK, Ring};
use pmem::{BlockNumber, Offset};
use scatter::{DomainId, Extents};
use txn::{Store, Transaction};

/// Bytes that a pointer makes of a transaction, with where it goes. A record changes one of the file's and one of the lease's.
const LOGGED_BYTES: usize = 16;
/// The inodes of both, and what else a transaction consists of.
const LOGGED_BESIDES: usize = 1024;
/// Records that one transaction folds at least, even if that is more than half of a very small journal.
const RECORDS_PER_FOLD_MIN: usize = 128;

/// How much a lease lets its holder write before the server has to fold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseSize {
    /// Blocks of the ring, a power of two: 64 records each.
    pub ring_blocks: u32,
    /// Spare blocks: as many can be appended.
    pub spare_blocks: u32,
}

/// Half of a journal at most, so that not each fold needs a checkpoint; and the last write's records have to fit as well.
fn records_per_fold(record_bytes_max: usize, spare_blocks: usize) -> u64 {
    let group = GROUP_RECORDS_MAX as usize * 2 * LOGGED_BYTES;
    let most = (record_bytes_max / 2).min(record_bytes_max.saturating_sub(LOGGED_BESIDES + group));
    // However often a spare block changes places, its pointer changes once.
    let spares = spare_blocks.min(most / LOGGED_BYTES / 2);
    let records = most / LOGGED_BYTES - spares;
    // Who counts fewer than this has come to the newest one, so it must not be more than are judged.
    (records.max(RECORDS_PER_FOLD_MIN) as u64).min(RECORDS_AT_ONCE_MAX)
}

/// Whether all that one transaction has to fold fits a journal.
pub(super) fn can_be_folded(record_bytes_max: usize, size: LeaseSize) -> bool {
    let ring = size.ring_blocks as usize * RECORDS_PER_BLOCK as usize;
    let records = ring.min(RECORDS_PER_FOLD_MIN + GROUP_RECORDS_MAX as usize);
    let pointers = records + records.min(size.spare_blocks as usize);
    pointers * LOGGED_BYTES + LOGGED_BESIDES <= record_bytes_max
}

/// All blocks of extents, in order.
pub(super) fn blocks_of(extents: &Extents) -> impl Iterator<Item = BlockNumber> + '_ {
    extents
        .iter()
        .flat_map(|extent| (0..u64::from(extent.blocks)).map(|index| extent.start + index))
}

/// Reads where the blocks of a lease are. L5: spare blocks outside of the domain's segments do not count. Where it is not known whose a segment is, nothing can be folded.
pub(super) fn lease_blocks<S: Store>(
    core: &Core<S>,
    (number, raw): (InodeNumber, &RawInode),
    words: &RawLease,
    domain: DomainId,
) -> Result<LeaseBlocks, FsError> {
    let mut own = OwnSegments::new(&core.store, domain);
    let mut unknown = None;
    let mut is_own = |block: &BlockNumber| {
        let have = own.have(*block);
        have.unwrap_or_else(|why| {
            unknown = Some(why);
            false
        })
    };
    let mut ring = Vec::with_capacity(words.ring_blocks as usize);
    let mut nodes = Vec::with_capacity(NODE_BLOCKS as usize);
    let mut spares = Vec::with_capacity(words.spare_blocks as usize);
    let map = BlockMap::of(number, raw);
    map.lookup_range(&core.store, 0, words.replaced(), |index, pointer| {
        let block = pointer.and_then(Pointer::memory);
        match block {
            _ if index >= words.first_spare() => {
                spares.push(block.filter(&mut is_own));
            }
            Some(block) if index < words.first_node() => ring.push(block),
            Some(block) => nodes.push((index, block)),
            None => {}
        }
    })?;
    if ring.len() != words.ring_blocks as usize {
        return Err(damaged_inode(number, "the ring of the lease has a hole"));
    }
    Ok(LeaseBlocks {
        ring: Ring::new(ring),
        nodes,
        records_per_fold: records_per_fold(core.begin().record_bytes().1, spares.len()),
        spares,
        unknown,
        file_leaves: Leaves::new(),
        leaves: Leaves::new(),
    })
}

/// A store, as `lease` reads it.
pub(super) struct Medium<'s, S>(pub(super) &'s S);

impl<S: Store> lease::Medium for Medium<'_, S> {
    fn read(&self, at: Offset, into: &mut [u8]) {
        self.0.read(at, into);
    }

    fn prefetch(&self, at: Offset) {
        self.0.prefetch(at);
    }

    fn release(&self, at: Offset, length: usize) {
        self.0.release(at, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmem::BLOCK_BYTES;

    #[test]
    fn what_one_transaction_folds_fits_a_journal() {
        for half_blocks in [4, 8, 32, 256, 4096] {
            let half_bytes = half_blocks * BLOCK_BYTES;
            for spare_blocks in [0, 4, 512, 4096] {
                let records = records_per_fold(half_bytes, spare_blocks) as usize;
                let last = GROUP_RECORDS_MAX as usize;
                let pointers = records + last + spare_blocks.min(records + last);
                assert!(pointers * LOGGED_BYTES + LOGGED_BESIDES <= half_bytes);
                assert!(records >= RECORDS_PER_FOLD_MIN);
            }
        }
        assert_eq!(records_per_fold(32 * BLOCK_BYTES, 512), 3_584);
    }
}
