//! The end of a lease: it is taken back when the file is needed, or needed no more.

use super::fold::Parties;
use crate::format::lease::RawLease;
use crate::inode::attached::LeaseRemains;
use crate::inode::node::{Body, FileLease, Node};
use crate::mounted::file_system::{Core, FileSystem};
use crate::values::error::FsError;
use lease::Trust;
use std::sync::Arc;
use txn::Store;

impl<S: Store> FileSystem<S> {
    /// Ends the lease of a file, if it has one.
    ///
    /// # Errors
    ///
    /// As [`fold_lease`](Self::fold_lease); the lease has not ended then, and nobody gets at the file until it can be ended, or the next mount folds it.
    pub fn end_lease(&self, node: &Node) -> Result<(), FsError> {
        let mut body = node.write();
        self.core.end_lease(node, &mut body)
    }

    /// The same for who has used the file by its lease only, and no longer does. Of a file that has no name any more, and no other user, nothing is folded: nobody will read it.
    ///
    /// # Errors
    ///
    /// As [`end_lease`](Self::end_lease).
    pub fn drop_lease(&self, node: Node) -> Result<(), FsError> {
        let mut body = node.write();
        let Some(lease) = body.lease.take() else {
            return Ok(());
        };
        // This reference and the lease's. Nobody gets another one: an inode without a name is not found.
        let is_unwanted = body.raw.links == 0 && Arc::strong_count(&node.0) == 2;
        self.core.take_back(&node, &mut body, lease, is_unwanted)
    }
}

impl<S: Store> Core<S> {
    /// L1: ends the lease of a file whose content or attributes somebody wants to change, and tells who reads its blocks.
    #[inline]
    pub(crate) fn end_lease(&self, node: &Node, body: &mut Body) -> Result<(), FsError> {
        if let Some(watcher) = body.watcher.take() {
            watcher.ended();
        }
        match body.lease.take() {
            None => Ok(()),
            Some(lease) => self.take_back(node, body, lease, false),
        }
    }

    /// On an error the file stays leased, so that nobody changes what the next attempt, or the next mount, folds over; the holder is not asked again.
    #[cold]
    #[inline(never)]
    pub(super) fn take_back(
        &self,
        node: &Node,
        body: &mut Body,
        mut lease: Box<FileLease>,
        is_unwanted: bool,
    ) -> Result<(), FsError> {
        self.note_change(node);
        let taken = lease.taken.unwrap_or_else(|| lease.holder.take_back());
        lease.taken = Some(taken);
        let mut state = lease.lease.write();
        let mut parties = Parties {
            file: node.number(),
            body,
            lease: lease.lease.number(),
            raw: &mut state.raw,
            blocks: &mut lease.blocks,
        };
        let is_honest = taken.trust == Trust::All && taken.busy_block.is_none();
        let outcome = match is_unwanted && is_honest {
            true => self.charge_unfolded(&mut parties),
            false => self.settle(&mut parties, taken),
        };
        let next = RawLease::of(&state.raw).map_or(0, |words| words.next);
        drop(state);
        if outcome.is_err() {
            body.lease = Some(lease);
            return outcome;
        }
        let FileLease { lease, holder, .. } = *lease;
        holder.ended(LeaseRemains::new(lease.0), next);
        Ok(())
    }
}
