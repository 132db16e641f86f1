//! A file gets another owner, or gives rights to who executes it: its blocks leave the segments of the old one.
//!
//! Who owns any file in a segment may map the segment, at any time (`docs/DIRECT.md`, *Whose segments*). So what the new owner writes must not go to where the old one sees it, and a block that is written in
//! part is written where it is. The blocks move to segments that nobody maps, not to the new owner's: as long as the file is the old owner's, which it stays if the power goes in between or there is no room,
//! the new one must not see it either. What is written anew then goes to the new owner's segments, block by block.
//!
//! Root's blocks stay: only root maps its segments, and it may see everything.

use super::relocate::{BLOCKS_AT_ONCE, move_in_memory, runs_of};
use crate::block_map::BlockMap;
use crate::format::{FileType, InodeNumber, Pointer, RawInode};
use crate::inode::node::BodyWrite;
use crate::mounted::file_system::Core;
use crate::values::error::FsError;
use pmem::deliberate::{self, Bug};
use scatter::DomainId;
use txn::Store;

/// Whether the blocks of a file have to move before `user` owns it.
pub(crate) fn is_needed(raw: &RawInode, user: u32) -> bool {
    let is_file = raw.file_type() == Some(FileType::Regular);
    is_file && raw.uid != user && raw.uid != 0 && !deliberate::is(Bug::LeaveBlocksBehind)
}

/// Moves the blocks of a file out of reach of its owner's processes, which could change what it
/// does. Called before each process that executes the file gets [`rights`](crate::inode::rights).
///
/// # Errors
///
/// Those of [`leave_owner`].
pub(crate) fn leave_for_rights<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut BodyWrite<'_>,
) -> Result<(), FsError> {
    // To somebody else, whoever that is.
    match is_needed(&body.raw, 0) {
        true => leave_owner(core, number, body),
        false => Ok(()),
    }
}

/// Moves all blocks of a file out of owners' segments, [`BLOCKS_AT_ONCE`] in a transaction. Content and times stay as they are, whenever that ends.
///
/// # Errors
///
/// [`FsError::NoSpace`], [`FsError::Corrupt`]; some of the blocks have moved then.
pub(crate) fn leave_owner<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut BodyWrite<'_>,
) -> Result<(), FsError> {
    let size = body.raw.size;
    body.changes_content(&core.copies, 0..size);
    let mut next = 0;
    loop {
        let map = BlockMap::of(number, &body.raw);
        let Some(first) = map.next_mapped(&core.store, next)? else {
            return Ok(());
        };
        next = first + BLOCKS_AT_ONCE;
        let runs = runs_of(core, &map, (first, BLOCKS_AT_ONCE), |pointer| {
            is_owners(core, pointer)
        })?;
        if !runs.is_empty() {
            move_in_memory(core, number, body, &runs, DomainId::MIXED)?;
        }
    }
}

/// Whether a block lies in a segment that an owner's processes may map. The device has none.
fn is_owners<S: Store>(core: &Core<S>, pointer: Pointer) -> bool {
    pointer.memory().is_some_and(|block| {
        let domain = core.store.allocator().domain_of(block);
        !domain.is_some_and(DomainId::is_server_only)
    })
}
