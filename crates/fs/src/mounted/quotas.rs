//! Quotas: how much each limited user and group uses, and has left.
//!
//! Usage is counted in DRAM: by a walk over the inode table when a mount finds limits, then
//! with every operation. Without limits nothing is counted and operations pay one load.

use crate::format::RawInode;
use crate::values::error::FsError;
use crate::values::quota::{Limits, Subject, Usage};
use crate::values::types::KeptSpace;
use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering};

/// One account per subject that has limits.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    limits: Limits,
    usage: Usage,
    /// Blocks that the user's processes keep beyond the user's files.
    kept_blocks: u64,
}

type Accounts = HashMap<Subject, Account, BuildHasherDefault<std::hash::DefaultHasher>>;

/// Limits and usage of a mounted file system.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    active: AtomicBool,
    accounts: Mutex<Accounts>,
}

/// What one inode counts for.
fn footprint(raw: &RawInode) -> Usage {
    if raw.is_free() {
        Usage::default()
    } else {
        Usage {
            blocks: raw.blocks,
            inodes: 1,
        }
    }
}

impl Quotas {
    /// Takes over the limits found at mount; usage is then counted by [`count`](Self::count).
    pub(crate) fn set_limits(&self, limits: &[(Subject, Limits)]) {
        let mut accounts = self.accounts.lock();
        accounts.clear();
        let account = |limits| Account {
            limits,
            ..Account::default()
        };
        accounts.extend(
            limits
                .iter()
                .map(|&(subject, limits)| (subject, account(limits))),
        );
        self.active.store(!accounts.is_empty(), Ordering::Release);
    }

    /// Changes limits of subjects whose usage is known. New ones have to wait for the next mount: they cannot be
    /// counted while files change. A subject that is not in `limits` is no longer limited.
    pub(crate) fn change_limits(&self, limits: &[(Subject, Limits)]) {
        for (subject, account) in self.accounts.lock().iter_mut() {
            let new = limits.iter().find(|(known, _)| known == subject);
            account.limits = new.map(|(_, limits)| *limits).unwrap_or_default();
        }
    }

    /// Whether anything is limited.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Takes over the blocks that users' processes keep beyond files. Does nothing without limits.
    pub(crate) fn set_kept(&self, kept: &[KeptSpace]) {
        if !self.is_active() {
            return;
        }
        for (subject, account) in self.accounts.lock().iter_mut() {
            let of_user = kept
                .iter()
                .find(|kept| *subject == Subject::User(kept.user));
            account.kept_blocks = of_user.map_or(0, |kept| kept.charged_blocks);
        }
    }

    /// Returns whether a refusal may be due to blocks that a user's processes keep.
    pub(crate) fn counts_kept(&self, subject: Subject) -> bool {
        let accounts = self.accounts.lock();
        accounts
            .get(&subject)
            .is_some_and(|account| account.kept_blocks > 0)
    }

    /// Returns the blocks that a user's files and kept blocks leave of the limit, or the fewer that
    /// `segments_blocks` leaves. `Some(None)`: the limit is reached; `None`: there is none.
    pub(crate) fn blocks_left(&self, user: u32, segments_blocks: u64) -> Option<Option<u64>> {
        let accounts = self.accounts.lock();
        let account = accounts.get(&Subject::User(user))?;
        let limit = account.limits.blocks?;
        let blocks = account.usage.blocks.saturating_add(account.kept_blocks);
        Some(limit.checked_sub(blocks.max(segments_blocks)))
    }

    /// Adds an inode found at mount.
    pub(crate) fn count(&self, raw: &RawInode) {
        let usage = footprint(raw);
        let mut accounts = self.accounts.lock();
        for subject in [Subject::User(raw.uid), Subject::Group(raw.gid)] {
            if let Some(account) = accounts.get_mut(&subject) {
                account.usage.blocks = account.usage.blocks.saturating_add(usage.blocks);
                account.usage.inodes += usage.inodes;
            }
        }
    }

    /// Limits and usage, by subject.
    pub(crate) fn report(&self) -> Vec<(Subject, Limits, Usage)> {
        let accounts = self.accounts.lock();
        let mut report: Vec<_> = accounts
            .iter()
            .map(|(&subject, account)| (subject, account.limits, account.usage))
            .collect();
        report.sort_by_key(|(subject, ..)| *subject);
        report
    }

