//! Paths: lookup, create, remove, list.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::MutexGuard;
use pmem::Offset;

use super::directory::{self, DirEntry, NAME_BYTES_MAX, Name};
use super::error::PmfsError;
use super::inode::Inode;
use super::inode_table::{self, InodeTable};
use super::layout::{FileType, INODE_BYTES, InodeNumber, RECORD_BYTES, Record, now_seconds};
use super::names::Known;
use super::transaction::{Logged, Transaction, entries_for};
use super::volume::Volume;

/// Log entries of a creation.
const ENTRIES_TO_CREATE: u32 = entries_for(INODE_BYTES) + directory::ENTRIES_TO_CHANGE;
/// Log entries of a removal.
const ENTRIES_TO_REMOVE: u32 = entries_for(RECORD_BYTES as u64) + directory::ENTRIES_TO_CHANGE;

/// The names of a path.
fn components(path: &Path) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.as_os_str()
        .as_bytes()
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
}

fn check_name(name: &[u8]) -> Result<(), PmfsError> {
    match name {
        b".." => Err(PmfsError::InvalidPath),
        name if name.len() > NAME_BYTES_MAX => Err(PmfsError::NameTooLong { length: name.len() }),
        _ => Ok(()),
    }
}

/// What a name in a directory leads to: known, or searched under the directory's lock.
fn lookup(volume: &Volume, parent: &Inode, name: &[u8]) -> Result<Option<Arc<Inode>>, PmfsError> {
    parent.require_directory()?;
    check_name(name)?;
    if volume.options.dentry_cache {
        match parent.names.get(name) {
            Some(Known::Present(inode)) => return Ok(Some(inode)),
            Some(Known::Absent) => return Ok(None),
            None => {}
        }
    }
    let record = parent.record.write();
    lookup_locked(volume, parent, &record, name)
}

/// The same for who has the directory's lock.
fn lookup_locked(
    volume: &Volume,
    parent: &Inode,
    record: &Record,
    name: &[u8],
) -> Result<Option<Arc<Inode>>, PmfsError> {
    let is_cached = volume.options.dentry_cache;
    if is_cached {
        match parent.names.get(name) {
            Some(Known::Present(inode)) => return Ok(Some(inode)),
            Some(Known::Absent) => return Ok(None),
            None => {}
        }
    }
    let found = match directory::lookup(&volume.medium, parent, record, name)? {
        Some(number) => Some(volume.inode(number)?),
        None => None,
    };
    if is_cached {
        let known = match &found {
            Some(inode) => Known::Present(Arc::clone(inode)),
            None => Known::Absent,
        };
        parent.names.set(name, known);
    }
    Ok(found)
}

/// The inode that a path leads to.
pub(super) fn resolve(
    volume: &Volume,
    root: &Arc<Inode>,
    path: &Path,
) -> Result<Arc<Inode>, PmfsError> {
    let mut inode = Arc::clone(root);
    for name in components(path) {
        inode = lookup(volume, &inode, name)?.ok_or(PmfsError::NotFound)?;
    }
    Ok(inode)
}

/// The directory of a path's last name, and that name.
fn resolve_parent<'p>(
    volume: &Volume,
    root: &Arc<Inode>,
    path: &'p Path,
) -> Result<(Arc<Inode>, &'p [u8]), PmfsError> {
    let mut names = components(path);
    let last = names.next_back().ok_or(PmfsError::InvalidPath)?;
    check_name(last)?;
    let mut inode = Arc::clone(root);
    for name in names {
        inode = lookup(volume, &inode, name)?.ok_or(PmfsError::NotFound)?;
    }
    inode.require_directory()?;
    Ok((inode, last))
}

/// An inode that a transaction has taken from the table.
struct Claimed {
    number: InodeNumber,
    at: Offset,
    file_type: FileType,
    record: Record,
    logged: Logged,
}

/// Begins a transaction with an inode that is new in it. The table has such an inode whenever a unit can be added to it.
fn claim<'v>(
    volume: &'v Volume,
    file_type: FileType,
    entries: u32,
) -> Result<(Transaction<'v>, Claimed), PmfsError> {
    loop {
        inode_table::provide(volume)?;
        let mut transaction = Transaction::begin(volume, entries);
        let mut table = volume.table.lock();
        if let Some((number, at)) = table.claim(&volume.medium)? {
            let links = if file_type == FileType::Directory {
                2
            } else {
                1
            };
            let record = Record::new(file_type, links, now_seconds());
            let logged = transaction.log(at, INODE_BYTES);
            transaction.change(&logged, at, &record.bytes());
            let claimed = Claimed {
                number,
                at,
                file_type,
                record,
                logged,
            };
            return Ok((transaction, claimed));
        }
    }
}

