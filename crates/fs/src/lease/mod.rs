//! Files that are leased: their holder writes them without the file system's help (`docs/DIRECT.md`).
//!
//! A lease is an inode without a name that owns the ring of records and the spare blocks. A record says that a block of the file and a spare one change places; *folding* it
//! exchanges the two pointers, in one transaction that also counts the record as folded. So nothing is allocated or freed while the holder
//! writes, blocks always have one owner on the medium, and a lease that the power ended is found by recovery as what it is: an inode without a name.
//!
//! Invariants, beside R1 to R5 (all of them in `docs/DIRECT.md`):
//!
//! * L1 While a file is leased nobody else touches its content: who wants to, ends the lease first, under the inode's lock.
//! * L2 No live journal record names a byte of a leased file's blocks or of spare ones: a checkpoint stands between what came before and the lease. So the
//!   holder, who writes outside the log, does not violate R1.
//! * L3 A record is folded once: its number is in the transaction that folds it.
//! * L4 Blocks that the holder may still be storing into belong to the lease until he has let go or is dead.

mod fold;
mod leaves;
mod own;
mod recovery;
mod settle;

pub use crate::format::lease::{FLAG_LEASE, RING_BLOCKS_MAX, RawLease, SPARE_BLOCKS_MAX};
pub(crate) use recovery::Orphan;

use crate::block_map::{BlockMap, MapEditor};
use crate::format::lease::{NODE_BLOCKS, is_possible_size};
use crate::format::{FileType, Pointer, RawInode};
use crate::inode::node::{Body, Node};
use crate::inode::rights;
use crate::mounted::file_system::{Core, FileSystem};
use crate::values::error::FsError;
use crate::values::types::NewInode;
use fold::{Folded, LeaseBlocks, Parties, can_be_folded};
use lease::{Place, RECORD_NUMBERS, Ring, Salt, Spare, Trust};
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::{DomainId, Extents, Purpose};
use std::sync::Arc;
use std::time::Duration;
use txn::{Store, Transaction};

/// How long a holder who is in the middle of a write is waited for by who wants to know what he has acknowledged before.
pub const FOLD_PATIENCE: Duration = Duration::from_millis(10);

/// How much a lease lets its holder write before the server has to fold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseSize {
    /// Blocks of the ring, a power of two: 64 records each.
    pub ring_blocks: u32,
    /// Spare blocks: as many can be appended.
    pub spare_blocks: u32,
}

/// What a holder has to answer when his lease is taken back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TakenBack {
    /// How far his newest record is to be believed.
    pub trust: Trust,
    /// The block of the file that he may be storing into: it is replaced.
    pub busy_block: Option<u64>,
}

/// The other end of a lease. Called while the file is locked: it must not use the file system.
pub trait Holder: Send + Sync {
    /// Whether he is between two writes: then all that was in the ring before this was called is durable.
    fn is_idle(&self) -> bool;
    /// From here on no record counts that is not there when this returns. Takes a bounded time, whatever the holder does.
    fn take_back(&self) -> TakenBack;
    /// All records before `next` are folded, and these slots have a block again. He may be writing meanwhile.
    fn folded(&self, next: u64, refilled: &[Spare]);
    /// The lease has ended: all records before `next` count. `remains` is dropped when the holder can no longer store into its blocks.
    fn ended(&self, remains: LeaseRemains, next: u64);
    /// Somebody has changed what `stat` tells of the file, and not by folding. Called before anybody can see it.
    fn attributes_changed(&self);
}

/// Who reads a file's blocks without asking. Called while the file is locked: it must not use the file system.
pub trait Watcher: Send + Sync {
    /// The file's content is going to change, or be leased. When this returns, nobody believes what he reads from here on. The watcher is forgotten.
    fn ended(&self);
    /// As [`Holder::attributes_changed`].
    fn attributes_changed(&self);
}

