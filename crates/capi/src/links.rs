//! Links, and what paths come to.

use crate::boundary::{count, status};
use crate::directory::perdure_dir;
use crate::pointers::{Room, Text, usable};
use libc::ssize_t;
use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Gives a file a further name. A symbolic link is not followed. Durable when it returns.
///
/// Errors: ENOENT, EEXIST, EPERM for directories.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_link(dir: Option<&perdure_dir>, original: Text, link: Text) -> c_int {
    status("perdure_link", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.hard_link(original.path("original")?, link.path("link")?)?)
    })
}

/// Creates a symbolic link with this text. Durable when it returns.
///
/// Errors: EEXIST, ENOENT (no parent, or an empty text).
#[unsafe(no_mangle)]
pub extern "C" fn perdure_symlink(dir: Option<&perdure_dir>, text: Text, link: Text) -> c_int {
    status("perdure_symlink", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.symlink(text.path("text")?, link.path("link")?)?)
    })
}

/// The text of a symbolic link, with a byte of value zero behind it. Returns the number of bytes,
/// that one included; with `bytes` = 0 that is all it does.
///
/// Errors: EINVAL for anything but a symbolic link, ERANGE if `text` is too small.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_readlink(
    dir: Option<&perdure_dir>,
    path: Text,
    mut text: Room,
    bytes: usize,
) -> ssize_t {
    count("perdure_readlink", || {
        let dir = &usable(dir, "dir")?.dir;
        let found = dir.read_link(path.path("path")?)?;
        text.fill(bytes, "text", terminated(&found))
    })
}

/// The absolute path of an existing object, from the root of the pool, without `.`, `..` and
/// symbolic links, with a byte of value zero behind it. Returns the number of bytes, that one
/// included; with `bytes` = 0 that is all it does. 4096 bytes are always enough for a path that was
/// given as one.
///
/// Errors: ENOENT, ERANGE if `absolute` is too small.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_realpath(
    dir: Option<&perdure_dir>,
    path: Text,
    mut absolute: Room,
    bytes: usize,
) -> ssize_t {
    count("perdure_realpath", || {
        let dir = &usable(dir, "dir")?.dir;
        let found = dir.canonicalize(path.path("path")?)?;
        absolute.fill(bytes, "absolute", terminated(&found))
    })
}

fn terminated(path: &Path) -> impl Iterator<Item = &[u8]> + Clone {
    [path.as_os_str().as_bytes(), b"\0"].into_iter()
}
