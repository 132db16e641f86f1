//! Makes the kernel drop what it has of a file, for those who must not wait for it.
//!
//! While a request to write is under way, the kernel has the page locked, and dropping waits for the page. So a thread that answers requests does not drop by itself: when all
//! of them waited for the page of one request, nobody would answer that one. (Two threads, and a program that appends faster than they drop: the mount stood still.)

use super::accounts::Account;
use super::drops::Drops;
use super::patience;
use fuse::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
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
pub(super) struct Dropper {
    wanted: Sender<Wanted>,
    ends: Arc<Ends>,
}

/// An order to drop a file's pages: with its end to be told before, or with a caller that waits.
enum Wanted {
    Ended(u64),
    Now(u64, Sender<()>),
}

/// Ends of files that the kernel is to be told. An end that is told after the file was made shorter
/// would make it longer in the kernel's eyes, until the kernel asks the next time.
#[derive(Default)]
struct Ends {
    pending: Mutex<HashMap<u64, End>>,
    /// Held while one is told.
    telling: Mutex<()>,
}

impl Ends {
    fn set(&self, inode: u64, end: End) {
        self.pending.lock().insert(inode, end);
    }

    /// Tells the last end of a file, unless the file was made shorter since.
    fn tell(&self, inode: u64, tell: impl FnOnce(End)) {
        let _telling = self.telling.lock();
        let end = self.pending.lock().remove(&inode);
        if let Some(end) = end {
            tell(end);
        }
    }

    /// The file has another end now, which the kernel learns by itself. Waits a moment for an end
    /// that is being told.
    fn forget(&self, inode: u64) {
        self.pending.lock().remove(&inode);
        drop(self.telling.try_lock_for(PATIENCE));
    }
}

impl Dropper {
    pub(super) fn start(notifier: Notifier, drops: Arc<Drops>) -> io::Result<Dropper> {
        let (sender, wanted) = channel();
        let ends = Arc::<Ends>::default();
        let told = Arc::clone(&ends);
        std::thread::Builder::new()
            .name("perdure-drop".to_owned())
            .spawn(move || drop_wanted(&wanted, &notifier, &drops, &told))?;
        Ok(Dropper {
            wanted: sender,
            ends,
        })
    }

    /// A file gets another size by the kernel's own request, which is not answered yet.
    pub(super) fn resized(&self, inode: u64) {
        self.ends.forget(inode);
    }

    /// Soon, not at once.
    pub(super) fn want(&self, inode: u64, end: End) {
        // The thread is there as long as this is.
        self.ends.set(inode, end);
        let _ = self.wanted.send(Wanted::Ended(inode));
    }

    /// Now, if that is possible before the caller has answered his request: whether it was. The user is the one who wrote, and can choose that it is not; if others have waited for him too long already, it is
    /// done behind the answer.
    pub(super) fn drop_now(&self, inode: u64, writer: &Account) -> bool {
        let (done, is_done) = channel();
        let _ = self.wanted.send(Wanted::Now(inode, done));
        let wait = |time| is_done.recv_timeout(time).is_ok();
        patience::wait_for(writer, PATIENCE, wait).unwrap_or(false)
    }
}

fn drop_wanted(wanted: &Receiver<Wanted>, notifier: &Notifier, drops: &Drops, ends: &Ends) {
    while let Ok(first) = wanted.recv() {
        // A file that came a thousand times meanwhile is dropped once, and ends where it ended last.
        let mut files: BTreeMap<u64, Vec<Sender<()>>> = BTreeMap::new();
        for wanted in [first].into_iter().chain(wanted.try_iter()) {
            match wanted {
                Wanted::Ended(inode) => drop(files.entry(inode).or_default()),
                Wanted::Now(inode, done) => files.entry(inode).or_default().push(done),
            }
        }
        for (inode, waiting) in files {
            ends.tell(inode, |end| tell_end(notifier, inode, end));
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
/// is the end of an earlier lease. The byte goes with the pages a moment later.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_once_the_last_one_and_not_of_a_file_that_was_made_shorter() {
        let ends = Ends::default();
        let end = |size_bytes| End {
            size_bytes,
            last_byte: 1,
        };
        let told = |inode| {
            let mut told = None;
            ends.tell(inode, |end| told = Some(end.size_bytes));
            told
        };
        ends.set(7, end(10));
        ends.set(7, end(20));
        ends.set(8, end(30));
        assert_eq!((told(7), told(7)), (Some(20), None));
        ends.set(7, end(40));
        ends.forget(7);
        assert_eq!((told(7), told(8)), (None, Some(30)));
    }

    #[test]
    fn a_file_can_be_made_shorter_while_its_end_is_told() {
        let ends = Arc::new(Ends::default());
        ends.set(
            7,
            End {
                size_bytes: 10,
                last_byte: 1,
            },
        );
        let (begun, has_begun) = channel();
        let theirs = Arc::clone(&ends);
        let teller = std::thread::spawn(move || {
            let mut is_told = false;
            theirs.tell(7, |_| {
                begun.send(()).expect("heard");
                std::thread::sleep(PATIENCE / 4);
                is_told = true;
            });
            is_told
        });
        has_begun.recv().expect("it begins");
        ends.forget(7);
        assert!(teller.join().expect("no panic"));
        assert!(ends.pending.lock().is_empty());
    }
}
