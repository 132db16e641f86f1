//! Paths and names: creation, look-up, removal.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use parking_lot::RwLockWriteGuard;

use super::error::{Corruption, FsError};
use super::inode::{Inode, State, load_table_block, record, set_field};
use super::journal::Journal;
use super::layout::{
    DiskInode, FileKind, InodeNumber, LINKS_AT, NAME_BYTES_MAX, ORPHANS, ORPHANS_MAX, RECORD_BYTES,
};
use super::{Handle, Volume};
use zerocopy::IntoBytes;

/// Splits a path into names.
fn names(path: &Path) -> Result<Vec<&[u8]>, FsError> {
    let name = |component| match component {
        Component::Normal(name) => Some(Ok(name.as_bytes())),
        Component::RootDir | Component::CurDir => None,
        Component::ParentDir | Component::Prefix(_) => Some(Err(FsError::InvalidPath)),
    };
    path.components().filter_map(name).collect()
}

/// Finds the directory of a path's last name, and the name.
fn parent<'p>(volume: &Volume, path: &'p Path) -> Result<(Arc<Inode>, &'p [u8]), FsError> {
    let mut names = names(path)?;
    let name = names.pop().ok_or(FsError::InvalidPath)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong { length: name.len() });
    }
    Ok((walk(volume, &names)?, name))
}

fn walk(volume: &Volume, names: &[&[u8]]) -> Result<Arc<Inode>, FsError> {
    let mut at = volume.inode(InodeNumber::ROOT)?;
    at.require(FileKind::Directory)?;
    for name in names {
        let found = at.state.read().directory.get(name);
        let found = found.ok_or(FsError::NotFound)?;
        at = volume.inode(found.inode)?;
        at.require(FileKind::Directory)?;
    }
    Ok(at)
}

/// Opens a file.
pub(super) fn open(volume: &Arc<Volume>, path: &Path) -> Result<Handle, FsError> {
    if names(path)?.is_empty() {
        return Err(FsError::IsADirectory);
    }
    let (parent, name) = parent(volume, path)?;
    // A removal waits for this lock, so the inode stays until it is open.
    let state = parent.state.read();
    let found = state.directory.get(name).ok_or(FsError::NotFound)?;
    if found.kind == FileKind::Directory {
        return Err(FsError::IsADirectory);
    }
    let inode = volume.inode(found.inode)?;
    inode.require(FileKind::Regular)?;
    Ok(Handle::new(volume, inode))
}

/// The size of the file of that path.
pub(super) fn size(volume: &Volume, path: &Path) -> Result<u64, FsError> {
    let (parent, name) = parent(volume, path)?;
    let state = parent.state.read();
    let found = state.directory.get(name).ok_or(FsError::NotFound)?;
    let inode = volume.inode(found.inode)?;
    drop(state);
    Ok(inode.state.read().size_bytes)
}

/// The names in a directory.
pub(super) fn read_dir(volume: &Volume, path: &Path) -> Result<Vec<(Vec<u8>, FileKind)>, FsError> {
    let directory = walk(volume, &names(path)?)?;
    let state = directory.state.read();
    let names = state.directory.iter();
    Ok(names
        .map(|(name, named)| (name.to_vec(), named.kind))
        .collect())
}

/// Makes a file or a directory.
pub(super) fn create(volume: &Volume, path: &Path, kind: FileKind) -> Result<Arc<Inode>, FsError> {
    let (parent, name) = parent(volume, path)?;
    let mut state = parent.state.write();
    if state.directory.get(name).is_some() {
        return Err(FsError::AlreadyExists);
    }
    let next_block = state.size_bytes.div_ceil(super::layout::BLOCK) as usize;
    let new_blocks = match state.directory.is_full() {
        true => state.map.missing(next_block..next_block + 1),
        false => 0,
    };
    let mut journal = volume.journal.lock();
    let metadata_blocks = Journal::metadata_max(&journal.superblock);
    journal.begin(0, metadata_blocks, new_blocks)?;
    if journal.inodes.free() == 0 {
        // Removed inodes are free after the commit.
        journal.commit()?;
    }
    let Some(number) = journal.allocate_inode() else {
        return Err(FsError::NoSpace);
    };
    if let Err(error) = load_table_block(&mut journal, number) {
        journal.free_inode(number);
        return Err(error);
    }
    let inode = Arc::new(Inode::create(&mut journal, number, kind));
    let State {
        size_bytes,
        map,
        directory,
    } = &mut *state;
    let named = (name, number, kind);
    directory.insert(&mut journal, parent.number, (map, size_bytes), named);
    volume.remember(&inode);
    journal.end()?;
    Ok(inode)
}

