//! Space that users' processes keep: segments that they have mapped, or hold a descriptor of, stay
//! with their user after the files in them are gone (`docs/DIRECT.md`, *Kept segments*).

use crate::file_system::{Core, FileSystem};
use txn::Store;

/// Segments whose free blocks do not count, because each process needs some.
const FREE_OF_CHARGE_SEGMENTS: u64 = 4;
/// The part of a small pool that is free of charge, if four segments are more.
const FREE_OF_CHARGE_PART: u64 = 16;

/// Segments of one user that other users cannot have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeptSpace {
    /// The user.
    pub user: u32,
    /// Segments that stay with the user.
    pub segments: u64,
    /// Blocks of 4 KiB in them that are free.
    pub free_blocks: u64,
    /// Blocks that count against the user's quota and share, because no files justify them.
    pub charged_blocks: u64,
}

impl<S: Store> FileSystem<S> {
    /// Returns what users keep. Until the next call the charged blocks count against their quotas.
    pub fn count_kept(&self) -> Vec<KeptSpace> {
        self.core.count_kept()
    }

    /// Returns whether a user's files and the space that the user keeps fit the quota.
    pub fn is_within_quota(&self, user: u32) -> bool {
        self.core.quotas.is_within(user)
    }
}

impl<S: Store> Core<S> {
    pub(crate) fn count_kept(&self) -> Vec<KeptSpace> {
        let geometry = self.store.geometry();
        let pool_blocks = u64::from(geometry.segments) * geometry.segment_blocks;
        let free_of_charge = (FREE_OF_CHARGE_SEGMENTS * geometry.segment_blocks)
            .min(pool_blocks / FREE_OF_CHARGE_PART);
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
