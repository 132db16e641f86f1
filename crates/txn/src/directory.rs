//! A pool's directory as a handle: the one way to everything in it.
//!
//! The directory may belong to an ordinary user while root opens the pool. So the path is resolved
//! once, and each name in the directory is opened below that handle, without following links and
//! without waiting. The object must be a regular file with one name that belongs to the directory's
//! owner; new files get that owner.

use crate::pool::Mode;
use rustix::fs::{
    self as sys, AtFlags, CWD, FileType, Gid, Mode as Permissions, OFlags, Stat, Uid, fstat, statat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long opening waits for a process that has a lease on the file (`F_SETLEASE`).
const LEASE_PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

const FILE_MODE: Permissions = Permissions::RUSR.union(Permissions::WUSR);
const FOLDER_MODE: Permissions = Permissions::RWXU;

/// A name in a pool's directory that leads to something else than a file of the pool.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{path}: {found}; nothing was read or changed")]
pub struct Foreign {
    /// The name.
    pub path: PathBuf,
    /// The object that has the name.
    pub found: Found,
}

/// The object under a name that should be a file of a pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// Not a regular file.
    Kind(&'static str),
    /// Not a directory.
    NoDirectory(&'static str),
    /// Not a socket.
    NoSocket(&'static str),
    /// A file with further names, which may be outside of the pool.
    Names(u64),
    /// An object of another user than the directory's owner.
    Owner {
        /// Its owner.
        owner: u32,
        /// The directory's owner.
        expected: u32,
    },
    /// A file that another process keeps to itself by a lease.
    Leased,
}

impl fmt::Display for Found {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = "remove it or put the pool's own file there, then run `perdure fsck --repair`";
        match self {
            Found::Kind(kind) => {
                write!(to, "is {kind}, and a pool has regular files only; {remedy}")
            }
            Found::NoDirectory(kind) => {
                write!(to, "is {kind} instead of a directory; remove it")
            }
            Found::NoSocket(kind) => write!(to, "is {kind} instead of a socket; remove it"),
            Found::Names(names) => write!(
                to,
                "has {names} names (hard links), and a pool's file has one; remove the others, or put a copy in its place"
            ),
            Found::Owner { owner, expected } => write!(
                to,
                "belongs to user {owner}, and its directory to user {expected}; if it is the pool's, give both one owner (chown)"
            ),
            Found::Leased => write!(
                to,
                "is leased by another process, which does not give it back; end that process"
            ),
        }
    }
}

/// A pool's directory, or a folder in it.
#[derive(Debug)]
pub struct PoolDirectory {
    handle: OwnedFd,
    /// For messages.
    path: PathBuf,
    owner: Uid,
    group: Gid,
}

impl PoolDirectory {
    /// Opens the directory at a path that the caller was given; links in that path are followed.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn open(path: &Path) -> io::Result<PoolDirectory> {
        PoolDirectory::at(CWD, path.as_os_str(), OFlags::empty(), path.to_path_buf())
    }

    /// Makes a directory with mode 700 and opens it.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`, or another error of the system; [`Foreign`] if another user's directory has
    /// taken its place.
    pub fn make(path: &Path) -> io::Result<PoolDirectory> {
        sys::mkdirat(CWD, path, FOLDER_MODE)?;
        let name = path.as_os_str();
        let made = PoolDirectory::at(CWD, name, OFlags::NOFOLLOW, path.to_path_buf())?;
        made.require_owner(rustix::process::geteuid())
    }

    /// Opens a directory that has to be this user's own; a link in its place is not followed.
    ///
    /// # Errors
    ///
    /// The system's error; [`Foreign`] if the directory belongs to another user.
    pub fn own(path: &Path) -> io::Result<PoolDirectory> {
        let found = PoolDirectory::at(CWD, path.as_os_str(), OFlags::NOFOLLOW, path.to_path_buf())?;
        found.require_owner(rustix::process::geteuid())
    }

    fn require_owner(self, expected: Uid) -> io::Result<PoolDirectory> {
        match self.owner == expected {
            true => Ok(self),
            false => Err(foreign(
                self.path,
                Found::Owner {
                    owner: self.owner.as_raw(),
                    expected: expected.as_raw(),
                },
            )),
        }
    }

    fn at(parent: BorrowedFd<'_>, name: &OsStr, how: OFlags, path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = sys::openat(parent, name, flags | how, Permissions::empty())?;
        let status = fstat(&handle)?;
        Ok(PoolDirectory {
            handle,
            path,
            owner: Uid::from_raw(status.st_uid),
            group: Gid::from_raw(status.st_gid),
        })
    }

    /// The user that the directory belongs to.
    pub fn owner(&self) -> u32 {
        self.owner.as_raw()
    }

    /// The directory's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name in the directory, for messages.
    pub fn path_of(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Opens a file of the pool.
    ///
    /// # Errors
    ///
    /// The system's error; [`Foreign`] if the name leads to anything but a file of the pool.
    pub fn file(&self, name: impl AsRef<OsStr>, mode: Mode) -> io::Result<File> {
        let name = name.as_ref();
        let access = match mode {
            Mode::ReadWrite => OFlags::RDWR,
            Mode::ReadOnly => OFlags::RDONLY,
        };
        match self.open_now(name, access) {
            Ok(file) => {
                self.check(name, &fstat(&file)?)?;
                Ok(file)
            }
            Err(error) => {
                // Links, sockets and directories cannot be opened this way: name them.
                if let Ok(status) = self.look(name) {
                    self.check(name, &status)?;
                }
                Err(error)
            }
        }
    }

    /// Opens without following links or waiting. The kernel refuses a file while it is leased.
    fn open_now(&self, name: &OsStr, access: OFlags) -> io::Result<File> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let begin = Instant::now();
        loop {
            match sys::openat(&self.handle, name, flags, Permissions::empty()) {
                Ok(file) => return Ok(File::from(file)),
                Err(Errno::WOULDBLOCK) if begin.elapsed() < LEASE_PATIENCE => {
                    std::thread::sleep(LOOK_AGAIN);
                }
                Err(Errno::WOULDBLOCK) => return Err(self.foreign(name, Found::Leased)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes a file that did not exist, for reading and writing.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`, or another error of the system.
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let name = name.as_ref();
        let file = sys::openat(&self.handle, name, flags | OFlags::CLOEXEC, FILE_MODE)?;
        if let Err(error) = self.give(&file) {
            self.remove(name)?;
            return Err(error);
        }
        Ok(File::from(file))
    }

    /// Opens a file of the pool for reading and writing, and makes it if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`file`](Self::file) and [`create`](Self::create).
    pub fn file_or_new(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        match self.file(name, Mode::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create(name),
            opened => opened,
        }
    }

    /// Opens a file that is no part of a pool, such as a log, for appending or empty.
    /// In a directory of root or of this user, the name may lead anywhere.
    ///
    /// # Errors
    ///
    /// The system's error; [`Foreign`] if another user's directory has anything but a regular
    /// file of that user or of root under the name.
    pub fn report(&self, name: impl AsRef<OsStr>, appends: bool) -> io::Result<File> {
        let name = name.as_ref();
        let trusted = [Uid::ROOT, rustix::process::geteuid()];
        if trusted.contains(&self.owner) {
            let mut options = File::options();
            let options = options.create(true).append(appends);
            let options = options.write(!appends).truncate(!appends);
            return options.open(self.path_of(name));
        }
        let access = match appends {
            true => OFlags::WRONLY | OFlags::APPEND,
            false => OFlags::WRONLY,
        };
        let file = match self.open_now(name, access) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.create(name),
            opened => opened,
        };
        let status = match &file {
            Ok(file) => fstat(file)?,
            Err(_) => self.look(name)?,
        };
        match Uid::from_raw(status.st_uid) == Uid::ROOT {
            true => self.check_shape(name, &status)?,
            false => self.check(name, &status)?,
        }
        let file = file?;
        if !appends {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Opens a folder in the directory.
    ///
    /// # Errors
    ///
    /// Gives a new object the directory's owner.
    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<PoolDirectory> {
        let name = name.as_ref();
        let handle = self.handle.as_fd();
        match PoolDirectory::at(handle, name, OFlags::NOFOLLOW, self.path_of(name)) {
            Ok(folder) => {
                self.check_owner(name, folder.owner)?;
                Ok(folder)
            }
            Err(error) => {
                let kind = self
                    .look(name)
                    .map(|status| kind_of(&status).unwrap_or(REGULAR));
                match kind {
                    Ok(kind) if kind != DIRECTORY => {
                        Err(self.foreign(name, Found::NoDirectory(kind)))
                    }
                    _ => Err(error),
                }
            }
        }
    }

    /// Opens a folder in the directory, and makes it if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`folder`](Self::folder).
    pub fn folder_or_new(&self, name: impl AsRef<OsStr>) -> io::Result<PoolDirectory> {
        let name = name.as_ref();
        match self.folder(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        sys::mkdirat(&self.handle, name, FOLDER_MODE)?;
        let made = PoolDirectory::at(
            self.handle.as_fd(),
            name,
            OFlags::NOFOLLOW,
            self.path_of(name),
        )?;
        self.give(&made.handle)?;
        self.folder(name)
    }

    /// Gives a new object the directory's owner, so that the owner can use the pool after root has.
    fn give(&self, object: impl AsFd) -> io::Result<()> {
        if fstat(&object)?.st_uid == self.owner() {
            return Ok(());
        }
        let (owner, group) = (Some(self.owner), Some(self.group));
        Ok(sys::chownat(object, "", owner, group, AtFlags::EMPTY_PATH)?)
    }

    /// Checks a name without opening it; there may be none.
    ///
    /// # Errors
    ///
    /// [`Foreign`], and the system's error.
    pub fn check_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref();
        match self.look(name) {
            Ok(status) => self.check(name, &status),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens a socket without connecting to it (`O_PATH`). Root and this user may have made it too.
    ///
    /// # Errors
    ///
    /// The system's error; [`Foreign`] if the name leads to anything else.
    pub fn socket(&self, name: impl AsRef<OsStr>) -> io::Result<OwnedFd> {
        let name = name.as_ref();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = sys::openat(&self.handle, name, flags, Permissions::empty())?;
        let status = fstat(&socket)?;
        let kind = kind_of(&status).unwrap_or(REGULAR);
        if kind != SOCKET {
            return Err(self.foreign(name, Found::NoSocket(kind)));
        }
        let trusted = [Uid::ROOT, rustix::process::geteuid()];
        if !trusted.contains(&Uid::from_raw(status.st_uid)) {
            self.check_owner(name, Uid::from_raw(status.st_uid))?;
        }
        Ok(socket)
    }

    /// Checks the name of a socket without connecting to it; there may be none.
    ///
    /// # Errors
    ///
    /// Those of [`socket`](Self::socket).
    pub fn check_socket(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match self.socket(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            checked => checked.map(drop),
        }
    }

    /// Whether there is anything under a name.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        self.look(name.as_ref()).is_ok()
    }

    /// Removes a name that is no folder's. A link goes, and the file that it names stays as it is.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(sys::unlinkat(
            &self.handle,
            name.as_ref(),
            AtFlags::empty(),
        )?)
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(sys::unlinkat(
            &self.handle,
            name.as_ref(),
            AtFlags::REMOVEDIR,
        )?)
    }

    /// Removes the directory itself, which must be empty, unless another one has its path by now.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn remove_itself(&self) -> io::Result<()> {
        let (ours, there) = (
            fstat(&self.handle)?,
            statat(CWD, &self.path, AtFlags::empty())?,
        );
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(sys::unlinkat(CWD, &self.path, AtFlags::REMOVEDIR)?)
    }

    /// Gives a file another name in the directory.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        let handle = &self.handle;
        Ok(sys::renameat(handle, from.as_ref(), handle, to.as_ref())?)
    }

    /// All names in the directory.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = sys::openat(&self.handle, ".", flags, Permissions::empty())?;
        for entry in sys::Dir::new(listed)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// The handle, for system calls that take a name below a directory.
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    fn look(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn check(&self, name: &OsStr, status: &Stat) -> io::Result<()> {
        self.check_shape(name, status)?;
        self.check_owner(name, Uid::from_raw(status.st_uid))
    }

    /// Whether it is a regular file with one name.
    fn check_shape(&self, name: &OsStr, status: &Stat) -> io::Result<()> {
        if let Some(kind) = kind_of(status) {
            return Err(self.foreign(name, Found::Kind(kind)));
        }
        match status.st_nlink {
            0 | 1 => Ok(()),
            names => Err(self.foreign(name, Found::Names(names))),
        }
    }

    fn check_owner(&self, name: &OsStr, owner: Uid) -> io::Result<()> {
        match owner == self.owner {
            true => Ok(()),
            false => Err(self.foreign(
                name,
                Found::Owner {
                    owner: owner.as_raw(),
                    expected: self.owner(),
                },
            )),
        }
    }

    fn foreign(&self, name: &OsStr, found: Found) -> io::Error {
        foreign(self.path_of(name), found)
    }
}

/// Opens a device-DAX node, the other kind of pool.
///
/// # Errors
///
/// The system's error.
pub fn open_device(path: &Path, mode: Mode) -> io::Result<File> {
    let access = match mode {
        Mode::ReadWrite => OFlags::RDWR,
        Mode::ReadOnly => OFlags::RDONLY,
    };
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(sys::open(path, flags, Permissions::empty())?))
}

fn foreign(path: PathBuf, found: Found) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Foreign { path, found })
}

const REGULAR: &str = "a regular file";
const DIRECTORY: &str = "a directory";
const SOCKET: &str = "a socket";

/// The kind of an object; `None` for a regular file.
fn kind_of(status: &Stat) -> Option<&'static str> {
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => None,
        FileType::Symlink => Some("a symbolic link"),
        FileType::Directory => Some(DIRECTORY),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some(SOCKET),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        _ => Some("of an unknown kind"),
    }
}
