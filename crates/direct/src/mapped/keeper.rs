//! The thread that gives mappings back when the server wants them.
//!
//! It waits on a socket of its own. A message says that something is to be given back, and the states in shared memory say what; the end of the socket says that all is. It allocates nothing and takes no lock but the table's, so
//! whatever the program's threads wait for, it goes on. No signal of the program's ever runs on it.

use super::lock::{block_signals, restore_signals};
use super::table;
use crate::socket::Socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::Duration;

/// How soon it is tried again to give back what could not be.
const RETRY: Duration = Duration::from_millis(50);

/// There was no mapping yet.
const NONE: u8 = 0;
const RUNS: u8 = 1;
/// It has ended, or could not begin.
const ENDED: u8 = 2;

/// Such a thread, as others see it.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    state: AtomicU8,
}

impl Keeper {
    /// Whether it gives back what is mapped from now on.
    pub(super) fn is_running(&self) -> bool {
        self.state.load(Acquire) == RUNS
    }
}

/// The thread of a connection, which starts with its first mapping.
#[derive(Debug, Default)]
pub(crate) struct Keeping(Arc<Keeper>);

impl Keeping {
    /// The thread, if it runs. With the first answer of the server about a mapping comes its socket.
    pub(crate) fn keeper(
        &self,
        beside: Option<OwnedFd>,
        remember: impl FnOnce(&Socket),
    ) -> Option<Arc<Keeper>> {
        let keeper = &self.0;
        if let Some(socket) = beside
            && keeper.state.load(Acquire) == NONE
        {
            let socket = Socket::adopt(socket).ok().inspect(remember);
            keeper.state.store(RUNS, Release);
            if !socket.is_some_and(|socket| start(Arc::clone(keeper), socket)) {
                keeper.state.store(ENDED, Release);
            }
        }
        keeper.is_running().then(|| Arc::clone(keeper))
    }
}

fn start(keeper: Arc<Keeper>, socket: Socket) -> bool {
    // The thread inherits it.
    let before = block_signals();
    let thread = std::thread::Builder::new()
        .name("perdure-maps".to_owned())
        .stack_size(64 << 10)
        .spawn(move || keep(&keeper, &socket));
    restore_signals(&before);
    thread.is_ok()
}

fn keep(keeper: &Keeper, socket: &Socket) {
    let mut is_left_over = false;
    loop {
        let is_open = socket
            .descriptor()
            .is_some_and(|descriptor| wait(descriptor, is_left_over));
        if !is_open {
            // First, so that nothing is mapped behind the last look.
            keeper.state.store(ENDED, SeqCst);
        }
        let restored = table::give_back(keeper, !is_open);
        is_left_over = restored.failed > 0;
        match socket.descriptor() {
            // The server does not look at the words of a process that was late all the time.
            Some(descriptor) if is_open => {
                if restored.done > 0 {
                    let _ = send(descriptor, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                }
            }
            // The program has closed it, or the server has.
            _ if !is_left_over => return,
            _ => std::thread::sleep(RETRY),
        }
    }
}

/// Waits for a message; `false` if the other side has hung up.
fn wait(socket: BorrowedFd<'_>, is_left_over: bool) -> bool {
    let soon = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(RETRY.subsec_nanos()),
    };
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    let _ = poll(&mut polled, is_left_over.then_some(&soon));
    let events = polled[0].revents();
    if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return false;
    }
    let mut message = [0_u8; 16];
    while events.contains(PollFlags::IN) {
        match recv(socket, &mut message, RecvFlags::DONTWAIT) {
            Ok((_, 1..)) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            // No socket of the server's either.
            Ok((_, 0)) | Err(_) => return false,
        }
    }
    true
}
