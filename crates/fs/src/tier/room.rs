//! Writers that find the memory nearly full.
//!
//! A writer looks at one flag. Only if it is set does the writer ask how much room there is: it
//! pauses as [`Levels`](tier::Levels) says, or waits until something is free. It holds no lock
//! then.

use crate::format::BLOCK;
use crate::mounted::file_system::Core;
use crate::mounted::tiering::Tiering;
use scatter::DomainId;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tier::Room;
use txn::{PoolDevice, Store};

/// A writer asks at least so often whether there is room.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Longest wait of one call, after which the caller is told that there is no room: nothing can be
/// moved to the device, which is full or fails.
const WAIT_LONGEST: Duration = Duration::from_secs(30);

impl<S: Store> Core<S> {
    /// The free, clean and dirty blocks of the memory.
    pub(super) fn room(&self) -> Room {
        let allocator = self.store.allocator();
        let all_free = allocator.free_blocks();
        let free = all_free.saturating_sub(allocator.reserve_blocks());
        let clean = self.tiered().map_or(0, |(_, known)| known.clean_blocks());
        let geometry = self.store.geometry();
        let blocks = u64::from(geometry.segments) * geometry.segment_blocks;
        let metadata = self
            .tier
            .as_ref()
            .map_or(0, |tier| tier.metadata_blocks.load(Ordering::Relaxed));
        let pending = self.store.pending_blocks();
        Room {
            blocks,
            free,
            clean,
            dirty: blocks.saturating_sub(all_free + clean + metadata + pending),
        }
    }

    /// Counts the blocks of metadata, which are not dirty, for the next calls of
    /// [`room`](Self::room). Takes a while.
    pub(super) fn count_metadata(&self, tier: &Tiering) {
        let blocks = self.store.allocator().blocks_in_use(DomainId::METADATA);
        tier.metadata_blocks.store(blocks, Ordering::Relaxed);
    }

    /// Waits until a write of so many bytes finds room, if the memory is nearly full. The caller
    /// holds no lock.
    #[inline]
    pub(crate) fn wait_for_room(&self, bytes: usize) {
        if let Some(tier) = &self.tier
            && tier.is_tight.load(Ordering::Relaxed)
        {
            self.pause_writer(tier, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn pause_writer(&self, tier: &Tiering, bytes: usize) {
        let blocks = (bytes as u64).div_ceil(BLOCK).max(1);
        let room = self.room();
        if !tier.levels.is_full(room) {
            let pause = tier.levels.pause(room, blocks, tier.pace());
            tier.has_work.notify_all();
            if !pause.is_zero() && tier.has_threads() {
                tier.counters.pauses.fetch_add(1, Ordering::Relaxed);
                let _waiting = self.store.device().map(PoolDevice::waiting);
                std::thread::sleep(pause);
            }
            return;
        }
        self.wait_until(tier, blocks, || !tier.levels.is_full(self.room()));
    }

    /// A write has found no room. Returns whether it may find some now. The caller holds no lock.
    ///
    /// Blocks may be free where the writer cannot have them: in segments of metadata or of other
    /// owners. So what counts is that something was evicted since.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&self, bytes: usize) -> bool {
        let blocks = (bytes as u64).div_ceil(BLOCK).max(1);
        match &self.tier {
            Some(tier) => {
                let before = tier.counters.evicted.load(Ordering::Relaxed);
                self.wait_until(tier, blocks, || {
                    tier.counters.evicted.load(Ordering::Relaxed) != before
                })
            }
            None => false,
        }
    }

    /// Has blocks evicted until there is room. `false` if none can be made.
    fn wait_until(&self, tier: &Tiering, blocks: u64, is_room: impl Fn() -> bool) -> bool {
        let until = Instant::now() + WAIT_LONGEST;
        tier.counters.pauses.fetch_add(1, Ordering::Relaxed);
        while !is_room() {
            if !tier.has_threads() {
                if self.step(tier, Instant::now(), blocks) == 0 {
                    return false;
                }
                continue;
            }
            if Instant::now() >= until || self.is_stuck(tier) {
                return false;
            }
            let _waiting = self.store.device().map(PoolDevice::waiting);
            let mut bell = tier.bell.lock();
            tier.demand.fetch_max(blocks, Ordering::Relaxed);
            tier.has_work.notify_all();
            tier.has_room.wait_for(&mut bell, LOOK_EVERY);
        }
        true
    }

    /// Whether waiting is in vain: nothing is clean, and nothing becomes clean.
    fn is_stuck(&self, tier: &Tiering) -> bool {
        let room = self.room();
        let is_full = || {
            self.store
                .device()
                .is_none_or(|device| device.free_blocks() == 0)
        };
        room.clean == 0 && (is_full() || tier.has_failed_for(WAIT_LONGEST / 10))
    }
}
