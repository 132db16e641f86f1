//! What names tell: lookup, targets of symbolic links, listings.

use crate::block_map::BlockMap;
use crate::directory::{self, Lookup};
use crate::format::inode::INLINE_BYTES;
use crate::format::{FileType, InodeNumber, NAME_BYTES_MAX, Pointer, SYMLINK_BYTES_MAX};
use crate::inode::node::{Node, validate};
use crate::mounted::file_system::{Core, FileSystem};
use crate::names::dentries::{dentry_fault, directory_block};
use crate::names::trail;
use crate::values::error::{FsError, damaged_inode};
use crate::values::types::{Attributes, DirectoryEntry};
use pmem::BLOCK_BYTES;
use txn::Store;
use txn::checksum::crc32c;

/// Cookie of the first dentry's offset: 0 and 1 lead to `.` and `..`.
const FIRST_COOKIE: u64 = 2;

impl<S: Store> Core<S> {
    /// The inode that `name` stands for, neither `.` nor `..`. Nearly always without the directory's lock.
    #[inline]
    pub(crate) fn find_node(&self, parent: &Node, name: &[u8]) -> Result<Node, FsError> {
        let node = match self.look_up(parent, name) {
            Lookup::Found { inode, departures } => {
                parent.take_child(departures, || self.node(inode).ok())
            }
            Lookup::Absent => return Err(FsError::NotFound),
            Lookup::Unknown => None,
        };
        node.map_or_else(|| self.find_node_under_lock(parent, name), Ok)
    }

    /// Whether there is such a name, neither `.` nor `..`.
    #[inline]
    pub(crate) fn has_name(&self, parent: &Node, name: &[u8]) -> Result<bool, FsError> {
        match self.look_up(parent, name) {
            Lookup::Found { .. } => Ok(true),
            Lookup::Absent => Ok(false),
            Lookup::Unknown => {
                let body = self.lock_directory(parent)?;
                Ok(self.find(parent.number(), &body, name)?.is_some())
            }
        }
    }

    /// [`find_node`](Self::find_node), when a name leaves the directory at the same time, or nobody used it before.
    #[cold]
    #[inline(never)]
    fn find_node_under_lock(&self, parent: &Node, name: &[u8]) -> Result<Node, FsError> {
        let body = parent.read();
        if body.directory.is_some() {
            let found = self.find(parent.number(), &body, name)?;
            return self.node(found.ok_or(FsError::NotFound)?.inode());
        }
        drop(body);
        let body = self.lock_directory(parent)?;
        let found = self.find(parent.number(), &body, name)?;
        self.node(found.ok_or(FsError::NotFound)?.inode())
    }
}

impl<S: Store> FileSystem<S> {
    /// Finds a name. `.` and `..` work too.
    ///
    /// # Errors
    ///
    /// [`FsError::NotFound`], [`FsError::NotADirectory`], [`FsError::NameTooLong`], [`FsError::Corrupt`].
    #[inline]
    pub fn lookup(&self, parent: &Node, name: &[u8]) -> Result<Node, FsError> {
        self.core.shown(parent.number(), || {
            let core = &*self.core;
            if name == b"." {
                parent.read().require_directory()?;
                return Ok(parent.clone());
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(FsError::NameTooLong { length: name.len() });
            }
            if name == b".." {
                let body = parent.read();
                body.require_directory()?;
                return core.node(InodeNumber::new(body.raw.parent));
            }
            core.find_node(parent, name)
        })
    }

    /// [`lookup`](Self::lookup) in the middle of a path: the same answer, but a directory that this thread went to lately, and whose parent has
    /// not changed since, is found without any lock.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    #[inline]
    pub fn lookup_on_the_way(&self, parent: &Node, name: &[u8]) -> Result<Node, FsError> {
        self.core.shown(parent.number(), || {
            trail::step(parent, name, || self.lookup(parent, name))
        })
    }

