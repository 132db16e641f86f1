//! Processes that have a pool's segments mapped, and write some of its blocks without asking
//! (`docs/DIRECT.md`).
//!
//! Their server may be killed while they write. Then they must stop before the pool is opened
//! again: recovery gives the blocks that they write to others. So there is a folder beside the
//! segments with a file for each process, and one with the *epoch*, a word that processes look at
//! before and after each write. The opener of a pool changes the epoch. From then on no write
//! begins; it waits for those that had begun, by the words in which each process says that it is
//! busy.
//!
//! An honest process that outlives a server which ended in order stores nothing any more; its file
//! stays under another name as long as it lives. A dishonest one still has segments mapped, or has
//! given them to another process. So as long as that may be there is a *mark* in the folder, and
//! the opener of the pool then leaves each segment that is in use to its owner
//! ([`held`](super::held)).
//!
//! The files are shared memory of the ordinary kind. This side reads them by system calls, never by
//! mapping: a process could make its file shorter.

use super::held::{Usage, usage};
use super::holders::holders;
use crate::directory::PoolDirectory;
use crate::error::OpenError;
use crate::pool::{Mode, io_error};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the folder of processes.
pub const USERS_FOLDER: &str = "direct";
const EPOCH_FILE: &str = "epoch";
const PROCESS_PREFIX: &str = "process-";
/// Prefix of processes whose server ended in order.
const FORMER_PREFIX: &str = "former-";
/// Prefix of processes that do not end their writes: no opener waits for them again.
const LATE_PREFIX: &str = "late-";
/// Name of the mark: processes were given segments, and it is not known that no process has them
/// any more.
const MARK: &str = "given";

/// Number of places in which one process says that it is busy.
pub const SLOTS: usize = 1024;
/// Bytes of each place, a word of which is 0 if it is idle.
pub const SLOT_BYTES: usize = 64;

const PATIENCE: Duration = Duration::from_secs(5);

/// Executes a full fence on each processor that runs a thread of a process that has asked for it
/// (`membarrier`). Returns `false` if the kernel has no such call.
pub fn fence_everywhere() -> bool {
    // SAFETY: the call takes no pointers.
    unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED,
            0,
            0,
        ) == 0
    }
}

/// The processes that use an open pool.
#[derive(Debug)]
pub struct Users {
    folder: Arc<PoolDirectory>,
    epoch: u64,
}

/// The file of one process. Its name goes when this is dropped.
#[derive(Debug)]
pub struct User {
    folder: Arc<PoolDirectory>,
    name: String,
    file: File,
}

impl Users {
    /// Makes the folder, for the server that has the pool open.
    ///
    /// # Errors
    ///
    /// The system's error, e.g. because the pool is a device and has no folder.
    pub fn new(pool: &PoolDirectory) -> io::Result<Users> {
        let folder = Arc::new(pool.folder_or_new(USERS_FOLDER)?);
        let file = folder.file_or_new(EPOCH_FILE)?;
        if file.metadata()?.len() == 0 {
            file.write_all_at(&1_u64.to_ne_bytes(), 0)?;
            file.set_len(pmem::BLOCK_BYTES as u64)?;
        }
        let epoch = read_word(&file, 0)?;
        Ok(Users { folder, epoch })
    }

    /// Returns the epoch: as long as it is in its file, processes may write.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the epoch's file, to be handed to a process, which can only read it.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn epoch_file(&self) -> io::Result<File> {
        self.folder.file(EPOCH_FILE, Mode::ReadOnly)
    }

    /// Makes the file of a process, `bytes` long. The second result is for the process: as long as
    /// it is open or mapped, the process counts as alive.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn enter(&self, process: i32, number: u64, bytes: usize) -> io::Result<(User, File)> {
        self.folder.file_or_new(MARK)?;
        let name = format!("{PROCESS_PREFIX}{process}-{number}");
        if self.folder.has(&name) {
            self.folder.remove(&name)?;
        }
        let theirs = self.folder.create(&name)?;
        theirs.set_len(bytes as u64)?;
        flock(&theirs, FlockOperation::NonBlockingLockExclusive)?;
        let user = User {
            file: self.folder.file(&name, Mode::ReadOnly)?,
            folder: Arc::clone(&self.folder),
            name,
        };
        Ok((user, theirs))
    }

    /// Takes the mark away: no process has segments any more that were given.
    pub fn forget(&self) {
        unmark(&self.folder);
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        // This is only tidy: a file that stays disturbs no opener.
        let is_empty = |prefix| files_of(&self.folder, prefix).is_ok_and(|files| files.is_empty());
        let prefixes = [PROCESS_PREFIX, FORMER_PREFIX, LATE_PREFIX];
        if prefixes.into_iter().all(is_empty) && !is_marked(&self.folder) {
            let _ = self.folder.remove(EPOCH_FILE);
            let _ = self.folder.remove_itself();
        }
    }
}

