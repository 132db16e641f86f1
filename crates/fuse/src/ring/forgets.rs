//! The classic queue still brings FORGET and INTERRUPT.
//!
//! The kernel wakes a reader for each FORGET. So this reader pauses after some, and takes all that
//! gathered meanwhile in one request. A request that needs the space of forgotten inodes has them
//! taken first.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;

use crate::device::{Device, Taken};
use crate::filesystem::Filesystem;
use crate::session::answer_one;

/// Long enough that a tree's removal wakes the reader once for many inodes.
const PAUSE: Duration = Duration::from_millis(1);

/// A reader of the classic queue that does not wait.
#[derive(Debug)]
pub(super) struct Forgets {
    device: Arc<Device>,
    /// Held until what was read is done: behind it, space is free.
    buffer: Mutex<Vec<u8>>,
}

impl Forgets {
    pub(super) fn new(device: &Device, bytes: usize) -> io::Result<Forgets> {
        Ok(Forgets {
            device: device.again(OFlags::NONBLOCK)?,
            buffer: Mutex::new(vec![0; bytes]),
        })
    }

    /// Does all that is in the queue, and tells how many requests that were. `None`: the mount is
    /// gone.
    pub(super) fn drain<F: Filesystem>(&self, files: &F) -> Option<usize> {
        let mut buffer = self.buffer.lock();
        let mut count = 0;
        loop {
            match self.device.take(&mut buffer) {
                Ok(Taken::Request(bytes)) => {
                    answer_one(files, &self.device, &buffer[..bytes]);
                    count += 1;
                }
                Ok(Taken::Nothing) => return Some(count),
                Ok(Taken::Ended) => return None,
                Err(error) => {
                    tracing::error!(%error, "forgotten inodes are not freed any more");
                    return None;
                }
            }
        }
    }

    /// Reads until the mount is gone.
    pub(super) fn run<F: Filesystem>(&self, files: &F) {
        while self.drain(files).is_some() {
            std::thread::sleep(PAUSE);
            let mut waiting = [PollFd::new(&self.device, PollFlags::IN)];
            // Interrupted or not, what is there is read.
            let _ = poll(&mut waiting, None);
        }
    }
}
