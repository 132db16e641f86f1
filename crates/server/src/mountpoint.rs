//! What lies at a mount point before we mount there.
//!
//! The kernel's table `/proc/self/mountinfo` is the only witness used: a dead FUSE mount answers
//! every other question with `ENOTCONN`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::attach;

/// File system type of our mounts in the mount table.
pub(crate) const FILE_SYSTEM_TYPE: &str = "fuse.perdure";

/// Why nothing can be mounted at a place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountpointError {
    /// The path does not exist.
    #[error("mount point {0} does not exist: create the directory first")]
    Missing(PathBuf),
    /// The path is a file.
    #[error("mount point {0} is not a directory")]
    NotADirectory(PathBuf),
    /// Another file system is mounted exactly there.
    #[error(
        "mount point {mountpoint} is busy: {source_name} ({file_system_type}) is mounted there; unmount it or choose another directory"
    )]
    Busy {
        /// The mount point asked for.
        mountpoint: PathBuf,
        /// What is mounted there, as the mount table names it.
        source_name: String,
        /// Its type in the mount table.
        file_system_type: String,
    },
    /// A FUSE mount of another program lies there and its server is gone.
    #[error(
        "a dead {file_system_type} mount lies at {mountpoint}: remove it with `fusermount3 -u` or `umount` first"
    )]
    DeadForeignMount {
        /// The mount point asked for.
        mountpoint: PathBuf,
        /// Its type in the mount table.
        file_system_type: String,
    },
    /// A stale mount of ours could not be removed.
    #[error(
        "the stale mount at {mountpoint} could not be removed: {reason}; remove it with `fusermount3 -u` or `umount`"
    )]
    CannotDetach {
        /// The mount point asked for.
        mountpoint: PathBuf,
        /// What `umount` or `fusermount3` said.
        reason: String,
    },
    /// The place could not be examined.
    #[error("cannot examine mount point {mountpoint}: {source}")]
    Unreadable {
        /// The mount point asked for.
        mountpoint: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// One line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// `st_dev` minor number of the mounted file system; names its FUSE connection.
    pub(crate) device_minor: u32,
    /// Where it is mounted.
    pub(crate) mountpoint: PathBuf,
    /// `fuse.perdure`, `tmpfs`, …
    pub(crate) file_system_type: String,
    /// What is mounted: for our mounts, the pool.
    pub(crate) source: PathBuf,
}

/// Examines `mountpoint`, removes a stale mount of ours, and returns its canonical path.
pub(crate) fn prepare(mountpoint: &Path) -> Result<PathBuf, MountpointError> {
    detach_stale(mountpoint)?;
    let unreadable = |source| MountpointError::Unreadable {
        mountpoint: mountpoint.into(),
        source,
    };
    let metadata = match fs::metadata(mountpoint) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(MountpointError::Missing(mountpoint.into()));
        }
        Err(source) => return Err(unreadable(source)),
    };
    if !metadata.is_dir() {
        return Err(MountpointError::NotADirectory(mountpoint.into()));
    }
    let place = fs::canonicalize(mountpoint).map_err(unreadable)?;
    match topmost(&place).map_err(unreadable)? {
        None => Ok(place),
        Some(entry) => Err(MountpointError::Busy {
            mountpoint: mountpoint.into(),
            source_name: entry.source.display().to_string(),
            file_system_type: entry.file_system_type,
        }),
    }
}

/// Removes the mount at `mountpoint` if it is one of ours whose server was killed, and tells
/// whether it did. Open files of the dead mount go on failing with `ENOTCONN`.
///
/// # Errors
///
/// A dead FUSE mount of another program is left alone and reported.
pub fn detach_stale(mountpoint: &Path) -> Result<bool, MountpointError> {
    let unreadable = |source| MountpointError::Unreadable {
        mountpoint: mountpoint.into(),
        source,
    };
    // statfs always asks the server; attributes can come from the kernel's cache when the server is dead already.
    match rustix::fs::statfs(mountpoint).map_err(io::Error::from) {
        Err(error) if is_disconnected(&error) => {}
        _ => return Ok(false),
    }
    let place = resolve_without_entering(mountpoint).map_err(unreadable)?;
    let Some(entry) = topmost(&place).map_err(unreadable)? else {
        return Ok(false);
    };
    if entry.file_system_type != FILE_SYSTEM_TYPE {
        return Err(MountpointError::DeadForeignMount {
            mountpoint: mountpoint.into(),
            file_system_type: entry.file_system_type,
        });
    }
    attach::detach(&place, attach::Detach::Lazy).map_err(|error| {
        MountpointError::CannotDetach {
            mountpoint: mountpoint.into(),
            reason: error.to_string(),
        }
    })?;
    tracing::warn!(mountpoint = %place.display(), "removed the stale mount of a server that was killed");
    Ok(true)
}

