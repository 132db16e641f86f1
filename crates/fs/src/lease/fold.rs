//! Folding: what the holder wrote down becomes the file's, one transaction for some hundred or thousand records.

use super::leaves::{Leaves, Run};
use super::own::OwnSegments;
use super::{Holder, LeaseSize, blocks_of};
use crate::block_map::{BlockMap, MapEditor, Slot};
use crate::format::FILE_BYTES_MAX;
use crate::format::lease::{NODE_BLOCKS, RawLease};
use crate::format::{InodeNumber, Pointer, RawInode, Timestamp};
use crate::inode::node::Body;
use crate::mounted::file_system::Core;
use crate::mounted::operation::Operation;
use crate::values::error::{FsError, damaged_inode};
use lease::{
    Effects, GROUP_RECORDS_MAX, RECORDS_AT_ONCE_MAX, RECORDS_PER_BLOCK, Ring, Spare, Terms, Trust,
};
use pmem::deliberate::{self, Bug};
use pmem::{BlockNumber, Offset};
use scatter::{DomainId, Extent, Extents, OutOfSpace, Purpose};
use std::time::{Duration, Instant};
use txn::{CommitError, Corruption, HomeOffset, Store, Transaction};

/// Bytes that a pointer makes of a transaction, with where it goes. A record changes one of the file's and one of the lease's.
const LOGGED_BYTES: usize = 16;
/// The inodes of both, and what else a transaction consists of.
const LOGGED_BESIDES: usize = 1024;
/// Records that one transaction folds at least, even if that is more than half of a very small journal.
const RECORDS_PER_FOLD_MIN: usize = 128;

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

/// The blocks of a lease, as its block map says: kept in DRAM, because to look them all up takes as long as to fold some ten records.
pub(crate) struct LeaseBlocks {
    pub(super) ring: Ring,
    /// Those for nodes that are left, with their place in the lease.
    nodes: Vec<(u64, BlockNumber)>,
    pub(super) spares: Vec<Option<BlockNumber>>,
    /// Why nothing can be folded: a spare block counts or not, or the ring is damaged.
    unknown: Option<Corruption>,
    /// Lowest nodes of the file's map, and of the lease's.
    file_leaves: Leaves,
    leaves: Leaves,
    /// Records that one transaction folds; the last write among them may add as many as belong together.
    records_per_fold: u64,
}

impl LeaseBlocks {
    /// The blocks of a lease that cannot be read.
    pub(super) fn unreadable(why: Corruption) -> LeaseBlocks {
        LeaseBlocks {
            ring: Ring::new(vec![BlockNumber::new(0)]),
            nodes: Vec::new(),
            spares: Vec::new(),
            unknown: Some(why),
            file_leaves: Leaves::new(),
            leaves: Leaves::new(),
            records_per_fold: 0,
        }
    }

    /// From here on nothing is folded.
    pub(super) fn hold_back(&mut self, why: Corruption) {
        self.unknown = Some(why);
    }
}

/// Half of a journal at most, so that not each fold needs a checkpoint; and the last write's records have to fit as well.
fn records_per_fold(record_bytes_max: usize, spare_blocks: usize) -> u64 {
    let group = GROUP_RECORDS_MAX as usize * 2 * LOGGED_BYTES;
    let most = (record_bytes_max / 2).min(record_bytes_max.saturating_sub(LOGGED_BESIDES + group));
    // However often a spare block changes places, its pointer changes once.
    let spares = spare_blocks.min(most / LOGGED_BYTES / 2);
    let records = most / LOGGED_BYTES - spares;
    // Who counts fewer than this has come to the newest one, so it must not be more than are judged.
    (records.max(RECORDS_PER_FOLD_MIN) as u64).min(RECORDS_AT_ONCE_MAX)
}

/// Whether all that one transaction has to fold fits a journal.
pub(super) fn can_be_folded(record_bytes_max: usize, size: LeaseSize) -> bool {
    let ring = size.ring_blocks as usize * RECORDS_PER_BLOCK as usize;
    let records = ring.min(RECORDS_PER_FOLD_MIN + GROUP_RECORDS_MAX as usize);
    let pointers = records + records.min(size.spare_blocks as usize);
    pointers * LOGGED_BYTES + LOGGED_BESIDES <= record_bytes_max
}

