//! The oracle: a file system in a few maps, with no idea of blocks, fences or time.
//!
//! It knows what names, types, contents, sizes, link counts, owners, modes, attributes and targets must be after
//! any sequence of operations, and with which error number an operation must be refused.

use crate::content::Content;
use crate::snapshot::{Body, Entry};
use fs::{FileType, InodeNumber};
use std::collections::BTreeMap;

/// A Linux error number.
pub type Errno = i32;

/// `ENOENT`.
pub const ENOENT: Errno = 2;
/// `EPERM`.
pub const EPERM: Errno = 1;
/// `EEXIST`.
pub const EEXIST: Errno = 17;
/// `ENOTDIR`.
pub const ENOTDIR: Errno = 20;
/// `EISDIR`.
pub const EISDIR: Errno = 21;
/// `EINVAL`.
pub const EINVAL: Errno = 22;
/// `ENOTEMPTY`.
pub const ENOTEMPTY: Errno = 39;
/// `ENODATA`.
pub const ENODATA: Errno = 61;

/// Names an inode of the model; never reused.
pub type Id = u64;

/// The root directory.
pub const ROOT: Id = 1;

/// What an inode is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A regular file.
    File(Content),
    /// A directory: names and what they name.
    Directory {
        /// Children.
        entries: BTreeMap<String, Id>,
        /// `..`.
        parent: Id,
    },
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// A device, pipe or socket.
    Special,
}

/// An inode of the model.
#[derive(Clone, Debug)]
pub struct Inode {
    /// What it is.
    pub kind: Kind,
    /// `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names that are not directories' own.
    pub names: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The whole file system.
#[derive(Clone, Debug)]
pub struct Model {
    inodes: BTreeMap<Id, Inode>,
    next: Id,
    /// An inode that a program has open, name or not.
    pub held: Option<Id>,
    /// The inode that a process has leased.
    pub leased: Option<Id>,
}

impl Default for Model {
    fn default() -> Self {
        let mut model = Model {
            inodes: BTreeMap::new(),
            next: ROOT,
            held: None,
            leased: None,
        };
        let kind = Kind::Directory {
            entries: BTreeMap::new(),
            parent: ROOT,
        };
        model.add(kind, FileType::Directory.mode_bits() | 0o755, 0, 0);
        model
    }
}

impl Model {
    /// A new inode without a name.
    pub fn add(&mut self, kind: Kind, mode: u32, uid: u32, gid: u32) -> Id {
        let id = self.next;
        self.next += 1;
        self.inodes.insert(
            id,
            Inode {
                kind,
                mode,
                uid,
                gid,
                names: 0,
                xattrs: BTreeMap::new(),
            },
        );
        id
    }

    /// The inode.
    pub fn inode(&mut self, id: Id) -> &mut Inode {
        self.inodes
            .get_mut(&id)
            .expect("an id that the model gave out")
    }

    fn children(&mut self, directory: Id) -> Result<&mut BTreeMap<String, Id>, Errno> {
        match &mut self.inode(directory).kind {
            Kind::Directory { entries, .. } => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }

    /// Follows a path; the empty path is the root.
    pub fn resolve(&mut self, path: &str) -> Result<Id, Errno> {
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = *self.children(at)?.get(name).ok_or(ENOENT)?;
        }
        Ok(at)
    }

    /// Directory and last name of a path.
    pub fn resolve_parent<'p>(&mut self, path: &'p str) -> Result<(Id, &'p str), Errno> {
        let (parent, name) = split(path);
        let parent = self.resolve(parent)?;
        self.children(parent)?;
        Ok((parent, name))
    }

    fn child(&mut self, (parent, name): (Id, &str)) -> Result<Option<Id>, Errno> {
        Ok(self.children(parent)?.get(name).copied())
    }

    /// Gives a new or existing inode a name that is free.
    pub fn link(&mut self, place: (Id, &str), id: Id) -> Result<(), Errno> {
        self.children(place.0)?.insert(place.1.to_string(), id);
        let child = self.inode(id);
        child.names += 1;
        if let Kind::Directory { parent, .. } = &mut child.kind {
            *parent = place.0;
        }
        Ok(())
    }