/// The pool behind the mount that contains `path`, if it is one of ours. For `perdure stat MNT`.
///
/// # Errors
///
/// The mount table or the path cannot be read.
pub fn pool_mounted_at(path: &Path) -> io::Result<Option<PathBuf>> {
    let place = resolve_without_entering(path)?;
    let entries = mount_table()?;
    // The last entry with the longest matching prefix is the one that a path walk would enter.
    let holder = entries
        .into_iter()
        .filter(|entry| place.starts_with(&entry.mountpoint))
        .enumerate()
        .max_by_key(|(order, entry)| (entry.mountpoint.as_os_str().len(), *order))
        .map(|(_, entry)| entry);
    Ok(holder
        .filter(|entry| entry.file_system_type == FILE_SYSTEM_TYPE)
        .map(|entry| entry.source))
}

/// The visible mount exactly at `place`.
pub(crate) fn topmost(place: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mount_table()?
        .into_iter()
        .rev()
        .find(|entry| entry.mountpoint == place))
}

fn is_disconnected(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOTCONN | libc::ECONNABORTED)
    )
}

/// Resolves all components but the last, which may be a dead mount that cannot be looked into.
fn resolve_without_entering(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(place) => return Ok(place),
        Err(error) if is_disconnected(&error) => {}
        Err(error) => return Err(error),
    }
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(absolute),
    }
}

fn mount_table() -> io::Result<Vec<MountEntry>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(parse_mount_entry)
        .collect())
}

/// Parses `36 35 0:45 / /mnt rw,… [optional…] - fuse.perdure /pool rw,…`.
fn parse_mount_entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.by_ref().nth(2)?;
    let minor = device.split(|byte| *byte == b':').nth(1)?;
    let mountpoint = fields.by_ref().nth(1)?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    Some(MountEntry {
        device_minor: std::str::from_utf8(minor).ok()?.parse().ok()?,
        mountpoint: unescape(mountpoint),
        file_system_type: String::from_utf8_lossy(rest.next()?).into_owned(),
        source: unescape(rest.next()?),
    })
}

/// Undoes the kernel's `\040` escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match octal {
            Some(digits) => {
                let value = digits
                    .iter()
                    .fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push(value as u8);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// True if `inner` is `outer` or lies below it.
pub(crate) fn is_inside(inner: &Path, outer: &Path) -> bool {
    fs::canonicalize(outer).is_ok_and(|outer| inner.starts_with(outer))
}

/// Escapes commas and backslashes, which separate options on `fusermount3`'s command line.
pub(crate) fn escape_option(value: &OsStr) -> std::ffi::OsString {
    let mut escaped = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    std::ffi::OsString::from_vec(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_of_the_mount_table() {
        let line = br"36 35 0:45 / /mnt/with\040space rw,nosuid shared:7 master:1 - fuse.perdure /pool\134x rw,user_id=0";
        let entry = parse_mount_entry(line).expect("a whole line");
        assert_eq!(entry.device_minor, 45);
        assert_eq!(entry.mountpoint, Path::new("/mnt/with space"));
        assert_eq!(entry.file_system_type, "fuse.perdure");
        assert_eq!(entry.source, Path::new(r"/pool\x"));
    }

    #[test]
    fn refuses_lines_that_are_cut_off() {
        let line = b"36 35 0:45 / /mnt rw - fuse.perdure";
        for length in 0..line.len() {
            assert_eq!(parse_mount_entry(&line[..length]), None);
        }
    }

    #[test]
    fn the_root_of_this_machine_is_mounted() {
        assert!(topmost(Path::new("/")).expect("mount table").is_some());
        assert_eq!(pool_mounted_at(Path::new("/")).expect("mount table"), None);
    }

    #[test]
    fn missing_and_plain_files_are_named() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let missing = directory.path().join("missing");
        assert!(matches!(
            prepare(&missing),
            Err(MountpointError::Missing(_))
        ));
        fs::write(&missing, b"").expect("write");
        assert!(matches!(
            prepare(&missing),
            Err(MountpointError::NotADirectory(_))
        ));
        assert!(matches!(
            prepare(Path::new("/proc")),
            Err(MountpointError::Busy { .. })
        ));
    }
}
