//! One operation, done to a file system and to its model.

use crate::clock;
use crate::content::link_target;
pub use crate::content::pattern;
use crate::lessee::{Lessee, Manner};
use crate::mapped::Mapped;
use crate::model::{self, Errno, Kind, Model};
use crate::recovery;
use fs::{
    AllocateOptions, FileSystem, FileType, FsError, NewInode, Node, RenameOptions, SetAttributes,
    TimeChange, Timestamp, XattrMode,
};
use pmem::Region;
use std::fmt;
use std::sync::Arc;

/// A call that a program could make. Paths are absolute without the first slash; `byte` seeds what is written.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(
    missing_docs,
    reason = "each variant is the call of its name, each field its argument"
)]
pub enum Operation {
    Create {
        path: String,
        mode: u32,
    },
    MakeNode {
        path: String,
        file_type: FileType,
    },
    MakeDirectory {
        path: String,
        mode: u32,
    },
    MakeSymlink {
        path: String,
        target_bytes: usize,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        options: RenameOptions,
    },
    Write {
        path: String,
        offset: u64,
        bytes: usize,
        byte: u8,
    },
    Append {
        path: String,
        bytes: usize,
        byte: u8,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Allocate {
        path: String,
        offset: u64,
        bytes: u64,
        options: AllocateOptions,
    },
    SetMode {
        path: String,
        mode: u32,
    },
    SetOwner {
        path: String,
        uid: u32,
        gid: u32,
    },
    SetTimes {
        path: String,
        seconds: i64,
    },
    SetXattr {
        path: String,
        name: String,
        bytes: usize,
        byte: u8,
        mode: XattrMode,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    /// Opens an inode: it survives the loss of its names until [`Operation::Release`].
    Hold {
        path: String,
    },
    /// `O_TMPFILE`, held.
    CreateUnnamed {
        mode: u32,
    },
    WriteHeld {
        offset: u64,
        bytes: usize,
        byte: u8,
    },
    LinkHeld {
        path: String,
    },
    /// A process leases a file; the lease that it had ends. One that `is_stopped` does not answer when its lease is taken back. One that `is_in_place` overwrites in place where it can.
    Lease {
        path: String,
        is_stopped: bool,
        is_in_place: bool,
    },
    /// It writes the file by itself.
    WriteLeased {
        offset: u64,
        bytes: usize,
        byte: u8,
    },
    /// The file system folds what it has written.
    FoldLease,
    /// It gives the lease back.
    EndLease,
    /// Blocks of a file move to the device.
    Sink {
        path: String,
        first: u64,
        blocks: u64,
    },
    /// They move back to memory.
    Raise {
        path: String,
        first: u64,
        blocks: u64,
    },
    /// A process gets all segments of a user, and changes in them what it likes from here on.
    GiveSegments {
        user: u32,
    },
    Release,
    Checkpoint,
    /// What follows goes through this journal, as if another thread did it.
    UseJournal {
        index: usize,
    },
    /// A clean unmount and a mount.
    Remount,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?}")
    }
}

/// A mounted file system with what a program has open.
#[derive(Debug)]
pub struct Live {
    /// `None` only while it is being mounted again.
    files: Option<Arc<FileSystem>>,
    held: Option<Node>,
    lessee: Option<Lessee>,
    mapped: Mapped,
    region: Arc<Region>,
}

/// Why an operation failed.
#[derive(Debug)]
pub enum Refusal {
    /// The file system refused it.
    Fs(FsError),
    /// The file system could not be mounted again.
    Mount(String),
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Self {
        Refusal::Fs(error)
    }
}

impl Live {
    /// Mounts the pool in `region`.
    ///
    /// # Errors
    ///
    /// What opening or mounting says.
    pub fn mount(region: &Arc<Region>) -> Result<Live, String> {
        Ok(Live::over(recovery::mount_to_change(region)?, region))
    }

    /// Takes over a file system in `region`.
    pub fn over(files: impl Into<Arc<FileSystem>>, region: &Arc<Region>) -> Live {
        Live {
            files: Some(files.into()),
            held: None,
            lessee: None,
            mapped: Mapped::none(),
            region: Arc::clone(region),
        }
    }

    /// Another program on the same file system.
    pub fn beside(&self) -> Option<Live> {
        Some(Live::over(Arc::clone(self.files.as_ref()?), &self.region))
    }

    /// The file system.
    pub fn files(&self) -> &FileSystem {
        self.files.as_ref().expect("mounted between operations")
    }

    /// What a process may change without asking.
    pub fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    /// Looks at the file system. As long as a process has a lease, at what a mount would make of the medium as it is now: looking at the file
    /// system itself would end the lease.
    ///
    /// # Errors
    ///
    /// That mount fails.
    pub fn seen<R>(&self, look: impl FnOnce(&FileSystem) -> R) -> Result<R, String> {
        if !self.lessee.as_ref().is_some_and(Lessee::is_live) {
            return Ok(look(self.files()));
        }
        clock::aside(|| {
            let copy = Arc::new(Region::from_image(self.region.image()));
            Ok(look(&recovery::mount(&copy)?))
        })
    }

