//! Moving blocks of a file: read, write elsewhere, swap the pointers, free the old place. One
//! transaction a move.
//!
//! A block moves within memory because it is worn, because its file gets another owner, or because
//! a process may still store into it; moves to the device and back are in
//! [`device`](super::device). No move changes content, so none changes a time.

use crate::block_map::{BlockMap, MapEditor, Slot, free_block, read_block};
use crate::format::{BLOCK, InodeNumber, Pointer, RawInode};
use crate::inode::node::Body;
use crate::mounted::file_system::Core;
use crate::mounted::operation::Operation;
use crate::values::error::{FsError, damaged_inode, not_brought_in};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::{DomainId, Extent, Purpose};
use smallvec::SmallVec;
use txn::{Store, Transaction};

/// Blocks that one move looks at.
pub(crate) const BLOCKS_AT_ONCE: u64 = 256;

pub(super) type Content = [u8; BLOCK_BYTES];

/// Blocks of a file next to each other that move.
pub(crate) struct Run {
    pub(super) first: u64,
    pub(super) pointers: SmallVec<[Pointer; 64]>,
}

impl Run {
    /// The blocks' indexes in the file, with where they are.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Pointer)> + '_ {
        (self.first..).zip(self.pointers.iter().copied())
    }
}

/// The wanted ones of `count` blocks from `first` on.
pub(crate) fn runs_of<S: Store>(
    core: &Core<S>,
    map: &BlockMap,
    (first, count): (u64, u64),
    mut is_wanted: impl FnMut(Pointer) -> bool,
) -> Result<SmallVec<[Run; 4]>, FsError> {
    let mut runs: SmallVec<[Run; 4]> = SmallVec::new();
    map.lookup_range(&core.store, first, count, |index, pointer| {
        let Some(pointer) = pointer.filter(|&pointer| is_wanted(pointer)) else {
            return;
        };
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

/// Moves one block of a file or a node of its map, whose pointer is in `slot`, to a fresh block of
/// its domain.
pub(crate) fn move_one<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    (from, domain): (BlockNumber, DomainId),
    slot: Slot,
    word: impl FnOnce(BlockNumber) -> u64,
) -> Result<(), FsError> {
    let mut transaction = core.begin();
    let to = transaction.allocate_one(domain, Purpose::Ordinary)?;
    let mut content = [0; BLOCK_BYTES];
    core.store.read(from.offset(), &mut content);
    transaction.write_fresh(to, 0, &content);
    let extent = Extent {
        start: from,
        blocks: 1,
    };
    transaction.free(extent);
    let mut new = body.raw;
    match slot {
        Slot::Word(at) => transaction.store_word(at, word(to)),
        _ => new.root = word(to),
    }
    transaction.log_inode(number, &body.raw, &mut new)?;
    transaction.commit()?;
    body.raw = new;
    Ok(())
}

/// Moves blocks of a file, which lie in memory, to fresh blocks of `domain`: one transaction.
pub(crate) fn move_in_memory<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    runs: &[Run],
    domain: DomainId,
) -> Result<(), FsError> {
    let mut transaction = core.begin();
    let mut editor = MapEditor::new(&core.store, BlockMap::of(number, &body.raw));
    for run in runs {
        // The move frees as much as it takes: like an overwrite it may use the reserve.
        let mut fresh = fresh_blocks(&mut transaction, domain, run, Purpose::Overwrite)?;
        let mut moved: SmallVec<[Pointer; 64]> = SmallVec::new();
        for (index, old) in run.iter() {
            let block = fresh.next().ok_or(FsError::NoSpace)?;
            moved.push(match old {
                Pointer::Unwritten(_) => Pointer::Unwritten(block),
                Pointer::Written(_) => {
                    let mut content = [0; BLOCK_BYTES];
                    copy_block(core, (index, old), body.raw.size, &mut content)?;
                    transaction.write_fresh(block, 0, &content);
                    Pointer::Written(block)
                }
                Pointer::Device(block) => return Err(not_brought_in(block)),
            });
            free_block(&mut transaction, old);
        }
        editor.set(&mut transaction, run.first, &moved, DomainId::METADATA)?;
    }
    finish(number, body, editor, transaction)
}

/// A block of an inode that the caller has locked.
pub(crate) struct Owned<'r> {
    pub(crate) number: InodeNumber,
    pub(crate) raw: &'r mut RawInode,
    /// Its index among the inode's blocks.
    pub(crate) index: u64,
}

