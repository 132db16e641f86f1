//! The kernel's mount table: what is mounted where, as this process sees it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

/// File system type of our mounts in the mount table.
pub(crate) const FILE_SYSTEM_TYPE: &str = "fuse.perdure";

/// One line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// `st_dev` minor number of the mounted file system; names its FUSE connection.
    pub(crate) device_minor: u32,
    /// Which directory of the file system is seen there.
    pub(crate) root: PathBuf,
    /// Where it is mounted.
    pub(crate) mountpoint: PathBuf,
    /// `fuse.perdure`, `tmpfs`, …
    pub(crate) file_system_type: String,
    /// What is mounted: for our mounts, the pool.
    pub(crate) source: PathBuf,
    /// Who mounted it, if it is a FUSE mount.
    pub(crate) user: Option<u32>,
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

/// A place where this process can see a pool mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMount {
    /// Where.
    pub mountpoint: PathBuf,
    device_minor: u32,
}

/// The mounts of `pool`, a canonical path. Anybody may mount something under this name: what
/// neither root nor this user nor the pool's owner mounted is left out. Another file system may lie
/// over a mount: see [`PoolMount::hold`].
///
/// # Errors
///
/// The mount table cannot be read.
pub fn mounts_of(pool: &Path) -> io::Result<Vec<PoolMount>> {
    let owner = fs::metadata(pool).ok().map(|metadata| metadata.uid());
    let trusted = [Some(0), Some(rustix::process::geteuid().as_raw()), owner];
    let is_whole_pool = |entry: &MountEntry| {
        entry.file_system_type == FILE_SYSTEM_TYPE
            && entry.source == pool
            && entry.root == Path::new("/")
    };
    let entries = mount_table()?.into_iter().filter(is_whole_pool);
    Ok(entries
        .filter(|entry| entry.user.is_some() && trusted.contains(&entry.user))
        .map(|entry| PoolMount {
            mountpoint: entry.mountpoint,
            device_minor: entry.device_minor,
        })
        .collect())
}

impl PoolMount {
    /// A descriptor of the mount's root: while it is open nobody can unmount it, unless lazily.
    /// `None` if the path leads elsewhere: the mount is gone, or something lies over it.
    ///
    /// # Errors
    ///
    /// This user may not go there (`PermissionDenied`), or the server is dead (`NotConnected`).
    pub fn hold(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = match rustix::fs::open(&self.mountpoint, flags, Mode::empty()) {
            Ok(root) => root,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The device's number is known without asking the server, whoever asks; the rest is not.
        let ask = |fields| rustix::fs::statx(&root, "", AtFlags::EMPTY_PATH, fields);
        let found = ask(StatxFlags::empty())?;
        if (found.stx_dev_major, found.stx_dev_minor) != (0, self.device_minor) {
            return Ok(None);
        }
        rustix::fs::fstatvfs(&root)?;
        ask(StatxFlags::BASIC_STATS)?;
        Ok(Some(root))
    }
}

/// Whether this is what the kernel says of a mount whose server is gone: the second and the third
/// to requests that were under way, by the classic queue and by io_uring.
pub fn is_dead_mount(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED)
    )
}

/// Resolves all components but the last, which may be a dead mount that cannot be looked into.
pub(crate) fn resolve_without_entering(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(place) => return Ok(place),
        Err(error) if is_dead_mount(&error) => {}
        Err(error) => return Err(error),
    }
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(absolute),
    }
}

/// Whether a process sees `pool`, a canonical path, mounted anywhere.
///
/// # Errors
///
/// The process's mount table cannot be read.
pub fn is_mounted_for(process: u32, pool: &Path) -> io::Result<bool> {
    let entries = table_at(format!("/proc/{process}/mountinfo").as_ref())?;
    let is_ours =
        |entry: &MountEntry| entry.file_system_type == FILE_SYSTEM_TYPE && entry.source == pool;
    Ok(entries.iter().any(is_ours))
}

fn mount_table() -> io::Result<Vec<MountEntry>> {
    table_at(Path::new("/proc/self/mountinfo"))
}

fn table_at(path: &Path) -> io::Result<Vec<MountEntry>> {
    let table = fs::read(path)?;
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
    let root = fields.next()?;
    let mountpoint = fields.next()?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let (file_system_type, source) = (rest.next()?, rest.next()?);
    Some(MountEntry {
        device_minor: parse_number(minor)?,
        root: unescape(root),
        mountpoint: unescape(mountpoint),
        file_system_type: String::from_utf8_lossy(file_system_type).into_owned(),
        source: unescape(source),
        user: rest.next().and_then(user_of),
    })
}

/// The `user_id` among the options of a FUSE mount.
fn user_of(options: &[u8]) -> Option<u32> {
    let mut options = options.split(|byte| *byte == b',');
    options.find_map(|option| parse_number(option.strip_prefix(b"user_id=")?))
}

fn parse_number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_of_the_mount_table() {
        let line = br"36 35 0:45 / /mnt/with\040space rw,nosuid shared:7 master:1 - fuse.perdure /pool\134x rw,user_id=1000,group_id=7";
        let entry = parse_mount_entry(line).expect("a whole line");
        assert_eq!(entry.device_minor, 45);
        assert_eq!(
            (entry.root.as_path(), entry.user),
            (Path::new("/"), Some(1000))
        );
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
}
