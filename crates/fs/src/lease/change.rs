//! This module prepares a file for a change of its content.

use crate::block_map::BlockMap;
use crate::changes::device::bring_in;
use crate::format::{BLOCK, Pointer};
use crate::inode::node::{Body, BodyWrite, Node};
use crate::mounted::file_system::Core;
use crate::values::error::FsError;
use pmem::deliberate::{self, Bug};
use txn::Store;

/// Blocks of a file that a change needs in part: those at the ends of a range of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends([Option<u64>; 2]);

impl Ends {
    /// The change needs no old byte.
    pub(crate) const NONE: Ends = Ends([None; 2]);

    /// Those of `start..end`, unless the range covers them. Bytes behind the end of the file count
    /// as old ones: they have to stay zeros (R5).
    pub(crate) fn of(start: u64, end: u64) -> Ends {
        let partial = |at: u64| (!at.is_multiple_of(BLOCK)).then_some(at / BLOCK);
        match start < end {
            true => Ends([partial(start), partial(end)]),
            false => Ends::NONE,
        }
    }
}

impl<S: Store> Core<S> {
    /// Prepares a change of content of a file that the caller has locked: its lease ends, and the
    /// blocks that the change needs in part are memory (D3). A block that is not is brought in
    /// first, and the file is unlocked meanwhile: the caller looks at it afterwards. (The lock is
    /// not handed over, because a guard that moves is copied.)
    ///
    /// # Errors
    ///
    /// Those of [`end_lease`](Self::end_lease) and [`bring_in`].
    #[inline]
    pub(crate) fn prepare_change(
        &self,
        node: &Node,
        body: &mut BodyWrite<'_>,
        ends: impl Fn(&Body) -> Ends,
    ) -> Result<(), FsError> {
        self.end_lease(node, body)?;
        match self.store.device() {
            None => Ok(()),
            Some(_) => self.bring_ends_in(node, body, ends),
        }
    }

    #[cold]
    #[inline(never)]
    fn bring_ends_in(
        &self,
        node: &Node,
        body: &mut BodyWrite<'_>,
        ends: impl Fn(&Body) -> Ends,
    ) -> Result<(), FsError> {
        while let Some(index) = self.first_on_device(node, body, ends(body))? {
            body.unlocked(|| bring_in(self, node, (index, 1)))?;
            self.end_lease(node, body)?;
        }
        // Behind the last moment without the lock: the tier looks at the file after this change.
        self.note_change(node);
        Ok(())
    }

    fn first_on_device(
        &self,
        node: &Node,
        body: &Body,
        Ends(ends): Ends,
    ) -> Result<Option<u64>, FsError> {
        if body.require_regular().is_err() || deliberate::is(Bug::LogDeviceData) {
            // In the first case the operation returns the error.
            return Ok(None);
        }
        let map = BlockMap::of(node.number(), &body.raw);
        for index in ends.into_iter().flatten() {
            let pointer = map.lookup(&self.store, index)?;
            if matches!(pointer, Some(Pointer::Device(_))) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }
}