    /// Makes an inode with a name.
    pub fn create(&mut self, path: &str, kind: Kind, mode: u32) -> Result<(), Errno> {
        let place = self.resolve_parent(path)?;
        if self.child(place)?.is_some() {
            return Err(EEXIST);
        }
        let id = self.add(kind, mode, 0, 0);
        self.link(place, id)
    }

    /// `link(2)`.
    pub fn hard_link(&mut self, id: Id, path: &str) -> Result<(), Errno> {
        let place = self.resolve_parent(path)?;
        if place.0 == id {
            return Err(EPERM);
        }
        if self.child(place)?.is_some() {
            return Err(EEXIST);
        }
        if self.is_directory(id) {
            return Err(EPERM);
        }
        self.link(place, id)
    }

    fn is_directory(&mut self, id: Id) -> bool {
        matches!(self.inode(id).kind, Kind::Directory { .. })
    }

    fn is_empty(&mut self, id: Id) -> bool {
        self.children(id).is_ok_and(|entries| entries.is_empty())
    }

    fn drop_name(&mut self, (parent, name): (Id, &str)) -> Result<(), Errno> {
        let id = self.children(parent)?.remove(name).ok_or(ENOENT)?;
        self.forget_name(id);
        Ok(())
    }

    fn forget_name(&mut self, id: Id) {
        self.inode(id).names -= 1;
        if self.inode(id).names == 0 && !self.is_open(id) {
            self.inodes.remove(&id);
        }
    }

    /// `unlink(2)`, or `rmdir(2)` if `directory`.
    pub fn remove(&mut self, path: &str, directory: bool) -> Result<(), Errno> {
        let place = self.resolve_parent(path)?;
        let id = self.child(place)?.ok_or(ENOENT)?;
        match (directory, self.is_directory(id)) {
            (true, false) => Err(ENOTDIR),
            (false, true) => Err(EISDIR),
            (true, true) if !self.is_empty(id) => Err(ENOTEMPTY),
            _ => self.drop_name(place),
        }
    }

    /// Nobody has the held inode open any more.
    pub fn release(&mut self) {
        if let Some(id) = self.held.take() {
            self.closed(id);
        }
    }

    /// Nobody has a lease any more.
    pub fn end_lease(&mut self) {
        if let Some(id) = self.leased.take() {
            self.closed(id);
        }
    }

    fn is_open(&self, id: Id) -> bool {
        self.held == Some(id) || self.leased == Some(id)
    }

    fn closed(&mut self, id: Id) {
        if self.inode(id).names == 0 && !self.is_open(id) {
            self.inodes.remove(&id);
        }
    }

    fn is_within(&mut self, mut place: Id, directory: Id) -> bool {
        loop {
            if place == directory {
                return true;
            }
            match &self.inode(place).kind {
                Kind::Directory { parent, .. } if *parent != place => place = *parent,
                _ => return false,
            }
        }
    }

    /// `renameat2(2)`.
    pub fn rename(
        &mut self,
        from: &str,
        to: &str,
        options: fs::RenameOptions,
    ) -> Result<(), Errno> {
        let (from, to) = (self.resolve_parent(from)?, self.resolve_parent(to)?);
        let source = self.child(from)?.ok_or(ENOENT)?;
        let target = self.child(to)?;
        let circular =
            |model: &mut Model, id, place| model.is_directory(id) && model.is_within(place, id);
        if from.0 != to.0 {
            if circular(self, source, to.0) {
                return Err(EINVAL);
            }
            if let Some(target) = target
                && !options.no_replace
                && circular(self, target, from.0)
            {
                return Err(if options.exchange { EINVAL } else { ENOTEMPTY });
            }
        }
        match target {
            None if options.exchange => return Err(ENOENT),
            Some(_) if options.no_replace => return Err(EEXIST),
            Some(target) if target == source => return Ok(()),
            Some(target) if options.exchange => {
                self.children(from.0)?.remove(from.1);
                self.children(to.0)?.remove(to.1);
                self.inode(source).names -= 1;
                self.inode(target).names -= 1;
                self.link(from, target)?;
                return self.link(to, source);
            }
            Some(target) => {
                match (self.is_directory(source), self.is_directory(target)) {
                    (true, false) => return Err(ENOTDIR),
                    (false, true) => return Err(EISDIR),
                    (true, true) if !self.is_empty(target) => return Err(ENOTEMPTY),
                    _ => {}
                }
                self.drop_name(to)?;
            }
            None => {}
        }
        self.children(from.0)?.remove(from.1);
        self.inode(source).names -= 1;
        self.link(to, source)?;
        if options.whiteout {
            let id = self.add(Kind::Special, FileType::CharacterDevice.mode_bits(), 0, 0);
            self.link(from, id)?;
        }
        Ok(())
    }

