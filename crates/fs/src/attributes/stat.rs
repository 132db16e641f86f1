//! What `stat` tells of an inode, and changes of it.

use crate::changes::{handover, tail};
use crate::format::{MODE_PERMISSION_MASK, MODE_TYPE_MASK};
use crate::inode::node::Node;
use crate::inode::rights;
use crate::lease::change::Ends;
use crate::mounted::file_system::FileSystem;
use crate::values::error::FsError;
use crate::values::types::{Attributes, SetAttributes};
use txn::{Store, Transaction};

impl<S: Store> FileSystem<S> {
    /// What `stat` tells.
    ///
    /// # Errors
    ///
    /// Of a leased file those of [`fold_lease`](Self::fold_lease); else damage was noticed when the node was made.
    pub fn attributes(&self, node: &Node) -> Result<Attributes, FsError> {
        self.core
            .shown(node.number(), || self.attributes_unsettled(node))
    }

    /// As [`attributes`](Self::attributes), without the wait of [`settle`](Self::settle).
    ///
    /// # Errors
    ///
    /// As [`attributes`](Self::attributes).
    pub fn attributes_unsettled(&self, node: &Node) -> Result<Attributes, FsError> {
        let body = node.read();
        if body.lease.is_none() {
            return Ok(Attributes::of(node.number(), &body.raw));
        }
        drop(body);
        self.fold_lease(node)?;
        Ok(Attributes::of(node.number(), &node.read().raw))
    }

    /// Changes attributes: one transaction. Of a file that gets another owner the blocks move before that, in transactions of their own.
    ///
    /// # Errors
    ///
    /// [`FsError::ReadOnly`], [`FsError::IsADirectory`] or [`FsError::InvalidArgument`] for a size on
    /// something else than a file, [`FsError::FileTooLarge`], [`FsError::NoSpace`] (also for another owner), [`FsError::Corrupt`].
    pub fn set_attributes(
        &self,
        node: &Node,
        change: &SetAttributes,
    ) -> Result<Attributes, FsError> {
        let core = &*self.core;
        core.durably(|| {
            let mut body = node.write();
            core.prepare_change(node, &mut body, |body| match change.size_bytes {
                Some(size) if size < body.raw.size => Ends::of(size, body.raw.size),
                _ => Ends::NONE,
            })?;
            if change
                .uid
                .is_some_and(|user| handover::is_needed(&body.raw, user))
            {
                core.note_change(node);
                handover::leave_owner(core, node.number(), &mut body)?;
            }
            if change.mode.is_some_and(rights::has_set_id) {
                handover::leave_for_rights(core, node.number(), &mut body)?;
            }
            if change.size_bytes.is_some_and(|size| size > body.raw.size) {
                tail::zero_tail(core, node.number(), &body.raw)?;
            }
            let now = core.now();
            let mut new = body.raw;
            let mut transaction = core.begin();
            if let Some(size) = change.size_bytes {
                body.require_regular()?;
                let cut = match change.uid {
                    None => size..body.raw.size,
                    Some(_) => 0..body.raw.size,
                };
                body.changes_content(&core.copies, cut);
                tail::resize(core, node.number(), &body, &mut new, size, &mut transaction)?;
                new.touch_modified(now);
            }
            if let Some(mode) = change.mode {
                let kept = new.mode & MODE_TYPE_MASK;
                new.mode = kept | (mode & MODE_PERMISSION_MASK);
            }
            new.uid = change.uid.unwrap_or(new.uid);
            new.gid = change.gid.unwrap_or(new.gid);
            new.accessed = change
                .accessed
                .map_or(new.accessed, |time| time.resolve(now));
            new.modified = change
                .modified
                .map_or(new.modified, |time| time.resolve(now));
            new.touch_changed(now);
            transaction.log_inode(node.number(), &body.raw, &mut new)?;
            transaction.commit()?;
            body.raw = new;
            body.domain = core.domain(node.number(), &new);
            Ok(Attributes::of(node.number(), &new))
        })
    }
}
