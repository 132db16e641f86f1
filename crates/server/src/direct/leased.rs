//! A file that one process writes without asking.

use super::accounts::Account;
use super::mapped::Caller;
use super::memory::FileMemory;
use super::patience;
use super::registry::{Attachment, Registry};
use ::direct::layout::{head, left_at, slot_at};
use fs::lease::{Grant, Holder, LeaseRemains, TakenBack};
use lease::{Busy, RECORD_NUMBERS, Spare, State, Trust, Word, has_left};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use txn::sharing::{User, fence_everywhere};

/// How long a process that is in the middle of a write is waited for; then the lease is forced from it.
const PATIENCE: Duration = Duration::from_millis(100);

/// A process, as far as its leases and mappings are concerned.
pub(super) struct Process {
    pub(super) id: i32,
    /// What it says that it is busy with.
    pub(super) user: User,
    /// It has ended, and stores nothing any more.
    pub(super) is_dead: AtomicBool,
    /// Readable when it has ended: the thread that says so above may itself be the one that waits.
    pub(super) ended: OwnedFd,
    /// When patience with it ended.
    pub(super) was_late: Mutex<Option<Instant>>,
    /// Of its user.
    pub(super) account: Account,
    /// Where it is told to give mappings back.
    pub(super) caller: Caller,
}

impl Process {
    /// Whether it has ended, by the kernel's word.
    pub(super) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.ended, PollFlags::IN)];
        self.is_dead.load(Ordering::Acquire)
            || rustix::event::poll(&mut polled, Some(&Timespec::default()))
                .is_ok_and(|ready| ready > 0)
    }
}

/// The holder of a lease.
pub(crate) struct Lessee {
    pub(super) memory: FileMemory,
    pub(super) inode: u64,
    process: Arc<Process>,
    /// The attachment's, by which the process says that it has left.
    number: u32,
    slot: usize,
    registry: Arc<Registry>,
    outcome: Mutex<Outcome>,
    /// The process wants it no longer, so that its end takes nothing from anybody.
    is_given_up: AtomicBool,
    this: Weak<Lessee>,
}

/// How the lease has ended, if it has.
#[derive(Default)]
struct Outcome {
    /// Records before this number count.
    next: Option<u64>,
    /// L4: blocks that the process may still be storing into.
    remains: Option<LeaseRemains>,
    was_forced: bool,
}

/// A word of the state: the server's is memory that it writes, the process's is in the process's file.
enum StateWord<'l> {
    Server(&'l AtomicU64),
    Process(&'l User, usize),
}

impl Word for StateWord<'_> {
    fn load(&self, ordering: Ordering) -> u64 {
        match self {
            StateWord::Server(word) => word.load(ordering),
            // Who made his file shorter is never idle: his lease is forced from him.
            StateWord::Process(user, at) => user.word(*at).unwrap_or(u64::MAX),
        }
    }

    fn store(&self, word: u64, ordering: Ordering) {
        if let StateWord::Server(target) = self {
            target.store(word, ordering);
        }
    }

    fn light_fence() {}
}

fn heavy_fence() {
    if !fence_everywhere() {
        pmem::full_fence();
    }
}

impl Lessee {
    pub(super) fn new(
        memory: FileMemory,
        inode: u64,
        process: &Arc<Process>,
        (number, slot): (u32, usize),
        registry: &Arc<Registry>,
    ) -> Arc<Lessee> {
        Arc::new_cyclic(|this| Lessee {
            memory,
            inode,
            process: Arc::clone(process),
            number,
            slot,
            registry: Arc::clone(registry),
            outcome: Mutex::default(),
            is_given_up: false.into(),
            this: this.clone(),
        })
    }

    /// Writes down for the process what it was granted.
    pub(super) fn publish(&self, grant: &Grant) {
        let FileMemory { shared, layout, .. } = &self.memory;
        for (index, block) in (0..).zip(grant.ring.blocks()) {
            let at = layout.ring_at(index);
            shared.word(at).store(block.get(), Ordering::Relaxed);
        }
        self.refill(&grant.spares);
        self.memory
            .head(head::FOLDED)
            .store(grant.next, Ordering::Release);
    }

    /// One thread at a time: the file is locked, or nobody knows it yet.
    fn refill(&self, spares: &[Spare]) {
        let FileMemory { shared, layout, .. } = &self.memory;
        let count = self.memory.head(head::REFILLS);
        let before = count.load(Ordering::Relaxed);
        for (number, spare) in (before..).zip(spares) {
            let at = layout.refill_at(number);
            shared
                .word(at)
                .store(u64::from(spare.slot), Ordering::Relaxed);
            shared
                .word(at + 8)
                .store(spare.block.get(), Ordering::Relaxed);
        }
        count.store(before + spares.len() as u64, Ordering::Release);
    }