    /// The content of a regular file.
    pub fn content(&mut self, id: Id) -> Result<&mut Content, Errno> {
        match &mut self.inode(id).kind {
            Kind::File(content) => Ok(content),
            Kind::Directory { .. } => Err(EISDIR),
            _ => Err(EINVAL),
        }
    }

    fn link_count(&self, inode: &Inode) -> u32 {
        match &inode.kind {
            Kind::Directory { entries, .. } => {
                let is_directory =
                    |id: &&Id| matches!(self.inodes[*id].kind, Kind::Directory { .. });
                2 + entries.values().filter(is_directory).count() as u32
            }
            _ => inode.names,
        }
    }

    /// Every path and what it names; hard links as often as they have names.
    pub fn paths(&self) -> BTreeMap<String, Id> {
        let mut paths = BTreeMap::from([(String::new(), ROOT)]);
        let mut open = vec![(String::new(), ROOT)];
        while let Some((path, id)) = open.pop() {
            if let Kind::Directory { entries, .. } = &self.inodes[&id].kind {
                for (name, child) in entries {
                    let path = format!("{path}/{name}");
                    paths.insert(path.clone(), *child);
                    open.push((path, *child));
                }
            }
        }
        paths
    }

    /// What of `entry` is not as the model wants inode `id`, in words.
    pub fn difference(&self, id: Id, entry: &Entry) -> Option<String> {
        let inode = &self.inodes[&id];
        let attributes = &entry.attributes;
        let wanted = (inode.mode, inode.uid, inode.gid, self.link_count(inode));
        let found = (
            attributes.mode,
            attributes.uid,
            attributes.gid,
            attributes.links,
        );
        if wanted != found {
            return Some(format!(
                "mode, owner, group, links are {found:?}, should be {wanted:?}"
            ));
        }
        if inode.xattrs != entry.xattrs {
            return Some(format!(
                "attributes are {:?}, should be {:?}",
                entry.xattrs, inode.xattrs
            ));
        }
        match (&inode.kind, &entry.body) {
            (Kind::File(wanted), Body::File(found)) if wanted == found => None,
            (Kind::File(wanted), Body::File(found)) => Some(content_difference(wanted, found)),
            (Kind::Symlink(wanted), Body::Symlink(found)) if wanted == found => None,
            (Kind::Directory { .. }, Body::Directory) | (Kind::Special, Body::Special) => None,
            (_, found) => Some(format!("it is {found:?}")),
        }
    }

    /// Whether two paths must name one inode.
    pub fn number_clash(
        &self,
        seen: &mut BTreeMap<InodeNumber, Id>,
        number: InodeNumber,
        id: Id,
    ) -> bool {
        *seen.entry(number).or_insert(id) != id
    }
}

/// Directory and last name of a path.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Where two contents differ first.
pub fn content_difference(wanted: &Content, found: &Content) -> String {
    if wanted.size != found.size {
        return format!("size is {}, should be {}", found.size, wanted.size);
    }
    let zeros = &[0; pmem::BLOCK_BYTES][..];
    let (left, right): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (wanted.blocks().collect(), found.blocks().collect());
    for index in left.keys().chain(right.keys()) {
        let (left, right) = (
            left.get(index).unwrap_or(&zeros),
            right.get(index).unwrap_or(&zeros),
        );
        if let Some(at) = (0..pmem::BLOCK_BYTES).find(|&at| left[at] != right[at]) {
            let offset = index * pmem::BLOCK_BYTES as u64 + at as u64;
            return format!("byte {offset} is {}, should be {}", right[at], left[at]);
        }
    }
    "same content".into()
}