    /// The attributes of the object that `name` stands for, as [`lookup`](Self::lookup) and [`attributes`](Self::attributes) would give
    /// them. An inode that nobody uses is read where it lies: nothing is built for it, and nothing makes room for it.
    ///
    /// # Errors
    ///
    /// As [`lookup`](Self::lookup).
    #[inline]
    pub fn lookup_attributes(&self, parent: &Node, name: &[u8]) -> Result<Attributes, FsError> {
        self.core.shown(parent.number(), || {
            let core = &*self.core;
            let body = parent.read();
            if body.directory.is_none()
                || name.len() > NAME_BYTES_MAX
                || name == b"."
                || name == b".."
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
                // Another thread may have begun to change it meanwhile: then its words are
                // perhaps of two versions.
                if validate(&raw, number).is_ok() && core.cache.peek(number).is_none() {
                    return core.shown(number, || Ok(Attributes::of(number, &raw)));
                }
            }
            let node = core.node(number)?;
            drop(body);
            self.attributes(&node)
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    ///
    /// [`FsError::InvalidArgument`] if it is none, [`FsError::Corrupt`].
    pub fn read_link(&self, node: &Node) -> Result<Vec<u8>, FsError> {
        self.core.shown(node.number(), || {
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
            let Some(Pointer::Written(block)) = pointer else {
                return Err(damaged_inode(node.number(), "its target is missing"));
            };
            let mut target = vec![0; length];
            core.store.read(block.offset(), &mut target);
            if crc32c(&target) != body.raw.target_checksum() {
                return Err(damaged_inode(
                    node.number(),
                    "its target's checksum does not match",
                ));
            }
            Ok(target)
        })
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

#[cfg(test)]
mod tests {
    use crate::testing::empty;
    use crate::{FileSystem, FsError, NewInode, Node, RenameOptions};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    fn owned_by(uid: u32) -> NewInode {
        NewInode {
            uid,
            ..NewInode::file(0o644)
        }
    }

    /// Runs `change` many times while another thread looks, as often as it can.
    fn beside(look: impl Fn() + Sync, mut change: impl FnMut()) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    look();
                }
            });
            for _ in 0..200_000 {
                change();
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    fn create(files: &FileSystem, name: &[u8], uid: u32) -> Node {
        let created = files.create(&files.root(), name, &owned_by(uid));
        created.expect("room for a file")
    }

    /// Two names take turns with one inode number. What is found by a name is what the name stood for, and stays in use.
    #[test]
    fn a_name_never_leads_to_what_another_name_stands_for() {
        let files = empty(16 << 20);
        let root = files.root();
        let look = || match files.lookup(&root, b"one") {
            Ok(node) => {
                let uid = files.attributes(&node).expect("in use").uid;
                assert_eq!(uid, 1, "of {node:?}");
            }
            Err(FsError::NotFound) => {}
            Err(error) => panic!("{error}"),
        };
        beside(look, || {
            for (name, uid) in [(b"one", 1), (b"two", 2)] {
                drop(create(&files, name, uid));
                files.unlink(&root, name).expect("just made");
            }
        });
        assert_eq!(files.core.table.free_count() % 16, 15 - 1, "nothing leaks");
    }

    /// A file goes to and fro between two names in one directory, and between two directories. Who looks where it comes from, and then where
    /// it goes to, finds it.
    #[test]
    fn a_file_that_moves_is_somewhere() {
        let files = empty(16 << 20);
        let root = files.root();
        let below = files
            .make_directory(&root, b"below", &NewInode::file(0o755))
            .expect("mkdir");
        drop(create(&files, b"there", 1));
        for other in [&root, &below] {
            let places = [(&root, &b"there"[..]), (other, b"hence")];
            let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let look = || {
                let turn = done.load(Ordering::SeqCst);
                let is_at = |side: usize| files.lookup(places[side].0, places[side].1).is_ok();
                let is_seen = is_at(turn % 2) || is_at((turn + 1) % 2);
                let is_one_turn = begun.load(Ordering::SeqCst) <= turn + 1;
                assert!(
                    is_seen || !is_one_turn,
                    "neither where it was nor where it goes"
                );
            };
            beside(look, || {
                let turn = begun.fetch_add(1, Ordering::SeqCst);
                let (from, to) = (places[turn % 2], places[(turn + 1) % 2]);
                let options = RenameOptions::default();
                let renamed = files.rename(from.0, from.1, to.0, to.1, options);
                renamed.expect("rename");
                done.store(turn + 1, Ordering::SeqCst);
            });
        }
    }
}
