//! What a process has sent and nobody has asked for.

use super::Session;
use crate::direct::closing::{self, Closing};
use crate::direct::sender;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Statx};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use txn::Store;

/// How long a process is waited for that has sent what takes long to close, and sends more of it; by its own thread only.
const STRANGE_PATIENCE: Duration = Duration::from_secs(1);

impl<S: Store> Session<S> {
    /// Keeps the user's place as long as somebody has an answer before him that he does not take, because the descriptors beside it are open for him, and as long as what he has sent is being closed.
    pub(super) fn wait_until_done(&self) {
        let a_while = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        while sender::is_unread(self.socket.as_fd()) || !self.strange.iter().all(Closing::is_over) {
            let mut stop = [PollFd::new(&self.service.stop, PollFlags::IN)];
            match rustix::event::poll(&mut stop, Some(&a_while)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    pub(super) fn is_ours(&self, found: &Statx) -> bool {
        (found.stx_dev_major, found.stx_dev_minor) == self.service.device
    }

    /// Of what came beside a message: the first descriptor, if it is a regular file of this mount, and whether there was anything else. That is closed elsewhere.
    pub(super) fn sort_beside(
        &mut self,
        mut beside: Vec<OwnedFd>,
    ) -> io::Result<(Option<OwnedFd>, bool)> {
        if beside.is_empty() {
            return Ok((None, false));
        }
        let others = beside.split_off(1);
        let is_ours = |file: &OwnedFd| {
            sender::look(file.as_fd()).is_ok_and(|found| {
                FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile
                    && self.is_ours(&found)
            })
        };
        let (own, mut strange): (Vec<_>, Vec<_>) = beside.into_iter().partition(is_ours);
        strange.extend(others);
        let is_strange = !strange.is_empty();
        match self.close_strange(strange) {
            true => Ok((own.into_iter().next(), is_strange)),
            false => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }

    /// Closes what nobody has asked for. Whether the process may send more of it: not if what it sent before is not closed yet.
    pub(super) fn close_strange(&mut self, strange: Vec<OwnedFd>) -> bool {
        if strange.is_empty() {
            return true;
        }
        let until = Instant::now() + STRANGE_PATIENCE;
        while !self.strange.iter().all(Closing::is_over) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.strange.retain(|closing| !closing.is_over());
        self.strange.push(closing::close(strange));
        self.strange.len() == 1
    }
}
