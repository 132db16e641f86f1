//! Processes that have a pool's segments mapped, and write some of its blocks without asking (`docs/DIRECT.md`).
//!
//! Their server may be killed while they write. Then they must stop before anybody else opens the pool: recovery gives the blocks that they write to others. So there is a folder
//! beside the segments with a file for each of them, and one with the *epoch*, a word that they look at before and after each write. Who opens the pool changes the epoch. From then on no write begins;
//! those that had begun are waited for, by looking at the words in which each process says that it is busy.
//!
//! A process that outlives a server which ended in order stores nothing any more, if it is honest; its file stays under another name as long as it lives. If it is not, it still has segments mapped, or
//! somebody else has to whom it gave them. So as long as that may be there is a *mark* in the folder, and who opens the pool then leaves each segment that somebody has to its owner ([`crate::held`]).
//!
//! The files are shared memory of the ordinary kind. This side reads them by system calls, never by mapping: a process could make its file shorter.

use crate::error::OpenError;
use crate::held::{Usage, usage};
use crate::holders::holders;
use crate::pool::io_error;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of the folder.
pub const USERS_FOLDER: &str = "direct";
const EPOCH_FILE: &str = "epoch";
const PROCESS_PREFIX: &str = "process-";
/// Of processes whose server ended in order.
const FORMER_PREFIX: &str = "former-";
/// Of processes that do not end their writes: nobody waits for them again.
const LATE_PREFIX: &str = "late-";
/// Somebody was given segments, and it is not known that nobody has them any more.
const MARK: &str = "given";

/// Places in which one process says what it is busy with.
pub const SLOTS: usize = 1024;
/// Bytes of each, a word of which is 0 if it is idle.
pub const SLOT_BYTES: usize = 64;

const PATIENCE: Duration = Duration::from_secs(5);

/// Executes a full fence on each processor that runs a thread of a process that has asked for it (`membarrier`). `false` if the kernel has no such call.
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
    folder: PathBuf,
    epoch: u64,
}

/// The file of one process. Its name goes when this is dropped.
#[derive(Debug)]
pub struct User {
    path: PathBuf,
    file: File,
}

impl Users {
    /// For the owner of the pool, who has it open.
    ///
    /// # Errors
    ///
    /// What the system says, e.g. because the pool is a device and has no folder.
    pub fn new(pool: &Path) -> io::Result<Users> {
        let folder = pool.join(USERS_FOLDER);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join(EPOCH_FILE))?;
        if file.metadata()?.len() == 0 {
            file.write_all_at(&1_u64.to_ne_bytes(), 0)?;
            file.set_len(pmem::BLOCK_BYTES as u64)?;
        }
        let epoch = read_word(&file, 0)?;
        Ok(Users { folder, epoch })
    }

    /// The epoch: as long as it is in its file, processes may write.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch's file, to be handed to a process: it can only read it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn epoch_file(&self) -> io::Result<File> {
        File::open(self.folder.join(EPOCH_FILE))
    }

    /// Makes the file of a process, `bytes` long. The second is for the process: as long as it is open or mapped, the process counts as alive.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn enter(&self, process: i32, number: u64, bytes: usize) -> io::Result<(User, File)> {
        File::create(self.folder.join(MARK))?;
        let path = self
            .folder
            .join(format!("{PROCESS_PREFIX}{process}-{number}"));
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&path)
        };
        let theirs = open()?;
        theirs.set_len(bytes as u64)?;
        flock(&theirs, FlockOperation::NonBlockingLockExclusive)?;
        let file = File::open(&path)?;
        Ok((User { path, file }, theirs))
    }

    /// Nobody has segments any more that were given to processes.
    pub fn forget(&self) {
        unmark(&self.folder);
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        // Tidiness only: what stays disturbs nobody.
        let is_empty = |prefix| files_of(&self.folder, prefix).is_ok_and(|files| files.is_empty());
        if [PROCESS_PREFIX, FORMER_PREFIX, LATE_PREFIX]
            .into_iter()
            .all(is_empty)
            && !is_marked(&self.folder)
        {
            let _ = fs::remove_file(self.folder.join(EPOCH_FILE));
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

impl User {
    /// The name of its file in the folder.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The word at a byte offset; `None` if the process has made its file shorter.
    pub fn word(&self, at: usize) -> Option<u64> {
        read_word(&self.file, at as u64).ok()
    }
}

impl User {
    /// The server ends before the process, which has segments mapped.
    pub fn leave_behind(&self) {
        let former = renamed(&self.path, PROCESS_PREFIX, FORMER_PREFIX);
        if let Err(error) = fs::rename(&self.path, &former) {
            tracing::warn!(path = %self.path.display(), %error, "a process that lives on cannot be noted");
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // A file that stays is taken away by who opens the pool next.
        let _ = fs::remove_file(&self.path);
    }
}

fn read_word(file: &File, at: u64) -> io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at)?;
    Ok(u64::from_ne_bytes(word))
}

/// What former servers have given to processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Given {
    /// Nothing that anybody could still have.
    Nothing,
    /// Segments. Those that somebody has open or mapped have to stay with their owners.
    Segments,
}

