//! Threads that write batches, and threads that wait for them.
//!
//! A thread that waits for its change writes the batch itself if fewer writes than the disk likes
//! are in flight; otherwise it waits for the batch of another thread. There is no timer between
//! batches: the records that arrived during the writes before are the next batch.

use super::answers::Changes;
use super::backlog::{Backlog, Room};
use super::bound::{Bound, THREADS_MAX};
use super::cut::Cutter;
use super::dirty::DirtyBlocks;
use super::early::Habits;
use super::image::Image;
use super::loader::Loader;
use super::placed_data::LoggedBlocks;
use super::policy::Durability;
use super::waiters::Waiters;
use super::waits::Watch;
use crate::domain::Domains;
use crate::journal::Journals;
use parking_lot::{Condvar, Mutex, MutexGuard};
use pmem::Region;
use pmem::deliberate::{self, Bug};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wal::{DiskSpeed, Log, LogError};

/// How long a batch waits for room before the log counts as failed.
pub(super) const ROOM_PATIENCE: Duration = Duration::from_secs(30);

/// The log cannot go on: nothing more becomes durable, and the pool is read-only.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the pool's log failed, and the pool is read-only until it is mounted again: {0}")]
pub struct LogFailed(pub(super) LogFault);

#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum LogFault {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("no room in the log for {} s, because the image on the disk could not be written", ROOM_PATIENCE.as_secs())]
    Full,
    #[error("the image cannot be written: {0}")]
    Image(Arc<std::io::Error>),
}

/// The state that all threads of a log share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) log: Log,
    pub(super) region: Arc<Region>,
    pub(super) journals: Arc<Journals>,
    pub(super) domains: Arc<Domains>,
    pub(super) image: Arc<Image>,
    /// Of memory that is loaded while it is used.
    pub(super) loader: Option<Arc<Loader>>,
    pub(super) dirty: DirtyBlocks,
    pub(super) logged: LoggedBlocks,
    pub(super) durability: Durability,
    pub(super) bound: Bound,
    pub(super) changes: Changes,
    /// The speed of the disk, if it was measured.
    pub(super) speed: Option<DiskSpeed>,
    cutter: Mutex<Cutter>,
    /// Records up to this number are in batches that have a place in the log.
    placed: AtomicU64,
    /// Records up to this number are durable because there is none behind the log's last batch.
    vacuous: AtomicU64,
    state: Mutex<State>,
    /// The log has failed, there is more room, or a checkpoint is wanted.
    pub(super) changed: Condvar,
    has_failed: AtomicBool,
    /// Threads write batches and keep the image.
    has_threads: AtomicBool,
    pub(super) backlog: Backlog,
    /// Checkpoints that wait for the log: a batch may use the room that is kept free for them.
    pub(super) checkpoints_waiting: AtomicU64,
    /// One checkpoint of the image at a time: the root of a second one would promise what the first
    /// has not written yet.
    pub(super) checkpointing: Mutex<()>,
    /// Writes of the image that fail are tried again at once.
    pub(super) is_impatient: AtomicBool,
    pub(super) counts: Counts,
    pub(super) watch: Watch,
    pub(super) habits: Habits,
}

/// For the status.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) checkpoints: AtomicU64,
    pub(super) image_bytes: AtomicU64,
    pub(super) placed_bytes: AtomicU64,
    /// Calls that waited because the log was late, and for how long.
    pub(super) late_calls: AtomicU64,
    pub(super) late_ns: AtomicU64,
}

impl Counts {
    pub(super) fn was_late(&self, since: Instant) {
        self.late_calls.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = since.elapsed().as_nanos() as u64;
        self.late_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// The work that is under way, behind one lock.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) in_flight: usize,
    waiters: Waiters,
    /// Batches that are not durable yet: up to which record, and when they were cut.
    cuts: VecDeque<(u64, Instant)>,
    fault: Option<LogFault>,
    pub(super) ends: bool,
    pub(super) checkpoint_wanted: bool,
    pub(super) checkpoint_ended: Option<Instant>,
}

impl State {
    pub(super) fn failed(&self) -> Option<LogFailed> {
        self.fault.clone().map(LogFailed)
    }
}

impl Shared {
    pub(super) fn new(
        log: Log,
        region: Arc<Region>,
        (journals, domains): (Arc<Journals>, Arc<Domains>),
        (image, loader, dirty): (Arc<Image>, Option<Arc<Loader>>, DirtyBlocks),
        durability: Durability,
        speed: Option<DiskSpeed>,
    ) -> Shared {
        let sequence = journals.sequence();
        let backlog = Backlog::new(log.ring_bytes(), journals.bytes());
        let cutter = Cutter::new(&journals);
        Shared {
            logged: LoggedBlocks::new(log.ring_bytes()),
            bound: Bound::new(durability),
            changes: Changes::new(durability),
            log,
            region,
            journals,
            domains,
            image,
            loader,
            dirty,
            durability,
            speed,
            cutter: Mutex::new(cutter),
            placed: AtomicU64::new(sequence),
            vacuous: AtomicU64::new(sequence),
            backlog,
            state: Mutex::default(),
            changed: Condvar::new(),
            has_failed: AtomicBool::new(false),
            has_threads: AtomicBool::new(false),
            checkpoints_waiting: AtomicU64::new(0),
            checkpointing: Mutex::default(),
            is_impatient: AtomicBool::new(false),
            counts: Counts::default(),
            watch: Watch::default(),
            habits: Habits::new(durability),
        }
    }

