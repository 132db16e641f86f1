//! Folding: what the holder wrote down becomes the file's, one transaction for some hundred or thousand records.

use super::blocks::Medium;
use super::nodes::WithNodes;
use super::own::OwnSegments;
use crate::block_map::{BlockMap, MapEditor, Slot};
use crate::format::FILE_BYTES_MAX;
use crate::format::lease::RawLease;
use crate::format::{InodeNumber, Pointer, RawInode, Timestamp};
use crate::inode::attached::Holder;
use crate::inode::lease_blocks::LeaseBlocks;
use crate::inode::leaves::{Leaves, Run};
use crate::inode::node::Body;
use crate::mounted::file_system::Core;
use crate::values::error::{FsError, damaged_inode};
use lease::{Effects, RECORDS_PER_BLOCK, Terms, Trust};
use pmem::BlockNumber;
use pmem::deliberate::{self, Bug};
use scatter::DomainId;
use std::time::{Duration, Instant};
use txn::{Store, Transaction};

/// A leased file and its lease, both locked.
pub(super) struct Parties<'p> {
    pub(super) file: InodeNumber,
    pub(super) body: &'p mut Body,
    pub(super) lease: InodeNumber,
    pub(super) raw: &'p mut RawInode,
    /// What the lease's block map says.
    pub(super) blocks: &'p mut LeaseBlocks,
}

/// Whether there was something to fold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Folded {
    Some,
    Nothing,
    /// What comes next is no record of an honest holder, and does not count.
    Nonsense,
}

/// Where the blocks of a leased file are.
struct Places<'p, S> {
    store: &'p S,
    map: BlockMap,
    leaves: &'p mut Leaves,
    own: OwnSegments<'p, S>,
}

impl<S: Store> lease::Blocks<FsError> for Places<'_, S> {
    #[inline]
    fn block(&mut self, index: u64) -> Result<Option<BlockNumber>, FsError> {
        let slot = self.leaves.slot(self.store, &self.map, index)?;
        let pointer = self.map.pointer(self.store, slot, index)?;
        // Where there is nothing in memory the holder has nothing to say.
        let block = pointer.and_then(Pointer::memory);
        if let Some(block) = block {
            self.own.have(block)?;
        }
        Ok(block)
    }

    #[inline]
    fn is_holders(&mut self, block: BlockNumber) -> bool {
        self.own.have(block).unwrap_or(false)
    }

    #[inline]
    fn prepare(&mut self, index: u64) {
        if let Some(at) = self.leaves.known(index) {
            self.store.prefetch(at);
        }
    }
}

impl<S: Store> Core<S> {
    /// Folds what there is, but no more than one round of the ring: a holder who writes on and on does not keep the server here. Nor, if he is going on, what he writes meanwhile: a transaction that could
    /// have folded more has come to his newest record, and the next ones would fold a handful each, while he waits for their lines of memory.
    pub(super) fn fold_round(
        &self,
        parties: &mut Parties<'_>,
        trust: Trust,
    ) -> Result<Folded, FsError> {
        let words = self.words(parties)?;
        let end = words.next + u64::from(words.ring_blocks) * RECORDS_PER_BLOCK;
        loop {
            let first = self.words(parties)?.next;
            let folded = self.fold(parties, trust, u64::MAX)?;
            let next = self.words(parties)?.next;
            let has_caught_up =
                trust == Trust::AllButNewest && next - first < parties.blocks.records_per_fold;
            if folded != Folded::Some || next >= end || has_caught_up {
                return Ok(folded);
            }
        }
    }

    /// Folds at least what the holder had acknowledged when this began, while he goes on.
    ///
    /// The newest record is acknowledged if there is a newer one meanwhile, or if he was idle after it had been seen. Who is in the middle of a write is waited for as long as `patience` says.
    pub(super) fn fold_acknowledged(
        &self,
        parties: &mut Parties<'_>,
        holder: &dyn Holder,
        patience: Duration,
    ) -> Result<Folded, FsError> {
        let first = self.words(parties)?.next;
        if !self.has_record(parties, first) {
            return Ok(Folded::Nothing);
        }
        let folded = self.fold_round(parties, Trust::AllButNewest)?;
        let newest = self.words(parties)?.next;
        let begin = Instant::now();
        while folded != Folded::Nonsense && self.has_record(parties, newest) {
            if holder.is_idle() {
                return self.fold(parties, Trust::All, 1);
            }
            let folded = self.fold(parties, Trust::AllButNewest, u64::MAX)?;
            if folded != Folded::Nothing || begin.elapsed() >= patience {
                return Ok(folded);
            }
            std::thread::yield_now();
        }
        Ok(folded)
    }

    fn has_record(&self, parties: &Parties<'_>, sequence: u64) -> bool {
        let salt = RawLease::salt(parties.lease, parties.raw.generation);
        let record = parties.blocks.ring.load(&Medium(&self.store), sequence);
        record.is_whole(sequence, salt)
    }

    /// Folds the next records, as far as they are to be believed: one transaction.
    fn fold(
        &self,
        parties: &mut Parties<'_>,
        trust: Trust,
        records_max: u64,
    ) -> Result<Folded, FsError> {
        let words = self.words(parties)?;
        let effects = self.judge(parties, &words, trust, records_max)?;
        let is_nonsense = effects.fault.is_some();
        let Some(modified) = effects.modified else {
            return Ok(match is_nonsense {
                true => Folded::Nonsense,
                false => Folded::Nothing,
            });
        };
        // The owner may set any time of modification, but nobody one of change that lies ahead.
        let modified = Timestamp::from_nanoseconds(modified.min(self.now().nanoseconds()));
        self.apply(parties, words, &effects, modified)?;
        Ok(Folded::Some)
    }

