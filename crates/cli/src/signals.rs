//! Signals that ask a command to end, held back and read like a file.

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;
use std::mem::MaybeUninit;

/// What a terminal sends to all processes of the foreground.
const FROM_TERMINALS: [i32; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];
/// What else ends a process that does not expect it. A fault of this process ends it even so, and SIGPIPE is ignored here.
const ENDING: [i32; 15] = [
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGABRT,
    libc::SIGSYS,
    libc::SIGTRAP,
    libc::SIGILL,
];

/// The signals that end a process unless it says otherwise.
fn all_ending() -> impl Iterator<Item = i32> {
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    FROM_TERMINALS.into_iter().chain(ENDING).chain(real_time)
}

/// Holds back the signals that end a command. What was ignored before stays ignored, here and in programs that are started; but SIGPIPE, which ends those whatever it did before.
pub(crate) struct Held {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

impl Held {
    /// From now on, in this thread and those that it starts. To be called before there are others.
    pub(crate) fn hold() -> io::Result<Held> {
        let mut ending = empty();
        let mut before = empty();
        // SAFETY: both sets are initialised and live as long as the calls; the numbers are those of signals.
        let descriptor = unsafe {
            for signal in all_ending() {
                libc::sigaddset(&mut ending, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &ending, &mut before);
            libc::signalfd(-1, &ending, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd just made it, and nobody else knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Held { descriptor, before })
    }

    /// The signals that were held back before: what a program that is started is to hold back.
    pub(crate) fn before(&self) -> libc::sigset_t {
        self.before
    }

    /// Waits for `other`. Meanwhile each signal that comes is told, unless the terminal sent it: that one has gone to every process of the
    /// foreground.
    pub(crate) fn until_ready(
        &self,
        other: BorrowedFd<'_>,
        mut tell: impl FnMut(i32),
    ) -> io::Result<()> {
        loop {
            let mut waiting = [
                PollFd::new(&self.descriptor, PollFlags::IN),
                PollFd::from_borrowed_fd(other, PollFlags::IN),
            ];
            match rustix::event::poll(&mut waiting, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_ready = !waiting[1].revents().is_empty();
            while let Some(information) = self.next() {
                let signal = information.ssi_signo as i32;
                let is_terminal = information.ssi_code == libc::SI_KERNEL;
                if !(is_terminal && FROM_TERMINALS.contains(&signal)) {
                    tell(signal);
                }
            }
            if is_ready {
                return Ok(());
            }
        }
    }

    fn next(&self) -> Option<libc::signalfd_siginfo> {
        const LENGTH: usize = size_of::<libc::signalfd_siginfo>();
        let mut bytes = [0; LENGTH];
        match rustix::io::read(self.descriptor.as_fd(), &mut bytes) {
            // SAFETY: the structure is of integers only, and of this length.
            Ok(LENGTH) => Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }),
            _ => None,
        }
    }
}

/// Makes `held` the signals that this thread holds back. May be called between fork and exec.
pub(crate) fn set_held(held: &libc::sigset_t) {
    // SAFETY: the set is initialised; this cannot fail with SIG_SETMASK.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, held, std::ptr::null_mut()) };
}

/// Holds back nothing.
pub(crate) fn release_all() {
    set_held(&empty());
}

fn empty() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that it gets.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}