    /// The slot of the process that the lease uses.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// The memory, if nobody else has to do with the lease any more.
    pub(super) fn into_memory(this: Arc<Lessee>) -> Option<FileMemory> {
        Arc::into_inner(this).map(|lessee| lessee.memory)
    }

    /// Whether the lease has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.outcome.lock().next.is_some()
    }

    /// Whether record `sequence` counts, after the end of the lease.
    pub(super) fn counts(&self, sequence: u64) -> bool {
        let next = self.outcome.lock().next;
        next.is_some_and(|next| sequence < next)
    }

    /// The lease ends next because the process wants it no longer.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Says that the lease has ended, and what was acknowledged is still in its ring only.
    pub(super) fn log_unfolded(&self, error: &fs::FsError) {
        tracing::error!(inode = self.inode, %error, "a lease could not be folded; its records stay for the next mount");
    }

    /// The process stores into none of the lease's blocks any more: they can be freed.
    pub(super) fn let_go(&self) {
        let remains = self.outcome.lock().remains.take();
        drop(remains);
    }

    /// Whether the lease was forced from the process in the middle of a write, which it has not come to the end of.
    pub(super) fn is_stored_into(&self) -> bool {
        let was_forced = self.outcome.lock().remains.is_some();
        was_forced && !self.is_dead() && self.with_state(|state| state.busy() != Busy::Idle)
    }

    fn with_state<T>(&self, work: impl FnOnce(&State<'_, StateWord<'_>>) -> T) -> T {
        let state = StateWord::Server(self.memory.head(head::STATE));
        let busy = StateWord::Process(&self.process.user, slot_at(self.slot));
        work(&State {
            state: &state,
            busy: &busy,
        })
    }

    /// Records before `next` are folded, or are about to be.
    fn count_folded(&self, next: u64) {
        let folded = self.memory.head(head::FOLDED).load(Ordering::Relaxed);
        let records = next.saturating_sub(folded.max(RECORD_NUMBERS.start));
        self.registry.counts.records_folded.add(records);
    }

    /// Whether the process says that it has left.
    pub(super) fn has_left(&self) -> bool {
        let word = StateWord::Process(&self.process.user, left_at(self.slot));
        has_left(&word, self.number)
    }

    fn is_dead(&self) -> bool {
        self.process.is_dead.load(Ordering::Acquire)
    }

    /// What the process is busy with when it has become idle, has died, or patience has ended.
    fn wait(&self, state: &State<'_, StateWord<'_>>) -> Busy {
        let mut wait = self.process.wait_since(Instant::now(), PATIENCE);
        loop {
            let busy = state.busy();
            if busy == Busy::Idle || self.is_dead() || !wait.goes_on() {
                return busy;
            }
            patience::pause(wait.waited());
        }
    }
}

fn busy_block(busy: Busy) -> Option<u64> {
    match busy {
        Busy::Block(index) => Some(index),
        Busy::Idle | Busy::SpareBlocks => None,
    }
}

impl Holder for Lessee {
    fn is_idle(&self) -> bool {
        heavy_fence();
        self.is_dead() || self.with_state(|state| state.busy() == Busy::Idle)
    }

    fn folded(&self, next: u64, refilled: &[Spare]) {
        self.refill(refilled);
        self.count_folded(next);
        self.memory
            .head(head::FOLDED)
            .store(next, Ordering::Release);
    }

    fn attributes_changed(&self) {
        self.memory.attributes_changed();
    }

    fn take_back(&self) -> TakenBack {
        let counts = &self.registry.counts;
        let has_left = self.has_left();
        if !has_left && !self.is_given_up.load(Ordering::Relaxed) {
            counts.leases_taken_back.add(1);
        }
        self.with_state(|state| {
            match has_left {
                true => state.seal(|| ()),
                false => state.seal(heavy_fence),
            }
            let busy = self.wait(state);
            if busy == Busy::Idle {
                return TakenBack {
                    trust: Trust::All,
                    busy_block: None,
                };
            }
            if !self.is_dead() {
                counts.leases_forced.add(1);
                tracing::info!(
                    inode = self.inode,
                    "a process does not go on with a direct write; its lease is forced from it"
                );
            }
            state.force(heavy_fence);
            self.outcome.lock().was_forced = true;
            TakenBack {
                trust: Trust::IfDataFits,
                busy_block: busy_block(state.busy()).or(busy_block(busy)),
            }
        })
    }

    fn ended(&self, remains: LeaseRemains, next: u64) {
        self.count_folded(next);
        let mut outcome = self.outcome.lock();
        outcome.next = Some(next);
        if outcome.was_forced && !self.is_dead() {
            outcome.remains = Some(remains);
        } else {
            drop(outcome);
            drop(remains);
        }
        if let Some(this) = self.this.upgrade() {
            self.registry.remove(self.inode, &Attachment::Leased(this));
        }
    }
}
