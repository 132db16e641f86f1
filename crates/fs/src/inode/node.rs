//! Inodes in use: one state per inode in DRAM, shared by all who refer to it.

use super::attached::{Holder, TakenBack, Watcher};
use super::copies::{self, Copies, CopiesSlot};
use super::lease_blocks::LeaseBlocks;
use crate::directory::{Directory, MapRoot, Names};
use crate::format::map::{HEIGHT_MAX, INODE_BLOCKS_MAX};
use crate::format::{FILE_BYTES_MAX, FileType, InodeNumber, LINKS_MAX, RawInode};
use crate::locks::spin::then_wait;
use crate::locks::view::View;
use crate::values::error::{FsError, damaged_inode};
use crate::values::types::Attributes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use pmem::deliberate::{self, Bug};
use readcache::FileCache;
use scatter::DomainId;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

/// A reference to an inode. Clones refer to the same one.
///
/// As long as one exists, an unlinked inode keeps its content; dropping the last one frees it.
#[derive(Clone, Debug)]
pub struct Node(pub(crate) Arc<InodeState>);

impl Node {
    /// Number of the inode.
    pub fn number(&self) -> InodeNumber {
        self.0.number
    }

    /// Distinguishes uses of the same number.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// What the inode is. It never changes, so this takes no lock.
    #[inline]
    pub fn file_type(&self) -> FileType {
        self.0.file_type
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Body> {
        then_wait(|| self.0.body.try_read(), || self.0.body.read())
    }

    #[inline]
    pub(crate) fn write(&self) -> BodyWrite<'_> {
        let body = then_wait(|| self.0.body.try_write(), || self.0.body.write());
        self.0.view.begin_change();
        BodyWrite {
            shown: shown(self.0.number, &body),
            body,
            state: &self.0,
            content: 0..0,
        }
    }

    /// The names of a directory, for lookups without its lock.
    #[inline]
    pub(crate) fn names(&self) -> Option<&Arc<Names>> {
        self.0.names.as_ref()
    }

    /// Of a directory: the inode that `take` takes a reference to, if a name stands for it that was there when the directory had seen
    /// `departures`.
    ///
    /// The name may be gone before the reference is counted, the inode removed, and its number another one's. Not so if the name is still
    /// there afterwards, which is so if no other one has left, and the inode still has one.
    #[inline]
    pub(crate) fn take_child(
        &self,
        departures: u64,
        take: impl FnOnce() -> Option<Node>,
    ) -> Option<Node> {
        let names = self.names()?;
        take().filter(|child| child.view().is_surely_named() && names.departures() == departures)
    }

    /// The file's copies, if there were any.
    #[inline]
    pub(crate) fn copies(&self) -> Option<&Arc<FileCache>> {
        self.0.copies.get()
    }

    /// A copy of the block will be looked for soon: fetches what is needed for that.
    #[inline]
    pub(crate) fn prefetch_copy(&self, block: u64) {
        if let Some(copies) = self.copies() {
            copies.prefetch(block);
        }
    }

    /// What readers without the lock see.
    #[inline]
    pub(crate) fn view(&self) -> &View {
        &self.0.view
    }
}

/// An inode's state, locked for writing. Dropping it shows readers the new version.
pub(crate) struct BodyWrite<'n> {
    body: RwLockWriteGuard<'n, Body>,
    state: &'n InodeState,
    /// Bytes of the file that are being changed, if there could be copies of them.
    content: Range<u64>,
    /// What `stat` told before, if somebody has the file attached who has to know when that changes.
    shown: Option<Attributes>,
}

impl BodyWrite<'_> {
    /// What changes is what the holder of the file's lease has done himself.
    pub(crate) fn holder_knows(&mut self) {
        self.shown = None;
    }

    #[cold]
    fn tell_of_attributes(&self, before: Attributes) {
        let body = &*self.body;
        let now = Attributes::of(self.state.number, &body.raw);
        if before == now || deliberate::is(Bug::KeepAttributesSecret) {
            return;
        }
        if let Some(lease) = &body.lease {
            lease.holder().attributes_changed();
        }
        if let Some(watcher) = &body.watcher {
            watcher.attributes_changed();
        }
    }

    /// Does something while the lock is free, as if this guard had been dropped, and a new one
    /// taken afterwards.
    pub(crate) fn unlocked<R>(&mut self, action: impl FnOnce() -> R) -> R {
        self.show();
        let result = RwLockWriteGuard::unlocked(&mut self.body, action);
        self.state.view.begin_change();
        self.content = 0..0;
        self.shown = shown(self.state.number, &self.body);
        result
    }

    /// Shows readers the new version.
    #[inline]
    fn show(&mut self) {
        if let Some(before) = self.shown.take() {
            self.tell_of_attributes(before);
        }
        let body = &mut *self.body;
        if let Some(directory) = &mut body.directory {
            directory.open(MapRoot {
                root: body.raw.root,
                height: body.raw.height,
            });
        }
        if !self.content.is_empty() {
            copies::forget(&self.state.copies, &self.content);
        }
        self.state.view.end_change(&body.raw, body.lease.is_some());
    }

    /// These bytes of the file are going to change: whatever becomes of that, their copies in DRAM end before anybody else has the lock (C1 in `copies`).
    #[inline]
    pub(crate) fn changes_content(&mut self, copies: &Copies, range: Range<u64>) {
        if copies.cache.is_some() {
            copies::prefetch_for_write(&self.state.copies, &range);
            self.content = range;
        }
    }
}

impl Deref for BodyWrite<'_> {
    type Target = Body;

    #[inline]
    fn deref(&self) -> &Body {
        &self.body
    }
}

