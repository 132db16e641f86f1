//! A file gets another owner, or gives rights to who executes it: its blocks leave the segments of the old one.
//!
//! Who owns any file in a segment may map the segment, at any time (`docs/DIRECT.md`, *Whose segments*). So what the new owner writes must not go to where the old one sees it, and a block that is written in
//! part is written where it is. The blocks move to segments that nobody maps, not to the new owner's: as long as the file is the old owner's, which it stays if the power goes in between or there is no room,
//! the new one must not see it either. What is written anew then goes to the new owner's segments, block by block.
//!
//! Root's blocks stay: only root maps its segments, and it may see everything.

use crate::block_map::read_block;
use crate::block_map::{BlockMap, MapEditor};
use crate::format::BLOCK;
use crate::format::{FileType, InodeNumber, Pointer, RawInode};
use crate::inode::node::{Body, BodyWrite};
use crate::mounted::file_system::Core;
use crate::values::error::FsError;
use pmem::BLOCK_BYTES;
use pmem::deliberate::{self, Bug};
use scatter::{DomainId, Extent, Purpose};
use smallvec::SmallVec;
use txn::{Store, Transaction};

/// Blocks that one transaction looks at.
const BLOCKS_AT_ONCE: u64 = 256;

/// Blocks of a file next to each other that move.
struct Run {
    first: u64,
    pointers: SmallVec<[Pointer; 64]>,
}

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
        let runs = runs_of_owners(core, &map, first)?;
        if !runs.is_empty() {
            move_runs(core, number, body, &map, &runs)?;
        }
    }
}

/// What lies in owners' segments, of [`BLOCKS_AT_ONCE`] blocks from `first` on.
fn runs_of_owners<S: Store>(
    core: &Core<S>,
    map: &BlockMap,
    first: u64,
) -> Result<SmallVec<[Run; 4]>, FsError> {
    let allocator = core.store.allocator();
    let mut runs: SmallVec<[Run; 4]> = SmallVec::new();
    map.lookup_range(&core.store, first, BLOCKS_AT_ONCE, |index, pointer| {
        let Some(pointer) = pointer else {
            return;
        };
        let domain = allocator.domain_of(pointer.block);
        if domain.is_some_and(DomainId::is_server_only) {
            return;
        }
        match runs.last_mut() {
            Some(run) if run.first + run.pointers.len() as u64 == index => {
                run.pointers.push(pointer);
            }
            _ => runs.push(Run {
                first: index,
                pointers: SmallVec::from_slice(&[pointer]),
            }),
        }
    })?;
    Ok(runs)
}

/// One transaction.
fn move_runs<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    map: &BlockMap,
    runs: &[Run],
) -> Result<(), FsError> {
    let mut transaction = core.begin();
    let mut editor = MapEditor::new(&core.store, *map);
    for run in runs {
        let count = run.pointers.len() as u32;
        // As much is freed as is taken: like an overwrite it may use the reserve.
        let extents = transaction.allocate(DomainId::MIXED, count, Purpose::Overwrite)?;
        let mut fresh = extents
            .iter()
            .flat_map(|extent| (0..u64::from(extent.blocks)).map(|index| extent.start + index));
        let mut moved: SmallVec<[Pointer; 64]> = SmallVec::new();
        for (index, old) in (run.first..).zip(&run.pointers) {
            let block = fresh.next().ok_or(FsError::NoSpace)?;
            if !old.unwritten {
                let mut content = [0; BLOCK_BYTES];
                read_block(&core.store, Some(*old), 0, &mut content);
                zero_behind_end(index, body.raw.size, &mut content);
                transaction.write_fresh(block, 0, &content);
            }
            moved.push(Pointer { block, ..*old });
            transaction.free(Extent {
                start: old.block,
                blocks: 1,
            });
        }
        editor.set(&mut transaction, run.first, &moved, DomainId::METADATA)?;
    }
    let mut new = body.raw;
    (new.root, new.height) = editor.finish(&mut transaction);
    transaction.log_inode(number, &body.raw, &mut new)?;
    transaction.commit()?;
    body.raw = new;
    Ok(())
}

/// The old owner's processes may have written behind the end of the file (R5).
fn zero_behind_end(index: u64, size: u64, content: &mut [u8; BLOCK_BYTES]) {
    let used = size.saturating_sub(index * BLOCK).min(BLOCK) as usize;
    if !deliberate::is(Bug::TrustTail) {
        content[used..].fill(0);
    }
}
