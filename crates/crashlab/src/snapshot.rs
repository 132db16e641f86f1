//! What a program sees of a file system: every name, attribute and byte, read through the public calls.

use crate::content::Content;
use fs::{Attributes, FileSystem, FileType, FsError, InodeNumber, Node};
use std::collections::BTreeMap;
use txn::checksum::{crc32c, mix64};

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;
/// Deeper than this is a circle of damaged directories.
const DEPTH_MAX: usize = 64;

/// What an inode holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Body {
    /// A regular file.
    File(Content),
    /// A directory; its children are entries of their own.
    Directory,
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// A device, pipe or socket.
    Special,
}

/// One name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// All that `stat` tells, times included.
    pub attributes: Attributes,
    /// What it holds.
    pub body: Body,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A whole tree by path; the root's path is empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Snapshot(pub BTreeMap<String, Entry>);

/// A hash of everything that a [`Snapshot`] holds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Fingerprint(pub u64);

/// A name in a walk: its path, its inode, what `stat` tells.
type Visit<'v> = dyn FnMut(&str, &Node, &Attributes) -> Result<(), FsError> + 'v;

/// Visits every name, parents before children, in the order of the directories. Every name is looked up as well, so that
/// the listing and the index of names must agree.
///
/// # Errors
///
/// Whatever a call returns: none may fail.
pub fn walk(files: &FileSystem, visit: &mut Visit<'_>) -> Result<(), FsError> {
    let root = files.root();
    visit("", &root, &files.attributes(&root)?)?;
    walk_directory(files, &root, &mut String::new(), 0, visit)
}

fn walk_directory(
    files: &FileSystem,
    directory: &Node,
    path: &mut String,
    depth: usize,
    visit: &mut Visit<'_>,
) -> Result<(), FsError> {
    if depth > DEPTH_MAX {
        return Err(FsError::InvalidArgument("directories form a circle"));
    }
    let mut names: Vec<(Vec<u8>, InodeNumber)> = Vec::new();
    files.read_directory(directory, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.inode));
        true
    })?;
    for (name, number) in names.iter().skip(2) {
        let node = files.lookup(directory, name)?;
        if node.number() != *number {
            return Err(FsError::InvalidArgument(
                "a name leads to another inode than its directory lists",
            ));
        }
        let attributes = files.attributes(&node)?;
        let length = path.len();
        path.push('/');
        path.push_str(&String::from_utf8_lossy(name));
        visit(path, &node, &attributes)?;
        if attributes.file_type() == FileType::Directory {
            if files.lookup(&node, b"..")?.number() != directory.number() {
                return Err(FsError::InvalidArgument(
                    "a directory's .. is not the directory that lists it",
                ));
            }
            walk_directory(files, &node, path, depth + 1, visit)?;
        }
        path.truncate(length);
    }
    Ok(())
}

/// Reads the parts of a file that are not holes.
fn read_data(
    files: &FileSystem,
    node: &Node,
    size: u64,
    buffer: &mut Vec<u8>,
    mut part: impl FnMut(u64, &[u8]),
) -> Result<(), FsError> {
    let mut at = 0;
    while at < size {
        let start = match files.seek_data(node, at) {
            Ok(start) => start,
            Err(FsError::NoData) => return Ok(()),
            Err(error) => return Err(error),
        };
        let end = files.seek_hole(node, start)?;
        if start < at || end <= start {
            return Err(FsError::InvalidArgument("seeking went backwards"));
        }
        at = start;
        while at < end {
            let length = (end - at).min(READ_BYTES as u64) as usize;
            buffer.resize(length, 0);
            if files.read(node, at, buffer)? != length {
                return Err(FsError::InvalidArgument("a read inside a file was short"));
            }
            part(at, buffer);
            at += length as u64;
        }
    }
    Ok(())
}

struct Hash(u64);

impl Hash {
    fn word(&mut self, word: u64) {
        self.0 = mix64(self.0.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word((bytes.len() as u64) << 32 | u64::from(crc32c(bytes)));
    }

    fn attributes(&mut self, attributes: &Attributes) {
        let Attributes {
            inode,
            generation,
            mode,
            links,
            uid,
            gid,
            device,
            size_bytes,
            sectors,
            ..
        } = *attributes;
        let pairs = [(generation, mode), (links, uid), (gid, device)];
        pairs
            .iter()
            .for_each(|&(high, low)| self.word(u64::from(high) << 32 | u64::from(low)));
        [inode.get(), size_bytes, sectors]
            .iter()
            .for_each(|&word| self.word(word));
        let times = [
            attributes.accessed,
            attributes.modified,
            attributes.changed,
            attributes.created,
        ];
        times
            .iter()
            .for_each(|time| self.word(time.nanoseconds() as u64));
    }
}

/// What a walk adds up besides the hash.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Hash of the tree.
    pub fingerprint: Fingerprint,
    /// Blocks that the named inodes say they own.
    pub blocks: u64,
    /// Those of the root directory among them.
    pub root_blocks: u64,
}

