//! Finding out and waiting: which pool is mounted where, and when its owner lets go of it.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags};
use serde::de::DeserializeOwned;
use server::control::{AskError, CachedFile, ClientStatus, Question, Status};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;
use txn::pool::SUPER_FILE;
use txn::{OpenError, PoolDirectory};

/// Time between two looks at a lock.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long a server whose mount is gone may take to save the pool.
const SAVE_PATIENCE: Duration = Duration::from_secs(60);
/// How long a process that is not known may keep a pool: servers remove their note before the lock.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(1);

/// What the server that holds `pool` says of itself.
pub(crate) fn ask(pool: &Path) -> Result<Status, AskError> {
    ask_for(pool, Question::Stat)
}

/// The files that the server of `pool` has copies of in DRAM, those with most hits first.
pub(crate) fn ask_for_cached_files(pool: &Path) -> Result<Vec<CachedFile>, AskError> {
    ask_for(pool, Question::Files)
}

/// The processes that read and write files of the mounted `pool` directly.
pub(crate) fn ask_for_clients(pool: &Path) -> Result<Vec<ClientStatus>, AskError> {
    ask_for(pool, Question::Clients)
}

/// Has the server of `pool` copy everything that is dirty to the home.
pub(crate) fn begin_flush(pool: &Path) -> Result<(), AskError> {
    server::control::ask(pool, Question::Flush).map(drop)
}

fn ask_for<T: DeserializeOwned>(pool: &Path, question: Question) -> Result<T, AskError> {
    let text = server::control::ask(pool, question)?;
    serde_json::from_str(&text).map_err(|_| AskError::OtherProtocol { pool: pool.into() })
}

/// Waits until no process has the pool open. False if that takes longer than `patience`.
pub(crate) fn wait_for_release(pool: &Path, patience: Duration) -> io::Result<bool> {
    let head = open_head(pool, txn::Mode::ReadOnly)?;
    let start = std::time::Instant::now();
    loop {
        match rustix::fs::flock(&head, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if start.elapsed() < patience => {
                std::thread::sleep(LOOK_AGAIN)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens a pool, and tries again while the server of a mount that is gone still saves it:
/// umount(8) returns before that server has ended.
pub(crate) fn open_once_saved<T, E>(
    pool: &Path,
    mut open: impl FnMut() -> Result<T, E>,
    reason: impl Fn(&E) -> Option<&OpenError>,
) -> Result<T, E> {
    let start = std::time::Instant::now();
    loop {
        let opened = open();
        let patience = match opened.as_ref().err().and_then(&reason) {
            Some(OpenError::InUse { owner, .. }) => patience_with(*owner, pool),
            // A server that ends unlocks the pool and its memory one after the other.
            Some(OpenError::MemoryInUse { .. }) => Some(UNKNOWN_PATIENCE),
            _ => None,
        };
        let Some(patience) = patience else {
            return opened;
        };
        if start.elapsed() >= patience {
            return opened;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// How long it pays to wait for the owner of a pool. `None`: it uses the pool.
fn patience_with(owner: Option<u32>, pool: &Path) -> Option<Duration> {
    let Some(process) = owner else {
        return Some(UNKNOWN_PATIENCE);
    };
    let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    if command.is_empty() {
        // It has ended since it was met as the owner, so the pool is free or has another one.
        return Some(UNKNOWN_PATIENCE);
    }
    if command.split(|byte| *byte == 0).nth(1) != Some(b"mount") {
        return None;
    }
    match server::is_mounted_for(process, &pool.canonicalize().ok()?) {
        Ok(true) => None,
        // It saves the pool, or has not mounted it yet.
        Ok(false) => Some(SAVE_PATIENCE),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        Err(_) => Some(UNKNOWN_PATIENCE),
    }
}

/// The file of a pool that its owner locks.
pub(crate) fn open_head(pool: &Path, mode: txn::Mode) -> io::Result<File> {
    if pool.is_dir() {
        return PoolDirectory::open(pool)?.file(SUPER_FILE, mode);
    }
    txn::directory::open_device(pool, mode)
}

/// A process whose end can be waited for, even if its number is used again.
pub(crate) struct Process(rustix::fd::OwnedFd);

impl Process {
    /// `None` if there is no such process.
    pub(crate) fn find(process: u32) -> Option<Process> {
        let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .ok()
            .map(Process)
    }

    /// Waits until the process has ended. False if that takes longer than `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        };
        let mut waiting = [PollFd::new(&self.0, PollFlags::IN)];
        matches!(rustix::event::poll(&mut waiting, Some(&timeout)), Ok(count) if count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_ends_between_two_looks_is_no_failure() {
        let mut ended = std::process::Command::new("true").spawn().expect("spawned");
        let owner = Some(ended.id());
        assert!(ended.wait().expect("ended").success());
        let pool = Path::new("/pool");
        let mut looks = 0;
        let opened = open_once_saved(
            pool,
            || {
                looks += 1;
                let path = pool.to_path_buf();
                let in_use = OpenError::InUse { path, owner };
                if looks == 1 { Err(in_use) } else { Ok(()) }
            },
            |error| Some(error),
        );
        assert!(opened.is_ok(), "{opened:?}");
    }
}
