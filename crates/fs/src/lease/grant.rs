//! Leasing a file to its holder.

use super::blocks::{LeaseSize, blocks_of, can_be_folded, lease_blocks};
use crate::block_map::{BlockMap, MapEditor};
use crate::format::Pointer;
use crate::format::lease::{FLAG_LEASE, NODE_BLOCKS, RawLease, is_possible_size};
use crate::inode::attached::Holder;
use crate::inode::lease_blocks::LeaseBlocks;
use crate::inode::node::{Body, FileLease, Node};
use crate::inode::rights;
use crate::mounted::file_system::{Core, FileSystem};
use crate::values::error::FsError;
use crate::values::types::NewInode;
use lease::{Place, RECORD_NUMBERS, Ring, Salt, Spare};
use pmem::BLOCK_BYTES;
use scatter::{DomainId, Purpose};
use std::sync::Arc;
use txn::{Store, Transaction};

/// The lease, as its holder gets it.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Place of the holder's records.
    pub ring: Ring,
    /// The secret that is mixed into the records.
    pub salt: Salt,
    /// Number of the first record.
    pub next: u64,
    /// Spare blocks for new data.
    pub spares: Vec<Spare>,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// The file has no blocks at all.
    pub is_empty: bool,
}

impl<S: Store> FileSystem<S> {
    /// Leases a file: from here on its holder writes it with a [`lease::Writer`], until another
    /// client touches its content or attributes.
    ///
    /// # Errors
    ///
    /// [`FsError::NotPermitted`] if it is leased already or has no name;
    /// [`FsError::InvalidArgument`], [`FsError::IsADirectory`] if it is no file, if its durable
    /// records might not fit a journal when they are applied, or if executing it gives rights
    /// (set-id bits, capabilities): a write through the kernel clears those, a direct one would
    /// not; [`FsError::NoSpace`], [`FsError::QuotaExceeded`], [`FsError::ReadOnly`],
    /// [`FsError::Corrupt`].
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
        body.changes_content(&core.copies, 0..u64::MAX);
        core.forget_twins(node.number(), &body.raw)?;
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
                pointers.extend(blocks_of(&extents).map(Pointer::Written));
                Ok(())
            };
            take(body.domain, size.ring_blocks, Purpose::Direct)?;
            take(DomainId::METADATA, NODE_BLOCKS as u32, Purpose::Ordinary)?;
            take(body.domain, size.spare_blocks, Purpose::Direct)?;
            // A block for the file if the lease is forced: then there may be no room (L4).
            let kept = transaction.allocate_one(body.domain, Purpose::Direct)?;
            pointers.push(Pointer::Unwritten(kept));
            let mut editor = MapEditor::new(&core.store, BlockMap::of(number, raw));
            editor.set(transaction, 0, &pointers, DomainId::METADATA)?;
            raw.blocks += pointers.len() as u64 + editor.added;
            (raw.root, raw.height) = editor.finish(transaction);
            raw.size = (words.replaced() + 1) * BLOCK_BYTES as u64;
            Ok(())
        })
    }

    /// Where the blocks of a leased file are: `visit` gets each one of `first .. first + count`,
    /// with `None` for a block on the device, which only the file system reads (D7).
    ///
    /// # Errors
    ///
    /// [`FsError::Corrupt`].
    pub fn places(
        &self,
        node: &Node,
        first: u64,
        count: u64,
        mut visit: impl FnMut(u64, Option<Place>),
    ) -> Result<(), FsError> {
        let body = node.read();
        let map = BlockMap::of(node.number(), &body.raw);
        map.lookup_range(&self.core.store, first, count, |index, pointer| {
            visit(index, place(pointer));
        })?;
        Ok(())
    }
}

fn place(pointer: Option<Pointer>) -> Option<Place> {
    match pointer {
        None => Some(Place::Hole),
        Some(Pointer::Unwritten(block)) => Some(Place::Unwritten(block)),
        Some(Pointer::Written(block)) => Some(Place::At(block)),
        Some(Pointer::Device(_)) => None,
    }
}

impl<S: Store> Core<S> {
    fn blocks_of_lease(&self, lease: &Node, domain: DomainId) -> Result<LeaseBlocks, FsError> {
        let raw = lease.read().raw;
        let words = RawLease::of(&raw).ok_or(FsError::NotFound)?;
        lease_blocks(self, (lease.number(), &raw), &words, domain)
    }

    /// The grant of a lease that was just made.
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
}
