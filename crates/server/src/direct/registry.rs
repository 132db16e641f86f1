//! Which files are attached, for the requests that come through the kernel.
//!
//! While a file is attached, in whatever way, the kernel has no page of it; while it is leased, no attributes either. An attachment begins with dropping both, and every request of the kernel for the file's
//! content ends it. So there is never a page in the kernel that a process could make stale.

use super::accounts::Accounts;
use super::awake::Awake;
use super::counts::{Counts, Present};
use super::dropper::{Dropper, End, drop_from_kernel};
use super::drops::Drops;
use super::leased::Lessee;
use super::makers::{Bell, Makers};
use super::profile::Profiles;
use super::reading::Reader;
use ::direct::protocol::{Discovery, MAGIC, VERSION};
use fuse::Notifier;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::connection::CACHE_LIFETIME;
use crate::control::{ClientStatus, DirectStatus};

/// How a file is attached.
#[derive(Clone)]
pub(crate) enum Attachment {
    /// Any number of processes read it.
    Reading(Arc<Reader>),
    /// One process writes it.
    Leased(Arc<Lessee>),
}

impl Attachment {
    fn is_same(&self, other: &Attachment) -> bool {
        match (self, other) {
            (Attachment::Reading(one), Attachment::Reading(two)) => Arc::ptr_eq(one, two),
            (Attachment::Leased(one), Attachment::Leased(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

/// How processes use the files of a mount.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// They overwrite in place.
    pub(super) is_in_place: bool,
    /// They write through the kernel.
    pub(super) reads_only: bool,
}

/// All attached files of a mount.
///
/// Its lock is the innermost one: nobody who holds it asks the file system or the kernel for anything.
#[derive(Default)]
pub(crate) struct Registry {
    /// Files, so that requests for a mount without attached files look no further.
    count: AtomicUsize,
    files: Mutex<HashMap<u64, Attachment>>,
    /// Files that were leased since the kernel learnt of them: where they end, it may not know.
    grown: Mutex<HashSet<u64>>,
    /// Attachments that have ended, and blocks of which a process still sees.
    seen: Mutex<HashMap<u64, Vec<Weak<Reader>>>>,
    /// The name at which the server listens, and its offer.
    socket: OnceLock<(String, Manner)>,
    notifier: OnceLock<Notifier>,
    dropper: OnceLock<Dropper>,
    accounts: OnceLock<Arc<Accounts>>,
    pub(super) drops: Arc<Drops>,
    pub(super) makers: Makers,
    pub(super) awake: Arc<Awake>,
    pub(super) profiles: Profiles,
    pub(super) counts: Counts,
}

impl Registry {
    /// From here on processes can find the server.
    pub(super) fn open(
        &self,
        socket: (String, Manner),
        notifier: Notifier,
        dropper: Dropper,
        accounts: Arc<Accounts>,
    ) {
        let _ = self.accounts.set(accounts);
        let _ = self.dropper.set(dropper);
        let _ = self.notifier.set(notifier);
        let _ = self.socket.set(socket);
    }

    /// What a process learns by asking a descriptor; the socket has no name if there is none.
    pub(crate) fn discovery(&self) -> Discovery {
        let mut discovery = Discovery {
            magic: MAGIC,
            version: VERSION,
            reads_only: 0,
            socket: [0; _],
        };
        if let Some((name, manner)) = self.socket.get() {
            discovery.socket[..name.len()].copy_from_slice(name.as_bytes());
            discovery.reads_only = u64::from(manner.reads_only);
        }
        discovery
    }

    /// Processes that use files directly, and what they do.
    pub(crate) fn clients(&self) -> Vec<ClientStatus> {
        self.profiles.statuses()
    }

    /// What there is and what there was; `None` if processes cannot find the server.
    pub(crate) fn status(&self) -> Option<DirectStatus> {
        let (_, manner) = self.socket.get()?;
        let (processes, segments) = self.profiles.totals();
        let (leases, files_read) = self.files_by_kind();
        let files_mapped = self.files_mapped();
        Some(self.counts.status(Present {
            in_place: manner.is_in_place,
            reads_only: manner.reads_only,
            processes,
            segments,
            leases,
            files_read,
            files_mapped,
        }))
    }

    /// Files of which some process has blocks mapped.
    fn files_mapped(&self) -> u64 {
        let files: Vec<Attachment> = self.files.lock().values().cloned().collect();
        let is_mapped = |attachment: &&Attachment| match attachment {
            Attachment::Reading(reader) => reader.mappers.count() > 0,
            Attachment::Leased(_) => false,
        };
        files.iter().filter(is_mapped).count() as u64
    }

    /// A process still sees blocks of an attachment that has ended.
    pub(super) fn add_seen(&self, reader: &Arc<Reader>) {
        let mut seen = self.seen.lock();
        seen.entry(reader.inode)
            .or_default()
            .push(Arc::downgrade(reader));
    }

    /// No process sees blocks of this one any more.
    pub(super) fn remove_seen(&self, inode: u64, reader: &Weak<Reader>) {
        let mut seen = self.seen.lock();
        let Some(readers) = seen.get_mut(&inode) else {
            return;
        };
        readers.retain(|there| !there.ptr_eq(reader));
        if readers.is_empty() {
            seen.remove(&inode);
        }
    }

    /// Whether a process still sees blocks that the file has, or had: then nobody can lease it, who would use them for other parts of it.
    pub(super) fn is_seen(&self, inode: u64) -> bool {
        // Looked at without the lock, which those take that are seen no longer.
        let readers: Vec<Arc<Reader>> = {
            let seen = self.seen.lock();
            let readers = seen.get(&inode).into_iter().flatten();
            readers.filter_map(Weak::upgrade).collect()
        };
        readers.iter().filter(|reader| reader.is_seen()).count() > 0
    }

    /// Files that are leased, and files that are read.
    fn files_by_kind(&self) -> (u64, u64) {
        let files = self.files.lock();
        let is_lease = |attachment: &&Attachment| matches!(attachment, Attachment::Leased(_));
        let leases = files.values().filter(is_lease).count();
        (leases as u64, (files.len() - leases) as u64)
    }

    /// How the file is attached.
    pub(super) fn get(&self, inode: u64) -> Option<Attachment> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.files.lock().get(&inode).cloned()
    }

    /// Whether the file is attached: the kernel has no page of it then.
    pub(crate) fn is_attached(&self, inode: u64) -> bool {
        self.get(inode).is_some()
    }

    /// Attaches the file, if it is not attached: whether it is by this.
    pub(super) fn insert(&self, inode: u64, attachment: Attachment) -> bool {
        let mut files = self.files.lock();
        let Entry::Vacant(place) = files.entry(inode) else {
            return false;
        };
        place.insert(attachment);
        self.count.store(files.len(), Ordering::Release);
        true
    }

    /// The file is leased: from here on until the kernel forgets it, it may not know where the file ends.
    pub(super) fn may_grow(&self, inode: u64) {
        self.grown.lock().insert(inode);
    }

    /// Whether the kernel may be wrong about where the file ends, when it says where a write to a file that was opened for appending goes.
    pub(crate) fn may_have_grown(&self, inode: u64) -> bool {
        self.socket.get().is_some() && self.grown.lock().contains(&inode)
    }

    /// A thread has made a file through the kernel: what to ring when it has its answer.
    pub(crate) fn made(&self, inode: u64, thread: u32) -> Option<Arc<Bell>> {
        self.socket.get()?;
        self.makers.made(inode, thread)
    }

    /// The kernel has forgotten the file.
    pub(crate) fn forget(&self, inode: u64) {
        if self.socket.get().is_some() {
            self.grown.lock().remove(&inode);
            self.drops.forget(inode);
        }
    }

    /// The attachment has ended. Another one may have taken its place.
    pub(super) fn remove(&self, inode: u64, attachment: &Attachment) {
        let mut files = self.files.lock();
        if files
            .get(&inode)
            .is_some_and(|there| there.is_same(attachment))
        {
            files.remove(&inode);
        }
        self.count.store(files.len(), Ordering::Release);
    }

    /// The kernel is going to have pages of the file: whoever reads its blocks directly stops. A lease is ended by the file system, when its content is asked for.
    #[inline]
    pub(crate) fn kernel_reads(&self, inode: u64) {
        self.drops.read(inode);
        if let Some(Attachment::Reading(reader)) = self.get(inode) {
            reader.end();
        }
    }

    /// The kernel has written to the file for this user, and waits for the answer. What it may have read before that, and kept, is gone when this returns; but if it has the page locked that it writes, it has read
    /// nothing of it, and if others have waited too long for the user, it goes a moment later.
    #[inline]
    pub(crate) fn kernel_has_written(&self, inode: u64, writer: u32) {
        if self.drops.written(inode) {
            self.drop_again(inode, writer);
        }
    }

    #[cold]
    fn drop_again(&self, inode: u64, writer: u32) {
        let accounts = self.accounts.get();
        let is_dropped = self
            .dropper
            .get()
            .zip(accounts)
            .is_some_and(|(dropper, accounts)| dropper.drop_now(inode, &accounts.of(writer)));
        if is_dropped {
            self.drops.dropped_again(inode);
        }
    }

    /// How long the kernel may keep the attributes of a file: not at all if somebody changes them without its knowledge. To be asked before and after they are looked up.
    #[inline]
    pub(crate) fn lifetime(&self, inode: u64) -> Duration {
        match self.get(inode) {
            Some(Attachment::Leased(_)) => Duration::ZERO,
            _ => CACHE_LIFETIME,
        }
    }

    /// Makes the kernel drop pages and attributes of the file, pages that were changed through a mapping after they were written.
    /// It may ask this server meanwhile, so the caller holds no lock, and is not one that answers requests.
    pub(super) fn drop_from_kernel(&self, inode: u64) {
        if let Some(notifier) = self.notifier.get() {
            drop_from_kernel(notifier, &self.drops, inode);
        }
    }

    /// The same soon, for a caller that answers requests, of a file that has grown beyond what the kernel knows.
    pub(crate) fn drop_from_kernel_soon(&self, inode: u64, end: End) {
        if let Some(dropper) = self.dropper.get() {
            dropper.want(inode, end);
        }
    }

    /// The kernel gives a file another size by a request that is not answered yet.
    pub(crate) fn kernel_resizes(&self, inode: u64) {
        if let Some(dropper) = self.dropper.get() {
            dropper.resized(inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::accounts::Limits;
    use crate::direct::memory::FileMemory;

    #[test]
    fn who_is_seen_by_nobody_is_remembered_no_longer() {
        let limits = Limits {
            attachments: 10,
            map_bytes: 1 << 30,
            seen_blocks: 10,
        };
        let (accounts, registry) = (Accounts::new(limits), Arc::new(Registry::default()));
        let reader = |inode| {
            let memory = FileMemory::new(100, 0, 0, &accounts.of(0)).expect("memory");
            Reader::new(memory, inode, 100, &registry, &Arc::default())
        };
        let (first, again, other) = (reader(1), reader(1), reader(2));
        for reader in [&first, &again, &other] {
            registry.add_seen(reader);
        }
        drop(other);
        assert_eq!(registry.seen.lock().len(), 1, "it is gone");
        assert!(!first.is_seen());
        assert_eq!(registry.seen.lock()[&1].len(), 1, "the other one stays");
        assert!(!registry.is_seen(1));
        assert!(registry.seen.lock().is_empty());
    }
}
