//! Files that give rights to whoever executes them: set-user-id, set-group-id, `security.capability`.
//!
//! A write through the kernel takes these rights away. One past it would not, and a process can write whatever lies in its user's segments (`docs/DIRECT.md`, *Whose segments*). So such a file is not leased,
//! and no block of it lies there: its blocks move before it gets the rights, and new ones come from segments that nobody maps. Root's own may stay where only root sees them.

use crate::format::{FileType, InodeNumber, RawInode};
use crate::inode::xattr;
use crate::values::error::FsError;
use txn::Store;

/// Attribute with the rights that a program has, whoever runs it. The kernel removes it before it writes.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// Bits of a mode that make who executes the file somebody else.
const SET_ID_BITS: u32 = 0o6000;

/// Whether a mode makes who executes the file somebody else.
pub(crate) fn has_set_id(mode: u32) -> bool {
    mode & SET_ID_BITS != 0
}

/// Whether who executes a file gets rights by that.
pub(crate) fn gives_rights<S: Store>(
    store: &S,
    number: InodeNumber,
    raw: &RawInode,
) -> Result<bool, FsError> {
    Ok(has_set_id(raw.mode) || xattr::has(store, number, raw, CAPABILITY)?)
}

/// Whether the blocks of a file have to be where no process can write. If its attributes cannot be read, they have.
pub(crate) fn is_out_of_reach<S: Store>(store: &S, number: InodeNumber, raw: &RawInode) -> bool {
    let is_users = raw.file_type() == Some(FileType::Regular) && raw.uid != 0;
    is_users && gives_rights(store, number, raw).unwrap_or(true)
}
