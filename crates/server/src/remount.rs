//! `mount -o remount`: a mount in use turns read-only and back, and gains or loses restrictions.
//!
//! The kernel does it alone, and the server is not told: it keeps the pool open as before, and may
//! still note access times. The kernel refuses while any process has a file open for writing, so no
//! process writes directly to a mount that has become read-only.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::mount_table::{FILE_SYSTEM_TYPE, resolve_without_entering, topmost};

/// The wanted state of a mount.
#[derive(Debug, Clone, Copy)]
pub struct Remount {
    /// Refuse all changes.
    pub read_only: bool,
    /// `NOSUID`, `NODEV`, `NOEXEC`, besides those that the mount has.
    pub restrictions: MountFlags,
    /// Those that it is to lose.
    pub lifted: MountFlags,
}

/// Why a mount stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemountError {
    /// No mount of that pool lies there.
    #[error("{mountpoint}: {pool} is not mounted there; `findmnt -t fuse.perdure` lists what is")]
    NotMounted {
        /// The mount point asked for.
        mountpoint: PathBuf,
        /// The pool asked for.
        pool: PathBuf,
    },
    /// Only root can.
    #[error(
        "{mountpoint}: only root can remount; unmount it and mount it again with other options"
    )]
    Denied {
        /// The mount point asked for.
        mountpoint: PathBuf,
    },
    /// Files are open for writing.
    #[error(
        "{mountpoint}: cannot become read-only while files are open for writing; `fuser -vm {mountpoint}` lists the processes"
    )]
    Busy {
        /// The mount point asked for.
        mountpoint: PathBuf,
    },
    /// The system refused.
    #[error("{mountpoint}: cannot remount: {source}")]
    Refused {
        /// The mount point asked for.
        mountpoint: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Changes the mount of `pool`, a canonical path, at `mountpoint`. Stores that a shared mapping has
/// changed is durable before the mount becomes read-only.
///
/// # Errors
///
/// The mount is unchanged; see [`RemountError`].
pub fn remount(pool: &Path, mountpoint: &Path, wanted: Remount) -> Result<(), RemountError> {
    let refused = |source| RemountError::Refused {
        mountpoint: mountpoint.into(),
        source,
    };
    let place = resolve_without_entering(mountpoint).map_err(refused)?;
    let entry = topmost(&place).map_err(refused)?;
    let is_ours = |source: &Path, kind: &str| source == pool && kind == FILE_SYSTEM_TYPE;
    if !entry.is_some_and(|entry| is_ours(&entry.source, &entry.file_system_type)) {
        return Err(RemountError::NotMounted {
            mountpoint: mountpoint.into(),
            pool: pool.into(),
        });
    }
    let found = rustix::fs::statvfs(&place).map_err(|error| refused(error.into()))?;
    let mut flags = (restrictions_of(found.f_flag) | wanted.restrictions) - wanted.lifted;
    flags.set(MountFlags::RDONLY, wanted.read_only);
    rustix::mount::mount_remount(&place, flags, "").map_err(|error| match error {
        Errno::PERM => RemountError::Denied {
            mountpoint: mountpoint.into(),
        },
        Errno::BUSY => RemountError::Busy {
            mountpoint: mountpoint.into(),
        },
        error => refused(error.into()),
    })
}

/// The restrictions that the mount has now: a remount clears those that it does not name.
fn restrictions_of(found: StatVfsMountFlags) -> MountFlags {
    let all = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ];
    let set = all.iter().filter(|(flag, _)| found.contains(*flag));
    set.fold(MountFlags::empty(), |flags, (_, flag)| flags | *flag)
}
