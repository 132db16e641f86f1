//! Closing what others have sent.
//!
//! A descriptor may be anything: closing a socket can wait as long as its owner has told it to (`SO_LINGER`), and closing a file of somebody else's file system for whoever serves that. So it is closed on a thread of its
//! own, which holds nothing else and for which nobody waits. After a while the thread is interrupted, again and again: that ends all waits but those for another file system's server.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use txn::alarm::Alarm;

/// How long one may take before it is interrupted; then how often.
const PATIENCE: Duration = Duration::from_millis(100);
const EVERY: Duration = Duration::from_millis(10);
/// Connections that are closed at a time. As long as there are so many nobody is taken in; for a moment, because they are interrupted.
const CONNECTIONS: usize = 64;

/// Something is being closed.
#[derive(Debug)]
pub(super) struct Closing(Weak<()>);

impl Closing {
    pub(super) fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Closes these on a thread of its own. If there is none to be had they stay open.
pub(super) fn close(descriptors: Vec<OwnedFd>) -> Closing {
    close_with(descriptors, ())
}

/// Closes a socket. First takes out of it what was sent and not received, of which nothing more can come: another descriptor for the same socket may be closed later, by anybody.
pub(super) fn close_socket(socket: OwnedFd) -> Closing {
    let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
    close_with(Socket(socket), ())
}

struct Socket(OwnedFd);

impl Drop for Socket {
    fn drop(&mut self) {
        let (mut byte, flags) = ([0_u8; 1], rustix::net::RecvFlags::DONTWAIT);
        // Descriptors beside a message for which there is no room are closed by the kernel, here.
        while let Ok((_, 1..)) | Err(rustix::io::Errno::INTR) =
            rustix::net::recv(self.0.as_fd(), &mut byte, flags)
        {}
    }
}

/// `token` goes when all is closed.
fn close_with(what: impl Send + 'static, token: impl Send + 'static) -> Closing {
    let over = Arc::new(());
    let closing = Closing(Arc::downgrade(&over));
    let (what, all) = (ManuallyDrop::new(what), (over, token));
    let spawned = std::thread::Builder::new()
        .name("perdure-close".to_owned())
        .spawn(move || {
            let alarm = Alarm::set(PATIENCE, EVERY).inspect_err(|error| {
                tracing::warn!(%error, "who closes what was sent cannot be interrupted");
            });
            drop(ManuallyDrop::into_inner(what));
            drop((alarm, all));
        });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to close what was sent; it stays open");
    }
    closing
}

/// Connections of processes that were not taken in, while they are closed.
#[derive(Debug, Default)]
pub(super) struct Rejected(Arc<AtomicUsize>);

struct Token(Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Rejected {
    pub(super) fn close(&self, connection: OwnedFd) {
        self.0.fetch_add(1, Ordering::AcqRel);
        close_with(connection, Token(Arc::clone(&self.0)));
    }

    /// Whether so many are being closed that no more can be.
    pub(super) fn is_full(&self) -> bool {
        self.0.load(Ordering::Acquire) >= CONNECTIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_linger;
    use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use rustix::net::{SocketFlags, SocketType};
    use std::io::{IoSlice, Write};
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    /// A socket that takes a day to close, and its other end.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut ours =
            TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (theirs, _) = listener.accept().expect("accept");
        ours.set_nonblocking(true).expect("a socket");
        while ours.write(&[0; 65_536]).is_ok() {}
        ours.set_nonblocking(false).expect("a socket");
        set_socket_linger(&ours, Some(Duration::from_hours(24))).expect("a socket");
        (ours.into(), theirs)
    }

    fn wait_for(closing: &Closing) {
        let begin = Instant::now();
        while !closing.is_over() {
            assert!(begin.elapsed() < Duration::from_secs(5), "not interrupted");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_takes_a_day_to_close_is_interrupted() {
        let (sockets, _others): (Vec<_>, Vec<_>) = (0..3).map(|_| lingering()).unzip();
        wait_for(&close(sockets));
    }

    #[test]
    fn what_was_sent_and_not_received_is_closed_with_the_connection() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .expect("sockets");
        let (lingering, _other) = lingering();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let sent = [lingering.as_fd()];
        assert!(beside.push(SendAncillaryMessage::ScmRights(&sent)));
        rustix::net::sendmsg(
            &theirs,
            &[IoSlice::new(b"x")],
            &mut beside,
            SendFlags::empty(),
        )
        .expect("sent");
        // The message has the last one.
        wait_for(&close(vec![lingering]));
        let rejected = Rejected::default();
        rejected.close(ours);
        let begin = Instant::now();
        while rejected.0.load(Ordering::Acquire) > 0 {
            assert!(begin.elapsed() < Duration::from_secs(5), "not interrupted");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