    /// Whether a power cut in the middle of the operation may leave part of it: an overwrite in place, each of whose words is the old or the new one.
    pub fn may_be_torn(&self, operation: &Operation) -> bool {
        match (operation, &self.lessee) {
            (Operation::WriteLeased { offset, bytes, .. }, Some(lessee)) => {
                lessee.goes_in_place(*offset, *bytes)
            }
            _ => false,
        }
    }

    /// What the process with a lease does last.
    fn end_lease(&mut self) -> Result<(), FsError> {
        match self.lessee.take() {
            Some(lessee) => lessee.leave(self.files()),
            None => Ok(()),
        }
    }

    /// Unmounts cleanly.
    pub fn unmount(mut self) {
        self.held = None;
        let _ = self.end_lease();
        if let Some(files) = self.files.take().and_then(Arc::into_inner) {
            files.unmount();
        }
    }

    /// Whether a path leads anywhere.
    ///
    /// # Errors
    ///
    /// Any other answer than yes and no.
    pub fn exists(&self, path: &str) -> Result<bool, FsError> {
        match self.resolve(path) {
            Ok(_) => Ok(true),
            Err(FsError::NotFound | FsError::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn resolve(&self, path: &str) -> Result<Node, FsError> {
        let mut node = self.files().root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            node = self.files().lookup(&node, name.as_bytes())?;
        }
        Ok(node)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(Node, &'p [u8]), FsError> {
        let (parent, name) = model::split(path);
        let parent = self.resolve(parent)?;
        // Both ends of a rename are resolved before anything else is judged, as the kernel does it.
        if self.files().attributes(&parent)?.file_type() != FileType::Directory {
            return Err(FsError::NotADirectory);
        }
        Ok((parent, name.as_bytes()))
    }

    /// Does it.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Refusal> {
        match operation {
            Operation::Remount => {
                self.held = None;
                self.end_lease()?;
                let files = self.files.take().and_then(Arc::into_inner);
                files.expect("mounted between operations").unmount();
                let files = recovery::mount_to_change(&self.region).map_err(Refusal::Mount)?;
                self.files = Some(files.into());
                // The processes are gone with their server, as far as a pool in memory can tell.
                self.mapped = Mapped::none();
                Ok(())
            }
            Operation::Hold { path } => {
                self.held = None;
                self.held = Some(self.resolve(path)?);
                Ok(())
            }
            Operation::CreateUnnamed { mode } => {
                self.held = None;
                self.held = Some(self.files().create_unnamed(&NewInode::file(*mode))?);
                Ok(())
            }
            Operation::Release => {
                self.held = None;
                Ok(self.end_lease()?)
            }
            Operation::Lease {
                path,
                is_stopped,
                is_in_place,
            } => {
                self.end_lease()?;
                let node = self.resolve(path)?;
                let manner = Manner {
                    is_stopped: *is_stopped,
                    is_in_place: *is_in_place,
                };
                self.lessee = Some(Lessee::new(self.files(), &self.region, node, manner)?);
                Ok(())
            }
            Operation::EndLease => Ok(self.end_lease()?),
            Operation::WriteLeased { .. } | Operation::FoldLease => {
                let mut lessee = self.lessee.take().ok_or(FsError::NotFound)?;
                let outcome = match operation {
                    Operation::WriteLeased {
                        offset,
                        bytes,
                        byte,
                    } => lessee.write(self.files(), *offset, &pattern(*byte, *offset, *bytes)),
                    _ => lessee.fold(self.files()),
                };
                self.lessee = Some(lessee);
                Ok(outcome?)
            }
            Operation::GiveSegments { user } => {
                let mut mapped = std::mem::take(&mut self.mapped);
                mapped.give(self.files(), *user);
                self.mapped = mapped;
                Ok(())
            }
            Operation::Checkpoint => {
                self.files().checkpoint();
                Ok(())
            }
            Operation::UseJournal { index } => {
                txn::transaction::use_slot(*index);
                Ok(())
            }
            operation => Ok(self.apply_names(operation)?),
        }
    }

    fn apply_names(&mut self, operation: &Operation) -> Result<(), FsError> {
        let files = self.files();
        match operation {
            Operation::Create { path, mode } => {
                let (parent, name) = self.parent(path)?;
                files
                    .create(&parent, name, &NewInode::file(*mode))
                    .map(drop)
            }
            Operation::MakeNode { path, file_type } => {
                let (parent, name) = self.parent(path)?;
                let new = NewInode {
                    device: 0x103,
                    ..NewInode::file(file_type.mode_bits() | 0o600)
                };
                files.create(&parent, name, &new).map(drop)
            }
            Operation::MakeDirectory { path, mode } => {
                let (parent, name) = self.parent(path)?;
                files
                    .make_directory(&parent, name, &NewInode::file(*mode))
                    .map(drop)
            }
            Operation::MakeSymlink { path, target_bytes } => {
                let (parent, name) = self.parent(path)?;
                files
                    .make_symlink(&parent, name, &link_target(*target_bytes), 0, 0)
                    .map(drop)
            }
            Operation::Link { from, to } => {
                let node = self.resolve(from)?;
                let (parent, name) = self.parent(to)?;
                files.link(&node, &parent, name)
            }
            Operation::LinkHeld { path } => {
                let node = self.held.as_ref().ok_or(FsError::NotFound)?;
                let (parent, name) = self.parent(path)?;
                files.link(node, &parent, name)
            }
            Operation::Unlink { path } => {
                let (parent, name) = self.parent(path)?;
                files.unlink(&parent, name)
            }
            Operation::RemoveDirectory { path } => {
                let (parent, name) = self.parent(path)?;
                files.remove_directory(&parent, name)
            }
            Operation::Rename { from, to, options } => {
                let (parent, name) = self.parent(from)?;
                let (new_parent, new_name) = self.parent(to)?;
                files.rename(&parent, name, &new_parent, new_name, *options)
            }
            operation => self.apply_content(operation),
        }
    }

    fn apply_content(&mut self, operation: &Operation) -> Result<(), FsError> {
        let files = self.files();
        let set = |path: &str, change: SetAttributes| {
            let node = self.resolve(path)?;
            files.set_attributes(&node, &change).map(drop)
        };
        match operation {
            Operation::Write {
                path,
                offset,
                bytes,
                byte,
            } => files
                .write(
                    &self.resolve(path)?,
                    *offset,
                    &pattern(*byte, *offset, *bytes),
                )
                .map(drop),
            Operation::WriteHeld {
                offset,
                bytes,
                byte,
            } => {
                let node = self.held.as_ref().ok_or(FsError::NotFound)?;
                files
                    .write(node, *offset, &pattern(*byte, *offset, *bytes))
                    .map(drop)
            }
            Operation::Append { path, bytes, byte } => files
                .append(&self.resolve(path)?, &pattern(*byte, 0, *bytes))
                .map(drop),
            Operation::Truncate { path, size } => set(
                path,
                SetAttributes {
                    size_bytes: Some(*size),
                    ..SetAttributes::default()
                },
            ),
            Operation::Allocate {
                path,
                offset,
                bytes,
                options,
            } => files.allocate(&self.resolve(path)?, *offset, *bytes, *options),
            Operation::SetMode { path, mode } => set(
                path,
                SetAttributes {
                    mode: Some(*mode),
                    ..SetAttributes::default()
                },
            ),
            Operation::SetOwner { path, uid, gid } => set(
                path,
                SetAttributes {
                    uid: Some(*uid),
                    gid: Some(*gid),
                    ..SetAttributes::default()
                },
            ),
            Operation::SetTimes { path, seconds } => {
                let time = Some(TimeChange::At(Timestamp::from_parts(*seconds, 5)));
                set(
                    path,
                    SetAttributes {
                        accessed: time,
                        modified: time,
                        ..SetAttributes::default()
                    },
                )
            }
            Operation::SetXattr {
                path,
                name,
                bytes,
                byte,
                mode,
            } => files.set_xattr(
                &self.resolve(path)?,
                name.as_bytes(),
                &pattern(*byte, 0, *bytes),
                *mode,
            ),
            Operation::RemoveXattr { path, name } => {
                files.remove_xattr(&self.resolve(path)?, name.as_bytes())
            }
            Operation::Sink {
                path,
                first,
                blocks,
            } => files
                .move_to_device(&self.resolve(path)?, *first..first + blocks)
                .map(drop),
            Operation::Raise {
                path,
                first,
                blocks,
            } => files.bring_in(&self.resolve(path)?, *first..first + blocks),
            other => unreachable!("{other} is handled before"),
        }
    }
}

impl Model {
    /// Does it.
    ///
    /// # Errors
    ///
    /// The error number that the file system must give as well; nothing happened then.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Errno> {
        match operation {
            Operation::Create { path, mode } => self.create(
                path,
                Kind::File(Default::default()),
                FileType::Regular.mode_bits() | mode,
            ),
            Operation::MakeNode { path, file_type } => {
                self.create(path, Kind::Special, file_type.mode_bits() | 0o600)
            }
            Operation::MakeDirectory { path, mode } => {
                let kind = Kind::Directory {
                    entries: Default::default(),
                    parent: model::ROOT,
                };
                self.create(path, kind, FileType::Directory.mode_bits() | mode)
            }
            Operation::MakeSymlink { path, target_bytes } => self.create(
                path,
                Kind::Symlink(link_target(*target_bytes)),
                FileType::Symlink.mode_bits() | 0o777,
            ),
            Operation::Link { from, to } => {
                let id = self.resolve(from)?;
                self.hard_link(id, to)
            }
            Operation::LinkHeld { path } => {
                let id = self.held.ok_or(model::ENOENT)?;
                self.hard_link(id, path)
            }
            Operation::Unlink { path } => self.remove(path, false),
            Operation::RemoveDirectory { path } => self.remove(path, true),
            Operation::Rename { from, to, options } => self.rename(from, to, *options),
            Operation::Hold { path } => {
                self.release();
                self.held = Some(self.resolve(path)?);
                Ok(())
            }
            Operation::CreateUnnamed { mode } => {
                self.release();
                let mode = FileType::Regular.mode_bits() | mode;
                self.held = Some(self.add(Kind::File(Default::default()), mode, 0, 0));
                Ok(())
            }
            Operation::Release | Operation::Remount => {
                self.release();
                self.end_lease();
                Ok(())
            }
            Operation::Lease { path, .. } => {
                self.end_lease();
                let id = self.resolve(path)?;
                self.content(id)?;
                self.leased = Some(id);
                Ok(())
            }
            Operation::EndLease => {
                self.end_lease();
                Ok(())
            }
            Operation::FoldLease => self.leased.map(drop).ok_or(model::ENOENT),
            Operation::WriteLeased {
                offset,
                bytes,
                byte,
            } => {
                let id = self.leased.ok_or(model::ENOENT)?;
                self.content(id)?
                    .write(*offset, &pattern(*byte, *offset, *bytes));
                Ok(())
            }
            Operation::Checkpoint
            | Operation::UseJournal { .. }
            | Operation::GiveSegments { .. } => Ok(()),
            operation => self.apply_content(operation),
        }
    }

    fn apply_content(&mut self, operation: &Operation) -> Result<(), Errno> {
        match operation {
            Operation::Write {
                path,
                offset,
                bytes,
                byte,
            } => {
                let id = self.resolve(path)?;
                self.content(id)?
                    .write(*offset, &pattern(*byte, *offset, *bytes));
            }
            Operation::WriteHeld {
                offset,
                bytes,
                byte,
            } => {
                let id = self.held.ok_or(model::ENOENT)?;
                self.content(id)?
                    .write(*offset, &pattern(*byte, *offset, *bytes));
            }
            Operation::Append { path, bytes, byte } => {
                let id = self.resolve(path)?;
                let content = self.content(id)?;
                content.write(content.size, &pattern(*byte, 0, *bytes));
            }
            Operation::Truncate { path, size } => {
                let id = self.resolve(path)?;
                self.content(id)?.resize(*size);
            }
            Operation::Allocate {
                path,
                offset,
                bytes,
                options,
            } => {
                let id = self.resolve(path)?;
                let content = self.content(id)?;
                if options.punch_hole || options.zero_range {
                    content.zero(*offset, (offset + bytes).min(content.size));
                }
                if !options.punch_hole && !options.keep_size {
                    content.size = content.size.max(offset + bytes);
                }
            }
            // Where content lies is nothing that a program sees.
            Operation::Sink { path, .. } | Operation::Raise { path, .. } => {
                let id = self.resolve(path)?;
                self.content(id)?;
            }
            Operation::SetMode { path, mode } => {
                let id = self.resolve(path)?;
                let inode = self.inode(id);
                inode.mode = (inode.mode & fs::format::MODE_TYPE_MASK) | mode;
            }
            Operation::SetOwner { path, uid, gid } => {
                let id = self.resolve(path)?;
                (self.inode(id).uid, self.inode(id).gid) = (*uid, *gid);
            }
            Operation::SetTimes { path, .. } => {
                self.resolve(path)?;
            }
            Operation::SetXattr {
                path,
                name,
                bytes,
                byte,
                mode,
            } => {
                let id = self.resolve(path)?;
                let xattrs = &mut self.inode(id).xattrs;
                match (xattrs.contains_key(name.as_bytes()), mode) {
                    (true, XattrMode::Create) => return Err(model::EEXIST),
                    (false, XattrMode::Replace) => return Err(model::ENODATA),
                    _ => xattrs.insert(name.clone().into_bytes(), pattern(*byte, 0, *bytes)),
                };
            }
            Operation::RemoveXattr { path, name } => {
                let id = self.resolve(path)?;
                self.inode(id)
                    .xattrs
                    .remove(name.as_bytes())
                    .ok_or(model::ENODATA)?;
            }
            other => unreachable!("{other} is handled before"),
        }
        Ok(())
    }
}