    /// Counts as wear what was written and is not folded because the file is about to be freed: as far as one transaction would have folded.
    pub(super) fn charge_unfolded(&self, parties: &mut Parties<'_>) -> Result<(), FsError> {
        let words = self.words(parties)?;
        let effects = self.judge(parties, &words, Trust::All, u64::MAX)?;
        let placed = effects.placed.iter().map(|&(_, block)| block);
        self.store.allocator().charge_each(placed);
        Ok(())
    }

    /// What the next records amount to.
    fn judge(
        &self,
        parties: &mut Parties<'_>,
        words: &RawLease,
        trust: Trust,
        records_max: u64,
    ) -> Result<Effects, FsError> {
        let blocks = &mut *parties.blocks;
        if let Some(why) = &blocks.unknown {
            return Err(why.clone().into());
        }
        let terms = Terms {
            ring: &blocks.ring,
            salt: RawLease::salt(parties.lease, parties.raw.generation),
            next: words.next,
            spares: &blocks.spares,
            size_bytes: parties.body.raw.size,
            size_bytes_max: FILE_BYTES_MAX,
            records_max: records_max.min(blocks.records_per_fold),
        };
        let map = BlockMap::of(parties.file, &parties.body.raw);
        let places = Places {
            store: &self.store,
            map,
            leaves: &mut blocks.file_leaves,
            own: OwnSegments::new(&self.store, parties.body.domain),
        };
        let effects = lease::judge(&Medium(&self.store), &terms, trust, places)?;
        if let Some(fault) = effects.fault {
            tracing::warn!(inode = parties.file.get(), %fault, "the holder of a lease wrote nonsense; what follows it does not count");
        }
        Ok(effects)
    }

    pub(super) fn words(&self, parties: &Parties<'_>) -> Result<RawLease, FsError> {
        RawLease::of(parties.raw)
            .ok_or_else(|| damaged_inode(parties.lease, "its lease makes no sense"))
    }

    fn apply(
        &self,
        parties: &mut Parties<'_>,
        mut words: RawLease,
        effects: &Effects,
        modified: Timestamp,
    ) -> Result<(), FsError> {
        words.next = effects.next;
        if deliberate::is(Bug::CountBeforeFold) {
            let mut counted = *parties.raw;
            words.store(&mut counted);
            let mut transaction = self.begin();
            transaction.log_promised(parties.lease, parties.raw, &mut counted);
            transaction.commit()?;
            *parties.raw = counted;
        }
        let (mut new, mut new_lease) = (parties.body.raw, *parties.raw);
        let mut transaction = self.begin();
        let mut with_nodes = WithNodes {
            inner: &mut transaction,
            nodes: parties.blocks.nodes.clone(),
            used: Vec::new(),
        };
        let map = BlockMap::of(parties.file, &parties.body.raw);
        let mut editor = MapEditor::new(&self.store, map);
        let mut run = Run::default();
        for &(index, block) in &effects.placed {
            match parties.blocks.file_leaves.slot(&self.store, &map, index)? {
                Slot::Word(at) => run.store(&mut with_nodes, at, map.word(index, block)),
                Slot::Root | Slot::Absent => {
                    let pointers = [Pointer::Written(block)];
                    editor.set(&mut with_nodes, index, &pointers, DomainId::METADATA)?;
                }
            }
        }
        run.end(&mut with_nodes);
        let nodes_used = editor.added;
        (new.root, new.height) = editor.finish(&mut with_nodes);
        let WithNodes {
            nodes: nodes_left,
            used: used_nodes,
            ..
        } = with_nodes;
        // A node that was not the lease's is one more block altogether.
        let gained = nodes_used - used_nodes.len() as u64;
        let taken = used_nodes.into_iter().map(|index| (index, None));
        let slots = effects.slots.iter();
        let slots = slots.map(|&(slot, block)| (words.first_spare() + u64::from(slot), block));
        let gone = self.change_lease(parties, &mut transaction, taken.chain(slots))?;
        // What the file gains the lease loses. Whatever the limits say by now, it was acknowledged.
        new_lease.blocks -= gone;
        new.blocks += gone + gained;
        words.store(&mut new_lease);
        new.size = effects.size_bytes;
        new.touch_modified(modified);
        // A link or an attribute that came after these writes had its time first.
        new.changed = new.changed.max(parties.body.raw.changed);
        transaction.log_promised(parties.lease, parties.raw, &mut new_lease);
        transaction.log_promised(parties.file, &parties.body.raw, &mut new);
        transaction.commit()?;
        *parties.raw = new_lease;
        parties.body.raw = new;
        parties.blocks.nodes = nodes_left;
        for &(slot, block) in &effects.slots {
            parties.blocks.spares[slot as usize] = block;
        }
        let placed = effects.placed.iter().map(|&(_, block)| block);
        self.store.allocator().charge_each(placed);
        Ok(())
    }

    /// Gives places of the lease, which all have a block, other ones or none. How many have none now.
    fn change_lease(
        &self,
        parties: &mut Parties<'_>,
        transaction: &mut impl Transaction,
        changes: impl Iterator<Item = (u64, Option<BlockNumber>)>,
    ) -> Result<u64, FsError> {
        let map = BlockMap::of(parties.lease, parties.raw);
        let mut run = Run::default();
        let mut gone = 0;
        for (index, block) in changes {
            let Slot::Word(at) = parties.blocks.leaves.slot(&self.store, &map, index)? else {
                return Err(damaged_inode(parties.lease, "the lease's map has a hole"));
            };
            let word = block.map_or(0, |block| map.word(index, block));
            run.store(transaction, at, word);
            gone += u64::from(block.is_none());
        }
        run.end(transaction);
        Ok(gone)
    }
}