    /// Moves the footprint from `old` to `new`. All or nothing; growth beyond a limit is refused, shrinking never is.
    fn transfer(&self, old: &Footprint, new: &Footprint, enforce: bool) -> Result<(), FsError> {
        let mut accounts = self.accounts.lock();
        let mut changed: SmallVec<[(Subject, Usage); 4]> = SmallVec::new();
        for (make, old_id, new_id) in [
            (Subject::User as fn(u32) -> Subject, old.uid, new.uid),
            (Subject::Group as fn(u32) -> Subject, old.gid, new.gid),
        ] {
            for id in [Some(old_id), (new_id != old_id).then_some(new_id)]
                .into_iter()
                .flatten()
            {
                let Some(account) = accounts.get(&make(id)) else {
                    continue;
                };
                let before = account.usage;
                let minus = if id == old_id {
                    old.usage
                } else {
                    Usage::default()
                };
                let plus = if id == new_id {
                    new.usage
                } else {
                    Usage::default()
                };
                let after = Usage {
                    blocks: before
                        .blocks
                        .saturating_add(plus.blocks)
                        .saturating_sub(minus.blocks),
                    inodes: (before.inodes + plus.inodes).saturating_sub(minus.inodes),
                };
                let over = |after: u64, before: u64, limit: Option<u64>| {
                    after > before && limit.is_some_and(|limit| after > limit)
                };
                let limits = account.limits;
                let left = limits
                    .blocks
                    .map(|blocks| blocks.saturating_sub(account.kept_blocks));
                let refused = over(after.blocks, before.blocks, left)
                    || over(after.inodes, before.inodes, limits.inodes);
                if enforce && refused {
                    return Err(FsError::QuotaExceeded(make(id)));
                }
                changed.push((make(id), after));
            }
        }
        for (subject, usage) in changed {
            if let Some(account) = accounts.get_mut(&subject) {
                account.usage = usage;
            }
        }
        Ok(())
    }
}

/// Owner and footprint of one version of an inode.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    uid: u32,
    gid: u32,
    usage: Usage,
}

impl Footprint {
    /// A free version has no owner of its own: it takes that of `other`.
    fn of(raw: &RawInode, other: &RawInode) -> Footprint {
        let owner = if raw.is_free() { other } else { raw };
        Footprint {
            uid: owner.uid,
            gid: owner.gid,
            usage: footprint(raw),
        }
    }

    /// Of two versions of an inode, if they differ.
    fn of_change(old: &RawInode, new: &RawInode) -> Option<(Footprint, Footprint)> {
        let (old, new) = (Footprint::of(old, new), Footprint::of(new, old));
        let is_same = old.usage == new.usage && old.uid == new.uid && old.gid == new.gid;
        (!is_same).then_some((old, new))
    }
}

/// What an operation charged so far; goes back unless the operation commits.
#[derive(Debug)]
pub(crate) struct Charges<'q> {
    quotas: &'q Quotas,
    made: SmallVec<[(Footprint, Footprint); 2]>,
}

impl<'q> Charges<'q> {
    #[inline]
    pub(crate) fn new(quotas: &'q Quotas) -> Charges<'q> {
        Charges {
            quotas,
            made: SmallVec::new(),
        }
    }

    /// Charges the difference between two versions of an inode.
    #[inline]
    pub(crate) fn charge(&mut self, old: &RawInode, new: &RawInode) -> Result<(), FsError> {
        match self.quotas.is_active() {
            true => self.charge_active(old, new),
            false => Ok(()),
        }
    }

    /// The same for what was promised when the limits allowed it; they may have been lowered since. Nothing refuses it.
    pub(crate) fn charge_promised(&mut self, old: &RawInode, new: &RawInode) {
        if self.quotas.is_active()
            && let Some((old, new)) = Footprint::of_change(old, new)
        {
            let _ = self.quotas.transfer(&old, &new, false);
            self.made.push((old, new));
        }
    }

    #[cold]
    fn charge_active(&mut self, old: &RawInode, new: &RawInode) -> Result<(), FsError> {
        if let Some((old, new)) = Footprint::of_change(old, new) {
            self.quotas.transfer(&old, &new, true)?;
            self.made.push((old, new));
        }
        Ok(())
    }

    /// The operation is durable: the charges stay.
    #[inline]
    pub(crate) fn keep(&mut self) {
        self.made.clear();
    }
}

impl Drop for Charges<'_> {
    fn drop(&mut self) {
        for (old, new) in self.made.drain(..).rev() {
            // Giving back is never refused.
            let _ = self.quotas.transfer(&new, &old, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(uid: u32, blocks: u64) -> RawInode {
        RawInode {
            mode: 0o100_644,
            uid,
            gid: 7,
            blocks,
            ..RawInode::ZERO
        }
    }

    #[test]
    fn growth_beyond_a_limit_is_refused_and_an_aborted_charge_goes_back() {
        let quotas = Quotas::default();
        quotas.set_limits(&[(
            Subject::User(1),
            Limits {
                blocks: Some(10),
                inodes: Some(1),
            },
        )]);
        let (free, small, large) = (RawInode::ZERO, inode(1, 4), inode(1, 11));
        let mut charges = Charges::new(&quotas);
        charges.charge(&free, &small).expect("within the limits");
        drop(charges);
        assert_eq!(quotas.report()[0].2, Usage::default(), "aborted");
        let mut charges = Charges::new(&quotas);
        charges.charge(&free, &small).expect("within the limits");
        charges.keep();
        let mut charges = Charges::new(&quotas);
        let refused = charges.charge(&small, &large).unwrap_err();
        assert_eq!(refused, FsError::QuotaExceeded(Subject::User(1)));
        assert!(
            matches!(
                charges.charge(&free, &inode(1, 0)),
                Err(FsError::QuotaExceeded(_))
            ),
            "a second inode"
        );
        // Giving it to somebody else frees it here, and shrinking always works.
        charges
            .charge(&small, &inode(2, 4))
            .expect("change of owner");
        charges.keep();
        assert_eq!(quotas.report()[0].2, Usage::default());
    }
}
