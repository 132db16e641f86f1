//! The side of a copy that lies in a pool.

use super::place::{Content, Entry, Kind, Side};
use crate::failure::Failure;
use perdure::{File, FileTimes, FileType, Metadata, OpenOptions, Permissions, Pool};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(super) struct PoolSide {
    pool: Rc<Pool>,
}

impl PoolSide {
    pub(super) fn new(pool: Rc<Pool>) -> PoolSide {
        PoolSide { pool }
    }

    /// Names the pool in front of a message about a path in it.
    fn failed(&self) -> impl Fn(perdure::Error) -> Failure + '_ {
        |error| Failure::failed(format_args!("{}: {error}", self.pool.path().display()))
    }
}

fn entry_of(metadata: &Metadata) -> Result<Entry, perdure::Error> {
    Ok(Entry {
        kind: kind_of(metadata.file_type()),
        mode: metadata.mode(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        device: metadata.rdev().into(),
        size_bytes: metadata.len(),
        links: metadata.nlink().into(),
        identity: (0, metadata.ino()),
        accessed: metadata.accessed()?,
        modified: metadata.modified()?,
    })
}

fn kind_of(file_type: FileType) -> Kind {
    match file_type {
        kind if kind.is_file() => Kind::File,
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Symlink,
        _ => Kind::Special,
    }
}

impl Side for PoolSide {
    fn describe(&self, path: &Path) -> String {
        super::describe(Some(self.pool.path()), path)
    }

    fn identity(&self) -> Option<PathBuf> {
        Some(
            self.pool
                .path()
                .canonicalize()
                .unwrap_or_else(|_| self.pool.path().to_owned()),
        )
    }

    fn entry(&self, path: &Path) -> Result<Option<Entry>, Failure> {
        match self.pool.symlink_metadata(path) {
            Ok(metadata) => entry_of(&metadata).map(Some).map_err(self.failed()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed()(error)),
        }
    }

    fn is_directory(&self, path: &Path) -> Result<bool, Failure> {
        match self.pool.metadata(path) {
            Ok(metadata) => Ok(metadata.is_dir()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed()(error)),
        }
    }

    fn canonicalize(&self, path: &Path) -> Result<PathBuf, Failure> {
        self.pool.canonicalize(path).map_err(self.failed())
    }

    fn children(&self, path: &Path) -> Result<Vec<OsString>, Failure> {
        let entries = self.pool.read_dir(path).map_err(self.failed())?;
        entries
            .map(|entry| entry.map(|entry| entry.file_name()).map_err(self.failed()))
            .collect()
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Failure> {
        self.pool.read_link(path).map_err(self.failed())
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>, Failure> {
        let names = self.pool.list_xattrs(path).map_err(self.failed())?;
        let pairs = names.into_iter().map(|name| {
            let value = self.pool.get_xattr(path, &name).map_err(self.failed())?;
            Ok((name, value.unwrap_or_default()))
        });
        pairs.collect()
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Content>, Failure> {
        Ok(Box::new(
            File::open(&self.pool, path).map_err(self.failed())?,
        ))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn Content>, Failure> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600);
        Ok(Box::new(
            options.open(&self.pool, path).map_err(self.failed())?,
        ))
    }

    fn make_directory(&self, path: &Path) -> Result<(), Failure> {
        self.pool
            .create_dir_with_mode(path, 0o700)
            .map_err(self.failed())
    }

    fn make_symlink(&self, text: &Path, path: &Path) -> Result<(), Failure> {
        self.pool.symlink(text, path).map_err(self.failed())
    }

    fn make_special(&self, path: &Path, entry: &Entry) -> Result<(), Failure> {
        let device = u32::try_from(entry.device).unwrap_or(u32::MAX);
        self.pool
            .create_node(path, entry.mode, device)
            .map_err(self.failed())
    }

    fn hard_link(&self, original: &Path, path: &Path) -> Result<(), Failure> {
        self.pool.hard_link(original, path).map_err(self.failed())
    }

    fn remove(&self, path: &Path) -> Result<(), Failure> {
        self.pool.remove_file(path).map_err(self.failed())
    }

    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8]) -> Result<bool, Failure> {
        match self.pool.set_xattr(path, name, value) {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == libc::EOPNOTSUPP => Ok(false),
            Err(error) => Err(self.failed()(error)),
        }
    }

    fn set_entry(&self, path: &Path, entry: &Entry) -> Result<(), Failure> {
        // Owner first: changing it takes the set-id bits away.
        self.pool
            .lchown(path, Some(entry.uid), Some(entry.gid))
            .map_err(self.failed())?;
        if entry.kind != Kind::Symlink {
            self.pool
                .set_permissions(path, Permissions::from_mode(entry.mode))
                .map_err(self.failed())?;
        }
        let times = FileTimes::new()
            .set_accessed(entry.accessed)
            .set_modified(entry.modified);
        self.pool
            .set_times_nofollow(path, times)
            .map_err(self.failed())
    }
}

impl Content for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(File::read_at(self, into, offset)?)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        File::write_all_at(self, data, offset)
    }

    fn set_len(&self, size_bytes: u64) -> io::Result<()> {
        Ok(File::set_len(self, size_bytes)?)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let Some(start) = File::next_data(self, offset)? else {
            return Ok(None);
        };
        let end = self.next_hole(start)?.unwrap_or(start);
        Ok(Some(start..end))
    }
}