/// Reads where the blocks of a lease are. L5: spare blocks outside of the domain's segments do not count. Where it is not known whose a segment is, nothing can be folded.
pub(super) fn lease_blocks<S: Store>(
    core: &Core<S>,
    (number, raw): (InodeNumber, &RawInode),
    words: &RawLease,
    domain: DomainId,
) -> Result<LeaseBlocks, FsError> {
    let mut own = OwnSegments::new(&core.store, domain);
    let mut unknown = None;
    let mut is_own = |block: &BlockNumber| {
        let have = own.have(*block);
        have.unwrap_or_else(|why| {
            unknown = Some(why);
            false
        })
    };
    let mut ring = Vec::with_capacity(words.ring_blocks as usize);
    let mut nodes = Vec::with_capacity(NODE_BLOCKS as usize);
    let mut spares = Vec::with_capacity(words.spare_blocks as usize);
    let map = BlockMap::of(number, raw);
    map.lookup_range(&core.store, 0, words.replaced(), |index, pointer| {
        let block = pointer.map(|pointer| pointer.block);
        match block {
            _ if index >= words.first_spare() => {
                spares.push(block.filter(&mut is_own));
            }
            Some(block) if index < words.first_node() => ring.push(block),
            Some(block) => nodes.push((index, block)),
            None => {}
        }
    })?;
    if ring.len() != words.ring_blocks as usize {
        return Err(damaged_inode(number, "the ring of the lease has a hole"));
    }
    Ok(LeaseBlocks {
        ring: Ring::new(ring),
        nodes,
        records_per_fold: records_per_fold(core.begin().record_bytes().1, spares.len()),
        spares,
        unknown,
        file_leaves: Leaves::new(),
        leaves: Leaves::new(),
    })
}

pub(super) struct Medium<'s, S>(pub(super) &'s S);

impl<S: Store> lease::Medium for Medium<'_, S> {
    fn read(&self, at: Offset, into: &mut [u8]) {
        self.0.read(at, into);
    }

    fn prefetch(&self, at: Offset) {
        self.0.prefetch(at);
    }

    fn release(&self, at: Offset, length: usize) {
        self.0.release(at, length);
    }
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
        let block = pointer.map(|pointer| pointer.block);
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
                    let pointers = [Pointer::written(block)];
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

    /// Gives slots whose block has gone into the file another one, and blocks for nodes too: one transaction, or none. Less than is missing if there is no more room.
    pub(super) fn refill(&self, parties: &mut Parties<'_>) -> Result<Vec<Spare>, FsError> {
        let words = self.words(parties)?;
        let mut new = *parties.raw;
        let mut transaction = self.begin();
        let mut editor = MapEditor::new(&self.store, BlockMap::of(parties.lease, parties.raw));
        let new_nodes = self.new_nodes(parties, &words, &mut transaction, &mut editor)?;
        let nodes_left = parties.blocks.nodes.len() + new_nodes.len();
        // L6: as long as a node is missing nothing is handed out that may need it.
        let refilled = match nodes_left as u64 == NODE_BLOCKS {
            true => self.new_spares(parties, &words, &mut transaction, &mut editor)?,
            false => Vec::new(),
        };
        new.blocks += (new_nodes.len() + refilled.len()) as u64;
        if new.blocks == parties.raw.blocks {
            return Ok(refilled);
        }
        editor.finish(&mut transaction);
        match transaction.log_inode(parties.lease, parties.raw, &mut new) {
            Err(FsError::QuotaExceeded(_)) => return Ok(Vec::new()),
            outcome => outcome?,
        }
        transaction.commit()?;
        *parties.raw = new;
        parties.blocks.nodes.extend(new_nodes);
        for Spare { slot, block } in &refilled {
            parties.blocks.spares[*slot as usize] = Some(*block);
        }
        Ok(refilled)
    }

    /// Blocks for the nodes that are missing, as far as there is room, with their places in the lease.
    fn new_nodes(
        &self,
        parties: &Parties<'_>,
        words: &RawLease,
        transaction: &mut Operation<'_, S>,
        editor: &mut MapEditor<'_, S>,
    ) -> Result<Vec<(u64, BlockNumber)>, FsError> {
        let nodes = &parties.blocks.nodes;
        let has_node = |index: &u64| nodes.iter().any(|(at, _)| at == index);
        let mut new_nodes = Vec::new();
        for index in (words.first_node()..words.first_spare()).filter(|at| !has_node(at)) {
            let Ok(block) = transaction.allocate_one(DomainId::METADATA, Purpose::Ordinary) else {
                break;
            };
            let pointers = [Pointer::written(block)];
            editor.set(transaction, index, &pointers, DomainId::METADATA)?;
            new_nodes.push((index, block));
        }
        Ok(new_nodes)
    }

    /// Blocks for all empty slots, or none. L5: out of the owner's segments, so that nobody else has left anything in them.
    fn new_spares(
        &self,
        parties: &Parties<'_>,
        words: &RawLease,
        transaction: &mut Operation<'_, S>,
        editor: &mut MapEditor<'_, S>,
    ) -> Result<Vec<Spare>, FsError> {
        let empty_slots: Vec<u32> = (0..)
            .zip(&parties.blocks.spares)
            .filter_map(|(slot, block)| block.is_none().then_some(slot))
            .collect();
        let wanted = empty_slots.len() as u32;
        let Ok(extents) = transaction.allocate(parties.body.domain, wanted, Purpose::Direct) else {
            return Ok(Vec::new());
        };
        let spares = empty_slots.into_iter().zip(blocks_of(&extents));
        let spares: Vec<Spare> = spares.map(|(slot, block)| Spare { slot, block }).collect();
        // The holder takes his spare blocks in the order of their slots, so most of the empty ones are in a row.
        for row in spares.chunk_by(|one, next| one.slot + 1 == next.slot) {
            let index = words.first_spare() + u64::from(row[0].slot);
            let pointers: Vec<Pointer> = row
                .iter()
                .map(|spare| Pointer::written(spare.block))
                .collect();
            editor.set(transaction, index, &pointers, DomainId::METADATA)?;
        }
        Ok(spares)
    }
}