impl DerefMut for BodyWrite<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.body
    }
}

impl Drop for BodyWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        self.show();
    }
}

/// What `stat` tells of a file that a process has attached.
#[inline]
fn shown(number: InodeNumber, body: &Body) -> Option<Attributes> {
    body.is_attached()
        .then(|| Attributes::of(number, &body.raw))
}

/// What every reference to an inode shares.
pub(crate) struct InodeState {
    pub(crate) number: InodeNumber,
    generation: u32,
    file_type: FileType,
    view: View,
    /// Of a file, once it has some.
    pub(crate) copies: CopiesSlot,
    /// Whether the tier knows of dirty blocks. Changes are made under the lock; the tier takes the
    /// mark away before it locks the file to look.
    pub(crate) is_noted: AtomicBool,
    /// Of a directory; shared with the state that its lock protects.
    names: Option<Arc<Names>>,
    pub(crate) body: RwLock<Body>,
}

impl std::fmt::Debug for InodeState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "inode {}", self.number)
    }
}

/// Frees an inode that lost its last name and its last user.
pub(crate) trait Reclaim: Send + Sync {
    /// Frees the inode's blocks and number. Failing is harmless: recovery does it.
    fn reclaim(&self, number: InodeNumber, raw: &RawInode);
}

/// The lease of a file, in its inode's state.
pub(crate) struct FileLease {
    /// The file itself: as long as it is leased it is in use, whoever else has let go.
    pub(crate) _file: Node,
    pub(crate) lease: Node,
    pub(crate) blocks: LeaseBlocks,
    pub(crate) holder: Arc<dyn Holder>,
    /// What the holder answered, if the lease is being taken back and something could not be done. Until it is, nobody else gets at the file.
    pub(crate) taken: Option<TakenBack>,
}

impl FileLease {
    pub(crate) fn holder(&self) -> &dyn Holder {
        &*self.holder
    }
}

/// The part of an inode's state that its lock protects.
pub(crate) struct Body {
    /// The inode as it is on the medium.
    pub(crate) raw: RawInode,
    /// Where its data goes.
    pub(crate) domain: DomainId,
    /// Names and free ranges of a directory, once it was used.
    pub(crate) directory: Option<Box<Directory>>,
    /// A file that somebody writes without the file system's help.
    pub(crate) lease: Option<Box<FileLease>>,
    /// Who reads the file's blocks without asking, and has to know before they change.
    pub(crate) watcher: Option<Arc<dyn Watcher>>,
    /// Who frees the inode when its last user is gone; only an unlinked one has it, because counting references to one object
    /// in every operation would make all processors wait for each other.
    pub(crate) reclaim: Option<Weak<dyn Reclaim>>,
}

impl Body {
    /// Whether somebody reads or writes the file's blocks without asking.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.lease.is_some() || self.watcher.is_some()
    }

    /// Fails unless the inode is a directory that still has its name.
    pub(crate) fn require_directory(&self) -> Result<(), FsError> {
        match self.raw.file_type() {
            Some(FileType::Directory) if self.raw.links == 0 => Err(FsError::NotFound),
            Some(FileType::Directory) => Ok(()),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// Fails unless the inode is a regular file.
    #[inline]
    pub(crate) fn require_regular(&self) -> Result<(), FsError> {
        match self.raw.file_type() {
            Some(FileType::Regular) => Ok(()),
            Some(FileType::Directory) => Err(FsError::IsADirectory),
            _ => Err(FsError::InvalidArgument("not a regular file")),
        }
    }
}

impl InodeState {
    pub(crate) fn new(
        number: InodeNumber,
        raw: RawInode,
        domain: DomainId,
        reclaim: Option<Weak<dyn Reclaim>>,
    ) -> InodeState {
        let is_directory = raw.file_type() == Some(FileType::Directory);
        let body = Body {
            raw,
            domain,
            directory: None,
            lease: None,
            watcher: None,
            reclaim,
        };
        InodeState {
            number,
            generation: raw.generation,
            // An inode in use always has a known type: it is checked when the inode is loaded.
            file_type: raw.file_type().unwrap_or(FileType::Regular),
            view: View::new(&raw),
            copies: CopiesSlot::new(),
            is_noted: AtomicBool::new(false),
            names: is_directory.then(Arc::default),
            body: RwLock::new(body),
        }
    }
}

impl Drop for InodeState {
    fn drop(&mut self) {
        let body = self.body.get_mut();
        if body.raw.links > 0 || body.raw.is_free() {
            return;
        }
        // The last reference to an unlinked inode: its number and blocks go back. Without a file system
        // (it was dropped first) recovery does it at the next mount.
        if let Some(core) = body.reclaim.as_ref().and_then(Weak::upgrade) {
            core.reclaim(self.number, &body.raw);
        }
    }
}

/// Checks what the medium said of inode `number` before anybody acts on it.
pub(crate) fn validate(raw: &RawInode, number: InodeNumber) -> Result<(), FsError> {
    if !raw.is_intact(number) {
        return Err(damaged_inode(number, "its checksum does not match"));
    }
    if raw.is_free() {
        return Err(FsError::NotFound);
    }
    if raw.file_type().is_none() {
        return Err(damaged_inode(number, "its type is unknown"));
    }
    if raw.height > HEIGHT_MAX {
        return Err(damaged_inode(number, "its block map is too high"));
    }
    // From here on nobody needs to fear an overflow when he adds to these.
    if raw.size > FILE_BYTES_MAX || raw.blocks > INODE_BLOCKS_MAX || raw.links > LINKS_MAX {
        return Err(damaged_inode(
            number,
            "its size, blocks or links are impossible",
        ));
    }
    Ok(())
}