impl User {
    /// Returns the name of its file in the folder.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Returns the word at a byte offset; `None` if the process has made its file shorter.
    pub fn word(&self, at: usize) -> Option<u64> {
        read_word(&self.file, at as u64).ok()
    }
}

impl User {
    /// Notes that the server ends before the process, which has segments mapped.
    pub fn leave_behind(&self) {
        if let Err(error) = self
            .folder
            .rename(&self.name, renamed(&self.name, FORMER_PREFIX))
        {
            let path = self.folder.path_of(&self.name);
            tracing::warn!(path = %path.display(), %error, "a process that lives on cannot be noted");
        }
    }
}

/// Returns the name of a process's file under another prefix.
fn renamed(name: &str, to: &str) -> String {
    let numbers = name.split_once('-').map_or(name, |(_, numbers)| numbers);
    format!("{to}{numbers}")
}

impl Drop for User {
    fn drop(&mut self) {
        // The next opener of the pool takes away a file that stays.
        let _ = self.folder.remove(&self.name);
    }
}

fn read_word(file: &File, at: u64) -> io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at)?;
    Ok(u64::from_ne_bytes(word))
}

/// The things that former servers have given to processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Given {
    /// Nothing that any process could still have.
    Nothing,
    /// Segments. Those that a process has open or mapped have to stay with their owners.
    Segments,
}

fn is_marked(folder: &PoolDirectory) -> bool {
    folder.has(MARK)
}

fn unmark(folder: &PoolDirectory) {
    // A mark that stays only makes the next opener ask once more.
    let _ = folder.remove(MARK);
}

/// Takes the mark away: no process has segments any more that former servers of this pool have
/// given. The caller has the pool open for writing.
pub(crate) fn forget_given(pool: &PoolDirectory) {
    if let Ok(folder) = pool.folder(USERS_FOLDER) {
        unmark(&folder);
    }
}

/// Stops the processes that a server which was killed has left behind. The caller has the pool
/// locked and not mapped it yet.
///
/// Waits [`PATIENCE`] for all processes together, and once for each: else a user could keep a pool
/// closed. A later store goes into segments that stay with the process's user.
///
/// # Errors
///
/// [`OpenError::Io`].
pub(crate) fn stop_former(pool: &PoolDirectory) -> Result<Given, OpenError> {
    let folder = match pool.folder(USERS_FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Given::Nothing),
        folder => folder.map_err(io_error(&pool.path_of(USERS_FOLDER), "open"))?,
    };
    for name in folder.names().map_err(io_error(folder.path(), "list"))? {
        let checked = folder.check_file(&name);
        checked.map_err(io_error(&folder.path_of(&name), "look at it"))?;
    }
    let listed = |prefix| files_of(&folder, prefix).map_err(io_error(folder.path(), "list"));
    let begin = Instant::now();
    stop(pool.path(), &folder, listed(PROCESS_PREFIX)?, begin)?;
    let is_gone_now = |name: &str| {
        let file = folder.file(name, Mode::ReadOnly);
        file.is_ok_and(|file| is_gone(&file))
    };
    for (name, process) in listed(FORMER_PREFIX)? {
        match is_gone_now(&name) {
            true => drop(folder.remove(&name)),
            // It was stopped when its server ended in order, and still sees blocks of its files.
            false if wait_until_idle(&folder, &name, begin)? => {}
            false => leave_late(pool.path(), &folder, &name, &process),
        }
    }
    let late = listed(LATE_PREFIX)?;
    let is_any_late = late
        .iter()
        .any(|(name, _)| !is_gone_now(name) || folder.remove(name).is_err());
    Ok(match is_marked(&folder) || is_any_late {
        true => Given::Segments,
        false => Given::Nothing,
    })
}

