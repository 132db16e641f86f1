//! Appends batches: several threads may write at the same time.

use crate::acknowledge::{Order, Request};
use crate::batch::{BatchBuffer, Buffers, Full, Placed};
use crate::header::{HEADER_BYTES, Mark};
use crate::replay::{OpenLog, Replayed};
use crate::ring::Ring;
use crate::root::{Root, write_root};
use crate::statistics::{Counters, LogStatistics};
use crate::{Disk, LogError, UNIT_BYTES};
use parking_lot::{Mutex, MutexGuard};
use pmem::crc32c;
use pmem::deliberate::{self, Bug};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The part of the ring that is kept free for batches that may use it.
const RESERVE_PART: u64 = 16;
/// The reserve is no larger than this.
const RESERVE_BYTES_MAX: u64 = 16 << 20;

/// A log that batches are appended to.
#[derive(Debug)]
pub struct Log {
    pub(crate) shared: Arc<Shared>,
}

/// State that the log shares with its batches.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) ring: Ring,
    identity: [u8; 16],
    epoch: u64,
    reserve_bytes: u64,
    order: Mutex<Order>,
    /// Held while a root is written.
    moving: Mutex<()>,
    durable_sequence: AtomicU64,
    failure: OnceLock<LogError>,
    buffers: Arc<Buffers>,
    counters: Counters,
    replayed: Replayed,
}

impl Shared {
    /// Ends the log with its first failure, and returns that one.
    #[cold]
    pub(crate) fn latch(&self, error: LogError) -> LogError {
        let mut order = self.order.lock();
        order.has_failed = true;
        self.failure
            .get_or_init(|| {
                tracing::error!("the log has failed: {error}");
                error
            })
            .clone()
    }

    fn check(&self) -> Result<(), LogError> {
        self.failure
            .get()
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Writes a batch that may wrap, each piece durable.
    fn write_pieces(&self, placed: &Placed) -> Result<(), LogError> {
        let whole = placed.whole();
        for piece in self.ring.pieces(placed.header.position, whole.len()) {
            if piece.bytes.is_empty() {
                continue;
            }
            let bytes = &whole[piece.bytes.clone()];
            let is_second = piece.bytes.start > 0;
            let result = if deliberate::is(Bug::LogWrapNotDurable) && is_second {
                self.disk.write(piece.at, bytes)
            } else {
                self.write_piece(piece.at, bytes)
            };
            result.map_err(|error| LogError::Write {
                disk: self.disk.name(),
                at: piece.at,
                bytes: bytes.len(),
                error: Arc::new(error),
            })?;
        }
        Ok(())
    }

    fn write_piece(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        let result = self.disk.write_durable(at, bytes);
        if deliberate::is(Bug::LogRetriesFailedWrite) && result.is_err() {
            return self.disk.write_durable(at, bytes);
        }
        result
    }

    /// Notes that a batch is written, and returns up to which record all is durable.
    fn acknowledge(&self, number: u64) -> Result<u64, LogError> {
        let mut order = self.order.lock();
        if order.has_failed {
            drop(order);
            return self
                .check()
                .map(|()| self.durable_sequence.load(Ordering::Acquire));
        }
        order.written(number);
        let sequence = order.durable().sequence;
        self.durable_sequence.store(sequence, Ordering::Release);
        Ok(sequence)
    }

    pub(crate) fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock()
    }
}

