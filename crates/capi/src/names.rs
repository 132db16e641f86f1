//! Making, removing and renaming. Each is one transaction: durable when it returns, and after a power cut done or not done.

use crate::boundary::{status, truth};
use crate::directory::perdure_dir;
use crate::failure::Failure;
use crate::pointers::{Text, usable};
use crate::pool_options::known_flags;
use perdure::RenameOptions;
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Fail with EEXIST if the new name exists.
pub const PERDURE_RENAME_NO_REPLACE: u32 = 1;
/// Exchange the two names.
pub const PERDURE_RENAME_EXCHANGE: u32 = 2;
/// Leave a whiteout (character device 0/0) at the old name.
pub const PERDURE_RENAME_WHITEOUT: u32 = 4;

/// Creates an empty directory with these permission bits less the pool's umask. Durable when it
/// returns.
///
/// Errors: EEXIST, ENOENT (no parent), ENOSPC, EROFS.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_mkdir(dir: Option<&perdure_dir>, path: Text, mode: u32) -> c_int {
    status("perdure_mkdir", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.create_dir_with_mode(path.path("path")?, mode)?)
    })
}

/// Creates a directory and all parents that are missing, with permission bits 0777 less the pool's
/// umask; one that exists is no error. Each of them is durable, and atomic, by itself.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_mkdir_all(dir: Option<&perdure_dir>, path: Text) -> c_int {
    status("perdure_mkdir_all", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.create_dir_all(path.path("path")?)?)
    })
}

/// Creates a fifo, a socket or a device node: `mode` as st_mode, `device` as st_rdev. The library
/// cannot open them; programs on a mount can. Durable when it returns.
///
/// Errors: EEXIST, EINVAL for other types.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_mknod(
    dir: Option<&perdure_dir>,
    path: Text,
    mode: u32,
    device: u32,
) -> c_int {
    status("perdure_mknod", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.create_node(path.path("path")?, mode, device)?)
    })
}

/// Removes a name of a file. The file goes with its last name and its last open handle. Durable
/// when it returns.
///
/// Errors: ENOENT, EISDIR.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_unlink(dir: Option<&perdure_dir>, path: Text) -> c_int {
    status("perdure_unlink", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.remove_file(path.path("path")?)?)
    })
}

/// Removes an empty directory. Durable when it returns.
///
/// Errors: ENOENT, ENOTDIR, ENOTEMPTY.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_rmdir(dir: Option<&perdure_dir>, path: Text) -> c_int {
    status("perdure_rmdir", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.remove_dir(path.path("path")?)?)
    })
}

/// Removes a directory and all that is in it; a symbolic link is removed, not followed. Each
/// removal is durable, and atomic, by itself.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_remove_all(dir: Option<&perdure_dir>, path: Text) -> c_int {
    status("perdure_remove_all", || {
        let dir = &usable(dir, "dir")?.dir;
        Ok(dir.remove_dir_all(path.path("path")?)?)
    })
}

/// Gives an object another name, replacing what had that name (unless a flag says otherwise), as
/// one transaction. `flags`: PERDURE_RENAME_…, or 0. Durable when it returns.
///
/// Errors: those of renameat2(2).
#[unsafe(no_mangle)]
pub extern "C" fn perdure_rename(
    dir: Option<&perdure_dir>,
    from: Text,
    to: Text,
    flags: u32,
) -> c_int {
    status("perdure_rename", || {
        let dir = &usable(dir, "dir")?.dir;
        let known = PERDURE_RENAME_NO_REPLACE | PERDURE_RENAME_EXCHANGE | PERDURE_RENAME_WHITEOUT;
        known_flags(flags, known)?;
        let options = RenameOptions {
            no_replace: flags & PERDURE_RENAME_NO_REPLACE != 0,
            exchange: flags & PERDURE_RENAME_EXCHANGE != 0,
            whiteout: flags & PERDURE_RENAME_WHITEOUT != 0,
        };
        Ok(dir.rename_with(from.path("from")?, to.path("to")?, options)?)
    })
}

/// Copies the content (holes as holes) and the permission bits of a regular file. `bytes` gets the
/// size, unless it is NULL. A copy that a power cut interrupts may be there in part: copy to
/// another name and rename.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_copy(
    dir: Option<&perdure_dir>,
    from: Text,
    to: Text,
    bytes: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    status("perdure_copy", || {
        let dir = &usable(dir, "dir")?.dir;
        let copied = dir.copy(from.path("from")?, to.path("to")?)?;
        if let Some(bytes) = bytes {
            bytes.write(copied);
        }
        Ok(())
    })
}

/// Whether there is an object at `path`: 1 or 0, or -1. A symbolic link to nowhere is none.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_exists(dir: Option<&perdure_dir>, path: Text) -> c_int {
    truth("perdure_exists", || {
        let dir = &usable(dir, "dir")?.dir;
        dir.exists(path.path("path")?).map_err(Failure::from)
    })
}