/// The blocks of a lease that has ended. Dropping it frees them.
#[derive(Debug)]
pub struct LeaseRemains {
    _lease: Node,
}

/// What the holder gets.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Where his records go.
    pub ring: Ring,
    /// What he mixes into them.
    pub salt: Salt,
    /// Number of his first record.
    pub next: u64,
    /// His spare blocks.
    pub spares: Vec<Spare>,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// The file has no blocks at all.
    pub is_empty: bool,
}

/// The lease of a file, in its inode's state.
pub(crate) struct FileLease {
    /// The file itself: as long as it is leased it is in use, whoever else has let go.
    _file: Node,
    lease: Node,
    blocks: LeaseBlocks,
    holder: Arc<dyn Holder>,
    /// What the holder answered, if the lease is being taken back and something could not be done. Until it is, nobody else gets at the file.
    taken: Option<TakenBack>,
}

impl FileLease {
    pub(crate) fn holder(&self) -> &dyn Holder {
        &*self.holder
    }
}

impl<S: Store> FileSystem<S> {
    /// Leases a file: from here on its holder writes it with a [`lease::Writer`], until somebody else touches its content or attributes.
    ///
    /// # Errors
    ///
    /// [`FsError::NotPermitted`] if it is leased already or has no name; [`FsError::InvalidArgument`], [`FsError::IsADirectory`] if it is no file, if what its holder is told is durable might not fit a journal when it is folded, or if who executes it gets rights: a write through the kernel
    /// takes those away, a direct one would not;
    /// [`FsError::NoSpace`], [`FsError::QuotaExceeded`], [`FsError::ReadOnly`], [`FsError::Corrupt`].
    pub fn lease(
        &self,
        node: &Node,
        size: LeaseSize,
        holder: Arc<dyn Holder>,
    ) -> Result<Grant, FsError> {
        let core = &*self.core;
        core.begin_change()?;
        let mut body = node.write();
        body.require_regular()?;
        if !is_possible_size(size.ring_blocks, size.spare_blocks) {
            return Err(FsError::InvalidArgument("an impossible size of a lease"));
        }
        if !can_be_folded(core.begin().record_bytes().1, size) {
            return Err(FsError::InvalidArgument("journals too small for a lease"));
        }
        if body.lease.is_some() || body.raw.links == 0 {
            return Err(FsError::NotPermitted("the file cannot be leased now"));
        }
        if rights::gives_rights(&core.store, node.number(), &body.raw)? {
            return Err(FsError::InvalidArgument(
                "who executes the file gets rights",
            ));
        }
        if let Some(watcher) = body.watcher.take() {
            watcher.ended();
        }
        body.changes_content(core, 0..u64::MAX);
        let lease = self.make_lease(node, &body, size)?;
        // L2; no record names a byte of a file that has no blocks.
        if body.raw.blocks > 0 {
            core.store.checkpoint();
        }
        let blocks = core.blocks_of_lease(&lease, body.domain)?;
        if blocks.spares.contains(&None) {
            // A segment that was the owner's has become one that several share.
            return Err(FsError::NoSpace);
        }
        let grant = core.grant(&lease, &blocks, &body)?;
        body.lease = Some(Box::new(FileLease {
            _file: node.clone(),
            lease,
            blocks,
            holder,
            taken: None,
        }));
        Ok(grant)
    }

