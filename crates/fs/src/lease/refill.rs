//! Blocks for a lease, in place of those that have gone into its file.

use super::blocks::blocks_of;
use super::fold::Parties;
use crate::block_map::{BlockMap, MapEditor};
use crate::format::Pointer;
use crate::format::lease::{NODE_BLOCKS, RawLease};
use crate::mounted::file_system::Core;
use crate::mounted::operation::Operation;
use crate::values::error::FsError;
use lease::Spare;
use pmem::BlockNumber;
use scatter::{DomainId, Purpose};
use txn::{Store, Transaction};

impl<S: Store> Core<S> {
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
            let pointers = [Pointer::Written(block)];
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
                .map(|spare| Pointer::Written(spare.block))
                .collect();
            editor.set(transaction, index, &pointers, DomainId::METADATA)?;
        }
        Ok(spares)
    }
}