fn stop(
    pool: &Path,
    folder: &PoolDirectory,
    former: Vec<(String, String)>,
    begin: Instant,
) -> Result<(), OpenError> {
    if former.is_empty() {
        return Ok(());
    }
    let epoch = folder.path_of(EPOCH_FILE);
    let file = folder.file(EPOCH_FILE, Mode::ReadWrite);
    let file = file.map_err(io_error(&epoch, "open"))?;
    let next = read_word(&file, 0).unwrap_or(0).wrapping_add(1);
    file.write_all_at(&next.to_ne_bytes(), 0)
        .map_err(io_error(&epoch, "write"))?;
    fence_everywhere();
    for (name, process) in former {
        if !wait_until_idle(folder, &name, begin)? {
            leave_late(pool, folder, &name, &process);
            continue;
        }
        // If it is gone, the next look takes its file away.
        let renamed = folder.rename(&name, renamed(&name, FORMER_PREFIX));
        renamed.map_err(io_error(&folder.path_of(&name), "rename"))?;
    }
    Ok(())
}

/// Notes that a process does not end its write: the next openings do not wait for it.
fn leave_late(pool: &Path, folder: &PoolDirectory, name: &str, process: &str) {
    let holders = match folder.file(name, Mode::ReadOnly) {
        Ok(file) => who_has(&file, name, process),
        Err(_) => String::new(),
    };
    tracing::warn!(pool = %pool.display(), "a direct write has not ended that was begun under a server which is gone; {holders}. The pool is opened all the same: what the write stores yet can change files of that user only");
    // Under its old name the file makes the next opening wait once more.
    if let Err(error) = folder.rename(name, renamed(name, LATE_PREFIX)) {
        let path = folder.path_of(name);
        tracing::warn!(path = %path.display(), %error, "a process that lives on cannot be noted");
    }
}

/// Returns whether no process has a process's file any more: neither the file that was made, which
/// has a lock, nor one that passes mappings through to it.
fn is_gone(file: &File) -> bool {
    let has_no_lock = flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
    has_no_lock && usage(file) != Usage::Shared
}

/// Returns the files of processes whose names begin so, and the processes' numbers.
fn files_of(folder: &PoolDirectory, prefix: &str) -> io::Result<Vec<(String, String)>> {
    let names = folder.names()?.into_iter();
    let names = names.filter_map(|name| name.into_string().ok());
    let process_of = |name: &str| {
        let numbers = name.strip_prefix(prefix)?;
        numbers.split('-').next().map(str::to_owned)
    };
    Ok(names
        .filter_map(|name| process_of(&name).map(|process| (name, process)))
        .collect())
}

