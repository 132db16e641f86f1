//! Who sends a request, as he is when he sends it.
//!
//! Who has begun a conversation says little: a process may have become another user's since, as servers do that begin as root, and a socket can be given to anybody. So the kernel puts what it knows of the
//! sender beside each message (`SO_PASSCRED`): his process, and the real user that it runs as. A process that could become somebody else again counts as the one that it is at this moment.

use ::direct::protocol::Request;
use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use zerocopy::{FromZeros, IntoBytes};

/// `CAP_DAC_OVERRIDE`: to whom modes of files do not apply.
const OVERRIDES_MODES: u32 = 1;
/// Descriptors that the kernel lets anybody send beside a message.
pub(super) const BESIDE_MOST: usize = 253;
/// Words for what comes beside a message: all descriptors that there can be, so that the kernel closes none of them here, and the sender, with room to spare.
const BESIDE_WORDS: usize = BESIDE_MOST / 2 + 16;

/// Who has sent a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Sender {
    /// 0 if this process cannot see it.
    pub(super) process: i32,
    pub(super) user: u32,
}

/// A message, who has sent it, and the descriptors beside it. To close one may take long ([`close`](super::closing::close)).
pub(super) struct Received {
    /// `None` if it has another size.
    pub(super) request: Option<Request>,
    pub(super) sender: Option<Sender>,
    pub(super) beside: Vec<OwnedFd>,
}

impl Sender {
    /// Whether he may map segments with files of `owner`, of which he has one open. Root may if it is the process `known` of this conversation, and modes of files do not apply to it: the segment
    /// holds others as well, in folders that nobody lets it into.
    pub(super) fn may_have(self, owner: u32, known: i32) -> bool {
        self.user == owner || (self.user == 0 && self.process == known && overrides_modes(known))
    }
}

/// Whether modes of files do not apply to a process. Its capabilities count where it is one of this process's own name space of users.
fn overrides_modes(process: i32) -> bool {
    let space = |of: &str| fs::read_link(format!("/proc/{of}/ns/user"));
    let is_here = || Ok::<_, io::Error>(space(&process.to_string())? == space("self")?);
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    let has = |status: &str| {
        let effective = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))?;
        let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
        Some(effective & 1 << OVERRIDES_MODES != 0)
    };
    status.is_ok_and(|status| has(&status) == Some(true)) && is_here().unwrap_or(false)
}

/// Who has begun a conversation.
///
/// # Errors
///
/// What the system says.
pub(super) fn begun_by(socket: BorrowedFd<'_>) -> io::Result<Sender> {
    let mut who = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of_val(&who) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which `who` has, and any bytes are a `ucred`.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        )
    };
    match outcome {
        0 => Ok(Sender::from(who)),
        _ => Err(io::Error::last_os_error()),
    }
}

impl From<libc::ucred> for Sender {
    fn from(who: libc::ucred) -> Sender {
        Sender {
            process: who.pid,
            user: who.uid,
        }
    }
}

/// Receives one message; `None` if the other side has hung up. Does not wait for one.
///
/// (Not by `rustix`: for it the number of a process is never 0, which is what one is that this process cannot see.)
///
/// # Errors
///
/// What the system says.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Received>> {
    let mut request = Request::new_zeroed();
    let length = size_of::<Request>();
    // One byte more, so that a longer message is noticed.
    let mut excess = [0_u8; 1];
    let mut space = [0_u64; BESIDE_WORDS];
    let mut parts = [request.as_mut_bytes(), &mut excess[..]].map(|part| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    });
    // SAFETY: zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&space) as _;
    let received = loop {
        // SAFETY: the header names two buffers and the space beside them, which live until the call returns.
        let received = unsafe {
            let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
            libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags)
        };
        match usize::try_from(received) {
            Ok(received) => break received,
            Err(_) if Errno::from_io_error(&io::Error::last_os_error()) == Some(Errno::INTR) => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    };
    let (sender, beside) = parts_beside(&message);
    // A message of no bytes looks like the end; but beside the end there is nothing.
    if received == 0 && beside.is_empty() {
        return Ok(None);
    }
    let is_request = received == length && message.msg_flags & libc::MSG_TRUNC == 0;
    Ok(Some(Received {
        request: is_request.then_some(request),
        sender,
        beside,
    }))
}

/// What a descriptor is. Answered by the kernel alone: whoever serves another file system cannot make this thread wait.
///
/// # Errors
///
/// What the system says.
pub(super) fn look(descriptor: BorrowedFd<'_>) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(descriptor, c"", flags, StatxFlags::BASIC_STATS)
}

/// Whether something that was sent is not received yet. An honest process asks one question at a time, and has the answer before the next.
pub(super) fn is_unread(socket: BorrowedFd<'_>) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes an integer.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    outcome == 0 && bytes != 0
}

