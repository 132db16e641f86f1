//! Leases that nobody uses: they end by themselves, so that what they hold (a ring and spare blocks, 2.5 MiB) goes back to the pool.

use super::{Held, Session};
use crate::direct::leased::Lessee;
use fs::Node;
use fs::lease::FOLD_PATIENCE;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use txn::Store;

/// How long all leases of a process are waited for in one look, at most. An honest one is in the middle of as many writes as it has threads; one that says that it is busy with a thousand files
/// would otherwise keep its own thread here for ten seconds, and an unmount with it.
const PATIENCE: Duration = Duration::from_millis(100);

/// When the leases of a process are looked at, and what was found the last time.
///
/// All of them at once, one look each period: a lease that is as it was the last time has not been written to for a period. So one ends between one and two periods after its last write, and
/// a process without leases is never looked at.
pub(super) struct Looks {
    /// `None`: leases do not end by themselves.
    period: Option<Duration>,
    next: Option<Instant>,
    /// Number of the next record of each lease, by the attachment's number.
    found: HashMap<u32, u64>,
}

impl Looks {
    pub(super) fn new(period: Option<Duration>) -> Looks {
        Looks {
            period,
            next: None,
            found: HashMap::new(),
        }
    }

    /// There is a lease.
    pub(super) fn begin(&mut self) {
        if self.next.is_none() {
            // A time that no clock reaches never comes.
            self.next = self
                .period
                .and_then(|period| Instant::now().checked_add(period));
        }
    }

    /// How long until the next look; `None` if there is none to come.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let next = self.next?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}

impl Held {
    /// The holder and the file, if it is a lease and has not ended.
    fn live_lease(&self) -> Option<(&Lessee, &Node)> {
        match self {
            Held::Leased(lessee, node, _) if !lessee.has_ended() => Some((lessee, node)),
            Held::Leased(..) | Held::Reading(..) => None,
        }
    }
}

impl<S: Store> Session<S> {
    /// Looks at all leases of the process: ends those that it has not written to since the last look, and folds the others.
    pub(super) fn look_at_leases(&mut self) {
        let before = std::mem::take(&mut self.looks.found);
        let numbers: Vec<u32> = self.attached.keys().copied().collect();
        let until = Instant::now() + PATIENCE;
        for number in numbers {
            match self.next_record(number, until) {
                Some(next) if before.get(&number) == Some(&next) => self.end_unused(number),
                Some(next) => {
                    self.looks.found.insert(number, next);
                }
                None => {}
            }
        }
        self.looks.next = None;
        if self
            .attached
            .values()
            .any(|held| held.live_lease().is_some())
        {
            self.looks.begin();
        }
        self.describe();
    }

    /// Number of the record that a live lease has next, when all that its holder has acknowledged is folded. After `until` those in the middle of a write are not waited for.
    fn next_record(&self, number: u32, until: Instant) -> Option<u64> {
        let (lessee, node) = self.attached.get(&number)?.live_lease()?;
        let patience = until
            .saturating_duration_since(Instant::now())
            .min(FOLD_PATIENCE);
        match self.service.files().fold_lease_within(node, patience) {
            Ok(folded) => folded.map(|(next, _)| next),
            Err(error) => {
                tracing::warn!(inode = lessee.inode, %error, "a lease cannot be folded");
                None
            }
        }
    }

    fn end_unused(&mut self, number: u32) {
        let held = self.attached.get(&number);
        let Some((lessee, node)) = held.and_then(Held::live_lease) else {
            return;
        };
        if lessee.has_left() {
            // It has nothing more to ask about it: a file that was removed is freed now.
            if let Some(held) = self.attached.remove(&number) {
                self.let_go(held);
            }
            return;
        }
        // What nobody uses is taken from nobody.
        lessee.give_up();
        if let Err(error) = self.service.files().end_lease(node) {
            lessee.log_unfolded(&error);
        }
        self.counts().leases_timed_out.add(1);
    }
}
