//! What lies at a mount point before we mount there.
//!
//! The kernel's table `/proc/self/mountinfo` is the only witness used: a dead FUSE mount answers
//! every other question with `ENOTCONN`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::attach;
use crate::mount_table::{FILE_SYSTEM_TYPE, is_dead_mount, resolve_without_entering, topmost};

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
        Err(error) if is_dead_mount(&error) => {}
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
