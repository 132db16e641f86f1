//! One method for each FUSE request.
//!
//! Each request runs between two fences of this file: `Handler::perform` times it, counts it,
//! turns its error into a number and catches a panic, so that no request can take a thread away from the others.
//! A panic is a bug of ours that may have left volatile state half changed, so the server answers `EIO` to
//! everything from then on and ends without marking the pool clean: the medium is consistent at every
//! moment, and the next mount rebuilds the rest from it.

mod data;
mod directory;
mod namespace;
mod page_cache;
mod replies;
mod requests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fs::{Attributes, FileSystem, Node, SetAttributes};
use fuse::{Errno, INodeNo};
use txn::Store;

use crate::attributes::{self, PERMISSION_BITS};
use crate::connection::Agreement;
use crate::direct::Registry;
use crate::edge::{Refusal, Subject};
use crate::gate::{Gate, Turn};
use crate::nodes::NodeTable;
use crate::pages::{Milliseconds, Questions, Unsaved};
use crate::statistics::{Operation, Statistics};
use crate::transport::Agreed;

/// What the request threads share with the rest of the server.
pub(crate) struct Shared<S: Store> {
    pub(crate) fs: FileSystem<S>,
    pub(crate) nodes: NodeTable,
    pub(crate) statistics: Statistics,
    /// Files that processes use directly.
    pub(crate) direct: Arc<Registry>,
    /// Threads that ask the kernel for dirty pages before an answer.
    pub(crate) questions: Questions,
    /// Dirty pages that found no room.
    pub(crate) unsaved: Unsaved,
    /// Which threads read requests.
    pub(crate) gate: Arc<Gate>,
    /// How requests come.
    pub(crate) transport: Agreed,
    started: Instant,
    failed: AtomicBool,
    on_failure: Box<dyn Fn() + Send + Sync>,
}

impl<S: Store> Shared<S> {
    /// `on_failure` runs once, when a request panicked; it should end the mount.
    pub(crate) fn new(fs: FileSystem<S>, on_failure: Box<dyn Fn() + Send + Sync>) -> Shared<S> {
        let nodes = NodeTable::new(fs.root());
        Shared {
            fs,
            nodes,
            statistics: Statistics::new(),
            direct: Arc::default(),
            questions: Questions::default(),
            unsaved: Unsaved::default(),
            gate: Arc::new(Gate::open()),
            transport: Agreed::default(),
            started: Instant::now(),
            failed: AtomicBool::new(false),
            on_failure,
        }
    }

    /// The file system, after the kernel's references were dropped.
    pub(crate) fn into_file_system(self) -> FileSystem<S> {
        drop(self.nodes);
        self.fs
    }

    /// Ends the threads that ask the kernel, and saves kept pages if there is room now.
    pub(crate) fn end_questions(self: &Arc<Shared<S>>) {
        self.questions.end();
        let handler = Handler::new(Arc::clone(self));
        for inode in self.unsaved.inodes() {
            handler.forget_pages(INodeNo(inode), || true);
        }
    }

    /// The time since the server started.
    pub(crate) fn now(&self) -> Milliseconds {
        Milliseconds::now(self.started)
    }

