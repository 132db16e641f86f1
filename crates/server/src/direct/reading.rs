//! A file that processes read without asking.

use super::mapped::Mappers;
use super::memory::FileMemory;
use super::registry::{Attachment, Registry};
use ::direct::layout::head;
use fs::lease::Watcher;
use pmem::deliberate::{self, Bug};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use txn::sharing::SeenBlocks;

/// From here on what is read does not count. Any number but that of a live attachment.
const ENDED: u64 = 1;

/// What the readers of one file share.
pub(crate) struct Reader {
    pub(super) memory: FileMemory,
    pub(super) inode: u64,
    pub(super) size_bytes: u64,
    /// The file system tells of changes.
    is_watching: AtomicBool,
    /// Processes that have it attached.
    users: AtomicUsize,
    /// Those of them that have blocks of it mapped.
    pub(super) mappers: Mappers,
    registry: Arc<Registry>,
    this: Weak<Reader>,
}

impl Reader {
    pub(super) fn new(
        memory: FileMemory,
        inode: u64,
        size_bytes: u64,
        registry: &Arc<Registry>,
        seen: &Arc<SeenBlocks>,
    ) -> Arc<Reader> {
        Arc::new_cyclic(|this| Reader {
            memory,
            inode,
            size_bytes,
            is_watching: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            mappers: Mappers::new(seen),
            registry: Arc::clone(registry),
            this: this.clone(),
        })
    }

    /// It is the file's watcher.
    pub(super) fn begin(&self) {
        self.is_watching.store(true, Ordering::Release);
    }

    /// Whether others may join: before, a change of the file would not end what they learn of its blocks.
    pub(super) fn may_be_joined(&self) -> bool {
        self.is_watching.load(Ordering::Acquire) || deliberate::is(Bug::JoinUnwatched)
    }

    /// One more process; who joins looks afterwards whether it has ended.
    pub(super) fn join(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
    }

    /// One process less: whether it was the last.
    pub(super) fn leave(&self) -> bool {
        self.users.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Whether it has not ended.
    pub(super) fn is_live(&self) -> bool {
        self.state().load(Ordering::Acquire) != ENDED
    }

    /// What is read from here on does not count. A reader copies, then looks at the state; so the state changes before the blocks do. Who has mapped blocks gives them back, or has been waited for as long as he is
    /// worth it.
    pub(super) fn end(&self) {
        self.state().store(ENDED, Ordering::Relaxed);
        pmem::full_fence();
        if let Some(this) = self.this.upgrade() {
            self.registry.remove(self.inode, &Attachment::Reading(this));
        }
        self.mappers.take_back(&self.registry.counts);
    }

    /// Whether somebody still sees blocks that the file may not have any more. If nobody does, they are held no longer.
    pub(super) fn is_seen(&self) -> bool {
        let is_seen = self.mappers.are_seen();
        if !is_seen {
            self.registry.remove_seen(self.inode, &self.this);
        }
        is_seen
    }

    fn state(&self) -> &AtomicU64 {
        self.memory.head(head::STATE)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.registry.remove_seen(self.inode, &self.this);
    }
}

impl Watcher for Reader {
    fn ended(&self) {
        self.end();
        let counts = &self.registry.counts;
        if self
            .mappers
            .keep_seen(counts, || self.memory.known_blocks())
        {
            tracing::info!(
                inode = self.inode,
                "a process does not give back what it has mapped of a file; the blocks stay as they are until it does"
            );
            if let Some(this) = self.this.upgrade() {
                self.registry.add_seen(&this);
            }
        }
    }

    fn attributes_changed(&self) {
        self.memory.attributes_changed();
    }
}
