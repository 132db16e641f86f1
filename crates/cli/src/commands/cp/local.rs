//! The side of a copy that lies in the local file system.

use super::place::{Content, Entry, Kind, Side};
use crate::failure::Failure;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) struct LocalSide;

/// The largest list of names and the largest value that Linux has.
const XATTR_BYTES_MAX: usize = 64 << 10;

impl Side for LocalSide {
    fn describe(&self, path: &Path) -> String {
        super::describe(None, path)
    }

    fn identity(&self) -> Option<PathBuf> {
        None
    }

    fn entry(&self, path: &Path) -> Result<Option<Entry>, Failure> {
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io("look at it", path)(error)),
        };
        Ok(Some(Entry {
            kind: kind_of(metadata.file_type()),
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            device: metadata.rdev(),
            size_bytes: metadata.len(),
            links: metadata.nlink(),
            identity: (metadata.dev(), metadata.ino()),
            accessed: metadata
                .accessed()
                .map_err(Failure::io("read its times", path))?,
            modified: metadata
                .modified()
                .map_err(Failure::io("read its times", path))?,
        }))
    }

    fn is_directory(&self, path: &Path) -> Result<bool, Failure> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(metadata.is_dir()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Failure::io("look at it", path)(error)),
        }
    }

    fn canonicalize(&self, path: &Path) -> Result<PathBuf, Failure> {
        fs::canonicalize(path).map_err(Failure::io("find it", path))
    }

    fn children(&self, path: &Path) -> Result<Vec<OsString>, Failure> {
        let entries = fs::read_dir(path).map_err(Failure::io("list it", path))?;
        entries
            .map(|entry| {
                entry
                    .map(|entry| entry.file_name())
                    .map_err(Failure::io("list it", path))
            })
            .collect()
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Failure> {
        fs::read_link(path).map_err(Failure::io("read the link", path))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>, Failure> {
        let failed = |error: Errno| Failure::io("read its extended attributes", path)(error.into());
        let mut buffer = vec![0; XATTR_BYTES_MAX];
        let length = match rustix::fs::llistxattr(path, &mut buffer[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let names: Vec<OsString> = buffer[..length]
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
            .map(|name| OsString::from_vec(name.to_vec()))
            .collect();
        let mut pairs = Vec::with_capacity(names.len());
        for name in names {
            let length = rustix::fs::lgetxattr(path, &*name, &mut buffer[..]).map_err(failed)?;
            pairs.push((name, buffer[..length].to_vec()));
        }
        Ok(pairs)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Content>, Failure> {
        Ok(Box::new(
            File::open(path).map_err(Failure::io("open", path))?,
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
            options.open(path).map_err(Failure::io("create", path))?,
        ))
    }

    fn make_directory(&self, path: &Path) -> Result<(), Failure> {
        fs::DirBuilder::new()
            .mode(0o700)
            .create(path)
            .map_err(Failure::io("create the directory", path))
    }

    fn make_symlink(&self, text: &Path, path: &Path) -> Result<(), Failure> {
        std::os::unix::fs::symlink(text, path).map_err(Failure::io("create the link", path))
    }

    fn make_special(&self, path: &Path, entry: &Entry) -> Result<(), Failure> {
        let file_type = FileType::from_raw_mode(entry.mode);
        let made = rustix::fs::mknodat(
            CWD,
            path,
            file_type,
            Mode::from_raw_mode(0o600),
            entry.device,
        );
        made.map_err(|error| Failure::io("create the fifo, socket or device", path)(error.into()))
    }

    fn hard_link(&self, original: &Path, path: &Path) -> Result<(), Failure> {
        fs::hard_link(original, path).map_err(Failure::io("create the hard link", path))
    }

    fn remove(&self, path: &Path) -> Result<(), Failure> {
        fs::remove_file(path).map_err(Failure::io("replace", path))
    }

    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8]) -> Result<bool, Failure> {
        match rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()) {
            Ok(()) => Ok(true),
            // The file system has none, or this user may not set one of this name space.
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => Ok(false),
            Err(error) => Err(Failure::io("set an extended attribute", path)(error.into())),
        }
    }

    fn set_entry(&self, path: &Path, entry: &Entry) -> Result<(), Failure> {
        // Only root can give files away; everybody else owns what they copy. Owner first: it takes set-id bits away.
        if rustix::process::geteuid().is_root() {
            let owner = std::os::unix::fs::lchown(path, Some(entry.uid), Some(entry.gid));
            owner.map_err(Failure::io("set the owner", path))?;
        }
        if entry.kind != Kind::Symlink {
            let mode = fs::Permissions::from_mode(entry.mode & 0o7777);
            fs::set_permissions(path, mode).map_err(Failure::io("set the mode", path))?;
        }
        let times = Timestamps {
            last_access: timespec(entry.accessed),
            last_modification: timespec(entry.modified),
        };
        let set = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
        set.map_err(|error| Failure::io("set the times", path)(error.into()))
    }
}

fn kind_of(file_type: fs::FileType) -> Kind {
    match file_type {
        kind if kind.is_file() => Kind::File,
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Symlink,
        kind => {
            debug_assert!(
                kind.is_fifo()
                    || kind.is_socket()
                    || kind.is_char_device()
                    || kind.is_block_device(),
                "a type that Linux does not have"
            );
            Kind::Special
        }
    }
}

fn timespec(time: SystemTime) -> Timespec {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(error) => match error.duration() {
            before if before.subsec_nanos() == 0 => (-(before.as_secs() as i64), 0),
            before => (
                -(before.as_secs() as i64) - 1,
                1_000_000_000 - before.subsec_nanos(),
            ),
        },
    };
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    }
}

impl Content for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, data, offset)
    }

    fn set_len(&self, size_bytes: u64) -> io::Result<()> {
        File::set_len(self, size_bytes)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let start = match rustix::fs::seek(self, rustix::fs::SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A file system without holes: all of it is data.
            Err(Errno::INVAL) => {
                let size = self.metadata()?.len();
                return Ok((offset < size).then_some(offset..size));
            }
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(self, rustix::fs::SeekFrom::Hole(start))?;
        Ok(Some(start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_1970_have_positive_nanoseconds() {
        let half_before = UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(
            timespec(half_before),
            Timespec {
                tv_sec: -2,
                tv_nsec: 500_000_000
            }
        );
        assert_eq!(
            timespec(UNIX_EPOCH - Duration::from_secs(3)),
            Timespec {
                tv_sec: -3,
                tv_nsec: 0
            }
        );
        assert_eq!(
            timespec(UNIX_EPOCH + Duration::from_nanos(7)),
            Timespec {
                tv_sec: 0,
                tv_nsec: 7
            }
        );
    }
}
