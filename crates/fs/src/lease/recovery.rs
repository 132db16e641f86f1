//! Leases that the power, or the death of the server, has ended.

use super::fold::{Parties, lease_blocks};
use super::{RawLease, TakenBack, is_leasable};
use crate::error::FsError;
use crate::file_system::Core;
use crate::format::{InodeNumber, RawInode};
use crate::node::validate;
use lease::Trust;
use txn::Store;

/// What is to be done with an inode without a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Orphan {
    /// It can be freed.
    Free,
    /// It holds what somebody was told is durable, and cannot be folded: it stays as it is.
    Keep,
}

impl<S: Store> Core<S> {
    /// Folds an inode without a name into its file, if it is a lease that had not ended. The file system is being mounted: nobody else is there.
    pub(crate) fn fold_orphan(&self, number: InodeNumber) -> Orphan {
        match self.try_fold_orphan(number) {
            Ok(()) => Orphan::Free,
            Err(error) => {
                tracing::error!(inode = number.get(), %error, "what the holder of a lease wrote cannot be added to its file; it is kept, run `perdure fsck`");
                Orphan::Keep
            }
        }
    }

    fn try_fold_orphan(&self, number: InodeNumber) -> Result<(), FsError> {
        let mut raw: RawInode = self.table.load(&self.store, number)?;
        let words = match validate(&raw, number) {
            Ok(()) => RawLease::of(&raw).filter(|words| words.ended == 0),
            Err(_) => None,
        };
        let Some(words) = words else {
            return Ok(());
        };
        // A file whose last name is gone, or that is gone itself, has no use for it.
        let node = match self.node(InodeNumber::new(words.target)) {
            Ok(node) => node,
            Err(FsError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut body = node.write();
        if !is_leasable(&body.raw, &raw, &words) {
            return Ok(());
        }
        let mut blocks = lease_blocks(self, (number, &raw), &words, body.domain)?;
        let mut parties = Parties {
            file: node.number(),
            body: &mut body,
            lease: number,
            raw: &mut raw,
            blocks: &mut blocks,
        };
        let taken = TakenBack {
            trust: Trust::IfDataFits,
            busy_block: None,
        };
        self.settle(&mut parties, taken)
    }
}