/// Removes a file's name, and the file if no handle has it.
pub(super) fn unlink(volume: &Volume, path: &Path) -> Result<(), FsError> {
    let (parent, name) = parent(volume, path)?;
    let mut state = parent.state.write();
    let found = state.directory.get(name).ok_or(FsError::NotFound)?;
    if found.kind == FileKind::Directory {
        return Err(FsError::IsADirectory);
    }
    let inode = volume.inode(found.inode)?;
    let file = inode.state.write();
    let mut lifetime = inode.lifetime.lock();
    let mut journal = volume.journal.lock();
    let metadata_blocks = Journal::metadata_max(&journal.superblock);
    journal.begin(0, metadata_blocks, 0)?;
    let orphan = match lifetime.open {
        0 => None,
        _ => Some(free_orphan(&journal).ok_or(FsError::NoSpace)?),
    };
    let State { map, directory, .. } = &mut *state;
    directory.remove(&mut journal, parent.number, map, name);
    lifetime.is_removed = true;
    lifetime.orphan = orphan;
    match orphan {
        None => release(volume, &mut journal, &inode, &file, None),
        Some(orphan) => {
            set_field(&mut journal, inode.number, LINKS_AT, &0_u16.to_le_bytes());
            set_orphan(&mut journal, orphan, inode.number.get());
        }
    }
    journal.end()
}

/// Closes a handle. A file without names goes with its last handle.
pub(super) fn close(volume: &Volume, inode: &Inode) -> Result<(), FsError> {
    let file = inode.state.write();
    let mut lifetime = inode.lifetime.lock();
    lifetime.open -= 1;
    if lifetime.open > 0 || !lifetime.is_removed {
        return Ok(());
    }
    finish(volume, inode, &file, lifetime.orphan)
}

/// Frees a file without names.
pub(super) fn finish(
    volume: &Volume,
    inode: &Inode,
    file: &RwLockWriteGuard<'_, State>,
    orphan: Option<usize>,
) -> Result<(), FsError> {
    let mut journal = volume.journal.lock();
    let metadata_blocks = Journal::metadata_max(&journal.superblock);
    journal.begin(0, metadata_blocks, 0)?;
    release(volume, &mut journal, inode, file, orphan);
    journal.end()
}

/// Frees an inode and its blocks, and its entry in the list of files without names.
fn release(
    volume: &Volume,
    journal: &mut Journal,
    inode: &Inode,
    file: &State,
    orphan: Option<usize>,
) {
    for block in file.map.all() {
        journal.free(block);
    }
    let free = DiskInode::free();
    set_field(journal, inode.number, 0, &free.as_bytes()[..RECORD_BYTES]);
    journal.free_inode(inode.number);
    if let Some(orphan) = orphan {
        set_orphan(journal, orphan, 0);
    }
    volume.forget(inode.number);
}

/// The list of files without names.
fn orphans(journal: &Journal) -> impl Iterator<Item = u32> {
    let entries = journal.content(ORPHANS).as_chunks::<4>().0;
    entries.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

fn free_orphan(journal: &Journal) -> Option<usize> {
    debug_assert_eq!(orphans(journal).count(), ORPHANS_MAX);
    orphans(journal).position(|number| number == 0)
}

fn set_orphan(journal: &mut Journal, entry: usize, number: u32) {
    journal.change(ORPHANS, entry * 4, &number.to_le_bytes());
}

/// Returns the files without names: entry and inode.
pub(super) fn orphans_in_use(journal: &Journal) -> Vec<(usize, InodeNumber)> {
    orphans(journal)
        .enumerate()
        .filter(|(_, number)| *number != 0)
        .map(|(entry, number)| (entry, InodeNumber::new(number)))
        .collect()
}

/// Frees the files that had no names when the file system was left.
pub(super) fn finish_orphans(volume: &Volume) -> Result<(), FsError> {
    let orphans = orphans_in_use(&volume.journal.lock());
    for (entry, number) in orphans {
        let inode = volume.inode(number)?;
        let has_names = record(&volume.journal.lock(), number).links != 0;
        if has_names {
            return Err(Corruption::Inode { number }.into());
        }
        finish(volume, &inode, &inode.state.write(), Some(entry))?;
    }
    volume.journal.lock().commit()
}
