//! One read of a file at one moment: from copies in DRAM, and from memory. Blocks on the device are
//! noted for later.

use super::elsewhere::FilePlace;
use crate::block_map::BlockMap;
use crate::format::{BLOCK, Pointer};
use crate::inode::node::Node;
use crate::locks::view::Snapshot;
use crate::mounted::file_system::Core;
use crate::values::error::FsError;
use device::DeviceBlock;
use pmem::{BLOCK_BYTES, BlockNumber};
use std::cell::Cell;
use txn::Store;

/// After so many hits in a row a thread's next read is taken for one.
const HITS_FORESEEN: u32 = 4;

thread_local! {
    /// Hits of this thread since its last miss, up to [`HITS_FORESEEN`].
    static HITS_IN_A_ROW: Cell<u32> = const { Cell::new(0) };
}

/// Whether the next read of this thread, of a file with copies, will find one: a guess that saves
/// time if it comes true.
#[inline]
fn is_hit_foreseen() -> bool {
    HITS_IN_A_ROW.get() == HITS_FORESEEN
}

/// Whether a read of this thread, of a file with copies, has found one.
#[inline]
fn note_outcome(is_hit: bool) {
    let before = HITS_IN_A_ROW.get();
    let now = if is_hit {
        (before + 1).min(HITS_FORESEEN)
    } else {
        0
    };
    if now != before {
        HITS_IN_A_ROW.set(now);
    }
}

/// A read of one file at one moment.
pub(crate) struct Reading<'r, S: Store> {
    pub(crate) core: &'r Core<S>,
    pub(crate) node: &'r Node,
    /// The state that the reader believes; `None` if it holds the lock.
    pub(crate) snapshot: Option<&'r Snapshot>,
}

impl<S: Store> Reading<'_, S> {
    /// Copies a part of a block that lies inside the file; `None` if its place is in doubt.
    #[inline]
    pub(super) fn one_block(
        &self,
        map: &BlockMap,
        block: u64,
        in_block: usize,
        into: &mut [u8],
    ) -> Option<()> {
        let store = &self.core.store;
        if self.node.copies().is_none() {
            let pointer = map.lookup(store, block).ok()?;
            return self.block(block, pointer, in_block, into).ok();
        }
        // The lines that a hit needs are on their way. Those that a miss needs come at the same
        // time, unless a hit is foreseen.
        let slot = (!is_hit_foreseen()).then(|| {
            let slot = map.slot(store, block);
            if let Ok(slot) = &slot {
                slot.prefetch(store);
            }
            slot
        });
        let is_hit = self.read_copy(block, in_block, into);
        note_outcome(is_hit);
        if !is_hit {
            let slot = slot.unwrap_or_else(|| map.slot(store, block)).ok()?;
            let pointer = map.pointer(store, slot, block).ok()?;
            self.block(block, pointer, in_block, into).ok()?;
        }
        Some(())
    }

    /// Copies a range that lies inside the file.
    pub(super) fn range<'b>(
        &self,
        map: &BlockMap,
        offset: u64,
        into: &'b mut [u8],
        mut note: impl FnMut(FilePlace, &'b mut [u8]),
    ) -> Result<(), FsError> {
        let first = offset / BLOCK;
        let last = (offset + into.len() as u64 - 1) / BLOCK;
        let mut rest = into;
        let mut in_block = (offset % BLOCK) as usize;
        map.lookup_range(
            &self.core.store,
            first,
            last - first + 1,
            |index, pointer| {
                let length = rest.len().min(BLOCK_BYTES - in_block);
                let (part, tail) = std::mem::take(&mut rest).split_at_mut(length);
                if !self.read_copy(index, in_block, part)
                    && let Err(block) = self.block(index, pointer, in_block, part)
                {
                    let place = FilePlace {
                        index,
                        block,
                        in_block,
                    };
                    note(place, part);
                }
                rest = tail;
                in_block = 0;
            },
        )?;
        Ok(())
    }

    /// Copies a part of a block out of memory.
    ///
    /// # Errors
    ///
    /// The block lies on the device; nothing was copied.
    #[inline]
    fn block(
        &self,
        index: u64,
        pointer: Option<Pointer>,
        in_block: usize,
        into: &mut [u8],
    ) -> Result<(), DeviceBlock> {
        match pointer {
            Some(Pointer::Written(block)) => {
                self.core.used(block);
                self.read_medium(index, block, in_block, into);
            }
            Some(Pointer::Device(block)) => return Err(block),
            Some(Pointer::Unwritten(_)) | None => into.fill(0),
        }
        Ok(())
    }

    /// A part of a block from DRAM. `false` if it is not there; `into` holds anything then.
    #[inline]
    fn read_copy(&self, block: u64, in_block: usize, into: &mut [u8]) -> bool {
        self.node
            .copies()
            .is_some_and(|copies| copies.read(block, in_block, into))
    }

    /// A part of a block that lies at `home`, from the medium.
    #[inline]
    fn read_medium(&self, block: u64, home: BlockNumber, in_block: usize, into: &mut [u8]) {
        let Some(cache) = &self.core.copies.cache else {
            return self.core.store.read_data(home, in_block, into);
        };
        let tag = self.node.number().get();
        cache.will_miss(tag, block);
        self.core.store.read_data(home, in_block, into);
        // Nothing changes while the reader holds the lock.
        let is_current = || {
            let view = self.node.view();
            self.snapshot
                .is_none_or(|snapshot| view.is_current(snapshot))
        };
        cache.missed(&self.node.0.copies, tag, block, home, is_current);
    }
}
