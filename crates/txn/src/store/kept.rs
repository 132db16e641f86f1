//! Segments that users keep from each other.

use super::PmemStore;
use crate::domain::Domain;
use crate::store::PoolState;
use scatter::SegmentNumber;
use std::collections::{BTreeMap, HashMap};

/// Segments that stay with one user because processes have them, or have had their pages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Kept {
    /// Segments.
    pub segments: u64,
    /// Blocks in them that no file has and that only the user can have, also those that only the
    /// next checkpoint makes free.
    pub free_blocks: u64,
}

impl PmemStore {
    /// Counts the segments that each user keeps, root too, by user.
    pub(super) fn count_kept(&self) -> Vec<(u32, Kept)> {
        let mut users: BTreeMap<u32, Kept> = BTreeMap::new();
        let mut owners: HashMap<SegmentNumber, u32> = HashMap::new();
        for kept in self.allocator().kept() {
            if let Domain::Owner { uid, .. } = self.domains.domain(kept.owner) {
                let sum = users.entry(uid).or_default();
                sum.segments += 1;
                sum.free_blocks += kept.free_blocks;
                owners.insert(kept.segment, uid);
            }
        }
        if owners.is_empty() {
            return Vec::new();
        }
        // Behind the free blocks: a block that becomes free between the two counts once at most.
        let waiting = self.seen.waiting();
        for extent in self.journals.pending().iter().chain(&waiting) {
            for index in 0..u64::from(extent.blocks) {
                let segment = self.segment_of(extent.start + index);
                let user = segment.and_then(|segment| owners.get(&segment));
                if let Some(kept) = user.and_then(|user| users.get_mut(user)) {
                    kept.free_blocks += 1;
                }
            }
        }
        users.into_iter().collect()
    }
}
