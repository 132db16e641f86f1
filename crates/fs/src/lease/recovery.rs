//! Leases that the power, or the death of the server, has ended.

use super::blocks::{Medium, lease_blocks};
use super::fold::Parties;
use crate::format::lease::{RawLease, is_leasable};
use crate::format::{InodeNumber, RawInode};
use crate::inode::attached::{Holder, LeaseRemains, TakenBack};
use crate::inode::lease_blocks::LeaseBlocks;
use crate::inode::node::{FileLease, Node, validate};
use crate::inode::rights;
use crate::mounted::file_system::Core;
use crate::values::error::FsError;
use lease::{Gap, Spare, Trust};
use std::sync::Arc;
use txn::{Corruption, Domain, Store, Transaction};
use zerocopy::IntoBytes;

/// How far whoever had a lease is to be believed.
const AT_REST: TakenBack = TakenBack {
    trust: Trust::IfDataFits,
    busy_block: None,
};

/// Who had a lease that cannot be folded.
struct Gone;

impl Holder for Gone {
    fn is_idle(&self) -> bool {
        true
    }

    fn take_back(&self) -> TakenBack {
        AT_REST
    }

    fn folded(&self, _next: u64, _refilled: &[Spare]) {}

    fn ended(&self, _remains: LeaseRemains, _next: u64) {}

    fn attributes_changed(&self) {}
}

/// What is to be done with an inode without a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Orphan {
    /// It can be freed.
    Free,
    /// It holds what somebody was told is durable, and cannot be folded: it stays as it is, and nobody gets at its file.
    Keep,
}

impl<S: Store> Core<S> {
    /// Folds an inode without a name into its file, if it is a lease that had not ended. The file system is being mounted: nobody else is there.
    pub(crate) fn fold_orphan(&self, number: InodeNumber) -> Orphan {
        match self.try_fold_orphan(number) {
            Ok(()) => Orphan::Free,
            Err(error) => {
                tracing::error!(inode = number.get(), %error, "what the holder of a lease wrote cannot be added to its file; it is kept, run `perdure fsck`");
                self.lose(format!("direct writes are not in their file: {error}"));
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
        // What has come to give rights since has no lease. So if the attributes cannot be read, they do not say so.
        if !rights::gives_rights(&self.store, node.number(), &body.raw).unwrap_or(false) {
            let RawInode { mode, uid, gid, .. } = body.raw;
            body.domain = self.store.domain_number(Domain::of_file(mode, uid, gid));
        }
        let mut blocks = match lease_blocks(self, (number, &raw), &words, body.domain) {
            Ok(blocks) => blocks,
            Err(FsError::Corrupt(why)) if self.options.force_recovery => {
                self.lose(format!("{}: its direct writes were dropped", why.object));
                return Ok(());
            }
            Err(FsError::Corrupt(why)) => LeaseBlocks::unreadable(why),
            Err(error) => return Err(error),
        };
        self.inspect_ring((node.number(), number), &raw, &words, &mut blocks)?;
        let mut parties = Parties {
            file: node.number(),
            body: &mut body,
            lease: number,
            raw: &mut raw,
            blocks: &mut blocks,
        };
        let outcome = self.settle(&mut parties, AT_REST);
        match outcome {
            Ok(()) => body.domain = self.domain(node.number(), &body.raw),
            // As when a lease is taken back: nobody changes what the next mount folds over.
            Err(_) if !self.options.read_only => {
                body.lease = Some(Box::new(FileLease {
                    _file: node.clone(),
                    lease: Node(Arc::new(self.state(number, raw))),
                    blocks,
                    holder: Arc::new(Gone),
                    taken: Some(AT_REST),
                }));
            }
            Err(_) => {}
        }
        outcome
    }

    /// Sets single flipped bits of the ring right. More damage closes the file, not the pool: the
    /// owner of the file can make damage up. Forced recovery drops the records behind the damage.
    fn inspect_ring(
        &self,
        (file, number): (InodeNumber, InodeNumber),
        raw: &RawInode,
        words: &RawLease,
        blocks: &mut LeaseBlocks,
    ) -> Result<(), FsError> {
        let salt = RawLease::salt(number, raw.generation);
        let inspection = lease::inspect(&Medium(&self.store), &blocks.ring, salt, words.next);
        for record in &inspection.corrected {
            tracing::warn!(
                inode = file.get(),
                record = record.sequence,
                "a flipped bit in a record of direct writes is set right"
            );
            let mut transaction = self.begin();
            transaction.store(blocks.ring.place(record.sequence), record.as_bytes());
            transaction.commit()?;
        }
        let Some(gap) = inspection.gap else {
            return Ok(());
        };
        let Gap { damaged, records } = gap;
        if self.options.read_only {
            self.lose(format!(
                "inode {file}: {gap}; the file is shown without them, and its blocks may be of different moments"
            ));
        } else if self.options.force_recovery {
            self.lose(format!("inode {file}: record {damaged} of its direct writes was damaged; {records} whole ones behind it were dropped, and the file's blocks may be of different moments"));
        } else {
            blocks.hold_back(Corruption::new(format!("inode {file}"), gap.to_string()));
        }
        Ok(())
    }

    /// Notes what recovery could not keep, or could not do.
    fn lose(&self, what: String) {
        self.losses.lock().push(what);
    }
}