fn is_marked(folder: &Path) -> bool {
    folder.join(MARK).exists()
}

fn unmark(folder: &Path) {
    // A mark that stays only makes who opens the pool ask once more.
    let _ = fs::remove_file(folder.join(MARK));
}

/// Nobody has segments any more that former servers of this pool have given to processes. To be said by who has it open for writing.
pub(crate) fn forget_given(pool: &Path) {
    unmark(&pool.join(USERS_FOLDER));
}

/// Stops the processes that a server which was killed has left behind. The caller has the pool locked and not mapped it yet.
///
/// Waits [`PATIENCE`] for all processes together, and once for each: else a user could keep a pool
/// closed. A later store goes into segments that stay with the process's user.
///
/// # Errors
///
/// [`OpenError::Io`].
pub(crate) fn stop_former(pool: &Path) -> Result<Given, OpenError> {
    let folder = pool.join(USERS_FOLDER);
    let listed = |prefix| files_of(&folder, prefix).map_err(io_error(&folder, "list"));
    let begin = Instant::now();
    stop(pool, &folder, listed(PROCESS_PREFIX)?, begin)?;
    for (path, process) in listed(FORMER_PREFIX)? {
        match File::open(&path).is_ok_and(|file| is_gone(&file)) {
            true => drop(fs::remove_file(&path)),
            // It was stopped when its server ended in order, and still sees blocks of its files.
            false if wait_until_idle(&path, begin)? => {}
            false => leave_late(pool, &path, &process),
        }
    }
    let late = listed(LATE_PREFIX)?;
    let is_any_late = late.iter().any(|(path, _)| {
        let is_gone = File::open(path).is_ok_and(|file| is_gone(&file));
        !is_gone || fs::remove_file(path).is_err()
    });
    Ok(match is_marked(&folder) || is_any_late {
        true => Given::Segments,
        false => Given::Nothing,
    })
}

fn stop(
    pool: &Path,
    folder: &Path,
    former: Vec<(PathBuf, String)>,
    begin: Instant,
) -> Result<(), OpenError> {
    if former.is_empty() {
        return Ok(());
    }
    let epoch = folder.join(EPOCH_FILE);
    let file = File::options().read(true).write(true).open(&epoch);
    let file = file.map_err(io_error(&epoch, "open"))?;
    let next = read_word(&file, 0).unwrap_or(0).wrapping_add(1);
    file.write_all_at(&next.to_ne_bytes(), 0)
        .map_err(io_error(&epoch, "write"))?;
    fence_everywhere();
    for (path, process) in former {
        if !wait_until_idle(&path, begin)? {
            leave_late(pool, &path, &process);
            continue;
        }
        // If it is gone, the next look takes its file away.
        let former = renamed(&path, PROCESS_PREFIX, FORMER_PREFIX);
        fs::rename(&path, former).map_err(io_error(&path, "rename"))?;
    }
    Ok(())
}

/// The path of a process's file under another prefix.
fn renamed(path: &Path, from: &str, to: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let numbers = name.strip_prefix(from).unwrap_or(&name);
    path.with_file_name(format!("{to}{numbers}"))
}

/// Notes that a process does not end its write: the next openings do not wait for it.
fn leave_late(pool: &Path, path: &Path, process: &str) {
    let holders =
        File::open(path).map_or_else(|_| String::new(), |file| who_has(&file, path, process));
    tracing::warn!(pool = %pool.display(), "a direct write has not ended that was begun under a server which is gone; {holders}. The pool is opened all the same: what the write stores yet can change files of that user only");
    let prefix = match path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(PROCESS_PREFIX))
    {
        true => PROCESS_PREFIX,
        false => FORMER_PREFIX,
    };
    // Under its old name the file makes the next opening wait once more.
    if let Err(error) = fs::rename(path, renamed(path, prefix, LATE_PREFIX)) {
        tracing::warn!(path = %path.display(), %error, "a process that lives on cannot be noted");
    }
}

/// Whether nobody has the file of a process any more: neither the one that was made, which has a lock, nor one that passes mappings through to it.
fn is_gone(file: &File) -> bool {
    let has_no_lock = flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
    has_no_lock && usage(file) != Usage::Shared
}

/// The files of processes whose names begin so, and the processes' numbers.
fn files_of(folder: &Path, prefix: &str) -> io::Result<Vec<(PathBuf, String)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let process = name
            .strip_prefix(prefix)
            .and_then(|numbers| numbers.split('-').next().map(str::to_owned));
        found.extend(process.map(|process| (path.clone(), process)));
    }
    Ok(found)
}

