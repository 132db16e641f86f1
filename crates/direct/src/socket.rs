//! The socket of a process: a descriptor among those of a program that does not know of it.

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Longest that a process waits for the server. Then it uses the kernel.
pub(crate) const WAIT: Duration = Duration::from_secs(2);

/// Where the descriptor goes: programs and shells count on low numbers. The lower ones are for processes that may not have so many.
const NUMBERS: [RawFd; 3] = [768, 240, 100];

/// Which socket it is, whatever number it has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// A connected socket. The program may close its descriptor at any time (`closefrom`) and get the number for something of its own, so each use asks first.
#[derive(Debug)]
pub(crate) struct Socket {
    number: RawFd,
    identity: Identity,
}

impl Socket {
    /// A socket that is connected already.
    pub(crate) fn adopt(socket: OwnedFd) -> io::Result<Socket> {
        let high = NUMBERS
            .iter()
            .find_map(|number| fcntl_dupfd_cloexec(&socket, *number).ok());
        let socket = high.unwrap_or(socket);
        let Some(identity) = identity(socket.as_raw_fd()) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        Ok(Socket {
            number: socket.into_raw_fd(),
            identity,
        })
    }

    /// Connects to a name in the abstract namespace.
    pub(crate) fn connect(name: &[u8]) -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        for side in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, side, Some(WAIT))?;
        }
        let address = SocketAddrUnix::new_abstract_name(name)?;
        // A program with a timer may interrupt this again and again.
        while let Err(error) = connect(&socket, &address) {
            if error != Errno::INTR {
                return Err(error.into());
            }
        }
        Socket::adopt(socket)
    }

    /// The descriptor, if it still is this socket's.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if identity(self.number) != Some(self.identity) {
            return None;
        }
        // SAFETY: it is open, as the kernel has just said. A program that closes it right now may have us talk to another descriptor, as it could itself.
        Some(unsafe { BorrowedFd::borrow_raw(self.number) })
    }

    /// What [`close_inherited`] needs.
    pub(crate) fn trace(&self) -> (RawFd, Identity) {
        (self.number, self.identity)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        close_inherited(self.number, self.identity);
    }
}

/// Closes a descriptor, if it still is that socket's.
pub(crate) fn close_inherited(number: RawFd, of: Identity) {
    if identity(number) == Some(of) {
        // SAFETY: it is open and nobody else closes it: the number is known to this library alone.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

/// Which socket has this descriptor, if one has.
fn identity(number: RawFd) -> Option<Identity> {
    if number < 0 {
        return None;
    }
    // SAFETY: lent to one system call, which says so if it is closed.
    let status = fstat(unsafe { BorrowedFd::borrow_raw(number) }).ok()?;
    let is_socket = FileType::from_raw_mode(status.st_mode) == FileType::Socket;
    is_socket.then_some(Identity {
        device: status.st_dev,
        inode: status.st_ino,
    })
}
