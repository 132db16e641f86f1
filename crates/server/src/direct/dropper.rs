//! Makes the kernel drop what it has of a file, for those who must not wait for it.
//!
//! While a request to write is under way, the kernel has the page locked, and dropping waits for the page. So a thread that answers requests does not drop by itself: when all
//! of them waited for the page of one request, nobody would answer that one. (Two threads, and a program that appends faster than they drop: the mount stood still.)

use fuser::{INodeNo, Notifier};
use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The way to a thread that drops. The thread ends when this is dropped.
pub(super) struct Dropper(Sender<u64>);

impl Dropper {
    pub(super) fn start(notifier: Notifier) -> io::Result<Dropper> {
        let (sender, wanted) = channel();
        std::thread::Builder::new()
            .name("perdure-drop".to_owned())
            .spawn(move || drop_wanted(&wanted, &notifier))?;
        Ok(Dropper(sender))
    }

    /// Soon, not at once.
    pub(super) fn want(&self, inode: u64) {
        // The thread is there as long as this is.
        let _ = self.0.send(inode);
    }
}

fn drop_wanted(wanted: &Receiver<u64>, notifier: &Notifier) {
    while let Ok(first) = wanted.recv() {
        // A file that came a thousand times meanwhile is dropped once.
        let inodes: BTreeSet<u64> = wanted.try_iter().chain([first]).collect();
        for inode in inodes {
            drop_from_kernel(notifier, inode);
        }
    }
}

/// Makes the kernel drop pages and attributes of the file, pages that were changed through a mapping after they were written. It may ask this server meanwhile.
pub(super) fn drop_from_kernel(notifier: &Notifier, inode: u64) {
    if let Err(error) = notifier.inval_inode(INodeNo(inode), 0, 0)
        // It does not know the inode at all.
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(inode, %error, "the kernel could not drop its pages of a file");
    }
}