/// Whether a process comes to the end of its write while there is patience; it may be gone, too.
fn wait_until_idle(path: &Path, begin: Instant) -> Result<bool, OpenError> {
    let file = File::options().read(true).open(path);
    let file = file.map_err(io_error(path, "open"))?;
    while !is_idle(&file) && !is_gone(&file) {
        if begin.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

/// Says which processes have the file. Never names one that is gone: its number may be reused.
fn who_has(file: &File, path: &Path, process: &str) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // What it was called when the process got it.
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

/// Whether no slot says busy. A file that is too short says nothing, so its process counts as idle: it has only itself to harm.
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

    #[test]
    fn who_opens_the_pool_waits_for_a_write_that_has_begun() {
        let pool = tempfile::tempdir().expect("a folder");
        assert!(stop_former(pool.path()).is_ok(), "nobody was there");
        let users = Users::new(pool.path()).expect("users");
        let epoch = users.epoch_file().expect("epoch");
        let (mut user, theirs) = users
            .enter(1, 1, SLOTS * SLOT_BYTES)
            .expect("a process enters");
        theirs.write_all_at(&[1], 64).expect("busy");
        assert_eq!(user.word(64), Some(1));
        let path = user.path.clone();
        // The server is killed.
        user.file = File::open("/dev/null").expect("another file");
        std::mem::forget((users, user));
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| stop_former(pool.path()));
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
        let former = || files_of(&pool.path().join(USERS_FOLDER), FORMER_PREFIX);
        assert_eq!(stop_former(pool.path()).ok(), Some(Given::Segments));
        assert_eq!(former().expect("listed").len(), 1, "it lives");
        drop(theirs);
        // It may have sent what it was given to somebody else.
        assert_eq!(stop_former(pool.path()).ok(), Some(Given::Segments));
        assert_eq!(former().expect("listed").len(), 0);
        forget_given(pool.path());
        assert_eq!(stop_former(pool.path()).ok(), Some(Given::Nothing));
        assert_eq!(Users::new(pool.path()).expect("users").epoch(), 2);
    }

    #[test]
    fn the_dead_are_not_waited_for() {
        let pool = tempfile::tempdir().expect("a folder");
        let users = Users::new(pool.path()).expect("users");
        let (mut user, theirs) = users
            .enter(1, 1, SLOTS * SLOT_BYTES)
            .expect("a process enters");
        theirs.write_all_at(&[1], 0).expect("busy");
        user.file = File::open("/dev/null").expect("another file");
        std::mem::forget(user);
        drop(theirs);
        let begin = Instant::now();
        assert!(stop_former(pool.path()).is_ok());
        assert!(begin.elapsed() < PATIENCE);
    }

    #[test]
    fn who_is_stopped_in_the_middle_is_waited_for_once() {
        let pool = tempfile::tempdir().expect("a folder");
        let users = Users::new(pool.path()).expect("users");
        let (mut user, theirs) = users
            .enter(77, 1, SLOTS * SLOT_BYTES)
            .expect("a process enters");
        theirs.write_all_at(&[1], 0).expect("busy");
        let elapsed = || {
            let begin = Instant::now();
            assert_eq!(stop_former(pool.path()).ok(), Some(Given::Segments));
            begin.elapsed()
        };
        assert!(elapsed() > PATIENCE);
        // Whatever it had was noted when it got it; and nobody waits for it again.
        forget_given(pool.path());
        assert!(elapsed() < PATIENCE / 2);
        user.file = File::open("/dev/null").expect("another file");
        drop(theirs);
        assert_eq!(stop_former(pool.path()).ok(), Some(Given::Nothing));
        let files = files_of(&pool.path().join(USERS_FOLDER), LATE_PREFIX);
        assert_eq!(files.expect("listed").len(), 0);
    }

    #[test]
    fn who_has_what_another_was_given_is_named() {
        let pool = tempfile::tempdir().expect("a folder");
        let users = Users::new(pool.path()).expect("users");
        let (user, theirs) = users
            .enter(i32::MAX, 1, SLOTS * SLOT_BYTES)
            .expect("a process enters");
        let mut heir = std::process::Command::new("sleep")
            .arg("60")
            .stdin(theirs)
            .spawn()
            .expect("a process");
        let (number, gone) = (heir.id().to_string(), i32::MAX.to_string());
        let named = who_has(&user.file, &user.path, &gone);
        assert!(named.ends_with(&format!("process {number}")), "{named}");
        let named = who_has(&user.file, &user.path, &number);
        assert!(
            named.starts_with(&format!("process {number} is in")),
            "{named}"
        );
        heir.kill().expect("killed");
        heir.wait().expect("ended");
        let named = who_has(&user.file, &user.path, &gone);
        assert!(
            named.starts_with("no process") && !named.contains(&gone),
            "{named}"
        );
    }
}
