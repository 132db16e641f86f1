//! A file that is not attached: what its operations have paid so far, and the short way past all
//! locks until that is enough.

use super::{File, Holds, State};
use crate::entrance::Generation;
use crate::layout::Counter;
use crate::policy::Purpose;
use crate::price::Call;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// One read of so many is timed.
const READS_PER_LOOK: u64 = 8;

/// What threads note without a lock. Two that do it at once may note one operation: the rule is a
/// guess in any case.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The file is not attached, and nothing decides when it will be but what it has paid.
    is_waiting: AtomicBool,
    /// Nanoseconds.
    paid: AtomicU64,
    /// Of an attached file: what it has not paid because it is durable anyway.
    spared: AtomicU64,
    /// Whether it was made durable.
    is_synced: AtomicBool,
    /// Operations that the policy has not heard of.
    reads: AtomicU64,
    writes: AtomicU64,
    reads_since_write: AtomicU64,
}

fn add(word: &AtomicU64, amount: u64) {
    word.store(word.load(Relaxed).saturating_add(amount), Relaxed);
}

fn take(word: &AtomicU64) -> u64 {
    let taken = word.load(Relaxed);
    word.store(0, Relaxed);
    taken
}

impl Waiting {
    /// Of a file that nobody has used.
    pub(super) fn new(is_waiting: bool) -> Waiting {
        Waiting {
            is_waiting: AtomicBool::new(is_waiting),
            ..Waiting::default()
        }
    }

    /// From now on the policy is asked.
    pub(super) fn stop(&self) {
        self.is_waiting.store(false, Relaxed);
    }

    /// What was spared since the last question.
    pub(super) fn take_spared(&self) -> u64 {
        take(&self.spared)
    }

    /// What was paid since the file began anew, which it does now.
    pub(super) fn take_paid(&self) -> u64 {
        take(&self.paid)
    }

    /// What was paid.
    pub(super) fn paid(&self) -> u64 {
        self.paid.load(Relaxed)
    }
}

impl File {
    /// A read of this file by the kernel, in place of one that was refused, took so long. Whoever
    /// tells that of each ([`Rule::Measured`](crate::Rule)) has the file attached when it pays.
    #[inline]
    pub fn kernel_read(&self, bytes: usize, took: Duration) {
        self.pay(Call::Read, bytes, took);
    }

    /// The same of a write.
    #[inline]
    pub fn kernel_wrote(&self, bytes: usize, took: Duration) {
        self.pay(Call::Write, bytes, took);
    }

    /// The same of `fsync` and the like of it.
    #[inline]
    pub fn kernel_synced(&self, took: Duration) {
        self.waiting.is_synced.store(true, Relaxed);
        self.pay(Call::Sync, 0, took);
    }

    fn pay(&self, call: Call, bytes: usize, took: Duration) {
        let price = self.connection.price();
        // Where nothing is written directly, an attachment saves no write.
        let is_saved = call == Call::Read || !self.connection.reads_only();
        if price.is_measured() && is_saved {
            add(&self.waiting.paid, price.payment(call, bytes, took));
        }
    }

    /// `fsync` had nothing to do.
    pub(super) fn spare_sync(&self) {
        let price = self.connection.price();
        if price.is_measured() {
            self.waiting.is_synced.store(true, Relaxed);
            add(&self.waiting.spared, price.usual_payment(Call::Sync));
        }
    }

    /// Whether a read is left to the kernel because the file has not paid enough; then whether the
    /// caller should [tell](Self::kernel_read) how long it takes. Of reads only some are timed: from
    /// the kernel's pages they take little longer than the two looks at a clock.
    #[inline]
    pub fn leaves_read(&self) -> Option<bool> {
        let is_ours = self.generation == Generation::current();
        if !is_ours || !self.is_left_to_kernel(Purpose::Reading) {
            return None;
        }
        let waiting = &self.waiting;
        let is_timed = waiting.reads.load(Relaxed) % READS_PER_LOOK == 1;
        if !is_timed {
            let payment = self.connection.price().usual_payment(Call::Read);
            add(&waiting.paid, payment);
        }
        Some(is_timed)
    }

    /// Whether the kernel does this operation because the file has not paid enough; it is counted
    /// then.
    #[inline]
    pub(super) fn is_left_to_kernel(&self, operation: Purpose) -> bool {
        let (waiting, connection) = (&self.waiting, &self.connection);
        if !waiting.is_waiting.load(Relaxed)
            || connection.price().is_paid(operation, 0, waiting.paid())
        {
            return false;
        }
        let mut counter = Counter::NotAttached;
        match operation {
            Purpose::Reading => {
                add(&waiting.reads, 1);
                add(&waiting.reads_since_write, 1);
            }
            Purpose::Writing => {
                add(&waiting.writes, 1);
                waiting.reads_since_write.store(0, Relaxed);
                if connection.reads_only() {
                    counter = Counter::NotOffered;
                }
            }
        }
        connection.count(counter, 1);
        true
    }

    /// Tells the policy what was counted without it.
    pub(super) fn tell_policy(&self, state: &mut State) {
        let waiting = &self.waiting;
        let (reads, writes) = (take(&waiting.reads), take(&waiting.writes));
        let reads_since_write = take(&waiting.reads_since_write);
        state.policy.add(reads, writes, reads_since_write);
    }

    /// Waits from now on, if only payments are waited for.
    pub(super) fn wait_for_payment(&self, state: &State) {
        let is_waiting = self.connection.price().is_measured()
            && matches!(state.holds, Holds::Nothing)
            && state.policy.waits_for_payment();
        self.waiting.is_waiting.store(is_waiting, Relaxed);
    }

    /// The file has to pay again before it is attached.
    pub(super) fn count_again(&self, state: &mut State) {
        self.tell_policy(state);
        state.policy.count_again();
        state.worth += self.waiting.take_paid();
    }

    /// The file begins anew: what there was of it.
    pub(super) fn start_again(&self, state: &mut State) -> super::Past {
        self.count_again(state);
        let operations = state.policy.start_again();
        let worth = std::mem::take(&mut state.worth);
        let is_synced = self.waiting.is_synced.swap(false, Relaxed);
        self.wait_for_payment(state);
        let price = self.connection.price();
        super::Past {
            operations,
            is_journal: price.is_journal(operations, is_synced, worth),
        }
    }
}
