//! The direct access of a process.

use crate::connection::{Connection, RETRY_AFTER};
use crate::discover::{Device, Server, regular_file, server_of};
use crate::entrance::{Generation, Inside};
use crate::file::File;
use crate::price::Rule;
use crate::socket::WAIT;
use crate::world::{World, Worlds};
use locks::Mutex;
use rustix::fs::Statx;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// What is known of a mounted file system.
#[derive(Debug, Default)]
enum Standing {
    #[default]
    Unknown,
    /// No direct access, ever.
    NotOurs,
    /// Its server did not answer, or not as it should.
    Failed(Instant),
    Ours(Arc<Connection>),
}

/// A mounted file system.
#[derive(Debug, Default)]
pub(crate) struct Mount(Mutex<Standing>);

/// The direct access of this process: its connections to servers and the files that it uses.
#[derive(Debug, Default)]
pub struct Client {
    worlds: Worlds,
    rule: Rule,
}

impl Client {
    /// One that knows nothing yet.
    #[must_use]
    pub const fn new() -> Client {
        Client::with_rule(Rule::FIRST)
    }

    /// The same, which attaches files by this rule.
    #[must_use]
    pub const fn with_rule(rule: Rule) -> Client {
        Client {
            worlds: Worlds::new(),
            rule,
        }
    }

    /// What lies behind a descriptor, if it is a regular file of a mount that offers direct access. Asks the kernel two or three questions, and nobody else: the server is spoken to when the first file is attached. The
    /// same file is the same `File`, whatever descriptor it was looked at by.
    pub fn look(&self, descriptor: BorrowedFd<'_>) -> Option<Arc<File>> {
        let _inside = Inside::enter()?;
        let (device, inode) = regular_file(descriptor)?;
        self.look_by(device, inode, || server_of(descriptor))
    }

    /// As [`look`](Self::look), by where the server listens.
    pub(crate) fn look_by(
        &self,
        device: Device,
        inode: u64,
        server: impl FnOnce() -> Option<Server>,
    ) -> Option<Arc<File>> {
        let world = self.worlds.current();
        let mount = Arc::clone(world.mounts.try_lock_for(WAIT)?.entry(device).or_default());
        let mut standing = mount.0.try_lock_for(2 * WAIT)?;
        if let Standing::Ours(connection) = &*standing
            && connection.is_lost()
        {
            *standing = Standing::Failed(Instant::now());
        }
        let is_to_be_tried = match &*standing {
            Standing::Unknown => true,
            Standing::Failed(when) => when.elapsed() >= RETRY_AFTER,
            Standing::NotOurs | Standing::Ours(_) => false,
        };
        if is_to_be_tried {
            *standing = self.found(world, server());
        }
        match &*standing {
            Standing::Ours(connection) => connection.file(inode),
            _ => None,
        }
    }

    /// Whether this process writes any files directly.
    #[inline]
    pub fn writes_files(&self) -> bool {
        crate::counted::are_there_any()
    }

    /// What `stat` tells of a file that the kernel has `found`, if it is attached and nobody has to be asked.
    pub fn status_of(&self, found: &Statx) -> Option<Statx> {
        let _inside = Inside::enter()?;
        let mount = {
            let mounts = self.worlds.current().mounts.try_lock()?;
            Arc::clone(mounts.get(&Device::of(found))?)
        };
        let file = match &*mount.0.try_lock()? {
            Standing::Ours(connection) => connection.known_file(found.stx_ino)?,
            _ => return None,
        };
        drop(_inside);
        file.status_if_known()
    }

    /// To be called in a child process after `fork`, before anything else: forgets everything, without touching what is the parent's. Locks nothing.
    pub fn forget(&self) {
        Generation::begin_next();
        self.worlds.leave();
    }

    fn found(&self, world: &'static World, server: Option<Server>) -> Standing {
        match server {
            None => Standing::NotOurs,
            Some(server) => Standing::Ours(Connection::new(server, Some(world), self.rule)),
        }
    }
}
