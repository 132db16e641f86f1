//! A connection to the server of a mount, and what this process has of the pool through it.

use crate::discover::Server;
use crate::file::{File, Tours};
use crate::layout::{COUNTERS, Counter, PROCESS_BYTES, counter_at};
use crate::line::{Line, NoAnswer};
use crate::mapped::{Keeper, Keeping};
use crate::memory::SharedMemory;
use crate::price::{Price, Rule};
use crate::protocol::{Kind, Reply, Request, VERSION, Welcome};
use crate::segments::Segments;
use crate::socket::WAIT;
use crate::world::World;
use locks::Mutex;
use rustix::thread::{MembarrierCommand, membarrier};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// How soon a server is tried again that did not answer.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a process has of a pool once it is connected.
#[derive(Debug)]
pub(crate) struct Link {
    line: Line,
    process: SharedMemory,
    epoch_file: SharedMemory,
    epoch: u64,
    is_in_place: bool,
    segments: Segments,
}

impl Link {
    /// The pool's segments.
    #[inline(always)]
    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Whether the pool is still its server's. If not, a next one may give blocks that this process knows to others: nothing may be stored, and what was read before this look is not true.
    #[inline(always)]
    pub(crate) fn is_current(&self) -> bool {
        fence(Acquire);
        self.epoch_file.word(0).load(Acquire) == self.epoch
    }

    /// Connects to the server that listens at a name in the abstract namespace. `None`: whatever failed, there is no direct access.
    fn to(name: &[u8]) -> Option<Link> {
        // The server's fence reaches the processors that run us only from here on; a lease relies on it.
        membarrier(MembarrierCommand::RegisterGlobalExpedited).ok()?;
        let line = Line::connect(name).ok()?;
        let hello = Request {
            kind: Kind::Hello as u32,
            file: 0,
            first: u64::from(VERSION),
            second: 0,
        };
        let (reply, beside) = line.ask_for_many(hello, None).ok()?;
        let welcome = Welcome::of(&reply);
        if welcome.version != u64::from(VERSION) {
            return None;
        }
        let [process, epoch] = beside.try_into().ok()?;
        Some(Link {
            process: SharedMemory::map_file(&process, PROCESS_BYTES, true).ok()?,
            epoch_file: SharedMemory::map_file(&epoch, size_of::<u64>(), false).ok()?,
            epoch: welcome.epoch,
            is_in_place: welcome.is_in_place == 1,
            segments: Segments::new(&welcome)?,
            line,
        })
    }
}

/// A server and the files of its mount. Connected when the first of them is attached: most processes use none of them often enough. It ends with the last file, or is lost before.
#[derive(Debug)]
pub(crate) struct Connection {
    server: Server,
    /// Where a child process finds the socket that it has to close.
    world: Option<&'static World>,
    link: OnceLock<Link>,
    /// When the server did not answer as it should, if so; also held while it is asked.
    failed: Mutex<Option<Instant>>,
    /// What was counted before there was anybody to be shown it.
    early: [AtomicU64; COUNTERS],
    /// The files by inode: one process has one view of each.
    files: Mutex<HashMap<u64, Weak<File>>>,
    keeping: Keeping,
    tours: Mutex<Tours>,
    price: Price,
}

impl Connection {
    /// Of a server that is asked nothing yet.
    pub(crate) fn new(
        server: Server,
        world: Option<&'static World>,
        rule: Rule,
    ) -> Arc<Connection> {
        Arc::new(Connection {
            server,
            world,
            link: OnceLock::new(),
            failed: Mutex::new(None),
            early: Default::default(),
            files: Mutex::default(),
            keeping: Keeping::default(),
            tours: Mutex::default(),
            price: Price::new(rule),
        })
    }

    /// Connects, if it is not. `false`: whatever failed, there is no direct access; a second later it is worth another try.
    #[cold]
    pub(crate) fn establish(&self) -> bool {
        let Some(mut failed) = self.failed.try_lock_for(4 * WAIT) else {
            return false;
        };
        let is_too_soon = failed.is_some_and(|when| when.elapsed() < RETRY_AFTER);
        if self.link.get().is_none() && !is_too_soon {
            match Link::to(&self.server.name) {
                Some(link) => {
                    if let Some(world) = self.world {
                        world.remember(link.line.trace());
                    }
                    for (index, early) in self.early.iter().enumerate() {
                        let at = counter_at(Counter::Reads) + index * size_of::<u64>();
                        link.process.word(at).store(early.load(Relaxed), Relaxed);
                    }
                    // Nobody else sets it: the lock is held.
                    let _ = self.link.set(link);
                }
                None => *failed = Some(Instant::now()),
            }
        }
        self.link.get().is_some()
    }

