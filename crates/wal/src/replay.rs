//! Reads the batches that count, from the root on.

use crate::header::{BatchHeader, HEADER_BYTES, Mark, Misfit};
use crate::read_ahead::Units;
use crate::ring::Ring;
use crate::root::{Root, read_root, write_root};
use crate::{Disk, Log, LogError, UNIT_BYTES};
use pmem::crc32c;
use pmem::deliberate::{self, Bug};
use std::convert::Infallible;
use std::sync::Arc;

/// A log that is read; nothing is written to it.
#[derive(Debug)]
pub struct OpenLog {
    disk: Arc<dyn Disk>,
    identity: [u8; 16],
    ring: Ring,
    root: Root,
}

/// A batch that counts.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Number of the batch.
    pub number: u64,
    /// Number of its first record.
    pub first_sequence: u64,
    /// Number of its last record.
    pub last_sequence: u64,
    /// Its entries.
    pub payload: &'a [u8],
}

/// Why a replay ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// No whole header lies where the next batch would be.
    Unwritten,
    /// Another batch lies there, of an earlier lap or mount.
    Stale,
    /// The next batch lies there, and its entries are not whole.
    Torn,
    /// The ring is full.
    RingEnd,
    /// A batch lies there that fits, of a mount after the root's.
    LaterEpoch {
        /// The batch's epoch.
        epoch: u64,
    },
}

/// Result of a replay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Replayed {
    /// Number of batches.
    pub batches: u64,
    /// Their bytes in the ring, with headers and padding.
    pub bytes: u64,
    /// Number of the last record in them, or in the image if there is no batch.
    pub last_sequence: u64,
    /// The root, moved behind the last batch.
    pub end: Root,
    /// Why the replay ended.
    pub why: End,
    /// The batch where the replay ended, if a later one proves that it was durable: the disk has
    /// damaged or lost it.
    pub lost: Option<u64>,
}

/// Bytes behind the end that are searched for a proof of lost batches.
const SEARCHED_BYTES: u64 = 4 << 20;

impl OpenLog {
    /// Reads the roots of a log with this identity.
    pub fn open(disk: Arc<dyn Disk>, identity: [u8; 16]) -> Result<OpenLog, LogError> {
        let ring = Ring::in_file(disk.length_bytes(), &*disk)?;
        let root = read_root(&*disk, identity, ring)?;
        Ok(OpenLog::over(disk, identity, ring, root))
    }

    pub(crate) fn over(disk: Arc<dyn Disk>, identity: [u8; 16], ring: Ring, root: Root) -> OpenLog {
        OpenLog {
            disk,
            identity,
            ring,
            root,
        }
    }

    /// Returns the root that counts.
    pub fn root(&self) -> Root {
        self.root
    }

