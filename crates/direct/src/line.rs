//! One question at a time, and its answer.

use crate::memory::SharedMemory;
use crate::protocol::{Kind, Refusal, Reply, Request};
use crate::socket::{Identity, Socket, WAIT};
use crate::transport;
use locks::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::thread::sched_yield;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long an answer is waited for without sleeping.
const AWAKE: Duration = Duration::from_micros(50);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoAnswer {
    /// The server says why.
    Refused(Refusal),
    /// The server does not speak to us any more, or makes no sense.
    Lost,
}

/// The line to a server. After the first error of any kind it is lost, for ever: an answer that comes late would be taken for another's.
#[derive(Debug)]
pub(crate) struct Line {
    socket: Socket,
    turn: Mutex<()>,
    is_lost: AtomicBool,
    later: Mutex<Vec<Later>>,
    left: Mutex<Option<Left>>,
}

/// A file that this process has let go, and the server has not heard so.
#[derive(Debug)]
struct Later {
    attachment: u32,
    inode: u64,
}

/// An attachment that was let go, whose memory another one can have.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) attachment: u32,
    pub(crate) memory: SharedMemory,
}

impl Line {
    /// Connects to a name in the abstract namespace.
    pub(crate) fn connect(name: &[u8]) -> io::Result<Line> {
        Ok(Line {
            socket: Socket::connect(name)?,
            turn: Mutex::new(()),
            is_lost: AtomicBool::new(false),
            later: Mutex::default(),
            left: Mutex::default(),
        })
    }

    /// Whether the line is lost; then all that was attached over it has ended.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// What remains of the line in a child process.
    pub(crate) fn trace(&self) -> (RawFd, Identity) {
        self.socket.trace()
    }

    /// Asks, and waits for the answer; not for long.
    pub(crate) fn ask(
        &self,
        request: Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Option<OwnedFd>), NoAnswer> {
        let (reply, mut beside) = self.ask_for_many(request, descriptor)?;
        Ok((reply, beside.pop()))
    }

    /// The same, where the answer has several descriptors beside it.
    pub(crate) fn ask_for_many(
        &self,
        request: Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Vec<OwnedFd>), NoAnswer> {
        let turn = self.turn.try_lock_for(2 * WAIT).ok_or(NoAnswer::Lost)?;
        if self.is_lost() {
            return Err(NoAnswer::Lost);
        }
        let answer = self.exchange(&request, descriptor);
        if answer.is_err() {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        drop(turn);
        let (reply, beside) = answer.map_err(|_| NoAnswer::Lost)?;
        match Refusal::of(reply.refusal) {
            None => Ok((reply, beside)),
            Some(refusal) => Err(NoAnswer::Refused(refusal)),
        }
    }

    fn exchange(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let hung_up = || io::Error::from(io::ErrorKind::BrokenPipe);
        let socket = self.socket.descriptor().ok_or_else(hung_up)?;
        transport::send(socket, request, descriptor.as_slice(), SendFlags::empty())?;
        // The server is awake now, and nobody waits for what it does behind its answer.
        self.catch_up();
        wait_for_answer(socket)?;
        transport::receive(socket)?.ok_or_else(hung_up)
    }

    /// Tells the server something that it does not answer, and does not wait. False if that is lost, because it does not fit into the server's queue or nobody listens.
    pub(crate) fn tell(&self, kind: Kind, file: u32) -> bool {
        let request = Request {
            kind: kind as u32,
            file,
            first: 0,
            second: 0,
        };
        let socket = self.socket.descriptor().filter(|_| !self.is_lost());
        socket.is_some_and(|socket| {
            transport::send(socket, &request, &[], SendFlags::DONTWAIT).is_ok()
        })
    }

    /// Tells the server that `attachment`, of `inode`, was let go, behind the next question: to wake it for that alone takes longer than a request to the kernel. One waits at a time; the one before is told now.
    ///
    /// The server knows without being told, once it looks ([`lease::leave`]), and does at the end of the process.
    pub(crate) fn tell_later(&self, attachment: u32, inode: u64) {
        self.catch_up();
        if !self.is_lost() {
            self.later.lock().push(Later { attachment, inode });
        }
    }

    /// Keeps the memory of an attachment that was let go, for another one: to make and to map it takes longer than to make a lease. The server keeps that of the last one that it has heard of.
    pub(crate) fn keep(&self, attachment: u32, memory: SharedMemory) {
        *self.left.lock() = Some(Left { attachment, memory });
    }

    /// The last attachment that was let go, if its memory was kept. The server hears that it was by the question that names it.
    pub(crate) fn take_left(&self) -> Option<Left> {
        let left = self.left.lock().take()?;
        let mut later = self.later.lock();
        later.retain(|later| later.attachment != left.attachment);
        Some(left)
    }

    /// Tells the server what waits, if it is about `inode`: the file is about to be attached again.
    pub(crate) fn tell_of(&self, inode: u64) {
        let is_waiting = self.later.lock().iter().any(|later| later.inode == inode);
        if is_waiting {
            self.catch_up();
        }
    }

    fn catch_up(&self) {
        // What does not fit into the server's queue waits for the next time.
        let tell = |later: &mut Later| self.tell(Kind::LetGo, later.attachment);
        self.later.lock().extract_if(.., tell).for_each(drop);
    }

    /// Looks whether the server has hung up. Who asks it nothing would not notice, and write on into blocks that a next server gives to others.
    #[cold]
    pub(crate) fn notice_hangup(&self) {
        let Some(_turn) = self.turn.try_lock() else {
            return;
        };
        // Between two questions there is nothing to be read but the end.
        let hung_up = match self.socket.descriptor() {
            Some(socket) => is_readable(socket, Duration::ZERO) == Ok(true),
            None => true,
        };
        if hung_up {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}

/// Awake at first: an answer takes the server less time than it takes a processor to fall asleep and to be woken.
fn wait_for_answer(socket: BorrowedFd<'_>) -> io::Result<()> {
    // The socket's own time-out begins anew with each signal.
    let begin = Instant::now();
    loop {
        let waited = begin.elapsed();
        let wait = match waited < AWAKE {
            true => Duration::ZERO,
            false => WAIT.saturating_sub(waited),
        };
        match is_readable(socket, wait) {
            Ok(true) => return Ok(()),
            // The server may need this very processor.
            Ok(false) if waited < AWAKE => sched_yield(),
            Ok(false) => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_readable(socket: BorrowedFd<'_>, wait: Duration) -> rustix::io::Result<bool> {
    let timeout = Timespec {
        tv_sec: wait.as_secs() as i64,
        tv_nsec: i64::from(wait.subsec_nanos()),
    };
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    Ok(poll(&mut polled, Some(&timeout))? > 0)
}