/// Takes a creation back, under the lock that decides who has an inode.
fn unclaim(
    transaction: Transaction<'_>,
    mut table: MutexGuard<'_, InodeTable>,
    number: InodeNumber,
) {
    drop(transaction);
    table.freed(number);
}

/// Makes a file or a directory.
pub(super) fn create(
    volume: &Volume,
    root: &Arc<Inode>,
    path: &Path,
    file_type: FileType,
) -> Result<Arc<Inode>, PmfsError> {
    let (parent, name) = resolve_parent(volume, root, path)?;
    let mut parent_record = parent.record.write();
    if lookup_locked(volume, &parent, &parent_record, name)?.is_some() {
        return Err(PmfsError::AlreadyExists);
    }
    let (mut transaction, mut claimed) = claim(volume, file_type, ENTRIES_TO_CREATE)?;
    let mut record = *parent_record;
    match enter(&mut transaction, &mut claimed, &parent, &mut record, name) {
        Ok(()) => transaction.commit(),
        Err(error) => {
            unclaim(transaction, volume.table.lock(), claimed.number);
            return Err(error);
        }
    };
    *parent_record = record;
    let inode = volume.remember(claimed.number, claimed.at, claimed.record)?;
    if volume.options.dentry_cache {
        parent.names.set(name, Known::Present(Arc::clone(&inode)));
    }
    Ok(inode)
}

/// Enters a claimed inode into its directory, whose record is `parent_record`.
fn enter(
    transaction: &mut Transaction<'_>,
    claimed: &mut Claimed,
    parent: &Inode,
    parent_record: &mut Record,
    name: &[u8],
) -> Result<(), PmfsError> {
    let file_type = claimed.file_type;
    if file_type == FileType::Directory {
        directory::begin(
            transaction,
            &mut claimed.record,
            claimed.number,
            parent.number,
        )?;
        transaction.change(&claimed.logged, claimed.at, &claimed.record.bytes());
        parent_record.links += 1;
    }
    let name = Name {
        bytes: name,
        number: claimed.number,
        file_type,
    };
    directory::insert(transaction, parent, parent_record, name)
}

/// Removes a file's name. The file itself goes when its last handle does.
pub(super) fn unlink(volume: &Volume, root: &Arc<Inode>, path: &Path) -> Result<(), PmfsError> {
    let (parent, name) = resolve_parent(volume, root, path)?;
    let mut parent_record = parent.record.write();
    let inode = lookup_locked(volume, &parent, &parent_record, name)?.ok_or(PmfsError::NotFound)?;
    inode.require_file()?;
    let mut inode_record = inode.record.write();
    let mut transaction = Transaction::begin(volume, ENTRIES_TO_REMOVE);
    let logged = transaction.log(inode.at, RECORD_BYTES as u64);
    let mut record = *parent_record;
    directory::remove(&mut transaction, &parent, &mut record, name)?;
    let mut removed = *inode_record;
    removed.links = 0;
    removed.changed = record.changed;
    let listed =
        volume
            .truncations
            .lock()
            .add(volume.region(), inode.number, inode.at, removed.size_bytes);
    transaction.fresh(listed);
    transaction.change(&logged, inode.at, &removed.bytes());
    transaction.commit();
    *parent_record = record;
    *inode_record = removed;
    let known = volume
        .options
        .dentry_cache
        .then(|| parent.names.set(name, Known::Absent));
    let cached = volume.forget(inode.number);
    drop(inode_record);
    drop(parent_record);
    // The last of these may be the last reference, with which the file goes.
    drop((known, cached, inode));
    Ok(())
}

/// What a directory contains, without `.` and `..`.
pub(super) fn read_dir(
    volume: &Volume,
    root: &Arc<Inode>,
    path: &Path,
) -> Result<Vec<DirEntry>, PmfsError> {
    let directory = resolve(volume, root, path)?;
    directory.require_directory()?;
    let record = directory.record.write();
    let mut entries = directory::entries(&volume.medium, &record)?;
    entries.retain(|entry| entry.name != b"." && entry.name != b"..");
    Ok(entries)
}
