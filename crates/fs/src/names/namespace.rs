//! Creation, links, removal.

use crate::block_map::{BlockMap, MapEditor};
use crate::changes::life::{free_contents, type_of_new};
use crate::format::inode::INLINE_BYTES;
use crate::format::{
    FileType, InodeNumber, LINKS_MAX, MODE_PERMISSION_MASK, Pointer, RawInode, SYMLINK_BYTES_MAX,
    Timestamp,
};
use crate::inode::node::{Body, InodeState, Node};
use crate::mounted::file_system::{Core, FileSystem};
use crate::mounted::operation::Operation;
use crate::names::dentries::{require_empty, require_name};
use crate::values::error::{FsError, damaged_inode};
use crate::values::types::NewInode;
use pmem::BLOCK_BYTES;
use scatter::{DomainId, Purpose};
use std::sync::Arc;
use txn::checksum::crc32c;
use txn::{Store, Transaction};

/// Mode bit: inherit the group.
const SET_GROUP_ID: u32 = 0o2000;

/// An inode that shall be made.
struct Wanted<'a> {
    file_type: FileType,
    new: &'a NewInode,
    /// Of a symbolic link.
    target: Option<&'a [u8]>,
}

/// A new inode without a name: its part of the transaction, and its state. Dropping it undoes everything.
struct Draft<'c, S: Store> {
    transaction: Operation<'c, S>,
    state: Arc<InodeState>,
}

impl<S: Store> Core<S> {
    /// Makes an inode with a name: one transaction.
    fn create_named(
        &self,
        parent: &Node,
        name: &[u8],
        wanted: &Wanted<'_>,
    ) -> Result<Node, FsError> {
        self.durably(|| {
            require_name(name)?;
            // A name that is there is there, even if there is no room for another inode. And a
            // first search brings what the second one needs, so that others wait a shorter time.
            if self.has_name(parent, name)? {
                return Err(FsError::AlreadyExists);
            }
            let number = self.table.take(&self.store, self.options.clock)?;
            let created = self.create_numbered(parent, name, number, wanted);
            created.inspect_err(|_| self.table.release(number))
        })
    }

    /// Everything that concerns the new inode alone is done before the directory is locked: others wait for that lock.
    fn create_numbered(
        &self,
        parent: &Node,
        name: &[u8],
        number: InodeNumber,
        wanted: &Wanted<'_>,
    ) -> Result<Node, FsError> {
        let mut draft = self.draft(parent.number(), number, wanted, None)?;
        let mut body = self.lock_directory(parent)?;
        if self.find(parent.number(), &body, name)?.is_some() {
            return Err(FsError::AlreadyExists);
        }
        if body.raw.mode & SET_GROUP_ID != 0 {
            drop(draft);
            draft = self.draft(parent.number(), number, wanted, Some(body.raw.gid))?;
        }
        let Draft {
            mut transaction,
            state,
        } = draft;
        let mut new_parent = body.raw;
        if wanted.file_type == FileType::Directory {
            new_parent.links = new_parent
                .links
                .checked_add(1)
                .filter(|&l| l <= LINKS_MAX)
                .ok_or(FsError::TooManyLinks)?;
        }
        let Some(index) = &body.directory else {
            return Err(damaged_inode(parent.number(), "its index is missing"));
        };
        let mut plan = index.plan();
        self.insert_name(
            (parent.number(), &body),
            &mut new_parent,
            &mut plan,
            name,
            (number, wanted.file_type),
            &mut transaction,
        )?;
        // Asked for under the lock: a directory's times never go back.
        new_parent.touch_modified(self.now());
        transaction.log_inode(parent.number(), &body.raw, &mut new_parent)?;
        transaction.commit()?;
        let node = self.cache.insert(state);
        body.raw = new_parent;
        self.commit_plan(parent.number(), &mut body, plan);
        drop(body);
        self.cache.make_room(number);
        Ok(node)
    }