    /// Reads all batches from the root on, in order, and gives each to `apply`. The log continues
    /// behind the last one in a new epoch: a new root with it is durable when this returns.
    pub fn replay(self, apply: &mut dyn FnMut(&Batch<'_>)) -> Result<Log, LogError> {
        let log = self.replay_if(apply, |_| Ok::<(), Infallible>(()))?;
        log.map_err(|never| match never {})
    }

    /// The same, unless `accept` refuses what was read: nothing is written then.
    ///
    /// # Errors
    ///
    /// Those of the log, and inside of them the reason of the refusal.
    pub fn replay_if<E>(
        self,
        apply: &mut dyn FnMut(&Batch<'_>),
        accept: impl FnOnce(&Replayed) -> Result<(), E>,
    ) -> Result<Result<Log, E>, LogError> {
        let replayed = self.read(apply)?;
        if let End::LaterEpoch { epoch } = replayed.why {
            return Err(LogError::RootIsOlder {
                disk: self.disk.name(),
                number: replayed.end.number,
                epoch,
                root_epoch: self.root.epoch,
            });
        }
        if let Err(refusal) = accept(&replayed) {
            return Ok(Err(refusal));
        }
        // After a kill, batches that were read may be in the disk's cache only; later batches need
        // them.
        if !deliberate::is(Bug::LogSkipsFlushAtOpen) {
            self.disk.flush().map_err(|error| LogError::Flush {
                disk: self.disk.name(),
                error: Arc::new(error),
            })?;
        }
        let root = Root {
            generation: self.root.generation + 1,
            epoch: self.root.epoch + 1,
            ..self.root
        };
        write_root(&*self.disk, &root, self.identity, self.ring)?;
        let head = replayed.end.mark();
        let log = Log::new(self.disk, self.ring, self.identity, root, head, replayed);
        Ok(Ok(log))
    }

    /// Reads all batches from the root on, in order, and gives each to `apply`; writes nothing.
    pub fn read(&self, apply: &mut dyn FnMut(&Batch<'_>)) -> Result<Replayed, LogError> {
        std::thread::scope(|scope| {
            let mut units = Units::from(scope, &*self.disk, self.ring, self.root.position);
            let mut lap = Lap {
                next: self.root.mark(),
                epoch_min: 0,
                epoch_max: self.root.epoch,
                end: self.root.position + self.ring.bytes,
            };
            let mut batches = 0;
            let why = loop {
                match lap.next_batch(&mut units)? {
                    Ok(batch) => apply(&batch),
                    Err(why) => break why,
                }
                batches += 1;
            };
            let lost = lap.has_lost(&mut units).then_some(lap.next.number);
            if let Some(number) = lost {
                let disk = self.disk.name();
                tracing::warn!("{disk}: batch {number} of the log was durable and is damaged");
            }
            Ok(Replayed {
                lost,
                batches,
                bytes: lap.next.position - self.root.position,
                last_sequence: lap.next.sequence,
                end: self.root.at(lap.next),
                why,
            })
        })
    }
}

/// A replay on its way through one lap of the ring.
struct Lap {
    next: Mark,
    /// Epoch of the batch before.
    epoch_min: u64,
    epoch_max: u64,
    /// Position behind the lap.
    end: u64,
}

impl Lap {
    /// Whether a later batch proves that the next one was durable. Batches that were in flight at a
    /// power failure prove nothing.
    fn has_lost(&self, units: &mut Units) -> bool {
        let end = self.end.min(units.position() + SEARCHED_BYTES);
        while units.position() < end {
            let position = units.position();
            // A damaged sector behind the end is no failure.
            let Ok(Some(unit)) = units.take(UNIT_BYTES) else {
                return false;
            };
            let is_proof = BatchHeader::read(unit).is_some_and(|header| {
                header.position == position
                    && header.in_flight < u16::MAX
                    && (self.epoch_min..=self.epoch_max).contains(&header.epoch)
                    && header.number.saturating_sub(u64::from(header.in_flight)) > self.next.number
            });
            if is_proof {
                return true;
            }
        }
        false
    }

    /// The next batch, or why there is none.
    fn next_batch<'a>(&mut self, units: &'a mut Units) -> Result<Result<Batch<'a>, End>, LogError> {
        let room = self.end - self.next.position;
        let Some(unit) = units.peek()? else {
            return Ok(Err(End::RingEnd));
        };
        let Some(header) = BatchHeader::read(unit) else {
            return Ok(Err(End::Unwritten));
        };
        let misfit = match self
            .next
            .judge(&header, self.epoch_min, self.epoch_max, room)
        {
            Err(Misfit::Other)
                if deliberate::is(Bug::LogBelievesStale) && header.batch_bytes() <= room =>
            {
                None
            }
            Err(misfit) => Some(misfit),
            Ok(()) => None,
        };
        match misfit {
            Some(Misfit::Other) => return Ok(Err(End::Stale)),
            Some(Misfit::TooLong) => return Ok(Err(End::Torn)),
            Some(Misfit::LaterEpoch) => {
                return Ok(Err(End::LaterEpoch {
                    epoch: header.epoch,
                }));
            }
            None => (),
        }
        let Some(whole) = units.take(header.batch_bytes() as usize)? else {
            return Ok(Err(End::RingEnd));
        };
        let payload = &whole[HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize];
        if crc32c(payload) != header.body && !deliberate::is(Bug::LogSkipsBodyCheck) {
            return Ok(Err(End::Torn));
        }
        self.next = self.next.behind(&header);
        self.epoch_min = header.epoch;
        Ok(Ok(Batch {
            number: header.number,
            first_sequence: header.first,
            last_sequence: header.last,
            payload,
        }))
    }
}
