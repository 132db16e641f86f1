//! Space that users' processes keep: segments that they have mapped, or hold a descriptor of, stay
//! with their user after the files in them are gone (`docs/DIRECT.md`, *Kept segments*).

use crate::mounted::file_system::{Core, FileSystem};
use crate::values::types::KeptSpace;
use txn::Store;

/// Segments whose free blocks do not count, because each process needs some.
const FREE_OF_CHARGE_SEGMENTS: u64 = 4;
/// The part of a small pool that is free of charge, if four segments are more.
const FREE_OF_CHARGE_PART: u64 = 16;

impl<S: Store> FileSystem<S> {
    /// Returns what users keep. Until the next call the charged blocks count against their quotas.
    pub fn count_kept(&self) -> Vec<KeptSpace> {
        self.core.count_kept()
    }

    /// Returns how many segments a user can have beyond those that `kept`, the last count, has:
    /// until files and kept blocks reach the quota, and until all segments together, without those
    /// that are free of charge, do. The last segment may go beyond. `None` without a quota.
    pub fn segments_left_by_quota(&self, user: u32, kept: &[KeptSpace]) -> Option<u64> {
        let own = kept.iter().find(|kept| kept.user == user);
        let segments = own.map_or(0, |kept| kept.segments);
        let segment_blocks = self.core.store.geometry().segment_blocks;
        let blocks = (segments * segment_blocks).saturating_sub(self.core.free_of_charge());
        let left = self.core.quotas.blocks_left(user, blocks)?;
        Some(left.map_or(0, |blocks| blocks / segment_blocks + 1))
    }
}

impl<S: Store> Core<S> {
    /// Blocks of a user's kept segments that do not count.
    fn free_of_charge(&self) -> u64 {
        let geometry = self.store.geometry();
        let pool_blocks = u64::from(geometry.segments) * geometry.segment_blocks;
        let blocks = FREE_OF_CHARGE_SEGMENTS * geometry.segment_blocks;
        blocks.min(pool_blocks / FREE_OF_CHARGE_PART)
    }

    pub(crate) fn count_kept(&self) -> Vec<KeptSpace> {
        let free_of_charge = self.free_of_charge();
        let kept: Vec<KeptSpace> = self
            .store
            .kept()
            .iter()
            .map(|(user, kept)| KeptSpace {
                user: *user,
                segments: kept.segments,
                free_blocks: kept.free_blocks,
                charged_blocks: kept.free_blocks.saturating_sub(free_of_charge),
            })
            .collect();
        self.quotas.set_kept(&kept);
        let is_charged = |kept: &&KeptSpace| kept.user != 0 && kept.charged_blocks > 0;
        let sparing = kept.iter().filter(is_charged).map(|kept| kept.user);
        self.store.spare_segments(sparing.collect());
        kept
    }
}
