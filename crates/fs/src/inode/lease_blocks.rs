//! What is known of the blocks of a lease while it lasts.

use super::leaves::Leaves;
use lease::Ring;
use pmem::BlockNumber;
use txn::Corruption;

/// The blocks of a lease, as its block map says: kept in DRAM, because to look them all up takes as long as to fold some ten records.
pub(crate) struct LeaseBlocks {
    pub(crate) ring: Ring,
    /// Those for nodes that are left, with their place in the lease.
    pub(crate) nodes: Vec<(u64, BlockNumber)>,
    pub(crate) spares: Vec<Option<BlockNumber>>,
    /// Why nothing can be folded: a spare block counts or not, or the ring is damaged.
    pub(crate) unknown: Option<Corruption>,
    /// Lowest nodes of the file's map, and of the lease's.
    pub(crate) file_leaves: Leaves,
    pub(crate) leaves: Leaves,
    /// Records that one transaction folds; the last write among them may add as many as belong together.
    pub(crate) records_per_fold: u64,
}

impl LeaseBlocks {
    /// The blocks of a lease that cannot be read.
    pub(crate) fn unreadable(why: Corruption) -> LeaseBlocks {
        LeaseBlocks {
            ring: Ring::new(vec![BlockNumber::new(0)]),
            nodes: Vec::new(),
            spares: Vec::new(),
            unknown: Some(why),
            file_leaves: Leaves::new(),
            leaves: Leaves::new(),
            records_per_fold: 0,
        }
    }

    /// From here on nothing is folded.
    pub(crate) fn hold_back(&mut self, why: Corruption) {
        self.unknown = Some(why);
    }
}