/// A transaction that takes nodes of the file's block map from those that the lease has: acknowledged appends are folded even if the pool is full.
struct WithNodes<'t, 'c, S: Store> {
    inner: &'t mut Operation<'c, S>,
    nodes: Vec<(u64, BlockNumber)>,
    /// Places in the lease of those that were taken.
    used: Vec<u64>,
}

impl<S: Store> Transaction for WithNodes<'_, '_, S> {
    fn store(&mut self, at: Offset, bytes: &[u8]) {
        self.inner.store(at, bytes);
    }

    fn store_at_home(&mut self, home: HomeOffset, bytes: &[u8]) {
        self.inner.store_at_home(home, bytes);
    }

    fn move_home(&mut self, index: u64, to: BlockNumber) {
        self.inner.move_home(index, to);
    }

    fn store_word(&mut self, at: Offset, word: u64) {
        self.inner.store_word(at, word);
    }

    fn zero(&mut self, at: Offset, length: usize) {
        self.inner.zero(at, length);
    }

    fn allocate(
        &mut self,
        domain: DomainId,
        blocks: u32,
        purpose: Purpose,
    ) -> Result<Extents, OutOfSpace> {
        self.inner.allocate(domain, blocks, purpose)
    }

    fn allocate_one(
        &mut self,
        domain: DomainId,
        purpose: Purpose,
    ) -> Result<BlockNumber, OutOfSpace> {
        match self.nodes.pop() {
            Some((index, block)) => {
                self.used.push(index);
                Ok(block)
            }
            None => self.inner.allocate_one(domain, purpose),
        }
    }

    fn write_fresh(&mut self, block: BlockNumber, offset: usize, bytes: &[u8]) {
        self.inner.write_fresh(block, offset, bytes);
    }

    fn take_turn(&mut self) {
        self.inner.take_turn();
    }

    fn concerns(&mut self, object: u64) {
        self.inner.concerns(object);
    }

    fn free(&mut self, extent: Extent) {
        self.inner.free(extent);
    }

    fn record_bytes(&self) -> (usize, usize) {
        self.inner.record_bytes()
    }

    fn commit(&mut self) -> Result<(), CommitError> {
        self.inner.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmem::BLOCK_BYTES;

    #[test]
    fn what_one_transaction_folds_fits_a_journal() {
        for half_blocks in [4, 8, 32, 256, 4096] {
            let half_bytes = half_blocks * BLOCK_BYTES;
            for spare_blocks in [0, 4, 512, 4096] {
                let records = records_per_fold(half_bytes, spare_blocks) as usize;
                let last = GROUP_RECORDS_MAX as usize;
                let pointers = records + last + spare_blocks.min(records + last);
                assert!(pointers * LOGGED_BYTES + LOGGED_BESIDES <= half_bytes);
                assert!(records >= RECORDS_PER_FOLD_MIN);
            }
        }
        assert_eq!(records_per_fold(32 * BLOCK_BYTES, 512), 3_584);
    }
}
