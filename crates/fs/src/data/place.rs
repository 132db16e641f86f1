//! Where the content of files lies: in memory, or on the device.

use crate::block_map::BlockMap;
use crate::changes::device;
use crate::changes::relocate::BLOCKS_AT_ONCE;
use crate::format::{BLOCK, Pointer};
use crate::inode::node::Node;
use crate::mounted::file_system::FileSystem;
use crate::values::error::FsError;
use std::ops::Range;
use txn::Store;

impl<S: Store> FileSystem<S> {
    /// Moves written blocks of a file, among those of `blocks` (indexes in the file), from memory
    /// to the device, one transaction for 256 of them. Content and times stay as they are.
    ///
    /// Returns how many have moved: fewer, or none, if the file changes meanwhile, or if a process
    /// has it attached.
    ///
    /// # Errors
    ///
    /// [`FsError::NoSpace`] if the device is full or there is none, [`FsError::Device`],
    /// [`FsError::InvalidArgument`] if it is no file, [`FsError::ReadOnly`], [`FsError::Corrupt`];
    /// some may have moved then.
    pub fn move_to_device(&self, node: &Node, blocks: Range<u64>) -> Result<u64, FsError> {
        let core = &*self.core;
        core.durably(|| {
            let mut moved = 0;
            for (first, count) in self.batches(node, blocks)? {
                moved += device::move_to_device(core, node, (first, count))?;
            }
            Ok(moved)
        })
    }

    /// Moves those of the blocks that lie on the device back to memory.
    ///
    /// # Errors
    ///
    /// [`FsError::NoSpace`] if memory is full, [`FsError::Device`], [`FsError::InvalidArgument`] if
    /// it is no file, [`FsError::ReadOnly`], [`FsError::Corrupt`]; some may have moved then.
    pub fn bring_in(&self, node: &Node, blocks: Range<u64>) -> Result<(), FsError> {
        let core = &*self.core;
        core.durably(|| {
            for part in self.batches(node, blocks)? {
                device::bring_in(core, node, part)?;
            }
            Ok(())
        })
    }

    /// How many of those blocks of a file lie on the device.
    ///
    /// # Errors
    ///
    /// [`FsError::InvalidArgument`] if it is no file, [`FsError::Corrupt`].
    pub fn blocks_on_device(&self, node: &Node, blocks: Range<u64>) -> Result<u64, FsError> {
        let mut count = 0;
        for (first, length) in self.batches(node, blocks)? {
            let body = node.read();
            let map = BlockMap::of(node.number(), &body.raw);
            map.lookup_range(&self.core.store, first, length, |_, pointer| {
                count += u64::from(matches!(pointer, Some(Pointer::Device(_))));
            })?;
        }
        Ok(count)
    }

    /// The part of `blocks` that the file has, in pieces for one transaction each.
    fn batches(
        &self,
        node: &Node,
        blocks: Range<u64>,
    ) -> Result<impl Iterator<Item = (u64, u64)> + use<S>, FsError> {
        let body = node.read();
        body.require_regular()?;
        let end = blocks.end.min(body.raw.size.div_ceil(BLOCK));
        let firsts = (blocks.start..end).step_by(BLOCKS_AT_ONCE as usize);
        Ok(firsts.map(move |first| (first, BLOCKS_AT_ONCE.min(end - first))))
    }
}
