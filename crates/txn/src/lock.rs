//! The lock by which a process keeps a pool for itself, and the note that names the process.

use crate::directory::PoolDirectory;
use crate::error::OpenError;
use crate::pool::{Mode, OWNER_FILE, io_error};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Longest text in [`OWNER_FILE`]: the digits of a process's number.
const OWNER_BYTES_MAX: u64 = 16;

/// Keeps a pool for this process until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    /// The directory with the file that names this process.
    named_in: Option<Arc<PoolDirectory>>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(directory) = &self.named_in {
            let _ = directory.remove(OWNER_FILE);
        }
        // Explicit: a child that another thread just starts has the file open until its exec.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Locks the pool whose first file is `head`.
pub(crate) fn lock(
    pool: &Path,
    head: &File,
    mode: Mode,
    directory: Option<&Arc<PoolDirectory>>,
) -> Result<Lock, OpenError> {
    let operation = match mode {
        Mode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        Mode::ReadOnly => FlockOperation::NonBlockingLockShared,
    };
    flock(head, operation).map_err(|error| match error {
        Errno::WOULDBLOCK => OpenError::InUse {
            path: pool.to_path_buf(),
            owner: directory.and_then(|directory| named_owner(directory)),
        },
        error => io_error(pool, "lock")(error.into()),
    })?;
    let file = head.try_clone().map_err(io_error(pool, "lock"))?;
    let named_in = directory.filter(|directory| mode == Mode::ReadWrite && name_owner(directory));
    Ok(Lock {
        file,
        named_in: named_in.cloned(),
    })
}

/// The process that the note in the pool names.
fn named_owner(pool: &PoolDirectory) -> Option<u32> {
    let file = pool.file(OWNER_FILE, Mode::ReadOnly).ok()?;
    let mut text = String::new();
    file.take(OWNER_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Names this process in a new note. `false` if that fails: the note is for messages only.
fn name_owner(pool: &PoolDirectory) -> bool {
    let _ = pool.remove(OWNER_FILE);
    let text = format!("{}\n", std::process::id());
    let note = pool.create(OWNER_FILE);
    note.is_ok_and(|file| file.write_all_at(text.as_bytes(), 0).is_ok())
}
