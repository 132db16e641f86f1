//! A cut: records up to some number become the next batch.

use super::batch::BatchBuilder;
use super::logger::{LogFailed, LogFault, ROOM_PATIENCE, Shared};
use super::placed_data::PlacedRun;
use super::reader::{JournalReader, Read};
use crate::journal::Journals;
use pmem::deliberate::{self, Bug};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};
use wal::Placed;

/// Entries of a batch, in bytes, beyond which no further record is added unless it must be.
const BATCH_BYTES_WANTED: u64 = 8 << 20;
/// Of the ring, such a batch at most: the part that is kept free for the checkpoint has room for
/// two.
pub(super) const BATCHES_OF_RING: u64 = 32;

#[derive(Debug)]
pub(super) struct Cutter {
    reader: JournalReader,
    /// Records that are in no batch yet.
    pending: VecDeque<Read>,
    /// Of the segment table that the log has.
    table_version: u64,
    pub(super) before_copy: BeforeCopy,
}

impl Cutter {
    /// The first batch has the records that come from here on.
    pub(super) fn new(journals: &Journals) -> Cutter {
        Cutter {
            reader: JournalReader::new(journals),
            pending: VecDeque::new(),
            table_version: u64::MAX,
            before_copy: BeforeCopy::default(),
        }
    }

    /// Takes records until a batch of them has so many bytes.
    fn take(&mut self, bytes_wanted: u64) -> Vec<Read> {
        let mut bytes = 0;
        let is_wanted = |read: &&Read| {
            let is_wanted = bytes < bytes_wanted;
            bytes += read.bytes_in_log();
            is_wanted
        };
        let count = self.pending.iter().take_while(is_wanted).count();
        self.pending.drain(..count).collect()
    }
}

/// The act of a test at the worst moment: a batch is about to get its records, and later copies
/// of the data that they publish.
#[derive(Default)]
pub(super) struct BeforeCopy(pub(super) Option<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for BeforeCopy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() {
            "BeforeCopy"
        } else {
            "nothing"
        })
    }
}

impl Shared {
    /// The next batch, with its place in the log, and data that has to be at its own place before;
    /// `None` if there is nothing to write.
    pub(super) fn cut(
        &self,
        cutter: &mut Cutter,
    ) -> Result<Option<(Placed, Vec<PlacedRun>)>, LogFailed> {
        let time = Instant::now();
        let (journals, region) = (&*self.journals, &*self.region);
        let newest = cutter.reader.read(journals, region, &mut cutter.pending);
        // A checkpoint that takes a mark from here on copies memory that has the change.
        fence(Ordering::SeqCst);
        let table_version = self.domains.table_version();
        if cutter.pending.is_empty() && cutter.table_version == table_version {
            self.settle_nothing(newest);
            return Ok(None);
        }
        if let Some(act) = cutter.before_copy.0.take() {
            act();
        }
        let (mut batch, data_bytes, newest) = self.collect(cutter);
        // Not older than any record of the batch (L7).
        if cutter.table_version == u64::MAX || !deliberate::is(Bug::ForgetTable) {
            cutter.table_version = self
                .domains
                .read_table(|at, bytes| batch.copy(at, bytes), cutter.table_version);
        }
        let covered = cutter
            .pending
            .front()
            .map_or(newest, |read| read.sequence - 1);
        let first = if batch.first == 0 {
            covered
        } else {
            batch.first
        };
        let (batch, data) = batch.finish();
        let placed = self.place(batch, first, covered)?;
        self.backlog.placed(data_bytes);
        self.backlog.ring_is_used(self.log.used_bytes());
        self.note_cut(covered, time);
        Ok(Some((placed, data)))
    }

    /// A batch of pending records, the bytes of data that they publish, and the newest record that
    /// was there when its last copy had been made.
    fn collect(&self, cutter: &mut Cutter) -> (BatchBuilder<'_>, u64, u64) {
        let (journals, region) = (&*self.journals, &*self.region);
        let mut batch = BatchBuilder::new(region, &self.dirty, self.log.buffer());
        let wanted = BATCH_BYTES_WANTED.min(self.log.ring_bytes() / BATCHES_OF_RING);
        let taken = cutter.take(wanted);
        let mut data_bytes: u64 = taken.iter().map(|read| read.data_bytes).sum();
        if data_bytes >= self.logged.batch_bytes_min {
            batch = batch.place_fresh(&self.logged);
        }
        batch.add_all(&taken);
        // Until no record that is not in the batch may have changed what was copied (L2).
        loop {
            let newest = cutter.reader.read(journals, region, &mut cutter.pending);
            fence(Ordering::SeqCst);
            let pending = &cutter.pending;
            let changing = pending.iter().rposition(|read| batch.is_changed_by(read));
            let Some(changing) = changing.filter(|_| !deliberate::is(Bug::CopyAheadOfCut)) else {
                return (batch, data_bytes, newest);
            };
            let more: Vec<Read> = cutter.pending.drain(..=changing).collect();
            data_bytes += more.iter().map(|read| read.data_bytes).sum::<u64>();
            batch.add_all(&more);
        }
    }

    fn place(
        &self,
        mut buffer: wal::BatchBuffer,
        first: u64,
        last: u64,
    ) -> Result<Placed, LogFailed> {
        let start = Instant::now();
        loop {
            // With threads, new changes wait long before the ring is full.
            let may_use_reserve =
                self.has_threads() || self.checkpoints_waiting.load(Ordering::Relaxed) > 0;
            match self.log.place(buffer, first, last, may_use_reserve) {
                Ok(placed) => return Ok(placed),
                Err(wal::Full(again)) => buffer = again,
            }
            if start.elapsed() > ROOM_PATIENCE {
                return Err(self.fail(LogFault::Full));
            }
            let mut state = self.state();
            if let Some(failed) = state.failed() {
                return Err(failed);
            }
            state.checkpoint_wanted = true;
            self.changed.notify_all();
            self.changed.wait_for(&mut state, Duration::from_millis(10));
        }
    }
}
