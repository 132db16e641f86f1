//! Removing a pool's files.

use crate::directory::PoolDirectory;
use crate::disk::LOG_FILE;
use crate::pool::{CONTROL_SOCKET, HOME_FILE, OWNER_FILE, SUPER_FILE, is_refused};
use crate::sharing::{USERS_FOLDER, lift_left_seal};
use std::ffi::OsStr;
use std::io;

/// Removes a pool's files, and then its directory, if nothing else is in it. Of a link to the
/// pool's home only the link goes.
///
/// # Errors
///
/// The system's error. Other files stay, and with them the directory.
pub fn remove(pool: &PoolDirectory) -> io::Result<()> {
    // First, so that the rest of an interrupted removal does not look like a pool.
    remove_if_there(pool, SUPER_FILE)?;
    for name in pool.names()? {
        let is_segment = name.as_encoded_bytes().starts_with(b"segment-");
        let is_single =
            [OWNER_FILE, CONTROL_SOCKET, LOG_FILE, HOME_FILE].contains(&&*name.to_string_lossy());
        if is_segment || is_single {
            remove_file(pool, &name)?;
        } else if name == USERS_FOLDER {
            remove_folder(pool)?;
        }
    }
    pool.remove_itself()
}

/// Removes a file, also one that a killed server has left marked as one that only grows.
fn remove_file(pool: &PoolDirectory, name: &OsStr) -> io::Result<()> {
    match pool.remove(name) {
        Err(error) if is_refused(&error) && lift_left_seal(pool, name) => pool.remove(name),
        removed => removed,
    }
}

fn remove_if_there(pool: &PoolDirectory, name: &str) -> io::Result<()> {
    match pool.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes the folder of processes. A link in its place goes, and its target stays.
fn remove_folder(pool: &PoolDirectory) -> io::Result<()> {
    let Ok(folder) = pool.folder(USERS_FOLDER) else {
        return pool.remove(USERS_FOLDER);
    };
    for name in folder.names()? {
        folder.remove(name)?;
    }
    pool.remove_folder(USERS_FOLDER)
}
