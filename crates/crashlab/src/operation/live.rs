//! Operations on a mounted file system.

use super::{Operation, pattern};
use crate::clock;
use crate::content::link_target;
use crate::lessee::{Lessee, Manner};
use crate::mapped::Mapped;
use crate::model;
use crate::recovery;
use fs::{FileSystem, FileType, FsError, NewInode, Node, SetAttributes, TimeChange, Timestamp};
use pmem::Region;
use std::sync::Arc;

/// More than any workload has.
const EVICTED_AT_ONCE: u64 = 256;

/// A mounted file system with the open files of a program.
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
    /// The error of opening or mounting.
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

    /// The segments that a process may change without asking.
    pub fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    /// Looks at the file system. As long as a process has a lease, looks at a mount of the present
    /// medium instead: looking at the file system itself would end the lease.
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

    /// Whether a power cut in the middle of the operation may leave part of it: an overwrite in
    /// place, each of whose words is the old or the new one.
    pub fn may_be_torn(&self, operation: &Operation) -> bool {
        match (operation, &self.lessee) {
            (Operation::WriteLeased { offset, bytes, .. }, Some(lessee)) => {
                lessee.goes_in_place(*offset, *bytes)
            }
            _ => false,
        }
    }

    /// Lets the process with a lease leave.
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

    /// The inode that a path leads to.
    ///
    /// # Errors
    ///
    /// The error of a lookup on the way.
    pub fn resolve(&self, path: &str) -> Result<Node, FsError> {
        let mut node = self.files().root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            node = self.files().lookup(&node, name.as_bytes())?;
        }
        Ok(node)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(Node, &'p [u8]), FsError> {
        let (parent, name) = model::split(path);
        let parent = self.resolve(parent)?;
        // Both ends of a rename are resolved before any other check, as the kernel does it.
        if self.files().attributes(&parent)?.file_type() != FileType::Directory {
            return Err(FsError::NotADirectory);
        }
        Ok((parent, name.as_bytes()))
    }

    /// Does the operation.
    ///
    /// # Errors
    ///
    /// The error of the file system.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Refusal> {
        match operation {
            Operation::Remount => self.remount(),
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
            Operation::Lease { .. }
            | Operation::WriteLeased { .. }
            | Operation::FoldLease
            | Operation::EndLease => Ok(self.apply_lease(operation)?),
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

    fn remount(&mut self) -> Result<(), Refusal> {
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

    fn apply_lease(&mut self, operation: &Operation) -> Result<(), FsError> {
        match operation {
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
            Operation::EndLease => self.end_lease(),
            other => {
                let mut lessee = self.lessee.take().ok_or(FsError::NotFound)?;
                let outcome = match other {
                    Operation::WriteLeased {
                        offset,
                        bytes,
                        byte,
                    } => lessee.write(self.files(), *offset, &pattern(*byte, *offset, *bytes)),
                    _ => lessee.fold(self.files()),
                };
                self.lessee = Some(lessee);
                outcome
            }
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
            Operation::Truncate { path, size } => self.set(
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
            operation => self.apply_moves(operation),
        }
    }

    fn apply_moves(&mut self, operation: &Operation) -> Result<(), FsError> {
        let files = self.files();
        match operation {
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
            Operation::CopyDown => files.tier_flush(),
            Operation::Evict => {
                files.tier_evict(EVICTED_AT_ONCE);
                Ok(())
            }
            operation => self.apply_attributes(operation),
        }
    }

    fn set(&self, path: &str, change: SetAttributes) -> Result<(), FsError> {
        let node = self.resolve(path)?;
        self.files().set_attributes(&node, &change).map(drop)
    }

    fn apply_attributes(&mut self, operation: &Operation) -> Result<(), FsError> {
        let files = self.files();
        match operation {
            Operation::SetMode { path, mode } => self.set(
                path,
                SetAttributes {
                    mode: Some(*mode),
                    ..SetAttributes::default()
                },
            ),
            Operation::SetOwner { path, uid, gid } => self.set(
                path,
                SetAttributes {
                    uid: Some(*uid),
                    gid: Some(*gid),
                    ..SetAttributes::default()
                },
            ),
            Operation::SetTimes { path, seconds } => {
                let time = Some(TimeChange::At(Timestamp::from_parts(*seconds, 5)));
                self.set(
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
            other => unreachable!("{other} is handled before"),
        }
    }
}