    /// The inode that owns what a lease needs: one transaction.
    fn make_lease(&self, node: &Node, body: &Body, size: LeaseSize) -> Result<Node, FsError> {
        let core = &*self.core;
        let raw = &body.raw;
        let new = NewInode {
            uid: raw.uid,
            gid: raw.gid,
            ..NewInode::file(raw.mode)
        };
        let words = RawLease {
            target: node.number().get(),
            next: RECORD_NUMBERS.start,
            target_generation: raw.generation,
            ring_blocks: size.ring_blocks,
            spare_blocks: size.spare_blocks,
            ended: 0,
            reserved: [0; 12],
        };
        self.create_unnamed_with(&new, |transaction, number, raw| {
            raw.flags = FLAG_LEASE;
            words.store(raw);
            let mut pointers = Vec::new();
            let mut take = |domain, blocks: u32, purpose| -> Result<(), FsError> {
                let extents = transaction.allocate(domain, blocks, purpose)?;
                pointers.extend(blocks_of(&extents).map(Pointer::written));
                Ok(())
            };
            take(body.domain, size.ring_blocks, Purpose::Direct)?;
            take(DomainId::METADATA, NODE_BLOCKS as u32, Purpose::Ordinary)?;
            take(body.domain, size.spare_blocks, Purpose::Direct)?;
            // What the file gets if the lease is forced: then there may be no room (L4).
            let kept = transaction.allocate_one(body.domain, Purpose::Direct)?;
            pointers.push(Pointer {
                block: kept,
                unwritten: true,
            });
            let mut editor = MapEditor::new(&core.store, BlockMap::of(number, raw));
            editor.set(transaction, 0, &pointers, DomainId::METADATA)?;
            raw.blocks += pointers.len() as u64 + editor.added;
            (raw.root, raw.height) = editor.finish(transaction);
            raw.size = (words.replaced() + 1) * BLOCK_BYTES as u64;
            Ok(())
        })
    }

    /// Folds what the holder has written down and fills his spare blocks up, while he goes on. He is told, and so is the caller: the number of the first record that was not folded, and the slots that have a
    /// block again. `None` if the file is not leased, or not any more: the lease of a holder who writes nonsense ends.
    ///
    /// All is folded that he had acknowledged when this began; for that he is asked whether he is idle, and waited for [`FOLD_PATIENCE`] if he is not.
    ///
    /// # Errors
    ///
    /// [`FsError::Corrupt`], [`FsError::TooLargeForJournal`]. That there is no room for new spare blocks is no error: there are just none.
    pub fn fold_lease(&self, node: &Node) -> Result<Option<(u64, Vec<Spare>)>, FsError> {
        self.fold_lease_within(node, FOLD_PATIENCE)
    }

    /// The same for who has less time, or none: he is waited for that long, and then what he acknowledged last may not be folded.
    ///
    /// # Errors
    ///
    /// As [`fold_lease`](Self::fold_lease).
    pub fn fold_lease_within(
        &self,
        node: &Node,
        patience: Duration,
    ) -> Result<Option<(u64, Vec<Spare>)>, FsError> {
        self.fold_with(node, |core, parties, holder| {
            core.fold_acknowledged(parties, holder, patience)
        })
    }

    /// The same for a holder of whom it is known how far his newest record is to be believed: he is not asked.
    ///
    /// # Errors
    ///
    /// As [`fold_lease`](Self::fold_lease).
    pub fn fold_lease_trusting(
        &self,
        node: &Node,
        trust: Trust,
    ) -> Result<Option<(u64, Vec<Spare>)>, FsError> {
        self.fold_with(node, |core, parties, _| core.fold_round(parties, trust))
    }

