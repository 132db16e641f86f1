//! What names tell: lookup, targets of symbolic links, listings.

use crate::block_map::BlockMap;
use crate::directory;
use crate::error::{FsError, damaged_inode};
use crate::file_system::FileSystem;
use crate::format::inode::INLINE_BYTES;
use crate::format::{FileType, InodeNumber, NAME_BYTES_MAX, SYMLINK_BYTES_MAX};
use crate::names::{dentry_fault, directory_block};
use crate::node::{Node, validate};
use crate::trail;
use crate::types::{Attributes, DirectoryEntry};
use pmem::BLOCK_BYTES;
use txn::Store;
use txn::checksum::crc32c;

/// Cookie of the first dentry's offset: 0 and 1 lead to `.` and `..`.
const FIRST_COOKIE: u64 = 2;

impl<S: Store> FileSystem<S> {
    /// Finds a name. `.` and `..` work too.
    ///
    /// # Errors
    ///
    /// [`FsError::NotFound`], [`FsError::NotADirectory`], [`FsError::NameTooLong`], [`FsError::Corrupt`].
    #[inline]
    pub fn lookup(&self, parent: &Node, name: &[u8]) -> Result<Node, FsError> {
        let core = &*self.core;
        if name == b"." {
            parent.read().require_directory()?;
            return Ok(parent.clone());
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong { length: name.len() });
        }
        let body = parent.read();
        if name == b".." {
            body.require_directory()?;
            return core.node(InodeNumber::new(body.raw.parent));
        }
        if body.directory.is_some() {
            let found = core
                .find(parent.number(), &body, name)?
                .ok_or(FsError::NotFound)?;
            return core.node(found.inode());
        }
        drop(body);
        let body = core.lock_directory(parent)?;
        let found = core
            .find(parent.number(), &body, name)?
            .ok_or(FsError::NotFound)?;
        core.node(found.inode())
    }

    /// [`lookup`](Self::lookup) in the middle of a path: the same answer, but a directory that this thread went to lately, and whose parent has
    /// not changed since, is found without any lock.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    #[inline]
    pub fn lookup_on_the_way(&self, parent: &Node, name: &[u8]) -> Result<Node, FsError> {
        trail::step(parent, name, || self.lookup(parent, name))
    }

    /// The attributes of the object that `name` stands for, as [`lookup`](Self::lookup) and [`attributes`](Self::attributes) would give
    /// them. An inode that nobody uses is read where it lies: nothing is built for it, and nothing makes room for it.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    #[inline]
    pub fn lookup_attributes(&self, parent: &Node, name: &[u8]) -> Result<Attributes, FsError> {
        let core = &*self.core;
        let body = parent.read();
        if body.directory.is_none() || name.len() > NAME_BYTES_MAX || name == b"." || name == b".."
        {
            drop(body);
            return self.attributes(&self.lookup(parent, name)?);
        }
        // The directory stays locked, so the name keeps its inode and the inode its name.
        let found = core
            .find(parent.number(), &body, name)?
            .ok_or(FsError::NotFound)?;
        let number = found.inode();
        if core.cache.peek(number).is_none() {
            let raw = core.table.load(&core.store, number)?;
            // Somebody may have begun to use and to change it meanwhile: then its words are perhaps of two versions.
            if validate(&raw, number).is_ok() && core.cache.peek(number).is_none() {
                return Ok(Attributes::of(number, &raw));
            }
        }
        let node = core.node(number)?;
        drop(body);
        self.attributes(&node)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    ///
    /// [`FsError::InvalidArgument`] if it is none, [`FsError::Corrupt`].
    pub fn read_link(&self, node: &Node) -> Result<Vec<u8>, FsError> {
        let core = &*self.core;
        let body = node.read();
        if body.raw.file_type() != Some(FileType::Symlink) {
            return Err(FsError::InvalidArgument("not a symbolic link"));
        }
        let length = body.raw.size as usize;
        if length <= INLINE_BYTES {
            return Ok(body.raw.inline[..length].to_vec());
        }
        if length > SYMLINK_BYTES_MAX {
            return Err(damaged_inode(node.number(), "its target is too long"));
        }
        let pointer = BlockMap::of(node.number(), &body.raw).lookup(&core.store, 0)?;
        let pointer =
            pointer.ok_or_else(|| damaged_inode(node.number(), "its target is missing"))?;
        let mut target = vec![0; length];
        core.store.read(pointer.block.offset(), &mut target);
        if crc32c(&target) != body.raw.target_checksum() {
            return Err(damaged_inode(
                node.number(),
                "its target's checksum does not match",
            ));
        }
        Ok(target)
    }

    /// Lists a directory from `cookie` on (0 = the start), until `visit` returns false.
    ///
    /// A cookie stays valid whatever is inserted or removed: dentries never move.
    ///
    /// # Errors
    ///
    /// [`FsError::NotADirectory`], [`FsError::Corrupt`].
    pub fn read_directory(
        &self,
        node: &Node,
        cookie: u64,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), FsError> {
        let core = &*self.core;
        let body = node.read();
        if body.raw.file_type() != Some(FileType::Directory) {
            return Err(FsError::NotADirectory);
        }
        let parent = InodeNumber::new(body.raw.parent);
        for (index, (name, inode)) in [(&b"."[..], node.number()), (&b".."[..], parent)]
            .into_iter()
            .enumerate()
        {
            let next_cookie = index as u64 + 1;
            let entry = DirectoryEntry {
                next_cookie,
                inode,
                file_type: FileType::Directory,
                name,
            };
            if cookie < next_cookie && !visit(entry) {
                return Ok(());
            }
        }
        if body.raw.links == 0 {
            return Ok(());
        }
        let first_unit = cookie.saturating_sub(FIRST_COOKIE);
        let map = BlockMap::of(node.number(), &body.raw);
        let mut block = [0; BLOCK_BYTES];
        for index in
            first_unit / directory::UNITS_PER_BLOCK as u64..body.raw.size / BLOCK_BYTES as u64
        {
            core.store
                .read(directory_block(&core.store, &map, index)?, &mut block);
            for entry in directory::entries(&block, index, node.number()) {
                let entry = entry.map_err(dentry_fault)?;
                let unit = u64::from(entry.offset.units());
                let next_cookie = unit + 1 + FIRST_COOKIE;
                let listed = DirectoryEntry {
                    next_cookie,
                    inode: entry.inode,
                    file_type: entry.file_type,
                    name: entry.name,
                };
                if unit >= first_unit && !visit(listed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
