//! How much room there is in the pool.

use crate::format::inode::INODES_PER_BLOCK;
use crate::format::map::{FANOUT, HEIGHT_MAX};
use crate::format::{InodeNumber, NAME_BYTES_MAX};
use crate::inode::table::InodeTable;
use crate::mounted::file_system::FileSystem;
use crate::values::types::SpaceStatistics;
use device::Residents;
use pmem::BLOCK_BYTES;
use txn::{PoolDevice, Store};

/// How many blocks of data fit into `blocks` if one file takes them all, with its map.
const fn data_blocks_in(blocks: u64) -> u64 {
    // n blocks have less than n / (FANOUT - 1) + HEIGHT_MAX nodes.
    blocks.saturating_sub(blocks / FANOUT + HEIGHT_MAX as u64)
}

impl<S: Store> FileSystem<S> {
    /// What `statfs` tells this user: what is available to him is not what only others can have, because processes of theirs have it mapped.
    pub fn statistics_for(&self, user: u32) -> SpaceStatistics {
        let all = self.statistics();
        let held = self.core.store.held_from(user);
        SpaceStatistics {
            available_blocks: all.available_blocks.saturating_sub(held),
            ..all
        }
    }

    /// What there is, whoever can have it.
    pub fn statistics(&self) -> SpaceStatistics {
        let core = &*self.core;
        let geometry = core.store.geometry();
        let allocator = core.store.allocator();
        // What was removed is free for whoever asks, although it waits for a checkpoint: a shortage brings one about.
        let free_blocks = allocator.free_blocks() + core.store.pending_blocks();
        let available_blocks =
            data_blocks_in(free_blocks.saturating_sub(allocator.reserve_blocks()));
        let could_be_made = available_blocks * INODES_PER_BLOCK;
        let limit = InodeNumber::MAX.get();
        let device = core.store.device();
        // A clean block takes a place of each, and gives one back when it is needed.
        let known = device.and_then(PoolDevice::residents);
        let clean_blocks = known.map_or(0, Residents::clean_blocks);
        let (device_blocks, device_free) =
            device.map_or((0, 0), |device| (device.blocks(), device.free_blocks()));
        SpaceStatistics {
            block_bytes: BLOCK_BYTES as u32,
            blocks: u64::from(geometry.segments) * geometry.segment_blocks + device_blocks,
            free_blocks: free_blocks + device_free + clean_blocks,
            available_blocks: available_blocks + device_free + clean_blocks,
            inodes: (InodeTable::capacity(&core.store) + could_be_made).min(limit),
            free_inodes: (core.table.free_count() + could_be_made).min(limit),
            name_max: NAME_BYTES_MAX as u32,
        }
    }
}