    fn fold_with(
        &self,
        node: &Node,
        fold: impl FnOnce(&Core<S>, &mut Parties<'_>, &dyn Holder) -> Result<Folded, FsError>,
    ) -> Result<Option<(u64, Vec<Spare>)>, FsError> {
        let core = &*self.core;
        core.begin_change()?;
        let mut body = node.write();
        let Some(mut lease) = body.lease.take() else {
            return Ok(None);
        };
        body.holder_knows();
        if lease.taken.is_some() {
            core.take_back(node, &mut body, lease, false)?;
            return Ok(None);
        }
        let outcome = core.fold_and_refill(node, &mut body, &mut lease, fold);
        if matches!(outcome, Ok((Folded::Nonsense, _))) {
            core.take_back(node, &mut body, lease, false)?;
            return Ok(None);
        }
        let told = outcome.map(|(_, told)| told);
        if let Ok((next, refilled)) = &told {
            lease.holder.folded(*next, refilled);
        }
        body.lease = Some(lease);
        told.map(Some)
    }

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

    /// Where the blocks of a leased file are: `visit` gets each one of `first .. first + count`.
    ///
    /// # Errors
    ///
    /// [`FsError::Corrupt`].
    pub fn places(
        &self,
        node: &Node,
        first: u64,
        count: u64,
        mut visit: impl FnMut(u64, Place),
    ) -> Result<(), FsError> {
        let body = node.read();
        let map = BlockMap::of(node.number(), &body.raw);
        map.lookup_range(&self.core.store, first, count, |index, pointer| {
            visit(index, place(pointer));
        })?;
        Ok(())
    }
}

fn place(pointer: Option<Pointer>) -> Place {
    match pointer {
        None => Place::Hole,
        Some(Pointer {
            block,
            unwritten: true,
        }) => Place::Unwritten(block),
        Some(Pointer { block, .. }) => Place::At(block),
    }
}

fn blocks_of(extents: &Extents) -> impl Iterator<Item = BlockNumber> + '_ {
    extents
        .iter()
        .flat_map(|extent| (0..u64::from(extent.blocks)).map(|index| extent.start + index))
}

impl<S: Store> Core<S> {
    fn blocks_of_lease(&self, lease: &Node, domain: DomainId) -> Result<LeaseBlocks, FsError> {
        let raw = lease.read().raw;
        let words = RawLease::of(&raw).ok_or(FsError::NotFound)?;
        fold::lease_blocks(self, (lease.number(), &raw), &words, domain)
    }

    /// What a holder needs to know of a lease that was just made.
    fn grant(&self, lease: &Node, blocks: &LeaseBlocks, body: &Body) -> Result<Grant, FsError> {
        let raw = lease.read().raw;
        let words = RawLease::of(&raw).ok_or(FsError::NotFound)?;
        let spares = (0..).zip(&blocks.spares);
        Ok(Grant {
            ring: blocks.ring.clone(),
            salt: RawLease::salt(lease.number(), raw.generation),
            next: words.next,
            spares: spares
                .filter_map(|(slot, block)| block.map(|block| Spare { slot, block }))
                .collect(),
            size_bytes: body.raw.size,
            is_empty: body.raw.blocks == 0,
        })
    }

    fn fold_and_refill(
        &self,
        node: &Node,
        body: &mut Body,
        lease: &mut FileLease,
        fold: impl FnOnce(&Core<S>, &mut Parties<'_>, &dyn Holder) -> Result<Folded, FsError>,
    ) -> Result<(Folded, (u64, Vec<Spare>)), FsError> {
        let mut state = lease.lease.write();
        let mut parties = Parties {
            file: node.number(),
            body,
            lease: lease.lease.number(),
            raw: &mut state.raw,
            blocks: &mut lease.blocks,
        };
        let before = RawLease::of(parties.raw).map_or(0, |words| words.next);
        let folded = fold(self, &mut parties, &*lease.holder)?;
        let after = RawLease::of(parties.raw).map_or(0, |words| words.next);
        if after == before {
            return Ok((folded, (after, Vec::new())));
        }
        let refilled = self.refill(&mut parties)?;
        Ok((folded, (after, refilled)))
    }

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
    fn take_back(
        &self,
        node: &Node,
        body: &mut Body,
        mut lease: Box<FileLease>,
        is_unwanted: bool,
    ) -> Result<(), FsError> {
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
        holder.ended(LeaseRemains { _lease: lease }, next);
        Ok(())
    }
}

/// Whether the file is one that a lease can be about: the very one, and still its holder's.
pub(crate) fn is_leasable(raw: &RawInode, lease: &RawInode, words: &RawLease) -> bool {
    raw.file_type() == Some(FileType::Regular)
        && raw.generation == words.target_generation
        && (raw.uid, raw.gid) == (lease.uid, lease.gid)
}
