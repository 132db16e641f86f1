//! The image catches up, and the log is trimmed.

use super::logger::{LogFailed, LogFault, Shared};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, Offset};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};
use wal::{AlignedBuffer, Log, Root};

/// Blocks that are copied before the log is waited for.
const PIECE_BLOCKS: u64 = 1024;
/// Blocks of one write.
const RUN_BLOCKS_MAX: u64 = 32;
/// Blocks after which the disk is left to the log.
const BURST_BLOCKS: u64 = 8;
/// For so many times as long as a write of the image took, the disk is left to the log.
const PAUSE_FACTOR: u32 = 8;
/// A shorter pause is none: a thread wakes later than it asks for.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Pauses after writes of the image that failed.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];
/// The image catches up at least so often, so that a recovery is short.
const AGE_MAX: Duration = Duration::from_secs(30);

impl Shared {
    /// The life of the thread that keeps the image.
    pub(super) fn keep_image(&self) {
        let mut last = Instant::now();
        loop {
            {
                let mut state = self.state();
                while !state.ends && !state.checkpoint_wanted && last.elapsed() < AGE_MAX {
                    self.changed
                        .wait_for(&mut state, AGE_MAX - last.elapsed().min(AGE_MAX));
                }
                if state.ends {
                    return;
                }
                state.checkpoint_wanted = false;
            }
            last = Instant::now();
            let is_any = self.log.used_bytes() > 0;
            if self.has_failed() || (is_any && self.checkpoint(|root| root).is_err()) {
                return;
            }
        }
    }

    /// Brings the image up to date with the log, and trims the log. `finish` may change the
    /// new root.
    pub(super) fn checkpoint(&self, finish: impl FnOnce(Root) -> Root) -> Result<(), LogFailed> {
        let _alone = self.checkpointing.lock();
        // In this order, and beside batches that are made: those before the root have marked all of
        // their blocks. A batch that waits for room holds the lock of the cut, so that lock is not
        // taken here.
        let root = self.log.durable_root();
        fence(Ordering::SeqCst);
        let runs = self.logged.take(&self.dirty);
        if deliberate::is(Bug::TrimBeforeFlush) {
            self.log
                .advance(root)
                .map_err(|error| self.fail(error.into()))?;
        }
        self.save(&runs, &Goal::of(&self.log, root.position, &runs))?;
        self.log
            .advance(finish(root))
            .map_err(|error| self.fail(error.into()))?;
        self.logged.root_moved();
        self.counts.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.state().checkpoint_ended = Some(Instant::now());
        self.changed.notify_all();
        Ok(())
    }

