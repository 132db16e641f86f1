//! Processes that have blocks of a file mapped into their program's memory (`docs/DIRECT.md`, *Mapped files*).

use super::accounts::{Goods, Taken};
use super::closing::{self, Closing};
use super::counts::Counts;
use super::leased::Process;
use super::patience;
use super::sender;
use ::direct::layout::slot_at;
use parking_lot::Mutex;
use pmem::BlockNumber;
use pmem::deliberate::{self, Bug};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use txn::sharing::{SeenBlocks, SeenGuard};

/// How long a process that is stopped is waited for.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long one that runs is: its processors may be busy with others.
const PATIENCE_WITH_RUNNING: Duration = Duration::from_secs(1);

/// The way to the thread of a process that gives mappings back.
#[derive(Default)]
pub(super) struct Caller {
    socket: OnceLock<OwnedFd>,
    /// The process has closed its end: it has given all back, and maps nothing any more.
    is_over: AtomicBool,
}

impl Caller {
    /// Makes it, at the first mapping: the end for the process.
    pub(super) fn open(&self) -> io::Result<Option<OwnedFd>> {
        if self.socket.get().is_some() {
            return Ok(None);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // One thread serves the process, and only that one comes here.
        let _ = self.socket.set(ours);
        Ok(Some(theirs))
    }

    /// Where the process says that it was late, as long as it may.
    pub(super) fn socket(&self) -> Option<&OwnedFd> {
        let is_over = self.is_over.load(Ordering::Relaxed);
        self.socket.get().filter(|_| !is_over)
    }

    /// Has the process look at the states of what it has mapped. If its queue is full it has enough to look at.
    fn call(&self) {
        if let Some(socket) = self.socket.get() {
            let _ = rustix::net::send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Takes what the process has said; what counts are its words. Descriptors beside it are strange, and have to be closed.
    pub(super) fn hear(&self) -> Vec<OwnedFd> {
        let mut strange = Vec::new();
        while let Some(socket) = self.socket() {
            match sender::receive(socket.as_fd()) {
                Ok(Some(received)) if received.beside.is_empty() => {}
                Ok(Some(received)) => {
                    strange = received.beside;
                    self.is_over.store(true, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => self.is_over.store(true, Ordering::Relaxed),
            }
        }
        strange
    }

    /// Nobody listens any more: the process gives all back.
    pub(super) fn close(&self) {
        if let Some(socket) = self.socket.get() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }

    /// The same, and has what was sent and not heard closed where nobody waits for it.
    pub(super) fn close_for_good(&self) -> io::Result<Option<Closing>> {
        self.close();
        let socket = self.socket.get().map(OwnedFd::try_clone).transpose()?;
        Ok(socket.map(closing::close_socket))
    }
}

/// A process that may have blocks of a file mapped.
#[derive(Clone)]
struct Mapper {
    process: Arc<Process>,
    slot: usize,
}

impl Mapper {
    /// Whether it has nothing mapped. Who made his file of words shorter has never.
    fn has_none(&self) -> bool {
        self.process.user.word(slot_at(self.slot)) == Some(0) || self.process.has_ended()
    }

    fn is(&self, process: &Arc<Process>) -> bool {
        Arc::ptr_eq(&self.process, process)
    }
}

/// A wait for a process to give back.
struct Wait<'m> {
    mapper: &'m Mapper,
    patience: patience::Wait<'m>,
}

impl Wait<'_> {
    fn of(mapper: &Mapper, begin: Instant) -> Wait<'_> {
        let process = &mapper.process;
        Wait {
            mapper,
            patience: process.wait_since(begin, PATIENCE_WITH_RUNNING),
        }
    }

    fn goes_on(&mut self) -> bool {
        if self.mapper.has_none() || !self.patience.goes_on() {
            return false;
        }
        let is_in_vain = self.patience.waited() > PATIENCE && is_stopped(self.mapper.process.id);
        if is_in_vain {
            self.patience.give_up();
        }
        !is_in_vain
    }
}

/// The processes that have blocks of one file mapped.
pub(super) struct Mappers {
    list: Mutex<List>,
    seen: Arc<SeenBlocks>,
}

#[derive(Default)]
struct List {
    mappers: Vec<Mapper>,
    /// When they were told to give back.
    told: Option<Instant>,
    /// The file's blocks, which stay nobody else's as long as somebody has not given them back.
    guard: Option<(SeenGuard, Taken)>,
}

impl Mappers {
    pub(super) fn new(seen: &Arc<SeenBlocks>) -> Mappers {
        Mappers {
            list: Mutex::default(),
            seen: Arc::clone(seen),
        }
    }

    /// One more process. Who adds one looks afterwards whether the attachment is live.
    pub(super) fn add(&self, process: &Arc<Process>, slot: usize) {
        self.list.lock().mappers.push(Mapper {
            process: Arc::clone(process),
            slot,
        });
    }

    /// The slot in which a process says that it has blocks mapped, if it ever asked.
    pub(super) fn slot_of(&self, process: &Arc<Process>) -> Option<usize> {
        let list = self.list.lock();
        let mapper = list.mappers.iter().find(|mapper| mapper.is(process));
        mapper.map(|mapper| mapper.slot)
    }

    /// How many processes have blocks mapped.
    pub(super) fn count(&self) -> usize {
        let list = self.list.lock();
        list.mappers
            .iter()
            .filter(|mapper| !mapper.has_none())
            .count()
    }

    /// Has all processes give back what they have mapped, and waits for that; for a bounded time, whatever they do. The attachment has ended, so no mapping begins any more.
    pub(super) fn take_back(&self, counts: &Counts) {
        let left = {
            let mut list = self.list.lock();
            let left: Vec<Mapper> = list
                .mappers
                .iter()
                .filter(|m| !m.has_none())
                .cloned()
                .collect();
            if left.is_empty() {
                return;
            }
            if list.told.is_none() {
                list.told = Some(Instant::now());
                for mapper in &left {
                    counts.mappings_taken_back.add(1);
                    mapper.process.caller.call();
                }
            }
            left
        };
        if deliberate::is(Bug::ForgetMappings) {
            return;
        }
        let begin = self.list.lock().told.unwrap_or_else(Instant::now);
        let wait = |mapper| Wait::of(mapper, begin);
        let mut waits: Vec<Wait<'_>> = left.iter().map(wait).collect();
        loop {
            waits.retain_mut(Wait::goes_on);
            if waits.is_empty() {
                break;
            }
            patience::pause(begin.elapsed());
        }
    }

    /// The file is about to change: if somebody still sees its blocks, they are not given to others. Whether that is so.
    pub(super) fn keep_seen(
        &self,
        counts: &Counts,
        blocks: impl FnOnce() -> Vec<BlockNumber>,
    ) -> bool {
        let mut list = self.list.lock();
        if list.guard.is_some() {
            return true;
        }
        let Some(late) = list.mappers.iter().find(|mapper| !mapper.has_none()) else {
            return false;
        };
        counts.mappings_not_given_back.add(1);
        let blocks = blocks();
        let account = &late.process.account;
        let taken = account.has_taken(Goods::SeenBlocks, blocks.len() as u64);
        list.guard = Some((self.seen.hold(blocks), taken));
        true
    }

    /// Whether somebody still sees blocks that the file may not have any more.
    pub(super) fn are_seen(&self) -> bool {
        let mut list = self.list.lock();
        if list.guard.is_some() && list.mappers.iter().all(Mapper::has_none) {
            list.guard = None;
        }
        list.guard.is_some()
    }

    /// The process has no part in it any more: the slot that is free again. `None` if it never had one, or has not given back.
    pub(super) fn remove(&self, process: &Arc<Process>) -> Option<usize> {
        let mut list = self.list.lock();
        let place = list
            .mappers
            .iter()
            .position(|mapper| mapper.is(process) && mapper.has_none())?;
        Some(list.mappers.swap_remove(place).slot)
    }
}

/// Whether a process is stopped, by a signal or a debugger, so that waiting for it is of no use.
fn is_stopped(id: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // Behind the name, which may have any bytes in it.
    let state = status.rsplit(')').next().unwrap_or_default();
    matches!(state.trim_start().chars().next(), Some('T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_is_not_stopped_and_one_that_was_stopped_is() {
        assert!(!is_stopped(std::process::id() as i32));
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.expect("a process");
        let id = child.id() as i32;
        let signal = |signal| {
            // SAFETY: a signal for a child that was not waited for yet.
            unsafe { libc::kill(id, signal) }
        };
        assert_eq!(signal(libc::SIGSTOP), 0);
        let begin = Instant::now();
        while !is_stopped(id) {
            assert!(begin.elapsed() < Duration::from_secs(10), "never stopped");
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}
