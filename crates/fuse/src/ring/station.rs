//! A station: a thread with one entry of a queue, which takes a request, answers it, and asks for
//! the next one.
//!
//! One entry for a thread: the kernel never gives a request to a thread that has one already, so a
//! request that takes long delays no other that a free thread could take.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use zerocopy::FromBytes;

use super::alarm::Turns;
use super::desk::{Desk, Given};
use super::forgets::Forgets;
use super::queue::{Event, Queue, begins_to_wait, ends_waiting, leave_post, take_post};
use super::submission::Ring;
use crate::abi::InHeader;
use crate::answer::Way;
use crate::device::{Device, Notifier};
use crate::dispatch::{Message, dispatch};
use crate::filesystem::Filesystem;
use crate::opcode::Opcode;

/// The part of a connection that all its stations share.
pub(super) struct Shared<F> {
    pub(super) files: Arc<F>,
    pub(super) device: Arc<Device>,
    pub(super) payload_bytes: usize,
    pub(super) forgets: Arc<Forgets>,
    pub(super) watch: Sender<Event>,
}

impl<F> Clone for Shared<F> {
    fn clone(&self) -> Shared<F> {
        Shared {
            files: Arc::clone(&self.files),
            device: Arc::clone(&self.device),
            payload_bytes: self.payload_bytes,
            forgets: Arc::clone(&self.forgets),
            watch: self.watch.clone(),
        }
    }
}

/// One thread's place at a queue.
pub(super) struct Station<F> {
    pub(super) shared: Shared<F>,
    pub(super) queue: Arc<Queue>,
    pub(super) turns: Arc<Turns>,
    /// It is not the queue's first one. Requests may have gathered while no station was free, and
    /// the kernel hands them out only when another one is answered: so this station asks for one.
    pub(super) is_further: bool,
}

impl<F: Filesystem> Station<F> {
    /// Answers requests until the mount is gone, then says how it ended.
    pub(super) fn run(self) {
        take_post(Arc::clone(&self.queue), self.shared.watch.clone());
        let outcome = catch_unwind(AssertUnwindSafe(|| self.answer_all()));
        let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("a station panicked")));
        leave_post();
        let watch = self.shared.watch.clone();
        // The watch may count on it that an ended station holds nothing any more.
        drop(self);
        let _ = watch.send(Event::Ended(outcome));
    }

    fn answer_all(&self) -> io::Result<()> {
        self.settle();
        let (device, number) = (&self.shared.device, self.queue.processor.number);
        let desk = Arc::new(Desk::new(self.shared.payload_bytes)?);
        // Dropped before the desk: the kernel uses an entry's memory as long as its ring lives.
        let mut ring = Ring::new()?;
        ring.register(device, number, &desk)?;
        if self.is_further {
            self.queue.ask_for_a_request(&Notifier(Arc::clone(device)));
        }
        loop {
            match ring.wait()? {
                0 => {}
                result if is_end(-result) => return Ok(()),
                result => return Err(io::Error::from_raw_os_error(-result)),
            }
            let unique = self.answer(&desk);
            self.turns.end();
            ring.commit(device, number, unique);
        }
    }

    /// Binds the thread to its processor, where the callers of its requests run: a caller is about
    /// to sleep when it wakes the station, and the station when it wakes the caller. Of class
    /// `batch`, the station does not take the processor from a caller that is not asleep yet.
    fn settle(&self) {
        self.queue.processor.enter();
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads the structure, and changes this thread's class alone.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    }

    /// Answers the request that lies on the desk. Returns its number.
    fn answer(&self, desk: &Arc<Desk>) -> u64 {
        // SAFETY: this is the station, and the kernel gave it the desk with a request.
        let header = unsafe { desk.header() };
        let Ok((request, _)) = InHeader::read_from_prefix(&header.in_out) else {
            unreachable!("a header's place is longer than a header");
        };
        self.turns.begin(request.nodeid);
        if self.queue.alarm.is_to_ring() {
            let _ = self.shared.watch.send(Event::Woken);
        }
        let payload_bytes = header.entry.payload_bytes as usize;
        let mut may_repeat = true;
        let given = loop {
            desk.begin(payload_bytes == 0);
            // SAFETY: this is the station; the kernel gets the desk after this function. The
            // room is taken unless the slice is empty.
            let payload = unsafe { desk.payload(payload_bytes) };
            let message = Message::in_entry(request, &header.operation, payload);
            let needs_space = message.opcode() == Some(Opcode::Statfs);
            if needs_space {
                self.shared.forgets.drain(&*self.shared.files);
            }
            dispatch(&*self.shared.files, message, Way::Desk(Arc::clone(desk)));
            let given = await_answer(desk);
            // The space of files that were removed before may be free only now.
            let lacks_space = matches!(given.errno, libc::ENOSPC | libc::EDQUOT);
            let frees = || self.shared.forgets.drain(&*self.shared.files) > Some(0);
            if !(lacks_space && std::mem::take(&mut may_repeat) && frees()) {
                break given;
            }
        };
        // SAFETY: this is the station, and the message with its slices is gone.
        unsafe { desk.put(request.unique, &given) };
        header.entry.commit_id
    }
}

/// The answer, now or when another thread gives it.
fn await_answer(desk: &Desk) -> Given {
    desk.given().unwrap_or_else(|| {
        begins_to_wait();
        let given = desk.wait();
        ends_waiting();
        given
    })
}

/// The connection is gone.
fn is_end(error: i32) -> bool {
    matches!(
        error,
        libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED
    )
}