    /// Writes blocks and flushes the image. After a failure everything is written again, because
    /// nobody knows what of it is there: with growing pauses, then the log fails.
    fn save(&self, runs: &[Range<u64>], goal: &Goal) -> Result<(), LogFailed> {
        let mut pauses = PAUSES.iter();
        loop {
            let error = match self.try_to_save(runs, goal)? {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match pauses.next() {
                Some(&pause) if !self.has_failed() => {
                    tracing::warn!(%error, "the pool's image cannot be written; it is tried again");
                    if !self.is_impatient.load(Ordering::Relaxed) {
                        std::thread::sleep(pause);
                    }
                }
                _ => return Err(self.fail(LogFault::Image(Arc::new(error)))),
            }
        }
    }

    fn try_to_save(&self, runs: &[Range<u64>], goal: &Goal) -> Result<io::Result<()>, LogFailed> {
        let mut piece = Vec::new();
        let mut blocks = 0;
        let mut runs = runs.iter().cloned().flat_map(cut_up).peekable();
        while let Some(run) = runs.next() {
            blocks += run.end - run.start;
            piece.push(run);
            if blocks < PIECE_BLOCKS && runs.peek().is_some() {
                continue;
            }
            blocks = 0;
            if let Err(error) = self.save_piece(&std::mem::take(&mut piece), goal)? {
                return Ok(Err(error));
            }
        }
        if let Err(error) = self.stamp_complete(goal.position) {
            return Ok(Err(error));
        }
        if deliberate::is(Bug::SkipImageFlush) {
            return Ok(Ok(()));
        }
        Ok(self.image.flush(|begin| self.pause(goal, begin)))
    }

    /// Copies blocks, waits until the log has all that the copies may have (L3), and writes them.
    fn save_piece(&self, runs: &[Range<u64>], goal: &Goal) -> Result<io::Result<()>, LogFailed> {
        let copies: Vec<AlignedBuffer> = runs.iter().map(|run| self.copy(run)).collect();
        let newest = self.journals.sequence();
        if !deliberate::is(Bug::ImageAheadOfLog) {
            self.wait_to_make_room(newest)?;
        }
        // Numbers behind the log's last one are no records.
        let newest = newest.min(self.log.durable_sequence());
        if !deliberate::is(Bug::StampBehindPieces)
            && let Err(error) = self.image.change_stamp(|stamp| stamp.get_changes(newest))
        {
            return Ok(Err(error));
        }
        let mut begin = Instant::now();
        let mut blocks = 0;
        for (run, copy) in runs.iter().zip(&copies) {
            let at = run.start * BLOCK_BYTES as u64;
            let written = match self.is_hasty(goal) {
                true => self.image.write(at, copy),
                false => self.image.write_durable(at, copy),
            };
            if let Err(error) = written {
                return Ok(Err(error));
            }
            self.counts
                .image_bytes
                .fetch_add(copy.len() as u64, Ordering::Relaxed);
            blocks += run.end - run.start;
            if blocks >= BURST_BLOCKS {
                goal.has_written(std::mem::take(&mut blocks));
                self.pause(goal, begin);
                begin = Instant::now();
            }
        }
        goal.has_written(blocks);
        Ok(Ok(()))
    }

    /// Whether the image has to be done soon, whatever the log waits for.
    fn is_hasty(&self, goal: &Goal) -> bool {
        goal.is_late(&self.log) || self.state().ends
    }

    /// Leaves the disk to the log for a while, if the log uses it and the image need not hurry. It
    /// was used since `begin`.
    fn pause(&self, goal: &Goal, begin: Instant) {
        let pause = (begin.elapsed() * PAUSE_FACTOR).min(PAUSE_MAX);
        let is_used = goal.sees_news(&self.log) || self.state().in_flight > 0;
        if is_used && pause >= PAUSE_MIN && !self.is_hasty(goal) {
            std::thread::sleep(pause);
        }
    }

    /// All pieces are written: the image has everything before this position of the log.
    fn stamp_complete(&self, position: u64) -> io::Result<()> {
        let newest = self.log.durable_sequence();
        self.image.change_stamp(|stamp| {
            if deliberate::is(Bug::StampBehindPieces) {
                stamp.get_changes(newest);
            }
            stamp.complete = stamp.complete.max(position);
        })
    }

    fn copy(&self, run: &Range<u64>) -> AlignedBuffer {
        let bytes = (run.end - run.start) as usize * BLOCK_BYTES;
        let mut copy = AlignedBuffer::with_capacity(bytes);
        copy.resize(bytes);
        let at = Offset::new(run.start * BLOCK_BYTES as u64);
        self.domains
            .held()
            .without_holes(|| self.region.read(at, &mut copy));
        copy
    }
}

/// A checkpoint's end and pace: it is done when half of the log is used.
#[derive(Debug)]
struct Goal {
    /// The image gets all that lies before this position of the log.
    position: u64,
    /// Bytes of the log in use when it began.
    used_bytes: u64,
    blocks: u64,
    written: AtomicU64,
    /// Newest durable record at the last pause.
    seen: AtomicU64,
}

impl Goal {
    fn of(log: &Log, position: u64, runs: &[Range<u64>]) -> Goal {
        Goal {
            position,
            used_bytes: log.used_bytes(),
            blocks: runs.iter().map(|run| run.end - run.start).sum(),
            written: AtomicU64::new(0),
            seen: AtomicU64::new(log.durable_sequence()),
        }
    }

    fn has_written(&self, blocks: u64) {
        self.written.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Whether the log has written since the last time.
    fn sees_news(&self, log: &Log) -> bool {
        let durable = log.durable_sequence();
        self.seen.swap(durable, Ordering::Relaxed) != durable
    }

    /// The log fills faster than the image catches up.
    fn is_late(&self, log: &Log) -> bool {
        let half = log.ring_bytes() / 2;
        let filled = log.used_bytes().saturating_sub(self.used_bytes);
        let room = half.saturating_sub(self.used_bytes);
        let written = self.written.load(Ordering::Relaxed);
        u128::from(filled) * u128::from(self.blocks) >= u128::from(room) * u128::from(written + 1)
    }
}

/// Runs that one write each can take.
fn cut_up(run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = run.end;
    run.step_by(RUN_BLOCKS_MAX as usize)
        .map(move |start| start..(start + RUN_BLOCKS_MAX).min(end))
}