impl Summary {
    /// Reads the whole tree.
    ///
    /// # Errors
    ///
    /// Whatever a call returns: none may fail.
    pub fn of(files: &FileSystem) -> Result<Summary, FsError> {
        let mut hash = Hash(0);
        let (mut buffer, mut numbers, mut blocks) =
            (Vec::new(), std::collections::HashSet::new(), 0);
        let root_blocks = files.attributes(&files.root())?.sectors / 8;
        walk(files, &mut |path, node, attributes| {
            hash.bytes(path.as_bytes());
            hash.attributes(attributes);
            if !numbers.insert(node.number().get()) {
                // Another name of an inode that was hashed already.
                return Ok(());
            }
            blocks += attributes.sectors / 8;
            match attributes.file_type() {
                FileType::Regular => read_data(
                    files,
                    node,
                    attributes.size_bytes,
                    &mut buffer,
                    |at, data| {
                        hash.word(at);
                        hash.bytes(data);
                    },
                )?,
                FileType::Symlink => hash.bytes(&files.read_link(node)?),
                _ => {}
            }
            for name in files.list_xattrs(node)? {
                hash.bytes(&name);
                hash.bytes(&files.get_xattr(node, &name)?);
            }
            Ok(())
        })?;
        Ok(Summary {
            fingerprint: Fingerprint(hash.0),
            blocks,
            root_blocks,
        })
    }
}

impl Snapshot {
    /// Reads the whole tree.
    ///
    /// # Errors
    ///
    /// Whatever a call returns: none may fail.
    pub fn of(files: &FileSystem) -> Result<Snapshot, FsError> {
        let mut entries = BTreeMap::new();
        let mut buffer = Vec::new();
        walk(files, &mut |path, node, attributes| {
            let body = match attributes.file_type() {
                FileType::Regular => {
                    let mut content = Content::default();
                    let size = attributes.size_bytes;
                    read_data(files, node, size, &mut buffer, |at, data| {
                        content.write(at, data)
                    })?;
                    content.size = size;
                    Body::File(content)
                }
                FileType::Directory => Body::Directory,
                FileType::Symlink => Body::Symlink(files.read_link(node)?),
                _ => Body::Special,
            };
            let mut xattrs = BTreeMap::new();
            for name in files.list_xattrs(node)? {
                let value = files.get_xattr(node, &name)?;
                xattrs.insert(name, value);
            }
            entries.insert(
                path.to_string(),
                Entry {
                    attributes: *attributes,
                    body,
                    xattrs,
                },
            );
            Ok(())
        })?;
        Ok(Snapshot(entries))
    }

    /// Whether everything is as in one of the two trees, and each aligned word of a file's content is that of one of them.
    pub fn is_between(&self, before: &Snapshot, after: &Snapshot) -> bool {
        let is_between = |(path, found): (&String, &Entry)| {
            let ends = before.0.get(path).zip(after.0.get(path));
            ends.is_some_and(|(before, after)| found.is_between(before, after))
        };
        let sizes = [self, before, after].map(|tree| tree.0.len());
        sizes[0] == sizes[1] && sizes[0] == sizes[2] && self.0.iter().all(is_between)
    }

    /// The differences towards `other`, one line per path.
    pub fn differences(&self, other: &Snapshot) -> Vec<String> {
        let paths: std::collections::BTreeSet<&String> =
            self.0.keys().chain(other.0.keys()).collect();
        let difference = |path: &String| match (self.0.get(path), other.0.get(path)) {
            (Some(_), None) => Some(format!("{path}: missing")),
            (None, Some(_)) => Some(format!("{path}: should not exist")),
            (Some(wanted), Some(found)) if wanted != found => {
                Some(format!("{path}: {}", wanted.difference(found)))
            }
            _ => None,
        };
        paths.into_iter().filter_map(difference).collect()
    }
}

impl Entry {
    fn is_between(&self, before: &Entry, after: &Entry) -> bool {
        let is_one_of = |part: fn(&Entry) -> &Attributes| {
            part(self) == part(before) || part(self) == part(after)
        };
        let contents = match (&self.body, &before.body, &after.body) {
            (Body::File(found), Body::File(before), Body::File(after)) => {
                found.is_between(before, after)
            }
            (found, before, after) => found == before || found == after,
        };
        contents && is_one_of(|entry| &entry.attributes) && self.xattrs == after.xattrs
    }

    fn difference(&self, found: &Entry) -> String {
        if self.attributes != found.attributes {
            return format!(
                "{:?}\n    should be {:?}",
                found.attributes, self.attributes
            );
        }
        match (&self.body, &found.body) {
            (Body::File(wanted), Body::File(found)) if wanted != found => {
                crate::model::content_difference(wanted, found)
            }
            (wanted, found) if wanted != found => format!("{found:?}, should be {wanted:?}"),
            _ => format!("attributes {:?}, should be {:?}", found.xattrs, self.xattrs),
        }
    }
}
