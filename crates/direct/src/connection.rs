//! A connection to the server of a mount, and what this process has of the pool through it.

use crate::file::File;
use crate::layout::{Counter, PROCESS_BYTES, counter_at};
use crate::line::{Line, NoAnswer};
use crate::memory::SharedMemory;
use crate::protocol::{Kind, Reply, Request, VERSION, Welcome};
use crate::segments::Segments;
use crate::socket::WAIT;
use parking_lot::Mutex;
use rustix::thread::{MembarrierCommand, membarrier};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::sync::{Arc, Weak};

/// A connection. It ends with the last file that uses it, or is lost before.
#[derive(Debug)]
pub(crate) struct Connection {
    line: Line,
    process: SharedMemory,
    epoch_file: SharedMemory,
    epoch: u64,
    segments: Segments,
    /// The files by inode: one process has one view of each.
    files: Mutex<HashMap<u64, Weak<File>>>,
}

impl Connection {
    /// Connects to the server that listens at a name in the abstract namespace. `None`: whatever failed, there is no direct access.
    pub(crate) fn connect(name: &[u8]) -> Option<Arc<Connection>> {
        // The server's fence reaches the processors that run us only from here on; a lease relies on it.
        membarrier(MembarrierCommand::RegisterGlobalExpedited).ok()?;
        let line = Line::connect(name).ok()?;
        let hello = Request {
            kind: Kind::Hello as u32,
            file: 0,
            first: u64::from(VERSION),
            second: 0,
        };
        let (reply, memory) = line.ask(hello, None).ok()?;
        let welcome = Welcome::of(&reply);
        if welcome.version != u64::from(VERSION) {
            return None;
        }
        let process = SharedMemory::map_file(&memory?, PROCESS_BYTES, true).ok()?;
        let ask = Request {
            kind: Kind::Epoch as u32,
            ..hello
        };
        let (_, file) = line.ask(ask, None).ok()?;
        let epoch_file = SharedMemory::map_file(&file?, size_of::<u64>(), false).ok()?;
        Some(Arc::new(Connection {
            line,
            process,
            epoch_file,
            epoch: welcome.epoch,
            segments: Segments::new(&welcome)?,
            files: Mutex::default(),
        }))
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

    /// Whether the pool is still its server's. If not, a next one may give blocks that this process knows to others: nothing may be stored, and what was read before this look is not true.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        fence(Acquire);
        self.epoch_file.word(0).load(Acquire) == self.epoch
    }

    /// The line to the server.
    #[inline]
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// The pool's segments.
    #[inline]
    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The memory that this process writes.
    #[inline]
    pub(crate) fn process(&self) -> &SharedMemory {
        &self.process
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
        self.line.ask(request, descriptor)
    }

    /// Counts, for users to see: two threads that count at once may count once.
    #[inline]
    pub(crate) fn count(&self, counter: Counter, amount: u64) {
        let word = self.process.word(counter_at(counter));
        word.store(word.load(Relaxed).wrapping_add(amount), Relaxed);
    }
}
