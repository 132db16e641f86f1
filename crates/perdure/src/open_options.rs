//! How a file is opened.

use crate::dir::Dir;
use crate::error::{Cause, Result};
use crate::file::File;
use crate::walk::{Entry, Walker};
use fs::{FileType, FsError, NewInode, Node, SetAttributes, TimeChange};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How a file is opened; the shape and the rules of `std::fs::OpenOptions`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let place = tempfile::tempdir_in("/dev/shm")?;
/// # let pool = perdure::Pool::create(
/// #     place.path().join("pool"),
/// #     &perdure::CreateOptions::new().size_bytes(64 << 20).volatile(true))?;
/// use perdure::OpenOptions;
/// use std::io::Write;
/// let mut log = OpenOptions::new().append(true).create(true).open(&pool, "journal")?;
/// log.write_all(b"one record")?;              // durable here, no sync needed
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl OpenOptions {
    /// Everything off, mode 0o666 for a file that is created.
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }

    /// Open for reading.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.read = read;
        self
    }

    /// Open for writing.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.write = write;
        self
    }

    /// Open for writing at the end: every write lands, atomically, where the file ends at that moment.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.append = append;
        self
    }

    /// Empty the file if it exists.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Create the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.create = create;
        self
    }

    /// Create the file, and fail if the name exists, be it as a symbolic link to nowhere.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Permission bits of a file that is created, before the pool's umask takes some away.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode = mode;
        self
    }

    /// Opens the file that `path` names, seen from `directory` (a pool is its root directory).
    ///
    /// # Errors
    /// Those of open(2). Permissions are not checked: the process owns the pool.
    pub fn open(&self, directory: &Dir, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        self.open_node(directory, path.as_os_str().as_bytes())
            .map(|node| {
                File::new(
                    node,
                    directory.lease(),
                    self.read,
                    self.write || self.append,
                    self.append,
                )
            })
            .map_err(|cause| cause.at("open", path))
    }

    fn open_node(&self, directory: &Dir, path: &[u8]) -> Result<Node, Cause> {
        self.check()?;
        let shared = directory.shared();
        let mut walker = Walker::new(&shared.filesystem, &shared.root);
        if self.create_new {
            return self.create_exclusively(directory, &mut walker, path);
        }
        loop {
            let node = match self.create {
                false => walker.resolve(directory.node(), path, true)?,
                true => match walker.entry(directory.node(), path)? {
                    Entry::Found(node) => node,
                    Entry::Vacant { parent, name } => {
                        match shared
                            .filesystem
                            .create(&parent, &name, &self.new_inode(directory))
                        {
                            Ok(node) => return Ok(node),
                            // Another thread created it since the walk: look again.
                            Err(FsError::AlreadyExists) => continue,
                            Err(error) => return Err(error.into()),
                        }
                    }
                },
            };
            self.admit(directory, &node)?;
            return Ok(node);
        }
    }

    fn create_exclusively(
        &self,
        directory: &Dir,
        walker: &mut Walker<'_>,
        path: &[u8],
    ) -> Result<Node, Cause> {
        let place = walker.locate(directory.node(), path)?;
        let crate::walk::Last::Name(name) = &place.last else {
            return Err(FsError::AlreadyExists.into());
        };
        let filesystem = &directory.shared().filesystem;
        if place.directory_wanted {
            return Err(FsError::IsADirectory.into());
        }
        Ok(filesystem.create(&place.parent, name, &self.new_inode(directory))?)
    }

    /// Whether an existing object can be opened this way; empties it if that was asked for.
    fn admit(&self, directory: &Dir, node: &Node) -> Result<(), Cause> {
        match node.file_type() {
            FileType::Regular => {}
            FileType::Directory if self.write || self.append || self.create => {
                return Err(FsError::IsADirectory.into());
            }
            FileType::Directory => return Ok(()),
            _ => return Err(Cause::SpecialFile),
        }
        if self.truncate {
            let empty = SetAttributes {
                size_bytes: Some(0),
                modified: Some(TimeChange::Now),
                ..SetAttributes::default()
            };
            directory.shared().filesystem.set_attributes(node, &empty)?;
        }
        Ok(())
    }

    fn new_inode(&self, directory: &Dir) -> NewInode {
        directory.shared().new_inode(libc::S_IFREG, self.mode, 0)
    }

    /// The combinations that `std` refuses as well.
    fn check(&self) -> Result<(), Cause> {
        if !self.read && !self.write && !self.append {
            return Err(Cause::InvalidOptions(
                "one of read, write and append is needed to open a file",
            ));
        }
        let creates = self.create || self.create_new;
        if !self.write && !self.append && (self.truncate || creates) {
            return Err(Cause::InvalidOptions(
                "creating or truncating a file needs write or append",
            ));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(Cause::InvalidOptions(
                "append and truncate exclude each other",
            ));
        }
        Ok(())
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}
