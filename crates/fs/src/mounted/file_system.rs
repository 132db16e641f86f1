//! The mounted file system: what all operations share.

use crate::changes::handover;
use crate::data::allocate as space;
use crate::format::{FileType, InodeNumber, RawInode, Timestamp};
use crate::inode::cache::InodeCache;
use crate::inode::copies::Copies;
use crate::inode::node::{InodeState, Node, validate};
use crate::inode::rights;
use crate::inode::table::InodeTable;
use crate::lease::Orphan;
use crate::mounted::quotas::Quotas;
use crate::mounted::roaming::{ROAM_AFTER, Roaming};
use crate::pool::recover;
use crate::values::error::FsError;
use crate::values::quota;
use crate::values::types::{Attributes, MountOptions, SetAttributes, SpaceStatistics};
use parking_lot::Mutex;
use pmem::BLOCK_BYTES;
use scatter::DomainId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use txn::{Domain, LogFailed, OpenError, PmemStore, Store, Transaction};

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
    root: Node,
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
    unlinked: AtomicU64,
    /// Durable changes that the mount could not recover.
    pub(crate) losses: Mutex<Vec<String>>,
    pub(crate) this: Weak<Core<S>>,
}

/// Frees an inode that lost its last name and its last user.
pub(crate) trait Reclaim: Send + Sync {
    /// Frees the inode's blocks and number. Failing is harmless: recovery does it.
    fn reclaim(&self, number: InodeNumber, raw: &RawInode);
}

impl<S: Store> Reclaim for Core<S> {
    fn reclaim(&self, number: InodeNumber, raw: &RawInode) {
        if self.options.read_only {
            return;
        }
        if let Err(error) = space::free_inode(self, number, raw) {
            tracing::warn!(inode = number.get(), %error, "an unlinked inode could not be freed; the next mount retries");
        }
    }
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

    /// Frees an inode that had no name when the pool was last open. Failing is harmless: the next mount retries.
    fn free_orphan(&self, number: InodeNumber) {
        let raw = self.table.load(&self.store, number);
        if let Ok(raw) = raw
            && validate(&raw, number).is_ok()
        {
            // Dropping the only state of an inode without a name frees it.
            drop(self.state(number, raw));
        }
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
    /// Mounts what `store` holds: restores the volatile state saved by a clean unmount, or rebuilds it in
    /// parallel and frees inodes that were unlinked but open.
    ///
    /// # Errors
    ///
    /// Metadata that must be readable to know which blocks are free is damaged; the error names it.
    pub fn mount(store: S, mut options: MountOptions) -> Result<FileSystem<S>, OpenError> {
        options.read_only |= store.is_read_only();
        let recovered = recover::recover(&store, &options)?;
        let roam_after = match options.roam_after {
            0 => ROAM_AFTER,
            after => after,
        };
        let core = Arc::new_cyclic(|this| Core {
            copies: Copies::begin(&store, &options.read_cache),
            store,
            options,
            table: recovered.table,
            cache: InodeCache::new(),
            quotas: Quotas::default(),
            roaming: Roaming::new(roam_after, recover::cores()),
            renames: Mutex::new(()),
            unlinked: AtomicU64::new(recovered.orphans.len() as u64),
            losses: Mutex::default(),
            this: this.clone(),
        });
        if !options.read_only {
            core.store.mark_mounted();
        }
        // Leases first: their files may have lost their names as well.
        let mut orphans = recovered.orphans;
        orphans.retain(|&number| core.fold_orphan(number) == Orphan::Free);
        for number in orphans {
            core.free_orphan(number);
        }
        let root = core.node(InodeNumber::ROOT).map_err(|error| match error {
            FsError::Corrupt(corruption) => OpenError::Corrupt(corruption),
            error => OpenError::Corrupt(txn::Corruption::new("root directory", error.to_string())),
        })?;
        let files = FileSystem { core, root };
        files.load_quotas().map_err(|error| match error {
            FsError::Corrupt(corruption) => OpenError::Corrupt(corruption),
            error => OpenError::Corrupt(txn::Corruption::new("quotas", error.to_string())),
        })?;
        Ok(files)
    }

    /// Takes over the limits that the root directory carries, and counts what their subjects use.
    fn load_quotas(&self) -> Result<(), FsError> {
        let core = &*self.core;
        match self.get_xattr(&self.root, quota::ATTRIBUTE) {
            Err(FsError::NoAttribute) => return Ok(()),
            Err(error) => return Err(error),
            Ok(text) => match quota::parse(&String::from_utf8_lossy(&text)) {
                Ok(limits) => core.quotas.set_limits(&limits),
                Err(error) => {
                    tracing::warn!(%error, "quotas are off");
                    return Ok(());
                }
            },
        }
        for number in InodeNumber::ROOT.get()..InodeTable::capacity(&core.store) {
            let number = InodeNumber::new(number);
            let raw = core.table.load(&core.store, number)?;
            if !raw.is_free() {
                core.quotas.count(&raw);
            }
        }
        Ok(())
    }

    /// Limits and usage of every user and group that has limits. Limits are set through the attribute
    /// [`quota::ATTRIBUTE`] of the root directory: those of a subject that has some already change at once, others are counted
    /// and in force from the next mount on.
    pub fn quotas(&self) -> Vec<(quota::Subject, quota::Limits, quota::Usage)> {
        self.core.quotas.report()
    }

    /// Unmounts: saves the volatile state and marks the pool clean.
    ///
    /// The caller makes sure that nobody works on the file system any more. If unlinked inodes are still in use, the
    /// pool counts as crashed and the next mount frees them.
    pub fn unmount(self) {
        let FileSystem { core, root } = self;
        drop(root);
        if core.options.read_only {
            return;
        }
        if core.unlinked.load(Ordering::Relaxed) > 0 {
            core.store.checkpoint();
            return;
        }
        let state = recover::saved_state(&core);
        core.store.close(&state);
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
            core.end_lease(node, &mut body)?;
            if change
                .uid
                .is_some_and(|user| handover::is_needed(&body.raw, user))
            {
                handover::leave_owner(core, node.number(), &mut body)?;
            }
            if change.mode.is_some_and(rights::has_set_id) {
                handover::leave_for_rights(core, node.number(), &mut body)?;
            }
            if change.size_bytes.is_some_and(|size| size > body.raw.size) {
                space::zero_tail(core, node.number(), &body.raw)?;
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
                body.changes_content(core, cut);
                space::resize(core, node.number(), &body, &mut new, size, &mut transaction)?;
                new.touch_modified(now);
            }
            if let Some(mode) = change.mode {
                let kept = new.mode & crate::format::MODE_TYPE_MASK;
                new.mode = kept | (mode & crate::format::MODE_PERMISSION_MASK);
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
            space::data_blocks_in(free_blocks.saturating_sub(allocator.reserve_blocks()));
        let could_be_made = available_blocks * crate::format::inode::INODES_PER_BLOCK;
        let limit = InodeNumber::MAX.get();
        SpaceStatistics {
            block_bytes: BLOCK_BYTES as u32,
            blocks: u64::from(geometry.segments) * geometry.segment_blocks,
            free_blocks,
            available_blocks,
            inodes: (InodeTable::capacity(&core.store) + could_be_made).min(limit),
            free_inodes: (core.table.free_count() + could_be_made).min(limit),
            name_max: crate::format::NAME_BYTES_MAX as u32,
        }
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