    /// Writes in flight that pay.
    pub(super) fn depth(&self) -> usize {
        self.speed.map_or(1, |speed| speed.depth)
    }

    /// All records up to this number are durable.
    #[inline]
    pub(super) fn durable(&self) -> u64 {
        let vacuous = self.vacuous.load(Ordering::Acquire);
        self.log.durable_sequence().max(vacuous)
    }

    /// All records up to this number are in batches that are durable or under way.
    pub(super) fn placed(&self) -> u64 {
        self.placed.load(Ordering::Acquire)
    }

    /// The last record of the oldest batch under way.
    pub(super) fn oldest_cut(&self) -> Option<u64> {
        let state = self.state.lock();
        state.cuts.front().map(|&(last, _)| last)
    }

    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    pub(super) fn failure(&self) -> Option<LogFailed> {
        let fault = self.state.lock().fault.clone();
        fault.map(LogFailed)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn fail(&self, fault: LogFault) -> LogFailed {
        let mut state = self.state.lock();
        if state.fault.is_none() {
            tracing::error!(%fault, "the pool is read-only: its log failed");
            state.fault = Some(fault.clone());
        }
        self.has_failed.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        let failed = LogFailed(state.fault.clone().unwrap_or(fault));
        let woken = state.waiters.take(u64::MAX, None);
        drop(state);
        woken.wake();
        failed
    }

    /// Returns when all records up to `sequence` are durable.
    pub(super) fn wait(&self, sequence: u64) -> Result<(), LogFailed> {
        if self.durable() >= sequence {
            return Ok(());
        }
        let _waiting = self.watch.begin();
        let mut state = self.state.lock();
        loop {
            if let Some(fault) = &state.fault {
                return Err(LogFailed(fault.clone()));
            }
            if self.durable() >= sequence {
                return Ok(());
            }
            let is_under_way = self.placed() >= sequence && !state.cuts.is_empty();
            if is_under_way || state.in_flight >= self.depth() {
                let bed = state.waiters.note(sequence);
                drop(state);
                bed.sleep();
            } else {
                state.in_flight += 1;
                drop(state);
                let outcome = self.write_batch();
                self.end_write();
                outcome?;
            }
            state = self.state.lock();
        }
    }

    /// A write has ended: wakes the threads whose records are durable, and one that writes the next
    /// batch.
    pub(super) fn end_write(&self) {
        let mut state = self.state.lock();
        state.in_flight -= 1;
        let placed = match state.cuts.is_empty() {
            true => self.durable(),
            false => self.placed(),
        };
        let placed = (state.in_flight < self.depth()).then_some(placed);
        let woken = state.waiters.take(self.durable(), placed);
        drop(state);
        woken.wake();
    }

    /// The same for a checkpoint, which makes room in the ring: the batches that it waits for need
    /// not wait for room.
    pub(super) fn wait_to_make_room(&self, sequence: u64) -> Result<(), LogFailed> {
        self.checkpoints_waiting.fetch_add(1, Ordering::Relaxed);
        let outcome = self.wait(sequence);
        self.checkpoints_waiting.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    /// Cuts a batch and writes it, if there is anything to write.
    pub(super) fn write_batch(&self) -> Result<(), LogFailed> {
        let placed = {
            let mut cutter = self.cutter.lock();
            self.cut(&mut cutter)?
        };
        let Some((placed, data)) = placed else {
            return Ok(());
        };
        let is_early = deliberate::is(Bug::PlaceBehindBatch);
        if !is_early {
            self.write_placed(&data)?;
        }
        self.log
            .write(placed)
            .map_err(|error| self.fail(error.into()))?;
        if is_early {
            self.write_placed(&data)?;
        }
        self.note_durable();
        Ok(())
    }

    /// Batches that became durable count for the bound.
    fn note_durable(&self) {
        let durable = self.log.durable_sequence();
        self.journals.log_reached(durable);
        let mut state = self.state.lock();
        while state.cuts.front().is_some_and(|(last, _)| *last <= durable) {
            let cut = state.cuts.pop_front();
            cut.into_iter()
                .for_each(|(_, time)| self.bound.is_durable(time));
        }
        let used = self.log.used_bytes();
        self.backlog.ring_is_used(used);
        if used > self.log.ring_bytes() / 4 && !state.checkpoint_wanted {
            state.checkpoint_wanted = true;
            self.changed.notify_all();
        }
    }

    /// Numbers up to `newest` that no record has are as durable as those before.
    pub(super) fn settle_nothing(&self, newest: u64) {
        let state = self.state.lock();
        if state.cuts.is_empty() {
            self.placed.fetch_max(newest, Ordering::AcqRel);
            self.vacuous.fetch_max(newest, Ordering::AcqRel);
        }
    }

    /// A batch with the records up to this number has its place; it was cut at this moment.
    pub(super) fn note_cut(&self, last: u64, time: Instant) {
        self.state.lock().cuts.push_back((last, time));
        self.placed.store(last, Ordering::Release);
    }

    /// Whether threads write batches and keep the image; otherwise the caller does.
    pub(super) fn has_threads(&self) -> bool {
        self.has_threads.load(Ordering::Relaxed)
    }
}

/// The log of an open pool, with its threads. They end when it is dropped.
#[derive(Debug)]
pub struct Logger {
    pub(super) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Tells other servers that the memory is in use.
    _memory: Option<File>,
}

impl Logger {
    pub(super) fn start(
        shared: Shared,
        memory: Option<File>,
        with_threads: bool,
    ) -> std::io::Result<Logger> {
        let shared = Arc::new(shared);
        let logger = Logger {
            threads: Mutex::default(),
            shared,
            _memory: memory,
        };
        if with_threads {
            logger.shared.has_threads.store(true, Ordering::Relaxed);
            for _ in 0..logger.shared.depth().min(THREADS_MAX) {
                logger.spawn("perdure-log", Shared::write_in_time)?;
            }
            logger.spawn("perdure-image", Shared::keep_image)?;
        }
        Ok(logger)
    }

    fn spawn(&self, name: &str, run: fn(&Shared)) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || run(&shared))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// When calls are durable.
    pub fn durability(&self) -> Durability {
        self.shared.durability
    }

    /// Whether all records up to this number are durable.
    #[inline]
    pub fn is_durable(&self, sequence: u64) -> bool {
        self.shared.durable() >= sequence
    }

    /// Waits until all records up to this number are durable.
    ///
    /// # Errors
    ///
    /// The log has failed; whether they are durable is unknown.
    pub fn wait(&self, sequence: u64) -> Result<(), LogFailed> {
        if deliberate::is(Bug::AcknowledgeBeforeSync) {
            return Ok(());
        }
        self.shared.wait(sequence)
    }

    /// [`wait`](Self::wait) for a call that needs the room of records that the log does not have.
    pub(crate) fn wait_for_room(&self, sequence: u64) {
        let begin = Instant::now();
        if !self.is_durable(sequence) {
            // Records that cannot become durable are retired: nothing that follows is acknowledged.
            let _ = self.shared.wait(sequence);
            self.shared.counts.was_late(begin);
        }
    }

    /// Most data of one record.
    pub fn record_data_max(&self) -> usize {
        self.shared.record_data_max()
    }

    /// Room in the log for a change with much data, before it is made. Waits for it.
    ///
    /// # Errors
    ///
    /// The log has failed.
    pub fn reserve(&self, bytes: usize) -> Result<Option<Room<'_>>, LogFailed> {
        self.shared.reserve(bytes as u64)
    }

