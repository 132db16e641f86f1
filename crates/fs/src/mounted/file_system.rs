//! The mounted file system: what all operations share.

use super::faults::Faults;
use super::tiering::Tiering;
use crate::format::{FileType, InodeNumber, RawInode, Timestamp};
use crate::inode::cache::InodeCache;
use crate::inode::copies::Copies;
use crate::inode::node::{InodeState, Node, Reclaim, validate};
use crate::inode::rights;
use crate::inode::table::InodeTable;
use crate::mounted::quotas::Quotas;
use crate::mounted::roaming::Roaming;
use crate::values::error::FsError;
use crate::values::quota;
use crate::values::types::MountOptions;
use parking_lot::Mutex;
use scatter::DomainId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use txn::{Domain, LogFailed, PmemStore, Store};

/// A mounted file system. Clones refer to the same one.
///
/// Every mutating method is one transaction: when it returns, the change is durable within the pool's
/// class; a power cut before that leaves all of it or nothing. Permissions are not checked here: the
/// kernel does it for a mount, and who uses the library owns the pool.
///
/// Locks: directories before what they contain, two directories ancestor first (else by number), two
/// other inodes by number; renames between directories hold one lock for the whole file system. Looking a name up takes none of them,
/// unless the directory changes at the same moment in a way that matters.
pub struct FileSystem<S: Store = PmemStore> {
    pub(crate) core: Arc<Core<S>>,
    pub(crate) root: Node,
}

impl<S: Store> Clone for FileSystem<S> {
    fn clone(&self) -> Self {
        FileSystem {
            core: Arc::clone(&self.core),
            root: self.root.clone(),
        }
    }
}

impl<S: Store> std::fmt::Debug for FileSystem<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("FileSystem")
            .field("options", &self.core.options)
            .finish_non_exhaustive()
    }
}

/// State shared by all clones.
pub(crate) struct Core<S: Store> {
    /// Before the store, which it reads in the background: fields are dropped in this order.
    pub(crate) copies: Copies,
    pub(crate) store: S,
    pub(crate) options: MountOptions,
    pub(crate) table: InodeTable,
    pub(crate) cache: InodeCache,
    pub(crate) quotas: Quotas,
    pub(crate) roaming: Roaming,
    /// Held by renames that move between directories, so that the tree's shape stands still.
    pub(crate) renames: Mutex<()>,
    /// Inodes that lost their last name but are in use.
    pub(crate) unlinked: AtomicU64,
    pub(crate) faults: Faults,
    /// With a device, unless data stays where it is.
    pub(crate) tier: Option<Arc<Tiering>>,
    /// Durable changes that the mount could not recover.
    pub(crate) losses: Mutex<Vec<String>>,
    pub(crate) this: Weak<Core<S>>,
}

impl<S: Store> Core<S> {
    /// The inode's node, from the cache or the medium.
    ///
    /// An inode without a name is not found even if somebody has it open: a second state of it would free it once more.
    #[inline]
    pub(crate) fn node(&self, number: InodeNumber) -> Result<Node, FsError> {
        self.cache.get(number, || {
            let raw = self.table.load(&self.store, number)?;
            validate(&raw, number)?;
            if raw.links == 0 {
                return Err(FsError::NotFound);
            }
            Ok(self.state(number, raw))
        })
    }

    /// A state of an inode that has none.
    pub(crate) fn state(&self, number: InodeNumber, raw: RawInode) -> InodeState {
        let reclaim = (raw.links == 0).then(|| self.reclaimer());
        InodeState::new(number, raw, self.domain(number, &raw), reclaim)
    }

    /// Who frees an unlinked inode when its last user is gone.
    pub(crate) fn reclaimer(&self) -> Weak<dyn Reclaim> {
        self.this.clone()
    }

    /// Where the data of this inode goes.
    pub(crate) fn domain(&self, number: InodeNumber, raw: &RawInode) -> DomainId {
        match raw.file_type() {
            Some(FileType::Regular) if rights::is_out_of_reach(&self.store, number, raw) => {
                DomainId::MIXED
            }
            Some(FileType::Regular) => self
                .store
                .domain_number(Domain::of_file(raw.mode, raw.uid, raw.gid)),
            _ => DomainId::METADATA,
        }
    }

