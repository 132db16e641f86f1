//! How requests come to a mount: over io_uring or by the kernel's classic queue.

use std::sync::OnceLock;

/// The way that requests come, and how many threads take them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Transport {
    /// So many threads read one queue.
    Classic(usize),
    /// Each processor has a queue, and each queue so many threads, more if all of them wait.
    IoUring(usize),
}

impl Transport {
    /// The word for it in statuses.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Transport::Classic(_) => "classic",
            Transport::IoUring(_) => "io_uring",
        }
    }

    /// How many threads answer, as long as few wait.
    pub(crate) fn threads(self) -> usize {
        match self {
            Transport::Classic(threads) => threads,
            Transport::IoUring(stations) => {
                stations * std::thread::available_parallelism().map_or(1, usize::from)
            }
        }
    }
}

/// The transport of a mount, once the kernel has agreed.
#[derive(Debug, Default)]
pub(crate) struct Agreed(OnceLock<Transport>);

impl Agreed {
    pub(crate) fn set(&self, transport: Transport) {
        // A connection starts once.
        let _ = self.0.set(transport);
    }

    /// One thread and the classic queue, until something else is known.
    pub(crate) fn get(&self) -> Transport {
        self.0.get().copied().unwrap_or(Transport::Classic(1))
    }
}

/// How requests come to a mount that was asked for with or without io_uring, for people: with the
/// remedy if that is the slower way.
pub(crate) fn describe(transport: Transport, is_wanted: bool) -> String {
    match (transport, is_wanted) {
        (Transport::IoUring(_), _) => "requests over io_uring".to_owned(),
        (_, false) => "requests by the classic queue".to_owned(),
        (_, true) => match fuse::check_io_uring() {
            Err(why) => format!("requests by the classic queue (io_uring is {why})"),
            Ok(()) => "requests by the classic queue (the kernel refuses io_uring)".to_owned(),
        },
    }
}