impl Log {
    /// Continues behind `head`; `root` is durable.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        ring: Ring,
        identity: [u8; 16],
        root: Root,
        head: Mark,
        replayed: Replayed,
    ) -> Log {
        let units = ring.bytes / RESERVE_PART / UNIT_BYTES as u64;
        Log {
            shared: Arc::new(Shared {
                disk,
                ring,
                identity,
                epoch: root.epoch,
                reserve_bytes: (units * UNIT_BYTES as u64)
                    .clamp(UNIT_BYTES as u64, RESERVE_BYTES_MAX),
                order: Mutex::new(Order::new(root, head)),
                moving: Mutex::new(()),
                durable_sequence: AtomicU64::new(head.sequence),
                failure: OnceLock::new(),
                buffers: Arc::default(),
                counters: Counters::new(),
                replayed,
            }),
        }
    }

    /// Returns an empty batch.
    pub fn buffer(&self) -> BatchBuffer {
        self.shared.buffers.take()
    }

    /// Gives a batch with the records from `first_sequence` to `last_sequence` its number, position
    /// and check, in the order of the calls. Without `may_use_reserve`,
    /// [`reserve_bytes`](Log::reserve_bytes) of the ring stay free.
    pub fn place(
        &self,
        mut buffer: BatchBuffer,
        first_sequence: u64,
        last_sequence: u64,
        may_use_reserve: bool,
    ) -> Result<Placed, Full> {
        let shared = &self.shared;
        let payload = buffer.payload();
        let length = payload.len();
        let Ok(payload_bytes) = u32::try_from(length) else {
            return Err(Full(buffer));
        };
        let reserve = if may_use_reserve {
            0
        } else {
            shared.reserve_bytes
        };
        let request = Request {
            payload_bytes,
            body: crc32c(payload),
            epoch: shared.epoch,
            first: first_sequence,
            last: last_sequence,
            room: shared.ring.bytes - reserve,
        };
        payload.pad();
        let Some(header) = shared.order.lock().place(request) else {
            payload.cut(length);
            return Err(Full(buffer));
        };
        payload.set_header(&header);
        Ok(Placed {
            buffer,
            header,
            shared: Arc::clone(shared),
            is_settled: false,
        })
    }

    /// Writes a batch; returns when it is on the disk, with the number of the record up to which
    /// all is durable now. Batches are acknowledged in the order of their numbers: that may be less
    /// than this batch's last record, or more.
    ///
    /// # Errors
    /// The first failure ends the log: this and every later call return it.
    pub fn write(&self, mut placed: Placed) -> Result<u64, LogError> {
        let shared = &self.shared;
        debug_assert!(
            Arc::ptr_eq(shared, &placed.shared),
            "the batch has a place in another log"
        );
        shared.check()?;
        if deliberate::is(Bug::LogAcknowledgesEarly) {
            shared.acknowledge(placed.number())?;
        }
        shared.counters.begin();
        let started = Instant::now();
        let result = shared.write_pieces(&placed);
        // A panic of the device before this line ends the log, too.
        placed.is_settled = true;
        let (payload, disk) = (u64::from(placed.header.payload_bytes), placed.disk_bytes());
        shared
            .counters
            .end(started.elapsed(), payload, disk, result.is_ok());
        match result {
            Ok(()) if deliberate::is(Bug::LogAcknowledgesEarly) => Ok(self.durable_sequence()),
            Ok(()) => shared.acknowledge(placed.number()),
            Err(error) => Err(shared.latch(error)),
        }
    }

    /// Returns the number of the record up to which all is durable.
    #[inline]
    pub fn durable_sequence(&self) -> u64 {
        self.shared.durable_sequence.load(Ordering::Acquire)
    }

    /// Returns the newest durable root, moved behind the newest durable batch.
    pub fn durable_root(&self) -> Root {
        let order = self.shared.order.lock();
        order.root().at(order.durable())
    }

    /// Returns the newest durable root.
    pub fn root(&self) -> Root {
        self.shared.order.lock().root()
    }

    /// Moves the root to where `to` is; its generation is the next one, its epoch is the log's. The
    /// root is durable when this returns, and the ring before it is free.
    ///
    /// # Errors
    /// A root that moves back, or ahead of the durable batches, is refused. A failed write ends the
    /// log.
    pub fn advance(&self, to: Root) -> Result<(), LogError> {
        let shared = &self.shared;
        let _moving = shared.moving.lock();
        shared.check()?;
        let (from, durable) = {
            let order = shared.order.lock();
            (order.root(), order.durable())
        };
        let is_between = (from.position..=durable.position).contains(&to.position)
            && (from.number..=durable.number).contains(&to.number);
        if !is_between {
            return Err(LogError::RootOrder {
                disk: shared.disk.name(),
                from: from.position,
                to: to.position,
                durable: durable.position,
            });
        }
        let root = Root {
            generation: from.generation + 1,
            epoch: shared.epoch,
            ..to
        };
        if deliberate::is(Bug::LogFreesBeforeRoot) {
            shared.order.lock().set_root(root);
        }
        write_root(&*shared.disk, &root, shared.identity, shared.ring)
            .map_err(|error| shared.latch(error))?;
        shared.order.lock().set_root(root);
        Ok(())
    }

    /// Returns the bytes of the ring that are in use.
    pub fn used_bytes(&self) -> u64 {
        self.shared.order.lock().used_bytes()
    }

    /// Returns the bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.shared.ring.bytes
    }

    /// Returns the bytes of the ring that only batches that may use the reserve fill.
    pub fn reserve_bytes(&self) -> u64 {
        self.shared.reserve_bytes
    }

    /// Returns the most bytes of entries that fit into an empty ring without the reserve.
    pub fn payload_bytes_max(&self) -> u64 {
        let room = self.shared.ring.bytes - self.shared.reserve_bytes - HEADER_BYTES as u64;
        room.min(u64::from(u32::MAX))
    }

    /// Returns the number of this mount.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch
    }

    /// Returns the result of the replay that opened the log.
    pub fn replayed(&self) -> Replayed {
        self.shared.replayed
    }

    /// Returns the first failure of this mount.
    pub fn failure(&self) -> Option<LogError> {
        self.shared.failure.get().cloned()
    }

    /// The same log as it is on the disk, for reading it beside. Batches that are written meanwhile
    /// may be in it or not.
    pub fn reopen(&self) -> OpenLog {
        let shared = &self.shared;
        OpenLog::over(
            Arc::clone(&shared.disk),
            shared.identity,
            shared.ring,
            self.root(),
        )
    }

    /// Returns counts and times of this mount.
    pub fn statistics(&self) -> LogStatistics {
        self.shared.counters.read()
    }
}
