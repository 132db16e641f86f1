//! The end of a lease: what is left is folded, and the file is as if there had never been one.

use super::fold::Parties;
use crate::changes::relocate::{Owned, exchange};
use crate::changes::tail::zero_tail;
use crate::inode::attached::TakenBack;
use crate::mounted::file_system::Core;
use crate::values::error::FsError;
use pmem::deliberate::{self, Bug};
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

    /// L4: the file gets a copy of its block `index`, in the block that the lease has kept for that,
    /// and the lease the block.
    fn replace(&self, parties: &mut Parties<'_>, index: u64) -> Result<(), FsError> {
        let kept_at = self.words(parties)?.replaced();
        let file = Owned {
            number: parties.file,
            raw: &mut parties.body.raw,
            index,
        };
        let lease = Owned {
            number: parties.lease,
            raw: parties.raw,
            index: kept_at,
        };
        exchange(self, file, lease)
    }
}