    /// Whether a request panicked.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// What the kernel is told of an inode.
#[derive(Debug)]
struct Described {
    attributes: Attributes,
    /// How long it may keep that.
    lifetime: Duration,
    /// How long it may keep the name that the inode was found by.
    name_lifetime: Duration,
}

/// The file system as the kernel's requests see it.
pub(crate) struct Handler<S: Store> {
    shared: Arc<Shared<S>>,
    agreement: Agreement,
}

impl<S: Store> Clone for Handler<S> {
    fn clone(&self) -> Handler<S> {
        Handler {
            shared: Arc::clone(&self.shared),
            agreement: self.agreement,
        }
    }
}

impl<S: Store> Handler<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>) -> Handler<S> {
        Handler {
            shared,
            agreement: Agreement::default(),
        }
    }

    fn fs(&self) -> &FileSystem<S> {
        &self.shared.fs
    }

    /// Begins a request: the answer is sent before the end of the turn.
    fn turn(&self) -> Turn<'_> {
        self.shared.gate.turn()
    }

    /// The node of an inode that the kernel names in a request.
    fn node(&self, number: INodeNo) -> Result<Node, Refusal> {
        self.shared.nodes.get(number.0).ok_or(Refusal::STALE)
    }

    /// Runs one request and accounts for it.
    fn perform<T>(
        &self,
        operation: Operation,
        subject: Subject<'_>,
        work: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Errno> {
        let started = Instant::now();
        let outcome = self.guard(operation.name(), subject, work);
        let failed = outcome.as_ref().is_err_and(|refusal| !refusal.is_absence());
        self.shared
            .statistics
            .record(operation, started.elapsed(), failed);
        outcome.map_err(|refusal| {
            if refusal.is_corruption() {
                tracing::error!(operation = operation.name(), %subject, "{refusal}; unmount and run `perdure fsck`");
            } else {
                tracing::debug!(operation = operation.name(), %subject, "{refusal}");
            }
            refusal.errno()
        })
    }

    /// Runs `work`, and turns a panic in it into an error for this and all later requests.
    fn guard<T>(
        &self,
        operation: &str,
        subject: Subject<'_>,
        work: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        const FAILED: Refusal = Refusal::Request(Errno::EIO, "the server has failed and is ending");
        if self.shared.has_failed() {
            return Err(FAILED);
        }
        tracing::trace!(operation, %subject);
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            tracing::error!(operation, %subject, "a request panicked: this is a bug; the pool is safe, mount it again");
            if !self.shared.failed.swap(true, Ordering::Relaxed) {
                (self.shared.on_failure)();
            }
            Err(FAILED)
        })
    }

    /// Attributes of an inode, and how long the kernel may keep them. A file that is leased before or after they are looked up may have changed meanwhile.
    fn describe(&self, node: &Node) -> Result<Described, Refusal> {
        let lifetime = || self.lifetime(node.number().get());
        let before = lifetime();
        let attributes = self.fs().attributes(node)?;
        Ok(Described {
            attributes,
            lifetime: before.min(lifetime()),
            name_lifetime: self.name_lifetime(node.number().get()),
        })
    }

    fn change_attributes(
        &self,
        number: INodeNo,
        user: u32,
        mut change: SetAttributes,
    ) -> Result<Described, Refusal> {
        let node = self.node(number)?;
        let changes_owner = change.uid.is_some() || change.gid.is_some();
        // Being root stands for having CAP_FSETID.
        let truncates_unprivileged = change.size_bytes.is_some() && user != 0;
        let nothing_else = attributes::is_empty(&change);
        if change.mode.is_none() && (changes_owner || truncates_unprivileged || nothing_else) {
            let now = self.fs().attributes(&node)?;
            change.mode = mode_without_set_id(&now);
            if attributes::is_empty(&change) {
                return self.describe(&node);
            }
        }
        let attributes = self.fs().set_attributes(&node, &change)?;
        Ok(Described {
            attributes,
            lifetime: self.lifetime(number.0),
            name_lifetime: self.name_lifetime(number.0),
        })
    }

    /// Takes the set-id bits off before an unprivileged write. Durable before the write is.
    fn drop_set_id(&self, node: &Node) -> Result<(), Refusal> {
        let mode = mode_without_set_id(&self.fs().attributes(node)?);
        if mode.is_some() {
            self.fs().set_attributes(
                node,
                &SetAttributes {
                    mode,
                    ..SetAttributes::default()
                },
            )?;
        }
        Ok(())
    }
}

/// The permission bits without set-id bits, if that is a change. Directories keep theirs.
fn mode_without_set_id(now: &Attributes) -> Option<u32> {
    let mode = attributes::without_set_id(now.mode);
    let applies = now.file_type() != fs::FileType::Directory && mode != now.mode;
    applies.then_some(mode & PERMISSION_BITS)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use fs::{FsError, MountOptions};
    use pmem::Region;
    use txn::{FormatOptions, Mode, PmemStore};

    use super::*;

    fn file_system() -> FileSystem<PmemStore> {
        let region = fs::mkfs_region(Region::anonymous(1 << 20), &FormatOptions::tiny(), (0, 0))
            .expect("mkfs");
        let store = PmemStore::open_region(region, Mode::ReadWrite).expect("open");
        FileSystem::mount(store, MountOptions::default()).expect("mount")
    }

    #[test]
    fn a_panic_ends_the_service_and_not_the_thread() {
        let alarms = Arc::new(AtomicUsize::new(0));
        let heard = alarms.clone();
        let on_failure = Box::new(move || {
            heard.fetch_add(1, Ordering::Relaxed);
        });
        let shared = Arc::new(Shared::new(file_system(), on_failure));
        let handler = Handler::new(shared.clone());
        let root = Subject::inode(INodeNo::ROOT);
        let space = |handler: &Handler<PmemStore>| {
            handler.perform(Operation::StatFs, root, || {
                Ok(handler.fs().statistics().block_bytes)
            })
        };
        assert_eq!(space(&handler), Ok(4096));
        let outcome = handler.perform(Operation::Read, root, || -> Result<(), Refusal> {
            panic!("a bug")
        });
        assert_eq!(outcome, Err(Errno::EIO));
        assert_eq!(
            space(&handler),
            Err(Errno::EIO),
            "and so does everything after it"
        );
        assert!(shared.has_failed());
        assert_eq!(alarms.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn references_are_counted_and_unlinked_inodes_freed() {
        let files = file_system();
        let table = NodeTable::new(files.root());
        let node = files
            .create(&files.root(), b"name", &fs::NewInode::file(0o644))
            .expect("create");
        let number = node.number();
        table.reference(node.clone());
        table.reference(node);
        let free_inodes = || files.statistics().free_inodes;
        let free = free_inodes();
        files.unlink(&files.root(), b"name").expect("unlink");
        table.forget(number.get(), 1);
        assert!(table.get(number.get()).is_some(), "one reference is left");
        assert_eq!(files.node(number).err(), Some(FsError::NotFound));
        assert_eq!(free_inodes(), free, "looking for it freed nothing");
        table.forget(number.get(), 1);
        assert!(table.get(number.get()).is_none());
        assert_eq!(free_inodes(), free + 1, "freed with the last");
        table.forget(number.get(), 1);
        table.forget(fs::InodeNumber::ROOT.get(), 1 << 40);
        assert!(
            table.get(fs::InodeNumber::ROOT.get()).is_some(),
            "the root is never forgotten"
        );
        assert_eq!(table.len(), 1);
    }
}