    /// Whether there is no server any more, or not one that speaks to us.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.link.get().is_some_and(|link| link.line.is_lost())
    }

    /// What is there once this is connected, unless it is lost.
    #[inline(always)]
    pub(crate) fn live_link(&self) -> Option<&Link> {
        self.link.get().filter(|link| !link.line.is_lost())
    }

    /// What is there once something is attached, and so once this is connected.
    #[inline]
    fn link(&self) -> &Link {
        self.link.get().expect("an attached file has a connection")
    }

    /// Returns the prices of its files.
    #[inline]
    pub(crate) fn price(&self) -> &Price {
        &self.price
    }

    /// The file with this inode.
    pub(crate) fn file(self: &Arc<Self>, inode: u64) -> Option<Arc<File>> {
        let mut files = self.files.try_lock_for(WAIT)?;
        if let Some(file) = files.get(&inode).and_then(Weak::upgrade) {
            return Some(file);
        }
        let file = Arc::new(File::new(Arc::clone(self), inode));
        files.insert(inode, Arc::downgrade(&file));
        Some(file)
    }

    /// The file with this inode, if this process uses it.
    pub(crate) fn known_file(&self, inode: u64) -> Option<Arc<File>> {
        self.files.try_lock()?.get(&inode)?.upgrade()
    }

    /// All files that this process uses; none if somebody has the list.
    pub(crate) fn all_files(&self) -> Vec<Weak<File>> {
        let files = self.files.try_lock();
        files.map_or_else(Vec::new, |files| files.values().cloned().collect())
    }

    /// When all files may be looked at to make room for a lease.
    pub(crate) fn tours(&self) -> &Mutex<Tours> {
        &self.tours
    }

    /// The file with this inode is dropped.
    pub(crate) fn forget_file(&self, inode: u64) {
        let Some(mut files) = self.files.try_lock_for(WAIT) else {
            return;
        };
        // Another of that name may have come meanwhile.
        if files
            .get(&inode)
            .is_some_and(|file| file.strong_count() == 0)
        {
            files.remove(&inode);
        }
    }

    /// As [`Link::is_current`].
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.link().is_current()
    }

    /// Whether the kernel does whatever changes a file, so that it always knows where files end.
    #[inline]
    pub(crate) fn reads_only(&self) -> bool {
        self.server.reads_only
    }

    /// Whether the mount wants overwrites in place.
    pub(crate) fn is_in_place(&self) -> bool {
        self.link().is_in_place
    }

    /// The line to the server.
    #[inline]
    pub(crate) fn line(&self) -> &Line {
        &self.link().line
    }

    /// The pool's segments.
    #[inline]
    pub(crate) fn segments(&self) -> &Segments {
        &self.link().segments
    }

    /// The memory that this process writes.
    #[inline]
    pub(crate) fn process(&self) -> &SharedMemory {
        &self.link().process
    }

    /// Asks about an attachment.
    pub(crate) fn ask(
        &self,
        kind: Kind,
        file: u32,
        first: u64,
        second: u64,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Option<OwnedFd>), NoAnswer> {
        let request = Request {
            kind: kind as u32,
            file,
            first,
            second,
        };
        self.link().line.ask(request, descriptor)
    }

    /// The thread that gives mappings back, if there is one; it starts with the socket that comes with the server's first answer about a mapping.
    pub(crate) fn keeper(&self, beside: Option<OwnedFd>) -> Option<Arc<Keeper>> {
        self.keeping.keeper(beside, |socket| {
            if let Some(world) = self.world {
                world.remember(socket.trace());
            }
        })
    }

    /// Counts, for users to see: two threads that count at once may count once.
    #[inline]
    pub(crate) fn count(&self, counter: Counter, amount: u64) {
        let word = match self.link.get() {
            Some(link) => link.process.word(counter_at(counter)),
            None => &self.early[counter as usize],
        };
        word.store(word.load(Relaxed).wrapping_add(amount), Relaxed);
    }
}
