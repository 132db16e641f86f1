//! Sums the payments of a file that is not attached. Until they are enough its operations take no
//! lock.

use super::{File, Holds, State};
use crate::entrance::Generation;
use crate::layout::Counter;
use crate::policy::Purpose;
use crate::price::Call;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// The number of reads of which one is timed.
const READS_PER_LOOK: u64 = 8;

/// Words that threads change without a lock. Two threads at once may count one operation: the rule
/// is a guess in any case.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The file is not attached, and nothing decides when it will be but what it has paid.
    is_waiting: AtomicBool,
    /// Nanoseconds that the file has paid.
    paid: AtomicU64,
    /// Nanoseconds of syncs that an attached file did not need.
    spared: AtomicU64,
    /// The program has synced the file.
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
    /// Makes the words of a new file.
    pub(super) fn new(is_waiting: bool) -> Waiting {
        Waiting {
            is_waiting: AtomicBool::new(is_waiting),
            ..Waiting::default()
        }
    }

    /// Has each operation ask the policy.
    pub(super) fn stop(&self) {
        self.is_waiting.store(false, Relaxed);
    }

    /// Takes the time of syncs that were not needed.
    pub(super) fn take_spared(&self) -> u64 {
        take(&self.spared)
    }

    /// Takes the payments. The file pays from the beginning.
    pub(super) fn take_paid(&self) -> u64 {
        take(&self.paid)
    }

    /// Returns the payments.
    pub(super) fn paid(&self) -> u64 {
        self.paid.load(Relaxed)
    }
}

impl File {
    /// Notes how long the kernel took for a read that this file refused. A caller that tells each
    /// such call has the file attached when that pays ([`Rule::Measured`](crate::Rule)).
    #[inline]
    pub fn kernel_read(&self, bytes: usize, took: Duration) {
        self.pay(Call::Read, bytes, took);
    }

    /// Notes the same of a write.
    #[inline]
    pub fn kernel_wrote(&self, bytes: usize, took: Duration) {
        self.pay(Call::Write, bytes, took);
    }

    /// Notes the same of `fsync` or `fdatasync`.
    #[inline]
    pub fn kernel_synced(&self, took: Duration) {
        self.waiting.is_synced.store(true, Relaxed);
        self.pay(Call::Sync, 0, took);
    }

    fn pay(&self, call: Call, bytes: usize, took: Duration) {
        let price = self.connection.price();
        // On a mount whose files are only read directly, an attachment saves no write.
        let is_saved = call == Call::Read || !self.connection.reads_only();
        if price.is_measured() && is_saved {
            add(&self.waiting.paid, price.payment(call, bytes, took));
        }
    }

    /// Notes that `fsync` had nothing to do.
    pub(super) fn spare_sync(&self) {
        let price = self.connection.price();
        if price.is_measured() {
            self.waiting.is_synced.store(true, Relaxed);
            add(&self.waiting.spared, price.usual_payment(Call::Sync));
        }
    }

    /// Says whether the kernel does a read because the file has not paid enough. `Some(true)`: it
    /// does, and the caller [tells](Self::kernel_read) how long that took. Only some are timed,
    /// because a read of cached pages takes little longer than two looks at the clock.
    #[inline]
    pub fn leaves_read(&self) -> Option<bool> {
        let waiting = &self.waiting;
        if !waiting.is_waiting.load(Relaxed)
            || self.generation != Generation::current()
            || !self.is_left_to_kernel(Purpose::Reading)
        {
            return None;
        }
        let is_timed = waiting.reads.load(Relaxed) % READS_PER_LOOK == 1;
        if !is_timed {
            let payment = self.connection.price().usual_payment(Call::Read);
            add(&waiting.paid, payment);
        }
        Some(is_timed)
    }

    /// Says whether the kernel does this operation because the file has not paid enough. Counts the
    /// operation in that case.
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

    /// Tells the policy of operations that were counted here.
    pub(super) fn tell_policy(&self, state: &mut State) {
        let waiting = &self.waiting;
        let (reads, writes) = (take(&waiting.reads), take(&waiting.writes));
        let reads_since_write = take(&waiting.reads_since_write);
        state.policy.add(reads, writes, reads_since_write);
    }

    /// Takes the short way from now on, if only payments decide.
    pub(super) fn wait_for_payment(&self, state: &State) {
        let is_waiting = self.connection.price().is_measured()
            && matches!(state.holds, Holds::Nothing)
            && state.policy.waits_for_payment();
        self.waiting.is_waiting.store(is_waiting, Relaxed);
    }

    /// Has the file pay from the beginning.
    pub(super) fn count_again(&self, state: &mut State) {
        self.tell_policy(state);
        state.policy.count_again();
        state.worth += self.waiting.take_paid();
    }

    /// Forgets the past of the file, and returns it.
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
