//! Extended attributes. A symbolic link is not followed: the attributes are its own.

use crate::boundary::{count, status};
use crate::directory::perdure_dir;
use crate::failure::Failure;
use crate::pointers::{Data, Room, Text, usable};
use libc::ssize_t;
use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;

/// The value of an extended attribute. Returns its bytes; with `bytes` = 0 that is all it does. A
/// symbolic link is not followed.
///
/// Errors: ENODATA (no such attribute), ERANGE if `value` is too small.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_getxattr(
    dir: Option<&perdure_dir>,
    path: Text,
    name: Text,
    mut value: Room,
    bytes: usize,
) -> ssize_t {
    count("perdure_getxattr", || {
        let dir = &usable(dir, "dir")?.dir;
        let (path, name) = (path.path("path")?, name.path("name")?);
        let found = dir.get_xattr(path, name)?.ok_or_else(|| {
            let (path, name) = (path.display(), name.display());
            Failure::new(libc::ENODATA, format!("{path} has no attribute {name}"))
        })?;
        value.fill(bytes, "value", std::iter::once(found.as_slice()))
    })
}

/// Creates or replaces an extended attribute of at most 64 KiB, whose name begins with "user.",
/// "trusted." or "security.". A symbolic link is not followed. Durable when it returns.
///
/// Errors: ENOENT, ENOSPC, ERANGE (name too long), EOPNOTSUPP (other name), E2BIG (value).
#[unsafe(no_mangle)]
pub extern "C" fn perdure_setxattr(
    dir: Option<&perdure_dir>,
    path: Text,
    name: Text,
    value: Data,
    bytes: usize,
) -> c_int {
    status("perdure_setxattr", || {
        let dir = &usable(dir, "dir")?.dir;
        let (path, name) = (path.path("path")?, OsStr::from_bytes(name.bytes("name")?));
        Ok(dir.set_xattr(path, name, value.bytes(bytes, "value")?)?)
    })
}

/// The names of all extended attributes, each with a byte of value zero behind it. Returns their
/// bytes; with `bytes` = 0 that is all it does. A symbolic link is not followed.
///
/// Errors: ENOENT, ERANGE if `names` is too small.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_listxattr(
    dir: Option<&perdure_dir>,
    path: Text,
    mut names: Room,
    bytes: usize,
) -> ssize_t {
    count("perdure_listxattr", || {
        let dir = &usable(dir, "dir")?.dir;
        let found = dir.list_xattrs(path.path("path")?)?;
        let parts = found.iter().flat_map(|name| [name.as_bytes(), b"\0"]);
        names.fill(bytes, "names", parts)
    })
}

/// Removes an extended attribute. A symbolic link is not followed. Durable when it returns.
///
/// Errors: ENOENT, ENODATA.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_removexattr(dir: Option<&perdure_dir>, path: Text, name: Text) -> c_int {
    status("perdure_removexattr", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.remove_xattr(path.path("path")?, name.path("name")?)?)
    })
}
