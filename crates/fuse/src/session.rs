//! A connection from INIT to its end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::fs::OFlags;

use crate::answer::Way;
use crate::device::{Device, Notifier, Taken};
use crate::dispatch::{Message, dispatch};
use crate::filesystem::Filesystem;
use crate::handshake::{Agreed, shake_hands};
use crate::ring;

/// How requests are to come.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that read the classic queue, at least one.
    pub threads: usize,
    /// Requests come over io_uring if the kernel offers it. Say so only after
    /// [`check_io_uring`](crate::check_io_uring): the kernel sends nothing until all queues stand.
    pub over_io_uring: bool,
    /// Stations of each processor, at least one.
    pub stations: usize,
}

/// A connection that has begun.
#[derive(Debug)]
pub struct Session<F> {
    files: F,
    device: Arc<Device>,
    agreed: Agreed,
    options: Options,
}

impl<F: Filesystem> Session<F> {
    /// Begins the connection of a mount that was made with this descriptor of `/dev/fuse`.
    ///
    /// # Errors
    ///
    /// The file system refused, the kernel is too old, or the mount is gone.
    pub fn new(mut files: F, descriptor: OwnedFd, options: Options) -> io::Result<Session<F>> {
        let device = Device::new(descriptor);
        let agreed = shake_hands(&mut files, &device, options.over_io_uring)?;
        Ok(Session {
            files,
            device,
            agreed,
            options,
        })
    }

    /// Whether requests come over io_uring.
    pub fn is_over_io_uring(&self) -> bool {
        self.agreed.is_over_io_uring
    }

    /// The way to tell the kernel what it did not ask for.
    pub fn notifier(&self) -> Notifier {
        Notifier(Arc::clone(&self.device))
    }

    /// Answers requests until the mount is gone; no thread of the session is left then.
    ///
    /// `on_failure` is called once if requests of a part of the processors cannot be answered any
    /// more. It should end the mount, without waiting for a request.
    ///
    /// # Errors
    ///
    /// The connection broke, or a thread could not be started.
    pub fn run(self, on_failure: impl Fn()) -> io::Result<()> {
        match self.agreed.is_over_io_uring {
            true => ring::run(
                Arc::new(self.files),
                &self.device,
                self.agreed,
                self.options.stations.max(1),
                &on_failure,
            ),
            false => self.read_classic_queue(),
        }
    }

    fn read_classic_queue(self) -> io::Result<()> {
        let mut devices = vec![Arc::clone(&self.device)];
        for _ in 1..self.options.threads {
            devices.push(self.device.again(OFlags::empty())?);
        }
        let files = Arc::new(self.files);
        let bytes = self.agreed.buffer_bytes();
        let start = |(number, device): (usize, Arc<Device>)| {
            let files = Arc::clone(&files);
            std::thread::Builder::new()
                .name(format!("fuse-{number}"))
                .spawn(move || answer_all(&*files, &device, bytes))
        };
        let started: io::Result<Vec<JoinHandle<_>>> =
            devices.into_iter().enumerate().map(start).collect();
        let mut outcome = Ok(());
        for thread in started? {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

/// Takes requests from the queue and answers them until the mount is gone.
fn answer_all<F: Filesystem>(files: &F, device: &Arc<Device>, bytes: usize) -> io::Result<()> {
    let mut buffer = vec![0; bytes];
    loop {
        match device.take(&mut buffer)? {
            Taken::Request(bytes) => answer_one(files, device, &buffer[..bytes]),
            Taken::Nothing => {}
            Taken::Ended => return Ok(()),
        }
    }
}

pub(crate) fn answer_one<F: Filesystem>(files: &F, device: &Arc<Device>, bytes: &[u8]) {
    match Message::read(bytes) {
        Some(message) => dispatch(files, message, Way::Device(Arc::clone(device))),
        None => tracing::warn!(bytes = bytes.len(), "the kernel sent no whole request"),
    }
}
