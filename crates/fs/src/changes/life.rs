//! The life of an inode: made without a name, and freed with all that it owns.

use crate::block_map::{BlockMap, MapEditor};
use crate::format::{
    FileType, InodeNumber, MODE_PERMISSION_MASK, MODE_TYPE_MASK, Pointer, Position, RawInode,
    Timestamp,
};
use crate::inode::node::{Node, Reclaim};
use crate::inode::xattr;
use crate::mounted::file_system::{Core, FileSystem};
use crate::mounted::operation::Operation;
use crate::values::error::{FsError, damaged_inode};
use crate::values::types::NewInode;
use scatter::Extent;
use std::sync::Arc;
use txn::{Store, Transaction};

impl<S: Store> Core<S> {
    /// The first version of a new inode, in slot `number`. Returns what the slot held and what it shall hold.
    pub(crate) fn new_inode(
        &self,
        number: InodeNumber,
        mode: u32,
        links: u32,
        new: &NewInode,
        now: Timestamp,
    ) -> Result<(RawInode, RawInode), FsError> {
        let old = self.table.load(&self.store, number)?;
        if !old.is_intact(number) || !old.is_free() {
            return Err(damaged_inode(number, "it should be free"));
        }
        let raw = RawInode {
            mode,
            links,
            uid: new.uid,
            gid: new.gid,
            generation: old.generation.wrapping_add(1),
            device: new.device,
            modified: now.nanoseconds(),
            changed: now.nanoseconds(),
            accessed: now.nanoseconds(),
            created: now.nanoseconds(),
            ..RawInode::ZERO
        };
        Ok((old, raw))
    }
}

impl<S: Store> FileSystem<S> {
    /// Makes a file without a name, with what `fill` does to it in the same transaction.
    pub(crate) fn create_unnamed_with(
        &self,
        new: &NewInode,
        fill: impl FnOnce(&mut Operation<'_, S>, InodeNumber, &mut RawInode) -> Result<(), FsError>,
    ) -> Result<Node, FsError> {
        let core = &*self.core;
        core.durably(|| {
            let file_type = type_of_new(new)?;
            let number = core.table.take(&core.store, core.options.clock)?;
            let create = || {
                let mode = file_type.mode_bits() | (new.mode & MODE_PERMISSION_MASK);
                let (old, mut raw) = core.new_inode(number, mode, 0, new, core.now())?;
                let mut transaction = core.begin();
                fill(&mut transaction, number, &mut raw)?;
                transaction.log_inode(number, &old, &mut raw)?;
                transaction.commit()?;
                Ok(raw)
            };
            match create() {
                Ok(raw) => {
                    core.unlinked();
                    Ok(Node(Arc::new(core.state(number, raw))))
                }
                Err(error) => {
                    core.table.release(number);
                    Err(error)
                }
            }
        })
    }
}

/// The type that a new inode shall have. Directories and symbolic links have calls of their own.
pub(crate) fn type_of_new(new: &NewInode) -> Result<FileType, FsError> {
    match FileType::from_mode(new.mode) {
        Some(FileType::Directory | FileType::Symlink) => Err(FsError::InvalidArgument(
            "directories and symbolic links have their own calls",
        )),
        Some(file_type) => Ok(file_type),
        None if new.mode & MODE_TYPE_MASK == 0 => Ok(FileType::Regular),
        None => Err(FsError::InvalidArgument("unknown file type")),
    }
}

/// Frees everything an inode owns and returns its next version: free, generation kept.
pub(crate) fn free_contents<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    raw: &RawInode,
    transaction: &mut impl Transaction,
) -> Result<RawInode, FsError> {
    let mut editor = MapEditor::new(&core.store, BlockMap::of(number, raw));
    editor.remove(transaction, 0, u64::MAX)?;
    let position = Position {
        inode: number,
        level: Position::ATTRIBUTES,
        index: 0,
    };
    if let Ok(Some(root)) = Pointer::read_metadata(raw.attributes, position) {
        for block in xattr::blocks(&core.store, number, root)? {
            transaction.free(Extent {
                start: block,
                blocks: 1,
            });
        }
    }
    Ok(RawInode {
        generation: raw.generation,
        ..RawInode::ZERO
    })
}

/// Frees an inode without a name: one transaction.
fn free_inode<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    raw: &RawInode,
) -> Result<(), FsError> {
    let mut transaction = core.begin();
    let mut new = free_contents(core, number, raw, &mut transaction)?;
    transaction.log_inode(number, raw, &mut new)?;
    transaction.commit()?;
    core.table.release(number);
    core.reclaimed();
    Ok(())
}

impl<S: Store> Reclaim for Core<S> {
    fn reclaim(&self, number: InodeNumber, raw: &RawInode) {
        if self.options.read_only {
            return;
        }
        if let Err(error) = free_inode(self, number, raw) {
            tracing::warn!(inode = number.get(), %error, "an unlinked inode could not be freed; the next mount retries");
        }
    }
}
