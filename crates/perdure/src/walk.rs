//! From a path to an inode: components, symbolic links, `..`, trailing slashes.
//!
//! The rules are those of Linux (path_resolution(7)). A path without symbolic links is walked without allocating:
//! only the text of a link is fetched into memory.

use crate::error::{Cause, MAX_PATH_BYTES, MAX_SYMLINKS};
use fs::{Attributes, FileSystem, FileType, FsError, Node};
use std::borrow::Cow;

/// The last component of a path, not yet looked up.
#[derive(Debug)]
pub(crate) enum Last<'p> {
    /// An ordinary name.
    Name(Cow<'p, [u8]>),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// The path is nothing but slashes.
    Root,
}

/// Where a path ends: the directory it names an entry of, and the entry.
pub(crate) struct Place<'p> {
    /// Directory of the last component.
    pub(crate) parent: Node,
    /// The last component.
    pub(crate) last: Last<'p>,
    /// The path ends in a slash, so the object has to be a directory.
    pub(crate) directory_wanted: bool,
}

/// What [`Walker::entry`] found at the end of a path, final symbolic links followed.
pub(crate) enum Entry<'p> {
    /// The object exists.
    Found(Node),
    /// Its directory exists, and the name is free.
    Vacant {
        /// The directory.
        parent: Node,
        /// The free name.
        name: Cow<'p, [u8]>,
    },
}

impl Entry<'_> {
    /// The same without a loan of the path.
    fn into_owned(self) -> Entry<'static> {
        match self {
            Entry::Found(node) => Entry::Found(node),
            Entry::Vacant { parent, name } => Entry::Vacant {
                parent,
                name: Cow::Owned(name.into_owned()),
            },
        }
    }
}

