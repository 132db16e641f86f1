//! Makes the kernel drop what it has of a file, for those who must not wait for it.
//!
//! While a request to write is under way, the kernel has the page locked, and dropping waits for the page. So a thread that answers requests does not drop by itself: when all
//! of them waited for the page of one request, nobody would answer that one. (Two threads, and a program that appends faster than they drop: the mount stood still.)

use super::accounts::Account;
use super::drops::Drops;
use super::patience;
use fuse::{INodeNo, Notifier};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long somebody waits whose request may be the one that keeps the kernel from dropping.
const PATIENCE: Duration = Duration::from_millis(20);

/// Where a file of a byte or more ended at some moment, for a kernel that may take it for shorter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct End {
    pub(crate) size_bytes: u64,
    pub(crate) last_byte: u8,
}

/// The way to a thread that drops. The thread ends when this is dropped.
pub(super) struct Dropper(Sender<Wanted>);

/// What is to be dropped: a file that ends there; or a file, and who waits for it.
enum Wanted {
    Ended(u64, End),
    Now(u64, Sender<()>),
}

impl Dropper {
    pub(super) fn start(notifier: Notifier, drops: Arc<Drops>) -> io::Result<Dropper> {
        let (sender, wanted) = channel();
        std::thread::Builder::new()
            .name("perdure-drop".to_owned())
            .spawn(move || drop_wanted(&wanted, &notifier, &drops))?;
        Ok(Dropper(sender))
    }

    /// Soon, not at once.
    pub(super) fn want(&self, inode: u64, end: End) {
        // The thread is there as long as this is.
        let _ = self.0.send(Wanted::Ended(inode, end));
    }

    /// Now, if that is possible before the caller has answered his request: whether it was. The user is the one who wrote, and can choose that it is not; if others have waited for him too long already, it is
    /// done behind the answer.
    pub(super) fn drop_now(&self, inode: u64, writer: &Account) -> bool {
        let (done, is_done) = channel();
        let _ = self.0.send(Wanted::Now(inode, done));
        let wait = |time| is_done.recv_timeout(time).is_ok();
        patience::wait_for(writer, PATIENCE, wait).unwrap_or(false)
    }
}

fn drop_wanted(wanted: &Receiver<Wanted>, notifier: &Notifier, drops: &Drops) {
    while let Ok(first) = wanted.recv() {
        // A file that came a thousand times meanwhile is dropped once, and ends where it ended last.
        let mut files: BTreeMap<u64, (Option<End>, Vec<Sender<()>>)> = BTreeMap::new();
        for wanted in [first].into_iter().chain(wanted.try_iter()) {
            match wanted {
                Wanted::Ended(inode, end) => files.entry(inode).or_default().0 = Some(end),
                Wanted::Now(inode, done) => files.entry(inode).or_default().1.push(done),
            }
        }
        for (inode, (end, waiting)) in files {
            if let Some(end) = end {
                tell_end(notifier, inode, end);
            }
            drop_from_kernel(notifier, drops, inode);
            for done in waiting {
                // Who has answered meanwhile does not listen.
                let _ = done.send(());
            }
        }
    }
}

/// Tells the kernel where the file ended, by the last byte: there is no other way to.
///
/// For dropping has a side effect: an answer to `GETATTR` that is on its way is thrown away, and the `read` that had asked, because it did not know where the file ends, goes by what the kernel believed before. That
/// was the end before the last lease. The byte goes with the pages a moment later, and if the file was made shorter meanwhile, who reads learns it from the server's answer.
fn tell_end(notifier: &Notifier, inode: u64, end: End) {
    if let Err(error) = notifier.store(INodeNo(inode), end.size_bytes - 1, &[end.last_byte]) {
        tracing::debug!(inode, %error, "the kernel does not learn where a file ends");
    }
}

/// Makes the kernel drop pages and attributes of the file, pages that were changed through a mapping after they were written. It may ask this server meanwhile.
pub(super) fn drop_from_kernel(notifier: &Notifier, drops: &Drops, inode: u64) {
    drops.during(inode, || {
        if let Err(error) = notifier.inval_inode(INodeNo(inode), 0, 0)
            // It does not know the inode at all.
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(inode, %error, "the kernel could not drop its pages of a file");
        }
    });
}
