//! The answer that is owed to a request, and the way it goes.

use std::sync::Arc;

use crate::device::{BackingId, Device};
use crate::ring::Desk;
use crate::types::Errno;

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// It is written to the device.
    Device(Arc<Device>),
    /// It is left with the station that has taken the request.
    Desk(Arc<Desk>),
}

/// An answer that a request waits for. Any thread may give it. A request whose answer is dropped
/// fails with `EIO`: its caller must not wait for ever.
#[derive(Debug)]
pub(crate) struct Owed {
    unique: u64,
    way: Option<Way>,
}

impl Owed {
    pub(crate) fn new(unique: u64, way: Way) -> Owed {
        Owed {
            unique,
            way: Some(way),
        }
    }

    /// Answers with these parts, two at most.
    pub(crate) fn send(mut self, parts: &[&[u8]]) {
        self.deliver(0, parts);
    }

    pub(crate) fn refuse(mut self, errno: Errno) {
        self.deliver(errno.code(), &[]);
    }

    fn deliver(&mut self, errno: i32, parts: &[&[u8]]) {
        match self.way.take() {
            Some(Way::Device(device)) => {
                if let Err(error) = device.send(self.unique, -errno, parts) {
                    tell(self.unique, &error);
                }
            }
            Some(Way::Desk(desk)) => desk.answer(errno, parts),
            None => {}
        }
    }

    /// Room for an answer of `bytes` where the kernel takes it from, if there is any.
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        match &mut self.way {
            Some(Way::Desk(desk)) => {
                // SAFETY: this is the only answer to the desk's request, borrowed for as long as
                // the room is.
                unsafe { desk.room(bytes) }
            }
            _ => None,
        }
    }

    /// Answers with the first `bytes` of the room.
    pub(crate) fn send_room(mut self, bytes: usize) {
        if let Some(Way::Desk(desk)) = self.way.take() {
            desk.answer_in_place(bytes);
        }
    }

    pub(crate) fn open_backing(
        &self,
        file: std::os::fd::BorrowedFd<'_>,
    ) -> std::io::Result<BackingId> {
        match &self.way {
            Some(Way::Device(device)) => device.open_backing(file),
            _ => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }
}

/// A request whose caller was interrupted is gone, and so is one whose mount is.
fn tell(unique: u64, error: &std::io::Error) {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENOTCONN) => {
            tracing::debug!(unique, %error, "nobody takes an answer");
        }
        _ => tracing::error!(unique, %error, "the kernel refuses an answer"),
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if self.way.is_some() {
            self.deliver(libc::EIO, &[]);
        }
    }
}