    /// An inode lost its last name and is still in use.
    pub(crate) fn unlinked(&self) {
        self.unlinked.fetch_add(1, Ordering::Relaxed);
    }

    /// An inode without a name was freed.
    pub(crate) fn reclaimed(&self) {
        self.unlinked.fetch_sub(1, Ordering::Relaxed);
    }

    /// An inode without a name got one again.
    pub(crate) fn relinked(&self) {
        self.unlinked.fetch_sub(1, Ordering::Relaxed);
    }

    /// The present.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// Runs a change, unless the file system is read-only. Where calls are durable when they
    /// return, all that this thread has changed is, behind the change's locks.
    #[inline]
    pub(crate) fn durably<R>(
        &self,
        change: impl FnOnce() -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        self.begin_change()?;
        let outcome = change();
        match self.store.logger() {
            Some(logger) if logger.waits_for_calls() => {
                logger.wait_for_own_changes().map_err(not_durable)?;
                outcome
            }
            _ => outcome,
        }
    }

    /// Runs a look at an inode. Where calls are durable when they return, the answer waits for the
    /// changes that it shows.
    #[inline]
    pub(crate) fn shown<R>(
        &self,
        number: InodeNumber,
        look: impl FnOnce() -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        let answer = look();
        match self.store.logger() {
            Some(logger) if logger.waits_for_calls() => {
                logger
                    .wait_for_changes_of(number.get())
                    .map_err(not_durable)?;
                answer
            }
            _ => answer,
        }
    }

    /// The first thing that every change does, before it takes a lock. Fails if the file system is read-only.
    pub(crate) fn begin_change(&self) -> Result<(), FsError> {
        if self.options.read_only {
            return Err(FsError::ReadOnly);
        }
        if let Some(logger) = self.store.logger() {
            // A change that cannot become durable is not begun.
            logger.before_change().map_err(|_| FsError::ReadOnly)?;
        }
        self.store.relieve();
        Ok(())
    }
}

fn not_durable(failure: LogFailed) -> FsError {
    FsError::NotDurable(failure.to_string())
}

impl<S: Store> FileSystem<S> {
    /// Limits and usage of every user and group that has limits. Limits are set through the attribute
    /// [`quota::ATTRIBUTE`] of the root directory: those of a subject that has some already change at once, others are counted
    /// and in force from the next mount on.
    pub fn quotas(&self) -> Vec<(quota::Subject, quota::Limits, quota::Usage)> {
        self.core.quotas.report()
    }

    /// The root directory.
    pub fn root(&self) -> Node {
        self.root.clone()
    }

    /// The inode with this number.
    ///
    /// # Errors
    ///
    /// [`FsError::NotFound`] if it is free or has no name any more, [`FsError::Corrupt`].
    pub fn node(&self, number: InodeNumber) -> Result<Node, FsError> {
        self.core.node(number)
    }

    /// Returns when every change that returned is durable. Only a pool of class `log` has to wait.
    ///
    /// # Errors
    ///
    /// [`FsError::NotDurable`].
    pub fn sync(&self) -> Result<(), FsError> {
        match self.core.store.logger() {
            Some(logger) => logger.sync().map_err(not_durable),
            None => Ok(()),
        }
    }

    /// Waits until all changes of an inode are durable, if answers wait for that. A direct read is
    /// an answer, too.
    ///
    /// # Errors
    ///
    /// [`FsError::NotDurable`].
    pub fn settle(&self, node: &Node) -> Result<(), FsError> {
        self.core.shown(node.number(), || Ok(()))
    }

    /// Retires all journal records. Nothing needs it for durability; freed blocks become usable.
    pub fn checkpoint(&self) {
        if !self.core.options.read_only {
            self.core.store.checkpoint();
        }
    }

    /// Durable changes that the mount could not recover, because their records are damaged: a line
    /// for each place.
    pub fn losses(&self) -> Vec<String> {
        let records = self.core.store.lost_records().iter();
        let records = records.map(|lost| match self.core.options.read_only {
            true => format!("{lost}; what is shown is without them"),
            false => format!("{lost}; they were dropped"),
        });
        records
            .chain(self.core.losses.lock().iter().cloned())
            .collect()
    }

    /// The store below.
    pub fn store(&self) -> &S {
        &self.core.store
    }

    /// How it was mounted.
    pub fn options(&self) -> &MountOptions {
        &self.core.options
    }
}
