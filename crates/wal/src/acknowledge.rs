//! The order of batches: each gets its number and place in the order of calls, and is acknowledged
//! in the order of numbers.

use crate::header::{BATCH_MAGIC, BATCH_VERSION, BatchHeader, Mark, batch_bytes};
use crate::root::Root;
use pmem::deliberate::{self, Bug};
use std::collections::VecDeque;

/// A batch on its way.
#[derive(Debug)]
struct Flight {
    is_written: bool,
    /// The mark behind it.
    end: Mark,
}

/// The state that orders batches; a lock guards it.
#[derive(Debug)]
pub(crate) struct Order {
    /// Where the next batch goes.
    head: Mark,
    /// Behind the newest durable batch.
    durable: Mark,
    /// The batches from `durable` to `head`.
    flights: VecDeque<Flight>,
    /// The newest durable root: the ring before it is free.
    root: Root,
    /// A write or flush failed: nothing is acknowledged any more.
    pub(crate) has_failed: bool,
}

/// A batch that asks for its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) payload_bytes: u32,
    pub(crate) body: u32,
    pub(crate) epoch: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Bytes of the ring that may be used.
    pub(crate) room: u64,
}

impl Order {
    /// Continues at `head`, behind durable batches.
    pub(crate) fn new(root: Root, head: Mark) -> Order {
        Order {
            head,
            durable: head,
            flights: VecDeque::new(),
            root,
            has_failed: false,
        }
    }

    /// Gives a batch its number, position and check, if there is room.
    pub(crate) fn place(&mut self, request: Request) -> Option<BatchHeader> {
        if self.used_bytes() + batch_bytes(u64::from(request.payload_bytes)) > request.room {
            return None;
        }
        let header = BatchHeader {
            magic: BATCH_MAGIC,
            check: 0,
            previous: self.head.previous,
            body: request.body,
            payload_bytes: request.payload_bytes,
            version: BATCH_VERSION,
            in_flight: self.flights.len().try_into().unwrap_or(u16::MAX),
            number: self.head.number,
            position: self.head.position,
            epoch: request.epoch,
            first: request.first,
            last: request.last,
        }
        .sealed();
        self.head = self.head.behind(&header);
        self.flights.push_back(Flight {
            is_written: false,
            end: self.head,
        });
        Some(header)
    }

    /// Notes that a batch is written; batches are durable up to the first one that is not.
    pub(crate) fn written(&mut self, number: u64) {
        let index = (number - self.durable.number) as usize;
        self.flights[index].is_written = true;
        if deliberate::is(Bug::LogAcknowledgesOutOfOrder) {
            for flight in self.flights.range_mut(..index) {
                flight.is_written = true;
            }
        }
        while self.flights.front().is_some_and(|flight| flight.is_written) {
            self.durable = self.flights.pop_front().expect("there is one").end;
        }
    }

    /// The mark behind the newest durable batch.
    pub(crate) fn durable(&self) -> Mark {
        self.durable
    }

    /// Where the next batch goes.
    pub(crate) fn head(&self) -> Mark {
        self.head
    }

    pub(crate) fn root(&self) -> Root {
        self.root
    }

    /// Frees the ring before a durable root.
    pub(crate) fn set_root(&mut self, root: Root) {
        self.root = root;
    }

    /// Bytes of the ring between the root and the head.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.head.position - self.root.position
    }
}
