//! Listing directories.

use crate::dir::Dir;
use crate::error::{Cause, Error, Result};
use crate::metadata::{FileType, Metadata};
use fs::InodeNumber;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Entries fetched at a time: enough to make the fetch cheap, few enough for a directory of any size.
const BATCH_ENTRIES: usize = 256;

/// Iterator over the entries of a directory, in no particular order; as `std::fs::ReadDir`.
#[derive(Debug)]
pub struct ReadDir {
    directory: Dir,
    path: PathBuf,
    batch: VecDeque<DirEntry>,
    cookie: u64,
    at_end: bool,
}

/// An entry of a directory; as `std::fs::DirEntry`.
#[derive(Debug)]
pub struct DirEntry {
    directory: Dir,
    directory_path: PathBuf,
    name: OsString,
    inode: InodeNumber,
    file_type: FileType,
}

impl ReadDir {
    pub(crate) fn new(directory: Dir, path: PathBuf) -> ReadDir {
        ReadDir {
            directory,
            path,
            batch: VecDeque::new(),
            cookie: 0,
            at_end: false,
        }
    }

    fn fetch(&mut self) -> Result<()> {
        let ReadDir {
            directory,
            path,
            batch,
            cookie,
            at_end,
        } = self;
        *at_end = true;
        let listed =
            directory
                .filesystem()
                .read_directory(directory.node(), *cookie, &mut |entry| {
                    if batch.len() == BATCH_ENTRIES {
                        *at_end = false;
                        return false;
                    }
                    *cookie = entry.next_cookie;
                    if entry.name != b"." && entry.name != b".." {
                        batch.push_back(DirEntry {
                            directory: directory.clone(),
                            directory_path: path.clone(),
                            name: OsString::from_vec(entry.name.to_vec()),
                            inode: entry.inode,
                            file_type: FileType(entry.file_type),
                        });
                    }
                    true
                });
        listed.map_err(|error| {
            *at_end = true;
            Cause::from(error).at("read_dir", path)
        })
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry, Error>;

    fn next(&mut self) -> Option<Result<DirEntry, Error>> {
        if self.batch.is_empty()
            && !self.at_end
            && let Err(error) = self.fetch()
        {
            return Some(Err(error));
        }
        self.batch.pop_front().map(Ok)
    }
}

impl DirEntry {
    /// The path of the directory, as it was given to [`Dir::read_dir`], with the name added.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory_path.join(&self.name)
    }

    /// The name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The name, borrowed.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// What is known about the object, be it a symbolic link.
    ///
    /// # Errors
    /// `NotFound` if it was removed meanwhile.
    pub fn metadata(&self) -> Result<Metadata> {
        self.directory.symlink_metadata(Path::new(&self.name))
    }

    /// The type; costs nothing.
    ///
    /// # Errors
    /// None; a `Result` because `std` has one.
    pub fn file_type(&self) -> Result<FileType> {
        Ok(self.file_type)
    }

    /// The inode number; costs nothing.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.inode.get()
    }
}