/// Returns whether a process ends its write in time; it may be gone, too.
fn wait_until_idle(folder: &PoolDirectory, name: &str, begin: Instant) -> Result<bool, OpenError> {
    let file = folder.file(name, Mode::ReadOnly);
    let file = file.map_err(io_error(&folder.path_of(name), "open"))?;
    while !is_idle(&file) && !is_gone(&file) {
        if begin.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

/// Returns which processes have the file, as text. It never names one that is gone: its number may
/// be reused.
fn who_has(file: &File, name: &str, process: &str) -> String {
    // The file had this name when the process got it.
    let name = name.replacen(FORMER_PREFIX, PROCESS_PREFIX, 1);
    let holders = holders(file, &name).unwrap_or_default();
    match &holders[..] {
        [] => "no process can be seen that has its words (a socket may hold them)".to_owned(),
        [holder] if holder == process => format!("process {holder} is in the middle of it"),
        holders => format!(
            "what its process was given is in the hands of process {}",
            holders.join(" and ")
        ),
    }
}

/// Returns whether no slot says busy. A file that is too short says nothing, so its process counts
/// as idle: it has only itself to harm.
fn is_idle(file: &File) -> bool {
    let mut slots = vec![0; SLOTS * SLOT_BYTES];
    match file.read_exact_at(&mut slots, 0) {
        Ok(()) => slots
            .chunks_exact(SLOT_BYTES)
            .all(|slot| slot[..8] == [0; 8]),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> (tempfile::TempDir, PoolDirectory) {
        let place = tempfile::tempdir().expect("a folder");
        let pool = PoolDirectory::open(place.path()).expect("opened");
        (place, pool)
    }

    #[test]
    fn who_opens_the_pool_waits_for_a_write_that_has_begun() {
        let (_place, pool) = pool();
        assert!(stop_former(&pool).is_ok(), "nobody was there");
        let users = Users::new(&pool).expect("users");
        let epoch = users.epoch_file().expect("epoch");
        let (mut user, theirs) = users
            .enter(1, 1, SLOTS * SLOT_BYTES)
            .expect("a process enters");
        theirs.write_all_at(&[1], 64).expect("busy");
        assert_eq!(user.word(64), Some(1));
        let path = pool.path().join(USERS_FOLDER).join(&user.name);
        // The server is killed.
        user.file = File::open("/dev/null").expect("another file");
        std::mem::forget((users, user));
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| stop_former(&pool));
            let begin = Instant::now();
            while read_word(&epoch, 0).expect("epoch") == 1 {
                assert!(begin.elapsed() < PATIENCE, "no new epoch");
            }
            std::thread::sleep(Duration::from_millis(50));
            assert!(!opener.is_finished(), "the process is writing");
            theirs.write_all_at(&[0], 64).expect("idle");
            assert!(opener.join().expect("no panic").is_ok());
        });
        assert!(!path.exists());
        let former = || files_of(&pool.folder(USERS_FOLDER)?, FORMER_PREFIX);
        assert_eq!(stop_former(&pool).ok(), Some(Given::Segments));
        assert_eq!(former().expect("listed").len(), 1, "it lives");
        drop(theirs);
        // It may have sent its file to another process.
        assert_eq!(stop_former(&pool).ok(), Some(Given::Segments));
        assert_eq!(former().expect("listed").len(), 0);
        forget_given(&pool);
        assert_eq!(stop_former(&pool).ok(), Some(Given::Nothing));
        assert_eq!(Users::new(&pool).expect("users").epoch(), 2);
    }

    #[test]
    fn the_dead_are_not_waited_for() {
        let (_place, pool) = pool();
        let users = Users::new(&pool).expect("users");
        let (mut user, theirs) = users
            .enter(1, 1, SLOTS * SLOT_BYTES)
            .expect("a process enters");
        theirs.write_all_at(&[1], 0).expect("busy");
        user.file = File::open("/dev/null").expect("another file");
        std::mem::forget(user);
        drop(theirs);
        let begin = Instant::now();
        assert!(stop_former(&pool).is_ok());
        assert!(begin.elapsed() < PATIENCE);
    }

    #[test]
    fn who_is_stopped_in_the_middle_is_waited_for_once() {
        let (_place, pool) = pool();
        let users = Users::new(&pool).expect("users");
        let (mut user, theirs) = users
            .enter(77, 1, SLOTS * SLOT_BYTES)
            .expect("a process enters");
        theirs.write_all_at(&[1], 0).expect("busy");
        let elapsed = || {
            let begin = Instant::now();
            assert_eq!(stop_former(&pool).ok(), Some(Given::Segments));
            begin.elapsed()
        };
        assert!(elapsed() > PATIENCE);
        // Its segments were noted when it got them; and no opener waits for it again.
        forget_given(&pool);
        assert!(elapsed() < PATIENCE / 2);
        user.file = File::open("/dev/null").expect("another file");
        drop(theirs);
        assert_eq!(stop_former(&pool).ok(), Some(Given::Nothing));
        let folder = pool.folder(USERS_FOLDER).expect("the folder");
        let files = files_of(&folder, LATE_PREFIX);
        assert_eq!(files.expect("listed").len(), 0);
    }

    #[test]
    fn who_has_what_another_was_given_is_named() {
        let (_place, pool) = pool();
        let users = Users::new(&pool).expect("users");
        let (user, theirs) = users
            .enter(i32::MAX, 1, SLOTS * SLOT_BYTES)
            .expect("a process enters");
        let mut heir = std::process::Command::new("sleep")
            .arg("60")
            .stdin(theirs)
            .spawn()
            .expect("a process");
        let (number, gone) = (heir.id().to_string(), i32::MAX.to_string());
        let named = who_has(&user.file, &user.name, &gone);
        assert!(named.ends_with(&format!("process {number}")), "{named}");
        let named = who_has(&user.file, &user.name, &number);
        assert!(
            named.starts_with(&format!("process {number} is in")),
            "{named}"
        );
        heir.kill().expect("killed");
        heir.wait().expect("ended");
        let named = who_has(&user.file, &user.name, &gone);
        assert!(
            named.starts_with("no process") && !named.contains(&gone),
            "{named}"
        );
    }
}