/// Gives a file a copy of one of its blocks, in an unwritten block that another inode keeps for
/// that, and the keeper the block. One transaction that needs no room and no limit refuses; after
/// an error it may have happened already.
pub(crate) fn exchange<S: Store>(
    core: &Core<S>,
    file: Owned<'_>,
    keeper: Owned<'_>,
) -> Result<(), FsError> {
    let map = BlockMap::of(file.number, file.raw);
    // A holder writes no unwritten block in place.
    let Some(Pointer::Written(old)) = map.lookup(&core.store, file.index)? else {
        return Ok(());
    };
    let keeper_map = BlockMap::of(keeper.number, keeper.raw);
    let kept = match keeper_map.lookup(&core.store, keeper.index)? {
        Some(Pointer::Unwritten(block)) => block,
        Some(_) => return Ok(()),
        None => return Err(damaged_inode(keeper.number, "the lease has kept no block")),
    };
    let mut content = [0; BLOCK_BYTES];
    let place = (file.index, Pointer::Written(old));
    copy_block(core, place, file.raw.size, &mut content)?;
    let mut transaction = core.begin();
    transaction.write_fresh(kept, 0, &content);
    let (mut new, mut new_keeper) = (*file.raw, *keeper.raw);
    // Both have a pointer there already, so no node is added.
    for (raw, map, index, block) in [
        (&mut new, map, file.index, kept),
        (&mut new_keeper, keeper_map, keeper.index, old),
    ] {
        let mut editor = MapEditor::new(&core.store, map);
        let pointers = [Pointer::Written(block)];
        editor.set(&mut transaction, index, &pointers, DomainId::METADATA)?;
        (raw.root, raw.height) = editor.finish(&mut transaction);
    }
    transaction.log_promised(keeper.number, keeper.raw, &mut new_keeper);
    transaction.log_promised(file.number, file.raw, &mut new);
    transaction.commit()?;
    (*keeper.raw, *file.raw) = (new_keeper, new);
    Ok(())
}

/// Fresh blocks for a run.
pub(super) fn fresh_blocks<S: Store>(
    transaction: &mut Operation<'_, S>,
    domain: DomainId,
    run: &Run,
    purpose: Purpose,
) -> Result<impl Iterator<Item = BlockNumber> + use<S>, FsError> {
    let extents = transaction.allocate(domain, run.pointers.len() as u32, purpose)?;
    Ok(extents
        .into_iter()
        .flat_map(|extent| (0..u64::from(extent.blocks)).map(move |index| extent.start + index)))
}

/// Copies a block of memory. Bytes behind the end of the file become zeros, whatever processes have
/// stored there (R5).
pub(crate) fn copy_block<S: Store>(
    core: &Core<S>,
    (index, pointer): (u64, Pointer),
    size: u64,
    content: &mut Content,
) -> Result<(), FsError> {
    read_block(&core.store, Some(pointer), 0, content).map_err(not_brought_in)?;
    let used = size.saturating_sub(index * BLOCK).min(BLOCK) as usize;
    if !deliberate::is(Bug::TrustTail) {
        content[used..].fill(0);
    }
    Ok(())
}

/// Commits the move. No node of the map is missing, because all blocks that move have pointers.
pub(crate) fn finish<S: Store>(
    number: InodeNumber,
    body: &mut Body,
    editor: MapEditor<'_, S>,
    mut transaction: Operation<'_, S>,
) -> Result<(), FsError> {
    let mut new = body.raw;
    (new.root, new.height) = editor.finish(&mut transaction);
    transaction.log_inode(number, &body.raw, &mut new)?;
    transaction.commit()?;
    body.raw = new;
    Ok(())
}