    /// A new inode in slot `number`, logged; with `group`, that of its directory, it belongs to that group.
    fn draft(
        &self,
        parent: InodeNumber,
        number: InodeNumber,
        wanted: &Wanted<'_>,
        group: Option<u32>,
    ) -> Result<Draft<'_, S>, FsError> {
        let is_directory = wanted.file_type == FileType::Directory;
        let mut new = *wanted.new;
        let mut mode = wanted.file_type.mode_bits() | (new.mode & MODE_PERMISSION_MASK);
        if let Some(gid) = group {
            new.gid = gid;
            mode |= if is_directory { SET_GROUP_ID } else { 0 };
        }
        let links = if is_directory { 2 } else { 1 };
        let (old, mut raw) = self.new_inode(number, mode, links, &new, self.now())?;
        if is_directory {
            raw.parent = parent.get();
        }
        let mut transaction = self.begin();
        if let Some(target) = wanted.target {
            self.write_target(number, &mut raw, target, &mut transaction)?;
        }
        transaction.log_inode(number, &old, &mut raw)?;
        Ok(Draft {
            transaction,
            state: Arc::new(self.state(number, raw)),
        })
    }

    /// Stores a symbolic link's target: inline if it is short, else in a block.
    fn write_target(
        &self,
        number: InodeNumber,
        raw: &mut RawInode,
        target: &[u8],
        transaction: &mut impl Transaction,
    ) -> Result<(), FsError> {
        raw.size = target.len() as u64;
        if target.len() <= INLINE_BYTES {
            raw.inline[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        raw.set_target_checksum(crc32c(target));
        let block = transaction.allocate_one(DomainId::METADATA, Purpose::Ordinary)?;
        let mut bytes = [0; BLOCK_BYTES];
        bytes[..target.len()].copy_from_slice(target);
        transaction.write_fresh(block, 0, &bytes);
        let mut editor = MapEditor::new(&self.store, BlockMap::of(number, raw));
        editor.set(
            transaction,
            0,
            &[Pointer::Written(block)],
            DomainId::METADATA,
        )?;
        (raw.root, raw.height) = editor.finish(transaction);
        raw.blocks = 1;
        Ok(())
    }

    /// Takes one link from a child whose name goes in this transaction. Returns the child's next version and
    /// whether it is freed with it.
    pub(crate) fn drop_link(
        &self,
        child: &Node,
        body: &Body,
        now: Timestamp,
        transaction: &mut Operation<'_, S>,
    ) -> Result<(RawInode, bool), FsError> {
        let mut new = body.raw;
        let is_directory = body.raw.file_type() == Some(FileType::Directory);
        new.links = if is_directory {
            0
        } else {
            body.raw.links.saturating_sub(1)
        };
        new.touch_changed(now);
        child.view().leave();
        // Only the cache and this operation refer to it: nobody has it open, so it goes at once.
        let last = new.links == 0 && Arc::strong_count(&child.0) <= 2;
        if last {
            new = free_contents(self, child.number(), &body.raw, transaction)?;
        }
        transaction.log_inode(child.number(), &body.raw, &mut new)?;
        Ok((new, last))
    }

    /// Follows a committed [`drop_link`](Self::drop_link).
    pub(crate) fn link_dropped(&self, child: &Node, body: &mut Body, new: RawInode, freed: bool) {
        body.raw = new;
        if new.links == 0 {
            body.directory = None;
            self.cache.forget(child.number());
            if freed {
                self.table.release(child.number());
            } else {
                body.reclaim = Some(self.reclaimer());
                self.unlinked();
            }
        }
    }

    fn remove(&self, parent: &Node, name: &[u8], directory: bool) -> Result<(), FsError> {
        self.durably(|| {
            require_name(name)?;
            // A first search brings everything here that the second one needs, so that others wait
            // a shorter time.
            let expected = self.find_node(parent, name)?;
            let mut transaction = self.begin();
            let mut body = self.lock_directory(parent)?;
            let found = self
                .find(parent.number(), &body, name)?
                .ok_or(FsError::NotFound)?;
            match (directory, found.file_type == FileType::Directory) {
                (true, false) => return Err(FsError::NotADirectory),
                (false, true) => return Err(FsError::IsADirectory),
                _ => {}
            }
            let child = if expected.number() == found.inode() {
                expected
            } else {
                self.node(found.inode())?
            };
            let mut child_body = if directory {
                self.lock_directory(&child)?
            } else {
                child.write()
            };
            require_empty(&child_body)?;
            let now = self.now();
            let mut new_parent = body.raw;
            let Some(index) = &body.directory else {
                return Err(damaged_inode(parent.number(), "its index is missing"));
            };
            let mut plan = index.plan();
            self.remove_name(
                (parent.number(), &body),
                &mut new_parent,
                &mut plan,
                name,
                found,
                &mut transaction,
            )?;
            if directory {
                new_parent.links = new_parent.links.saturating_sub(1);
            }
            new_parent.touch_modified(now);
            transaction.log_inode(parent.number(), &body.raw, &mut new_parent)?;
            let (new_child, freed) = self.drop_link(&child, &child_body, now, &mut transaction)?;
            transaction.commit()?;
            body.raw = new_parent;
            self.commit_plan(parent.number(), &mut body, plan);
            // The child stays locked until it is forgotten; its directory need not.
            drop(body);
            self.link_dropped(&child, &mut child_body, new_child, freed);
            Ok(())
        })
    }
}

impl<S: Store> FileSystem<S> {
    /// Makes a file, device, pipe or socket: one transaction, one fence if the directory has room.
    ///
    /// # Errors
    ///
    /// [`FsError::AlreadyExists`], [`FsError::NotADirectory`], [`FsError::NotFound`] if the directory was removed,
    /// [`FsError::NameTooLong`], [`FsError::InvalidArgument`], [`FsError::NoSpace`], [`FsError::NoInodes`],
    /// [`FsError::ReadOnly`], [`FsError::Corrupt`].
    pub fn create(&self, parent: &Node, name: &[u8], new: &NewInode) -> Result<Node, FsError> {
        let wanted = Wanted {
            file_type: type_of_new(new)?,
            new,
            target: None,
        };
        self.core.create_named(parent, name, &wanted)
    }

    /// Makes a directory: one transaction.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and [`FsError::TooManyLinks`].
    pub fn make_directory(
        &self,
        parent: &Node,
        name: &[u8],
        new: &NewInode,
    ) -> Result<Node, FsError> {
        let wanted = Wanted {
            file_type: FileType::Directory,
            new,
            target: None,
        };
        self.core.create_named(parent, name, &wanted)
    }

    /// Makes a symbolic link to `target` (1 to 4,095 bytes): one transaction.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create); [`FsError::NotFound`] for an empty target.
    pub fn make_symlink(
        &self,
        parent: &Node,
        name: &[u8],
        target: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<Node, FsError> {
        if target.is_empty() {
            return Err(FsError::NotFound);
        }
        if target.len() > SYMLINK_BYTES_MAX {
            return Err(FsError::NameTooLong {
                length: target.len(),
            });
        }
        let new = NewInode {
            mode: 0o777,
            uid,
            gid,
            device: 0,
        };
        let wanted = Wanted {
            file_type: FileType::Symlink,
            new: &new,
            target: Some(target),
        };
        self.core.create_named(parent, name, &wanted)
    }

    /// Makes a file without a name (`O_TMPFILE`): it is freed when its last node drops, unless it is
    /// [linked](Self::link) before.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_unnamed(&self, new: &NewInode) -> Result<Node, FsError> {
        self.create_unnamed_with(new, |_, _, _| Ok(()))
    }

    /// Gives an inode another name: one transaction, one fence.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create); [`FsError::NotPermitted`] for a directory, [`FsError::TooManyLinks`].
    pub fn link(&self, node: &Node, parent: &Node, name: &[u8]) -> Result<(), FsError> {
        self.core.durably(|| self.link_now(node, parent, name))
    }

    fn link_now(&self, node: &Node, parent: &Node, name: &[u8]) -> Result<(), FsError> {
        let core = &*self.core;
        require_name(name)?;
        // Never changes. Asked before any lock: a directory may be above the parent.
        let file_type = node.read().raw.file_type().ok_or(FsError::NotFound)?;
        if node.number() == parent.number() {
            return Err(FsError::NotPermitted("a directory has one name only"));
        }
        let mut body = core.lock_directory(parent)?;
        if core.find(parent.number(), &body, name)?.is_some() {
            return Err(FsError::AlreadyExists);
        }
        if file_type == FileType::Directory {
            return Err(FsError::NotPermitted("a directory has one name only"));
        }
        let mut child = node.write();
        let now = core.now();
        let mut new_child = child.raw;
        new_child.links = child
            .raw
            .links
            .checked_add(1)
            .filter(|&l| l <= LINKS_MAX)
            .ok_or(FsError::TooManyLinks)?;
        new_child.touch_changed(now);
        let mut new_parent = body.raw;
        let mut transaction = core.begin();
        let Some(index) = &body.directory else {
            return Err(damaged_inode(parent.number(), "its index is missing"));
        };
        let mut plan = index.plan();
        let child_name = (node.number(), file_type);
        core.insert_name(
            (parent.number(), &body),
            &mut new_parent,
            &mut plan,
            name,
            child_name,
            &mut transaction,
        )?;
        new_parent.touch_modified(now);
        transaction.log_inode(parent.number(), &body.raw, &mut new_parent)?;
        transaction.log_inode(node.number(), &child.raw, &mut new_child)?;
        let had_no_name = child.raw.links == 0;
        if had_no_name {
            // From the commit on it is found by its number, and there must not be a second
            // state of it then.
            core.cache.restore(node);
        }
        if let Err(error) = transaction.commit() {
            if had_no_name {
                core.cache.forget(node.number());
            }
            return Err(error.into());
        }
        if had_no_name {
            core.relinked();
        }
        body.raw = new_parent;
        core.commit_plan(parent.number(), &mut body, plan);
        child.raw = new_child;
        Ok(())
    }

    /// Removes a name that is not a directory's: one transaction, one fence. The last name of an inode that nobody
    /// has open frees it in the same transaction.
    ///
    /// # Errors
    ///
    /// [`FsError::NotFound`], [`FsError::IsADirectory`], [`FsError::NotADirectory`], [`FsError::ReadOnly`], [`FsError::Corrupt`].
    pub fn unlink(&self, parent: &Node, name: &[u8]) -> Result<(), FsError> {
        self.core.remove(parent, name, false)
    }

    /// Removes an empty directory: one transaction.
    ///
    /// # Errors
    ///
    /// As [`unlink`](Self::unlink); [`FsError::DirectoryNotEmpty`].
    pub fn remove_directory(&self, parent: &Node, name: &[u8]) -> Result<(), FsError> {
        if name == b".." {
            return Err(FsError::DirectoryNotEmpty);
        }
        self.core.remove(parent, name, true)
    }
}
