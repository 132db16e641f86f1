//! Directories, and the operations on paths seen from one.

use crate::error::{Cause, Result};
use crate::metadata::{FileTimes, Metadata};
use crate::pool::{Lease, Shared};
use crate::read_dir::ReadDir;
use crate::walk::{Last, Place, Walker};
use fs::{FileSystem, FileType, FsError, NewInode, Node, RenameOptions, SetAttributes};
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open directory. Its methods are the functions of `std::fs`, with relative paths seen from this directory and
/// absolute paths from the root of the pool.
///
/// A short path from a directory that is kept open is the quickest way to a file. Every method that changes
/// something is one transaction: durable when it returns, and after a power cut done or not done, never half.
#[derive(Clone)]
pub struct Dir {
    // Before `lease`, so that a removed directory is released while the file system is still there.
    node: Node,
    lease: Arc<Lease>,
}

impl Dir {
    pub(crate) fn new(node: Node, lease: Arc<Lease>) -> Dir {
        Dir { node, lease }
    }

    pub(crate) fn into_parts(self) -> (Node, Arc<Lease>) {
        (self.node, self.lease)
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.lease.shared
    }

    /// The inode, for use with [`Pool::filesystem`](crate::Pool::filesystem).
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Opens a directory; also a method: `pool.open_dir("a/b")`.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`.
    pub fn open(directory: &Dir, path: impl AsRef<Path>) -> Result<Dir> {
        directory.open_dir(path)
    }

    /// Opens the directory that `path` names.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let path = path.as_ref();
        let node = self
            .resolve_directory(path)
            .map_err(|cause| cause.at("open_dir", path))?;
        Ok(Dir::new(node, Lease::of(&self.lease.shared)))
    }

    /// The entries of a directory, without `.` and `..`. Entries that are created or removed during the listing may
    /// or may not appear; all others appear exactly once.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let node = self
            .resolve_directory(path)
            .map_err(|cause| cause.at("read_dir", path))?;
        Ok(ReadDir::new(
            Dir::new(node, Lease::of(&self.lease.shared)),
            path.to_owned(),
        ))
    }

    /// What is known about the object at `path`; a symbolic link is followed.
    ///
    /// # Errors
    /// `NotFound` and the errors of path_resolution(7).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attributes("metadata", path.as_ref(), true)
    }

    /// What is known about the object at `path`, be it a symbolic link.
    ///
    /// # Errors
    /// Those of [`metadata`](Dir::metadata).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attributes("symlink_metadata", path.as_ref(), false)
    }

    /// Whether there is an object at `path`; a symbolic link to nowhere is none.
    ///
    /// # Errors
    /// Those of [`metadata`](Dir::metadata), except `NotFound`.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        match self.resolve(path, true) {
            Ok(_) => Ok(true),
            Err(Cause::FileSystem(FsError::NotFound)) => Ok(false),
            Err(cause) => Err(cause.at("exists", path)),
        }
    }

    /// The absolute path of an existing object, from the root of the pool, without `.`, `..` and symbolic links.
    ///
    /// # Errors
    /// Those of [`metadata`](Dir::metadata).
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let absolute = self.walker().canonical(&self.node, bytes(path));
        absolute
            .map(into_path)
            .map_err(|cause| cause.at("canonicalize", path))
    }

    /// Creates an empty directory, mode 0o777 less the pool's umask.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` (no parent), `StorageFull`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with_mode(path, 0o777)
    }

    /// Creates an empty directory with the given permission bits less the pool's umask.
    ///
    /// # Errors
    /// Those of [`create_dir`](Dir::create_dir).
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        self.make_directory(path, mode)
            .map_err(|cause| cause.at("create_dir", path))
    }

    /// Creates a directory and all parents that are missing. Each of them is a transaction of its own.
    ///
    /// # Errors
    /// Those of [`create_dir`](Dir::create_dir), but no `AlreadyExists` for directories.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        match self.make_directory(path, 0o777) {
            Ok(()) => return Ok(()),
            Err(Cause::FileSystem(FsError::NotFound)) => {}
            Err(_) if self.resolve_directory(path).is_ok() => return Ok(()),
            Err(cause) => return Err(cause.at("create_dir_all", path)),
        }
        let parent = path
            .parent()
            .ok_or_else(|| Cause::from(FsError::NotFound).at("create_dir_all", path))?;
        self.create_dir_all(parent)?;
        match self.make_directory(path, 0o777) {
            Ok(()) => Ok(()),
            Err(_) if self.resolve_directory(path).is_ok() => Ok(()),
            Err(cause) => Err(cause.at("create_dir_all", path)),
        }
    }

    /// Creates a fifo, a socket or a device node. The library cannot open them; programs on a mount can.
    ///
    /// `mode` holds the bits of the type and of the permissions, as `st_mode`.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidInput` for other types.
    pub fn create_node(&self, path: impl AsRef<Path>, mode: u32, device: u32) -> Result<()> {
        let path = path.as_ref();
        let made = match mode & libc::S_IFMT {
            kind @ (libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFCHR | libc::S_IFBLK) => self
                .new_entry(path, |filesystem, parent, name| {
                    let new = self.lease.shared.new_inode(kind, mode, device);
                    filesystem.create(parent, name, &new).map(drop)
                }),
            _ => Err(Cause::InvalidOptions(
                "create_node makes fifos, sockets and devices only",
            )),
        };
        made.map_err(|cause| cause.at("create_node", path))
    }

    /// Removes a name of a file. The file goes with its last name and its last open handle.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.unlink(path)
            .map_err(|cause| cause.at("remove_file", path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.remove_directory(path)
            .map_err(|cause| cause.at("remove_dir", path))
    }

    /// Gives an object another name, replacing what had that name, as one transaction.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameOptions::default())
    }

    /// Renames with the flags of renameat2(2): refuse to replace, exchange two objects, leave a whiteout.
    ///
    /// # Errors
    /// Those of renameat2(2).
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: RenameOptions,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.rename_entry(from, to, options)
            .map_err(|cause| cause.between("rename", from, to))
    }

    /// Gives a file a further name. A symbolic link is not followed, as in `std::fs::hard_link` on Linux.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `PermissionDenied` for directories.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let node = self.resolve(original, false);
        let linked = node.and_then(|node| self.link_entry(&node, link));
        linked.map_err(|cause| cause.between("hard_link", original, link))
    }

    /// Creates a symbolic link with the text `original` at `link`.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` (no parent, or an empty text).
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let target = bytes(original);
        let made = self.new_entry(link, |filesystem, parent, name| {
            if target.is_empty() {
                return Err(FsError::NotFound);
            }
            filesystem
                .make_symlink(
                    parent,
                    name,
                    target,
                    self.lease.shared.uid,
                    self.lease.shared.gid,
                )
                .map(drop)
        });
        made.map_err(|cause| cause.between("symlink", original, link))
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// `InvalidInput` for anything else.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let node = self.resolve(path, false);
        let text = node.and_then(|node| Ok(self.filesystem().read_link(&node)?));
        text.map(into_path)
            .map_err(|cause| cause.at("read_link", path))
    }

    /// Changes the permission bits; a symbolic link is followed.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let mode = Some(permissions.mode() & 0o7777);
        let change = SetAttributes {
            mode,
            ..SetAttributes::default()
        };
        self.set_attributes("set_permissions", path.as_ref(), true, &change)
    }

    /// Changes the times of last access and modification; a symbolic link is followed.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.set_attributes("set_times", path.as_ref(), true, &times.change())
    }

    /// Changes the times of last access and modification, also of a symbolic link itself.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_times_nofollow(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.set_attributes("set_times_nofollow", path.as_ref(), false, &times.change())
    }

    /// Changes the owner and the group; `None` leaves one as it is. A symbolic link is followed.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set_attributes(
            "chown",
            path.as_ref(),
            true,
            &SetAttributes {
                uid,
                gid,
                ..SetAttributes::default()
            },
        )
    }

    /// Changes the owner and the group, also of a symbolic link itself.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set_attributes(
            "lchown",
            path.as_ref(),
            false,
            &SetAttributes {
                uid,
                gid,
                ..SetAttributes::default()
            },
        )
    }

    pub(crate) fn filesystem(&self) -> &FileSystem {
        &self.lease.filesystem
    }

    pub(crate) fn walker(&self) -> Walker<'_> {
        Walker::new(&self.lease.filesystem, &self.lease.shared.root)
    }

    pub(crate) fn resolve(&self, path: &Path, follow: bool) -> Result<Node, Cause> {
        self.walker().resolve(&self.node, bytes(path), follow)
    }

    fn resolve_directory(&self, path: &Path) -> Result<Node, Cause> {
        let mut walker = self.walker();
        let node = walker.resolve(&self.node, bytes(path), true)?;
        match node.file_type() {
            FileType::Directory => Ok(node),
            _ => Err(FsError::NotADirectory.into()),
        }
    }

    fn attributes(&self, operation: &'static str, path: &Path, follow: bool) -> Result<Metadata> {
        let attributes = self.walker().attributes(&self.node, bytes(path), follow);
        attributes
            .map(Metadata::new)
            .map_err(|cause| cause.at(operation, path))
    }

    fn set_attributes(
        &self,
        operation: &'static str,
        path: &Path,
        follow: bool,
        change: &SetAttributes,
    ) -> Result<()> {
        let node = self.resolve(path, follow);
        let changed = node.and_then(|node| Ok(self.filesystem().set_attributes(&node, change)?));
        changed.map(drop).map_err(|cause| cause.at(operation, path))
    }

    fn make_directory(&self, path: &Path, mode: u32) -> Result<(), Cause> {
        let place = self.walker().locate(&self.node, bytes(path))?;
        let Last::Name(name) = &place.last else {
            return Err(FsError::AlreadyExists.into());
        };
        let new = self.lease.shared.new_inode(libc::S_IFDIR, mode, 0);
        self.filesystem()
            .make_directory(&place.parent, name, &new)?;
        Ok(())
    }

    /// Something that is not a directory gets a new name: a trailing slash cannot be meant.
    fn new_entry(
        &self,
        path: &Path,
        make: impl FnOnce(&FileSystem, &Node, &[u8]) -> Result<(), FsError>,
    ) -> Result<(), Cause> {
        let place = self.walker().locate(&self.node, bytes(path))?;
        let Last::Name(name) = &place.last else {
            return Err(FsError::AlreadyExists.into());
        };
        if place.directory_wanted {
            let exists = self.filesystem().lookup(&place.parent, name).is_ok();
            return Err(if exists {
                FsError::AlreadyExists
            } else {
                FsError::NotFound
            }
            .into());
        }
        Ok(make(self.filesystem(), &place.parent, name)?)
    }

    fn link_entry(&self, node: &Node, link: &Path) -> Result<(), Cause> {
        self.new_entry(link, |filesystem, parent, name| {
            match filesystem.link(node, parent, name) {
                // Linux complains of a taken name first, then of a directory.
                Err(FsError::NotPermitted(_)) if filesystem.lookup(parent, name).is_ok() => {
                    Err(FsError::AlreadyExists)
                }
                outcome => outcome,
            }
        })
    }

    pub(crate) fn link_node(&self, node: &Node, link: &Path) -> Result<()> {
        self.link_entry(node, link)
            .map_err(|cause| cause.at("link", link))
    }

    fn unlink(&self, path: &Path) -> Result<(), Cause> {
        let mut walker = self.walker();
        let place = walker.locate(&self.node, bytes(path))?;
        let Last::Name(name) = &place.last else {
            return Err(FsError::IsADirectory.into());
        };
        if place.directory_wanted {
            let node = self.filesystem().lookup(&place.parent, name)?;
            let is_directory = node.file_type() == FileType::Directory;
            return Err(if is_directory {
                FsError::IsADirectory
            } else {
                FsError::NotADirectory
            }
            .into());
        }
        Ok(self.filesystem().unlink(&place.parent, name)?)
    }

    fn remove_directory(&self, path: &Path) -> Result<(), Cause> {
        let place = self.walker().locate(&self.node, bytes(path))?;
        match &place.last {
            Last::Name(name) => Ok(self.filesystem().remove_directory(&place.parent, name)?),
            Last::Dot => Err(Cause::InvalidOptions(
                "a directory cannot be removed by the name `.`",
            )),
            Last::DotDot => Err(FsError::DirectoryNotEmpty.into()),
            Last::Root => Err(Cause::Busy),
        }
    }

    fn rename_entry(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<(), Cause> {
        let mut walker = self.walker();
        let old = walker.locate(&self.node, bytes(from))?;
        let new = walker.locate(&self.node, bytes(to))?;
        let (Last::Name(old_name), Last::Name(new_name)) = (&old.last, &new.last) else {
            return Err(Cause::Busy);
        };
        if old.directory_wanted || new.directory_wanted {
            self.check_directory_slash(&old, old_name)?;
        }
        Ok(self
            .filesystem()
            .rename(&old.parent, old_name, &new.parent, new_name, options)?)
    }

    /// A trailing slash in a rename says that the renamed object is a directory.
    fn check_directory_slash(&self, place: &Place<'_>, name: &[u8]) -> Result<(), Cause> {
        let node = self.filesystem().lookup(&place.parent, name)?;
        match node.file_type() {
            FileType::Directory => Ok(()),
            _ => Err(FsError::NotADirectory.into()),
        }
    }
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Dir")
            .field("inode", &self.node.number())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// What a new inode gets: the type, the permission bits that the umask leaves, and the pool's owner.
    pub(crate) fn new_inode(&self, kind: u32, mode: u32, device: u32) -> NewInode {
        NewInode {
            mode: kind | (mode & 0o7777 & !self.umask),
            uid: self.uid,
            gid: self.gid,
            device,
        }
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn into_path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}
