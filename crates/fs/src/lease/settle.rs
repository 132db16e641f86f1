//! The end of a lease: what is left is folded, and the file is as if there had never been one.

use super::fold::Parties;
use crate::block_map::{BlockMap, MapEditor};
use crate::changes::tail::zero_tail;
use crate::format::BLOCK;
use crate::format::Pointer;
use crate::inode::attached::TakenBack;
use crate::mounted::file_system::Core;
use crate::values::error::{FsError, damaged_inode};
use pmem::BLOCK_BYTES;
use pmem::deliberate::{self, Bug};
use scatter::DomainId;
use txn::{Store, Transaction};

impl<S: Store> Core<S> {
    /// Folds all that is left, replaces the block that the holder may be storing into, makes what he may have left behind the end zeros, and ends the lease.
    pub(super) fn settle(
        &self,
        parties: &mut Parties<'_>,
        taken: TakenBack,
    ) -> Result<(), FsError> {
        self.fold_round(parties, taken.trust)?;
        if let Some(index) = taken.busy_block {
            self.replace(parties, index)?;
        }
        if !deliberate::is(Bug::LeaveLeaseTail) {
            // An append that did not happen may have left bytes there.
            zero_tail(self, parties.file, &parties.body.raw)?;
        }
        let mut words = self.words(parties)?;
        words.ended = 1;
        let mut new = *parties.raw;
        words.store(&mut new);
        let mut transaction = self.begin();
        transaction.log_promised(parties.lease, parties.raw, &mut new);
        transaction.commit()?;
        *parties.raw = new;
        Ok(())
    }

    /// L4: the file gets a copy of its block `index`, in the block that the lease has kept for that, and the lease the block. One transaction, which needs no room; behind an error it may have happened already.
    fn replace(&self, parties: &mut Parties<'_>, index: u64) -> Result<(), FsError> {
        let map = BlockMap::of(parties.file, &parties.body.raw);
        // A holder writes no unwritten block in place.
        let Some(Pointer::Written(old)) = map.lookup(&self.store, index)? else {
            return Ok(());
        };
        let kept_at = self.words(parties)?.replaced();
        let lease_map = BlockMap::of(parties.lease, parties.raw);
        let kept = lease_map.lookup(&self.store, kept_at)?;
        let kept = match kept {
            Some(Pointer::Unwritten(block)) => block,
            Some(_) => return Ok(()),
            None => return Err(damaged_inode(parties.lease, "the lease has kept no block")),
        };
        let mut content = [0; BLOCK_BYTES];
        self.store.read_data(old, 0, &mut content);
        let size = parties.body.raw.size;
        let used = (size.saturating_sub(index * BLOCK)).min(BLOCK) as usize;
        content[used..].fill(0);
        let mut transaction = self.begin();
        transaction.write_fresh(kept, 0, &content);
        let (mut new, mut new_lease) = (parties.body.raw, *parties.raw);
        // Both have a pointer there already, so no node is added.
        for (raw, map, index, block) in [
            (&mut new, map, index, kept),
            (&mut new_lease, lease_map, kept_at, old),
        ] {
            let mut editor = MapEditor::new(&self.store, map);
            let pointers = [Pointer::Written(block)];
            editor.set(&mut transaction, index, &pointers, DomainId::METADATA)?;
            (raw.root, raw.height) = editor.finish(&mut transaction);
        }
        transaction.log_promised(parties.lease, parties.raw, &mut new_lease);
        transaction.log_promised(parties.file, &parties.body.raw, &mut new);
        transaction.commit()?;
        *parties.raw = new_lease;
        parties.body.raw = new;
        Ok(())
    }
}
