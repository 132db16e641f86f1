//! What both sides of a copy can do: the local file system and a pool.

use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    /// Fifo, socket or device.
    Special,
}

/// What is kept of an object besides its content.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// `st_mode`, type bits included.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) device: u64,
    pub(super) size_bytes: u64,
    pub(super) links: u64,
    /// Tells objects of one side apart: two names with the same identity are hard links.
    pub(super) identity: (u64, u64),
    pub(super) accessed: SystemTime,
    pub(super) modified: SystemTime,
}

/// Where a copy comes from or goes to. Symbolic links are never followed, except where it says so.
pub(super) trait Side {
    /// The path as the user would type it.
    fn describe(&self, path: &Path) -> String;
    /// Equal for two sides that see the same files.
    fn identity(&self) -> Option<PathBuf>;
    /// The object at `path`, `None` if there is none.
    fn entry(&self, path: &Path) -> Result<Option<Entry>, Failure>;
    /// Whether there is a directory at `path`, links followed.
    fn is_directory(&self, path: &Path) -> Result<bool, Failure>;
    /// The path without links; the object has to exist.
    fn canonicalize(&self, path: &Path) -> Result<PathBuf, Failure>;
    /// The names in a directory.
    fn children(&self, path: &Path) -> Result<Vec<OsString>, Failure>;
    /// The text of a symbolic link.
    fn read_link(&self, path: &Path) -> Result<PathBuf, Failure>;
    /// All extended attributes.
    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>, Failure>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> Result<Box<dyn Content>, Failure>;
    /// Creates or empties a file, for reading and writing by its owner only.
    fn create(&self, path: &Path) -> Result<Box<dyn Content>, Failure>;
    /// Creates a directory, for its owner only.
    fn make_directory(&self, path: &Path) -> Result<(), Failure>;
    /// Creates a symbolic link.
    fn make_symlink(&self, text: &Path, path: &Path) -> Result<(), Failure>;
    /// Creates a fifo, socket or device.
    fn make_special(&self, path: &Path, entry: &Entry) -> Result<(), Failure>;
    /// Gives an object a further name.
    fn hard_link(&self, original: &Path, path: &Path) -> Result<(), Failure>;
    /// Removes anything but a directory.
    fn remove(&self, path: &Path) -> Result<(), Failure>;
    /// Sets an extended attribute; `Ok(false)` if this side cannot hold it.
    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8]) -> Result<bool, Failure>;
    /// Sets owner, mode and times.
    fn set_entry(&self, path: &Path, entry: &Entry) -> Result<(), Failure>;
}

/// An open file of a side.
pub(super) trait Content {
    /// Reads some bytes at `offset`; 0 at the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> std::io::Result<usize>;
    /// Writes all bytes at `offset`.
    fn write_all_at(&self, data: &[u8], offset: u64) -> std::io::Result<()>;
    /// Sets the size.
    fn set_len(&self, size_bytes: u64) -> std::io::Result<()>;
    /// The first range at or after `offset` that is not a hole.
    fn next_data(&self, offset: u64) -> std::io::Result<Option<Range<u64>>>;
}
