//! Messages over the socket, and the descriptors beside them.

use crate::protocol::SEGMENTS_AT_ONCE;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Sends one message, and beside it at most [`SEGMENTS_AT_ONCE`] descriptors.
///
/// # Errors
///
/// What the system says.
///
/// # Panics
///
/// If there are more descriptors.
pub fn send<T: IntoBytes + Immutable>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SEGMENTS_AT_ONCE))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fits = descriptors.is_empty() || beside.push(SendAncillaryMessage::ScmRights(descriptors));
    assert!(fits, "{} descriptors beside a message", descriptors.len());
    let bytes = [IoSlice::new(message.as_bytes())];
    loop {
        match sendmsg(socket, &bytes, &mut beside, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome.map(|_| ())?),
        }
    }
}

/// Receives one message and the descriptors beside it, [`SEGMENTS_AT_ONCE`] at most and as many as this process may have; `None` if the other side has hung up.
///
/// # Errors
///
/// What the system says; a message of another size is of kind `InvalidData`.
pub fn receive<T: FromBytes + IntoBytes>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SEGMENTS_AT_ONCE))];
    let mut message = T::new_zeroed();
    let length = size_of::<T>();
    // One byte more, so that a longer message is noticed.
    let mut excess = [0; 1];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [
            IoSliceMut::new(message.as_mut_bytes()),
            IoSliceMut::new(&mut excess),
        ];
        match recvmsg(socket, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    let mut descriptors = Vec::new();
    for part in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = part {
            descriptors.extend(some);
        }
    }
    match received.bytes {
        0 => Ok(None),
        bytes if bytes == length && !received.flags.contains(ReturnFlags::TRUNC) => {
            Ok(Some((message, descriptors)))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
