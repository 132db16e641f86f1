//! Watchers read the blocks of a file without asking, and are told before its content changes.

use crate::inode::attached::Watcher;
use crate::inode::node::Node;
use crate::mounted::file_system::FileSystem;
use crate::values::error::FsError;
use std::sync::Arc;
use txn::Store;

impl<S: Store> FileSystem<S> {
    /// Has `watcher` told before the file's content changes; whoever watched before is told now. Returns the bytes of the file.
    ///
    /// # Errors
    ///
    /// [`FsError::NotPermitted`] if it is leased; [`FsError::InvalidArgument`], [`FsError::IsADirectory`] if it is no file.
    pub fn watch(&self, node: &Node, watcher: Arc<dyn Watcher>) -> Result<u64, FsError> {
        let mut body = node.write();
        body.require_regular()?;
        if body.lease.is_some() {
            return Err(FsError::NotPermitted("the file is leased"));
        }
        if let Some(before) = body.watcher.replace(watcher) {
            before.ended();
        }
        Ok(body.raw.size)
    }

    /// Tells this watcher of the file that it is one no longer, if it still is; another one stays.
    pub fn end_watch(&self, node: &Node, watcher: &dyn Watcher) {
        let mut body = node.write();
        let is_it = |there: &mut Arc<dyn Watcher>| std::ptr::addr_eq(&raw const **there, watcher);
        if let Some(watcher) = body.watcher.take_if(is_it) {
            watcher.ended();
        }
    }
}
