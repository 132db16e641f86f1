//! The socket of a process: a descriptor among those of a program that does not know of it.

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
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
        // Any mount's server may pose as ours, and make mapped files shorter.
        match is_trusted(peer_of(&socket)?, geteuid().as_raw()) {
            true => Socket::adopt(socket),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
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

/// Whether a server of user `server` has power over a process of user `own` anyway.
fn is_trusted(server: u32, own: u32) -> bool {
    [0, own].contains(&server)
}

/// The user that listens at the other end, as the kernel says. (Not by `rustix`, which takes no
/// process number 0: that is the number of a server that this process cannot see.)
fn peer_of(socket: &OwnedFd) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes; any bytes are a `ucred`.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    match outcome {
        0 => Ok(peer.uid),
        _ => Err(io::Error::last_os_error()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};
    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;

    /// Listens as another user. The kernel notes the user when the socket begins to listen.
    fn listen_as(user: u32, name: &'static [u8]) -> OwnedFd {
        let listening = std::thread::spawn(move || {
            let user = Uid::from_raw(user);
            set_thread_res_uid(user, user, user).expect("another user");
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
            listen(&socket, 4)?;
            Ok::<_, Errno>(socket)
        });
        listening.join().expect("no panic").expect("listens")
    }

    #[test]
    fn a_server_of_another_user_is_not_spoken_to() {
        if !geteuid().is_root() {
            return eprintln!("skipped: needs root, to be another user");
        }
        for (user, name, is_refused) in [
            (12_345, "perdure-test-foreign", true),
            (0, "perdure-test-of-root", false),
        ] {
            let name = format!("{name}-{}", std::process::id()).leak().as_bytes();
            let _server = listen_as(user, name);
            let refused = Socket::connect(name)
                .map(drop)
                .map_err(|error| error.kind());
            let expected = match is_refused {
                true => Err(io::ErrorKind::PermissionDenied),
                false => Ok(()),
            };
            assert_eq!(refused, expected, "of user {user}");
        }
    }

    #[test]
    fn only_root_and_this_user_are_trusted() {
        for (server, own, expected) in [
            (0, 1000, true),
            (1000, 1000, true),
            (1001, 1000, false),
            (1000, 0, false),
            (u32::MAX, 0, false),
        ] {
            assert_eq!(is_trusted(server, own), expected, "{server} {own}");
        }
    }
}
