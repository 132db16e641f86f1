//! What is known about a file besides its content.

use crate::boundary::{Answer, status};
use crate::directory::perdure_dir;
use crate::pointers::{Text, required, usable};
use crate::pool_options::known_flags;
use perdure::{FileTimes, Metadata, Permissions};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Work on a symbolic link itself, not on what it leads to.
pub const PERDURE_NO_FOLLOW: u32 = 1;
/// As user or group: leave it as it is.
pub const PERDURE_UNCHANGED: u32 = 0xffff_ffff;

/// What is known about a file, a directory or a symbolic link; as `struct stat`. Times are
/// nanoseconds since 1970, UTC.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct perdure_stat {
    /// Number of the inode, unique among the existing files of a pool.
    pub inode: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Space in use in units of 512 bytes; less than the size when there are holes.
    pub blocks: u64,
    /// Last access, as exact as the pool's policy (`access_time` of perdure_pool_options).
    pub accessed_ns: i64,
    /// Last change of the content.
    pub modified_ns: i64,
    /// Last change of content or attributes.
    pub changed_ns: i64,
    /// Creation.
    pub created_ns: i64,
    /// Type and permission bits, as st_mode.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// User that owns it.
    pub uid: u32,
    /// Group that owns it.
    pub gid: u32,
    /// Device number of a device node, else 0.
    pub device: u32,
    /// 0.
    pub reserved_word: u32,
    /// 0, for members to come.
    pub reserved: [u64; 4],
}

impl perdure_stat {
    pub(crate) fn new(metadata: &Metadata) -> perdure_stat {
        let attributes = metadata.attributes();
        perdure_stat {
            inode: metadata.ino(),
            size_bytes: metadata.len(),
            blocks: metadata.blocks(),
            accessed_ns: attributes.accessed.nanoseconds(),
            modified_ns: attributes.modified.nanoseconds(),
            changed_ns: attributes.changed.nanoseconds(),
            created_ns: attributes.created.nanoseconds(),
            mode: metadata.mode(),
            links: metadata.nlink(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            device: metadata.rdev(),
            reserved_word: 0,
            reserved: [0; 4],
        }
    }
}

/// What is known about the object at `path`. `flags`: PERDURE_NO_FOLLOW, or 0.
///
/// Errors: ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_stat(
    dir: Option<&perdure_dir>,
    path: Text,
    flags: u32,
    stat: Option<&mut MaybeUninit<perdure_stat>>,
) -> c_int {
    status("perdure_stat", || {
        let dir = &usable(dir, "dir")?.dir;
        let (stat, path) = (required(stat, "stat")?, path.path("path")?);
        let metadata = match follows(flags)? {
            true => dir.metadata(path)?,
            false => dir.symlink_metadata(path)?,
        };
        stat.write(perdure_stat::new(&metadata));
        Ok(())
    })
}

/// Changes the permission bits; a symbolic link is followed. They are kept for programs on a mount;
/// this library does not check them, because whoever may open a pool can read all of it anyway.
/// Durable when it returns.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_chmod(dir: Option<&perdure_dir>, path: Text, mode: u32) -> c_int {
    status("perdure_chmod", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.set_permissions(path.path("path")?, Permissions::from_mode(mode))?)
    })
}

/// Changes owner and group; PERDURE_UNCHANGED leaves one as it is. `flags`: PERDURE_NO_FOLLOW, or
/// 0. Durable when it returns.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_chown(
    dir: Option<&perdure_dir>,
    path: Text,
    uid: u32,
    gid: u32,
    flags: u32,
) -> c_int {
    status("perdure_chown", || {
        let dir = &usable(dir, "dir")?.dir;
        let path = path.path("path")?;
        let changed = |id| (id != PERDURE_UNCHANGED).then_some(id);
        let (uid, gid) = (changed(uid), changed(gid));
        match follows(flags)? {
            true => dir.chown(path, uid, gid)?,
            false => dir.lchown(path, uid, gid)?,
        }
        Ok(())
    })
}

/// Changes the times of last access and last modification, in nanoseconds since 1970; NULL leaves
/// one as it is. `flags`: PERDURE_NO_FOLLOW, or 0. Durable when it returns.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_set_times(
    dir: Option<&perdure_dir>,
    path: Text,
    accessed_ns: Option<&i64>,
    modified_ns: Option<&i64>,
    flags: u32,
) -> c_int {
    status("perdure_set_times", || {
        let dir = &usable(dir, "dir")?.dir;
        let (path, times) = (path.path("path")?, file_times(accessed_ns, modified_ns));
        match follows(flags)? {
            true => dir.set_times(path, times)?,
            false => dir.set_times_nofollow(path, times)?,
        }
        Ok(())
    })
}

fn follows(flags: u32) -> Answer<bool> {
    known_flags(flags, PERDURE_NO_FOLLOW)?;
    Ok(flags & PERDURE_NO_FOLLOW == 0)
}

pub(crate) fn file_times(accessed_ns: Option<&i64>, modified_ns: Option<&i64>) -> FileTimes {
    let mut times = FileTimes::new();
    if let Some(nanoseconds) = accessed_ns {
        times = times.set_accessed(time(*nanoseconds));
    }
    if let Some(nanoseconds) = modified_ns {
        times = times.set_modified(time(*nanoseconds));
    }
    times
}

fn time(nanoseconds: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    match nanoseconds < 0 {
        true => UNIX_EPOCH - distance,
        false => UNIX_EPOCH + distance,
    }
}