/// One walk; counts the symbolic links it crosses.
pub(crate) struct Walker<'a> {
    filesystem: &'a FileSystem,
    root: &'a Node,
    links_left: u32,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(filesystem: &'a FileSystem, root: &'a Node) -> Walker<'a> {
        Walker {
            filesystem,
            root,
            links_left: MAX_SYMLINKS,
        }
    }

    /// Walks to the directory of the last component.
    pub(crate) fn locate<'p>(&mut self, start: &Node, path: &'p [u8]) -> Result<Place<'p>, Cause> {
        check_path(path)?;
        let mut rest = trim_slashes(path);
        let base = if path[0] == b'/' { self.root } else { start };
        // `None` = still at `base`: references to nodes are counted, and a count costs as much as a name's hash.
        let mut reached: Option<Node> = None;
        let (last, directory_wanted) = loop {
            let (name, after) = split_component(rest);
            rest = trim_slashes(after);
            if rest.is_empty() {
                break (Last::of(name), !after.is_empty() || name.is_empty());
            }
            reached = Some(self.step(reached.as_ref().unwrap_or(base), name)?);
        };
        let parent = reached.unwrap_or_else(|| base.clone());
        Ok(Place {
            parent,
            last,
            directory_wanted,
        })
    }

    /// Walks to the object itself. `follow` says whether a symbolic link at the end is followed; a trailing slash
    /// always follows it.
    pub(crate) fn resolve(
        &mut self,
        start: &Node,
        path: &[u8],
        follow: bool,
    ) -> Result<Node, Cause> {
        let place = self.locate(start, path)?;
        self.find(&place, follow)
    }

    /// What is known about the object at the end of a path, without taking part in its use.
    pub(crate) fn attributes(
        &mut self,
        start: &Node,
        path: &[u8],
        follow: bool,
    ) -> Result<Attributes, Cause> {
        let place = self.locate(start, path)?;
        if let Last::Name(name) = &place.last
            && !place.directory_wanted
        {
            let attributes = self.filesystem.lookup_attributes(&place.parent, name)?;
            if !follow || attributes.file_type() != FileType::Symlink {
                return Ok(attributes);
            }
        }
        let node = self.find(&place, follow)?;
        Ok(self.filesystem.attributes(&node)?)
    }

    /// Looks up the last component of a path.
    pub(crate) fn find(&mut self, place: &Place<'_>, follow: bool) -> Result<Node, Cause> {
        let node = match &place.last {
            Last::Name(name) => self.filesystem.lookup(&place.parent, name)?,
            Last::DotDot => self.filesystem.lookup(&place.parent, b"..")?,
            Last::Dot => self.filesystem.lookup(&place.parent, b".")?,
            Last::Root => self.root.clone(),
        };
        let node = match node.file_type() {
            FileType::Symlink if follow || place.directory_wanted => {
                self.follow(&place.parent, &node)?
            }
            _ => node,
        };
        if place.directory_wanted && node.file_type() != FileType::Directory {
            return Err(FsError::NotADirectory.into());
        }
        Ok(node)
    }

    /// For opening with creation: follows links at the end of the path, also one that leads nowhere, to the name
    /// that would have to be created.
    pub(crate) fn entry<'p>(&mut self, start: &Node, path: &'p [u8]) -> Result<Entry<'p>, Cause> {
        let place = self.locate(start, path)?;
        let Last::Name(name) = &place.last else {
            return self.find(&place, true).map(Entry::Found);
        };
        if place.directory_wanted {
            // Opening with creation makes files only, whatever is there.
            return Err(FsError::IsADirectory.into());
        }
        match self.filesystem.lookup(&place.parent, name) {
            Ok(node) if node.file_type() == FileType::Symlink => {
                let target = self.read_link(&node)?;
                Ok(self.entry(&place.parent, &target)?.into_owned())
            }
            Ok(node) => Ok(Entry::Found(node)),
            Err(FsError::NotFound) => Ok(Entry::Vacant {
                name: name.clone(),
                parent: place.parent,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// One component in the middle of a path: a symbolic link is followed, and only a directory leads on.
    fn step(&mut self, directory: &Node, name: &[u8]) -> Result<Node, Cause> {
        let mut node = self.filesystem.lookup_on_the_way(directory, name)?;
        if node.file_type() == FileType::Symlink {
            node = self.follow(directory, &node)?;
        }
        match node.file_type() {
            FileType::Directory => Ok(node),
            _ => Err(FsError::NotADirectory.into()),
        }
    }

    /// The object that a symbolic link in `directory` points to. Nested at most [`MAX_SYMLINKS`] deep.
    fn follow(&mut self, directory: &Node, link: &Node) -> Result<Node, Cause> {
        let target = self.read_link(link)?;
        self.resolve(directory, &target, true)
    }

    fn read_link(&mut self, link: &Node) -> Result<Vec<u8>, Cause> {
        self.links_left = self.links_left.checked_sub(1).ok_or(Cause::TooManyLinks)?;
        Ok(self.filesystem.read_link(link)?)
    }

    /// The absolute path of an existing object, without links, `.` and `..`.
    pub(crate) fn canonical(&mut self, start: &Node, path: &[u8]) -> Result<Vec<u8>, Cause> {
        // Resolving first gives the errors of an ordinary walk; the second walk below keeps the names.
        self.resolve(start, path, true)?;
        self.links_left = MAX_SYMLINKS;
        let mut trail = if path[0] == b'/' {
            Vec::new()
        } else {
            self.climb(start)?
        };
        let mut pending = components_reversed(path);
        while let Some(name) = pending.pop() {
            let directory = trail
                .last()
                .map_or(self.root, |(node, _): &(Node, Vec<u8>)| node)
                .clone();
            match name.as_slice() {
                b"." => {}
                b".." => drop(trail.pop()),
                _ => {
                    let node = self.filesystem.lookup(&directory, &name)?;
                    if node.file_type() == FileType::Symlink {
                        let target = self.read_link(&node)?;
                        if target.first() == Some(&b'/') {
                            trail.clear();
                        }
                        pending.extend(components_reversed(&target));
                    } else {
                        trail.push((node, name));
                    }
                }
            }
        }
        let mut absolute = Vec::new();
        for (_, name) in &trail {
            absolute.push(b'/');
            absolute.extend_from_slice(name);
        }
        if absolute.is_empty() {
            absolute.push(b'/');
        }
        Ok(absolute)
    }

    /// The directories from the root down to `start`, with their names.
    fn climb(&self, start: &Node) -> Result<Vec<(Node, Vec<u8>)>, Cause> {
        let mut trail = Vec::new();
        let mut node = start.clone();
        while node.number() != self.root.number() {
            let parent = self.filesystem.lookup(&node, b"..")?;
            let mut name = None;
            self.filesystem.read_directory(&parent, 0, &mut |entry| {
                if entry.inode == node.number() && entry.name != b"." && entry.name != b".." {
                    name = Some(entry.name.to_vec());
                }
                name.is_none()
            })?;
            trail.push((node, name.ok_or(FsError::NotFound)?));
            node = parent;
        }
        trail.reverse();
        Ok(trail)
    }
}

impl<'p> Last<'p> {
    fn of(name: &'p [u8]) -> Last<'p> {
        match name {
            b"" => Last::Root,
            b"." => Last::Dot,
            b".." => Last::DotDot,
            _ => Last::Name(Cow::Borrowed(name)),
        }
    }
}

fn check_path(path: &[u8]) -> Result<(), Cause> {
    if path.is_empty() {
        return Err(FsError::NotFound.into());
    }
    if path.len() >= MAX_PATH_BYTES {
        return Err(Cause::PathTooLong { length: path.len() });
    }
    if path.contains(&0) {
        return Err(Cause::NulInPath);
    }
    Ok(())
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    &path[slashes..]
}

/// The first component of a path that does not begin with a slash, and what follows it, slash included.
fn split_component(path: &[u8]) -> (&[u8], &[u8]) {
    let length = path
        .iter()
        .position(|byte| *byte == b'/')
        .unwrap_or(path.len());
    path.split_at(length)
}

fn components_reversed(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    names.rev().map(<[u8]>::to_vec).collect()
}
