//! Folding on demand, while the holder goes on.

use super::fold::{Folded, Parties};
use crate::format::lease::RawLease;
use crate::inode::attached::Holder;
use crate::inode::node::{Body, FileLease, Node};
use crate::mounted::file_system::{Core, FileSystem};
use crate::values::error::FsError;
use lease::{Spare, Trust};
use std::time::Duration;
use txn::Store;

/// How long a holder who is in the middle of a write is waited for by who wants to know what he has acknowledged before.
pub const FOLD_PATIENCE: Duration = Duration::from_millis(10);

impl<S: Store> FileSystem<S> {
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
}

impl<S: Store> Core<S> {
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
}