    /// Waits until everything that was committed is durable.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn sync(&self) -> Result<(), LogFailed> {
        self.wait(self.shared.journals.sequence())
    }

    /// Before a change: waits if the log is late, and refuses if it has failed.
    ///
    /// # Errors
    ///
    /// The log has failed.
    #[inline]
    pub fn before_change(&self) -> Result<(), LogFailed> {
        self.shared.before_change()
    }

    /// Brings the image up to date with the log, and trims the log, as the log's thread does
    /// from time to time.
    ///
    /// # Errors
    ///
    /// The log has failed, or the image could not be written.
    pub fn checkpoint(&self) -> Result<(), LogFailed> {
        self.shared.checkpoint(|root| root)
    }

    /// For tests: runs `act` when the next batch has taken its records, and not copied their data.
    #[doc(hidden)]
    pub fn before_next_copy(&self, act: Box<dyn FnOnce() + Send>) {
        self.shared.cutter.lock().before_copy.0 = Some(act);
    }

    /// For tests: writes of the image that fail are tried again without pauses.
    #[doc(hidden)]
    pub fn try_again_at_once(&self) {
        self.shared.is_impatient.store(true, Ordering::Relaxed);
    }

    /// Why nothing becomes durable any more.
    pub fn failure(&self) -> Option<LogFailed> {
        self.shared.failure()
    }

    /// Ends the threads; changes that are not durable stay so.
    pub(super) fn stop(&self) {
        self.shared.state().ends = true;
        self.shared.changed.notify_all();
        self.shared.bound.wake();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // It has nothing to say, and a panic in it was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        self.stop();
    }
}
