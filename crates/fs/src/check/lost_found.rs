//! Inodes that lost their names get one in `/lost+found`.
//!
//! Runs when everything else is in order, so the pool can be mounted and the ordinary operations do the work.

use super::regrow::RegrowError;
use crate::format::{FileType, InodeNumber};
use crate::inode::table::InodeTable;
use crate::{FileSystem, FsError, MountOptions, NewInode, Node};
use pmem::Region;
use std::sync::Arc;
use txn::{Mode, PmemStore, Store, Transaction};

/// Name of the directory, in the root.
const NAME: &[u8] = b"lost+found";
/// Names tried for one inode.
const ATTEMPTS: usize = 100;

/// Gives every inode in `lost` a name.
pub(super) fn connect(region: &Arc<Region>, lost: &[InodeNumber]) -> Result<(), RegrowError> {
    let store = PmemStore::open_region(Arc::clone(region), Mode::ReadWrite)?;
    let files = FileSystem::mount(store, MountOptions::default())?;
    let result = directory(&files).and_then(|directory| {
        lost.iter()
            .try_for_each(|&number| adopt(&files, &directory, number))
    });
    files.checkpoint();
    Ok(result?)
}

/// The directory, made if it is missing. A file that has its name stays; the directory is called otherwise then.
fn directory(files: &FileSystem) -> Result<Node, FsError> {
    let root = files.root();
    for attempt in 0..ATTEMPTS {
        let name = if attempt == 0 {
            NAME.to_vec()
        } else {
            format!("lost+found.{attempt}").into_bytes()
        };
        match files.lookup(&root, &name) {
            Ok(node) if files.attributes(&node)?.file_type() == FileType::Directory => {
                return Ok(node);
            }
            Ok(_) => {}
            Err(FsError::NotFound) => {
                return files.make_directory(&root, &name, &NewInode::file(0o700));
            }
            Err(error) => return Err(error),
        }
    }
    Err(FsError::AlreadyExists)
}

/// Names inode `number` in `directory`: one transaction.
fn adopt(files: &FileSystem, directory: &Node, number: InodeNumber) -> Result<(), FsError> {
    let core = &*files.core;
    let child = core.node(number)?;
    let mut body = core.lock_directory(directory)?;
    let mut name = format!("#{number}").into_bytes();
    for attempt in 1..ATTEMPTS {
        if core.find(directory.number(), &body, &name)?.is_none() {
            break;
        }
        name = format!("#{number}.{attempt}").into_bytes();
    }
    let mut child_body = child.write();
    let file_type = child_body.raw.file_type().ok_or(FsError::NotFound)?;
    let (mut new_child, mut new_parent) = (child_body.raw, body.raw);
    if file_type == FileType::Directory {
        new_child.parent = directory.number().get();
        new_parent.links += 1;
    } else {
        new_child.links = 1;
    }
    let Some(index) = &body.directory else {
        return Err(FsError::NotADirectory);
    };
    let mut plan = index.plan();
    let mut transaction = core.store.begin();
    let entry = (number, file_type);
    core.insert_name(
        (directory.number(), &body),
        &mut new_parent,
        &mut plan,
        &name,
        entry,
        &mut transaction,
    )?;
    new_parent.touch_modified(core.now());
    let home = InodeTable::home(directory.number());
    new_parent.log_changes(&body.raw, directory.number(), |at, bytes| {
        transaction.store_at_home(home + at, bytes);
    });
    let home = InodeTable::home(number);
    new_child.log_changes(&child_body.raw, number, |at, bytes| {
        transaction.store_at_home(home + at, bytes);
    });
    transaction.commit()?;
    body.raw = new_parent;
    core.commit_plan(directory.number(), &mut body, plan);
    child_body.raw = new_child;
    Ok(())
}
