//! Operations on the model.

use super::{Operation, pattern};
use crate::content::link_target;
use crate::model::{self, Errno, Kind, Model};
use fs::{FileType, XattrMode};

impl Model {
    /// Does the operation.
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
            Operation::Checkpoint
            | Operation::UseJournal { .. }
            | Operation::GiveSegments { .. } => Ok(()),
            operation => self.apply_open(operation),
        }
    }

    /// Operations of a program with an open file or a lease.
    fn apply_open(&mut self, operation: &Operation) -> Result<(), Errno> {
        match operation {
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
            // A program does not see where content lies.
            Operation::Sink { path, .. } | Operation::Raise { path, .. } => {
                let id = self.resolve(path)?;
                self.content(id)?;
            }
            // Content stays what it is.
            Operation::CopyDown | Operation::Evict => {}
            operation => self.apply_attributes(operation)?,
        }
        Ok(())
    }

    fn apply_attributes(&mut self, operation: &Operation) -> Result<(), Errno> {
        match operation {
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