/// What came beside a message that was just received.
fn parts_beside(message: &libc::msghdr) -> (Option<Sender>, Vec<OwnedFd>) {
    let (mut sender, mut descriptors) = (None, Vec::new());
    // SAFETY: the kernel has filled in the space that the header names, and its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null, or the header of a part that lies in that space.
    while let Some(part) = unsafe { header.as_ref() } {
        // SAFETY: as above; the content follows the header.
        let content = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: no pointers.
        let bytes = part.cmsg_len - unsafe { libc::CMSG_LEN(0) } as usize;
        match (part.cmsg_level, part.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if bytes >= size_of::<libc::ucred>() => {
                // SAFETY: so many bytes are there, and any bytes are a `ucred`.
                let who = unsafe { content.cast::<libc::ucred>().read_unaligned() };
                sender = Some(Sender::from(who));
            }
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for index in 0..bytes / size_of::<libc::c_int>() {
                    // SAFETY: so many descriptors are there, which are ours from now on.
                    let descriptor = unsafe {
                        OwnedFd::from_raw_fd(
                            content.cast::<libc::c_int>().add(index).read_unaligned(),
                        )
                    };
                    descriptors.push(descriptor);
                }
            }
            _ => {}
        }
        // SAFETY: the header is one of this message.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    (sender, descriptors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::direct::transport;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
    use std::os::fd::AsFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).expect("sockets");
        rustix::net::sockopt::set_socket_passcred(&ours, true).expect("a socket of this kind");
        (ours, theirs)
    }

    fn me() -> Sender {
        Sender {
            process: std::process::id() as i32,
            user: rustix::process::getuid().as_raw(),
        }
    }

    fn send(socket: &OwnedFd, bytes: &[u8], beside: &[BorrowedFd<'_>]) {
        match <[u8; size_of::<Request>()]>::try_from(bytes) {
            Ok(bytes) => transport::send(socket.as_fd(), &bytes, beside, SendFlags::empty()),
            Err(_) => rustix::net::send(socket, bytes, SendFlags::empty())
                .map(drop)
                .map_err(io::Error::from),
        }
        .expect("sent");
    }

    #[test]
    fn a_request_comes_with_its_sender_and_descriptors() {
        let (ours, theirs) = pair();
        let request = Request {
            kind: 7,
            file: 8,
            first: 9,
            second: 10,
        };
        let open = || rustix::io::fcntl_getfd(&theirs).is_ok();
        let (zero, null) = (
            fs::File::open("/dev/zero").expect("open"),
            fs::File::open("/dev/null").expect("open"),
        );
        for beside in [&[][..], &[zero.as_fd()], &[zero.as_fd(), null.as_fd()]] {
            send(&theirs, request.as_bytes(), beside);
            let received = receive(ours.as_fd()).expect("received").expect("a message");
            assert_eq!(received.request, Some(request));
            assert_eq!(received.sender, Some(me()));
            assert_eq!(received.beside.len(), beside.len());
        }
        assert!(open());
        assert_eq!(begun_by(ours.as_fd()).expect("a peer"), me());
    }

    #[test]
    fn what_is_no_request_is_refused_and_the_end_is_noticed() {
        let (ours, theirs) = pair();
        for length in [1, size_of::<Request>() - 1, size_of::<Request>() + 1, 4096] {
            send(&theirs, &vec![1; length], &[]);
            let received = receive(ours.as_fd()).expect("received").expect("a message");
            assert!(received.request.is_none(), "{length} bytes");
        }
        drop(theirs);
        assert!(receive(ours.as_fd()).expect("the end").is_none());
    }

    #[test]
    fn an_answer_is_unread_until_it_is_received_or_nobody_can() {
        let (ours, theirs) = pair();
        assert!(!is_unread(ours.as_fd()));
        for _ in 0..2 {
            transport::send(ours.as_fd(), &[1_u8; 8], &[], SendFlags::empty()).expect("sent");
            assert!(is_unread(ours.as_fd()));
            transport::receive::<[u8; 8]>(theirs.as_fd()).expect("received");
            assert!(!is_unread(ours.as_fd()));
        }
        transport::send(ours.as_fd(), &[1_u8; 8], &[], SendFlags::empty()).expect("sent");
        drop(theirs);
        assert!(!is_unread(ours.as_fd()));
    }

    #[test]
    fn who_may_have_what() {
        let me = me();
        let other = me.user + 1;
        assert!(me.may_have(me.user, 0));
        let is_mighty = me.user == 0 && overrides_modes(me.process);
        assert_eq!(me.may_have(other, me.process), is_mighty);
        assert!(!me.may_have(other, me.process + 1), "another process");
        let root = Sender {
            process: 0,
            user: 0,
        };
        assert!(!root.may_have(other, 0), "nobody can see it");
        let user = Sender {
            process: me.process,
            user: 1000,
        };
        assert!(!user.may_have(1001, me.process) && user.may_have(1000, 0));
    }
}
