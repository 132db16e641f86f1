//! Moving blocks of a file: read, write elsewhere, swap the pointers, free the old place. One transaction a move.
//!
//! Within memory a block moves because it is worn, or because its file gets another owner. To the device it moves because memory is
//! scarce, and back because it is needed. The content stays what it is in all cases, so no move changes a time.

use crate::block_map::{BlockMap, MapEditor, Slot, free_block, read_block};
use crate::format::{BLOCK, InodeNumber, Pointer};
use crate::inode::node::{Body, Node};
use crate::mounted::file_system::Core;
use crate::mounted::operation::Operation;
use crate::values::error::{FsError, not_brought_in};
use device::{DeviceBlock, ReadRequest};
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::{DomainId, Extent, Purpose};
use smallvec::SmallVec;
use txn::{PoolDevice, Store, Transaction};

/// Blocks that one move looks at.
pub(crate) const BLOCKS_AT_ONCE: u64 = 256;

type Content = [u8; BLOCK_BYTES];

/// Blocks of a file next to each other that move.
pub(crate) struct Run {
    first: u64,
    pointers: SmallVec<[Pointer; 64]>,
}

impl Run {
    /// The blocks' indexes in the file, with where they are.
    fn iter(&self) -> impl Iterator<Item = (u64, Pointer)> + '_ {
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

/// Moves one block of a file or a node of its map, whose pointer is in `slot`, to a fresh block of its domain.
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
        // As much is freed as is taken: like an overwrite it may use the reserve.
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

/// Moves written blocks of a file, among `count` from `first` on, to the device. How many have moved: none if somebody changes the file meanwhile, or has it attached, or may still see one of the blocks.
///
/// No lock is held while the device works (D3).
///
/// # Errors
///
/// [`FsError::NoSpace`] if the device is full, [`FsError::Device`], [`FsError::Corrupt`]; nothing has moved then.
pub(crate) fn move_to_device<S: Store>(
    core: &Core<S>,
    node: &Node,
    (first, count): (u64, u64),
) -> Result<u64, FsError> {
    let Some(snapshot) = node.view().snapshot() else {
        return Ok(0);
    };
    let map = BlockMap {
        inode: node.number(),
        root: snapshot.root,
        height: snapshot.height,
    };
    let runs = runs_of(core, &map, (first, count), |pointer| {
        matches!(pointer, Pointer::Written(_))
    });
    let is_current = || node.view().is_current(&snapshot);
    // What was read of a file that is being changed means nothing, nor does an error.
    let runs = match runs {
        Err(_) if !is_current() => return Ok(0),
        runs => runs?,
    };
    let total = runs.iter().map(|run| run.pointers.len()).sum::<usize>();
    if total == 0 || is_any_seen(core, &runs) {
        return Ok(0);
    }
    let mut contents: Vec<Content> = vec![[0; BLOCK_BYTES]; total];
    let moving = || runs.iter().flat_map(Run::iter);
    for (block, content) in moving().zip(&mut contents) {
        copy_block(core, block, snapshot.size, content)?;
    }
    if !is_current() {
        return Ok(0);
    }
    let mut transaction = core.begin();
    let fresh = transaction.allocate_device(total as u32);
    let fresh = fresh.ok_or(FsError::NoSpace)?;
    let failed = |fault| core.device_failed(node.number(), runs[0].first, fault);
    let mut rest = &contents[..];
    for run in &fresh {
        let (part, tail) = rest.split_at(run.blocks as usize);
        let written = transaction.write_device(run.start, part.as_flattened());
        written.map_err(failed)?;
        rest = tail;
    }
    transaction.redeem().map_err(failed)?;
    let mut body = node.write();
    if !node.view().has_only_begun_since(&snapshot) || body.is_attached() {
        return Ok(0);
    }
    let end = (first + count) * BLOCK;
    body.changes_content(&core.copies, first * BLOCK..end);
    let mut editor = MapEditor::new(&core.store, BlockMap::of(node.number(), &body.raw));
    let mut places = fresh.iter().flat_map(|run| run.iter());
    for run in &runs {
        let pointers: SmallVec<[Pointer; 64]> = places
            .by_ref()
            .take(run.pointers.len())
            .map(Pointer::Device)
            .collect();
        editor.set(&mut transaction, run.first, &pointers, DomainId::METADATA)?;
    }
    moving().for_each(|(_, old)| free_block(&mut transaction, old));
    if deliberate::is(Bug::FreeBothPlaces) {
        let places = fresh.iter().flat_map(|run| run.iter());
        places.for_each(|block| transaction.free_device(block));
    }
    finish(node.number(), &mut body, editor, transaction)?;
    Ok(total as u64)
}

/// Whether a process may still see one of these blocks.
fn is_any_seen<S: Store>(core: &Core<S>, runs: &[Run]) -> bool {
    let seen = core.store.seen_blocks();
    let pointers = runs.iter().flat_map(|run| &run.pointers);
    seen.is_any() && seen.sees(&mut pointers.filter_map(|pointer| pointer.memory()))
}

/// Moves what lies on the device, among `count` blocks from `first` on, to memory. The caller holds no lock.
///
/// # Errors
///
/// [`FsError::NoSpace`] if memory is full, [`FsError::Device`], [`FsError::Corrupt`]; nothing has moved then.
pub(crate) fn bring_in<S: Store>(
    core: &Core<S>,
    node: &Node,
    (first, count): (u64, u64),
) -> Result<(), FsError> {
    let Some(device) = core.store.device() else {
        return Ok(());
    };
    let on_device = |pointer: Pointer| matches!(pointer, Pointer::Device(_));
    let body = node.read();
    let map = BlockMap::of(node.number(), &body.raw);
    let runs = runs_of(core, &map, (first, count), on_device)?;
    // From here on the blocks keep their content, also if the file lets them go.
    let _pin = device.pin();
    drop(body);
    let contents = fetch(core, node.number(), device, &runs)?;
    let mut body = node.write();
    let map = BlockMap::of(node.number(), &body.raw);
    for (index, pointer) in runs.iter().flat_map(Run::iter) {
        if map.lookup(&core.store, index)? != Some(pointer) {
            // Somebody has changed the file: the caller looks again.
            return Ok(());
        }
    }
    let domain = body.domain;
    body.changes_content(&core.copies, first * BLOCK..(first + count) * BLOCK);
    let mut transaction = core.begin();
    let mut editor = MapEditor::new(&core.store, map);
    let mut contents = contents.iter();
    for run in &runs {
        let fresh = fresh_blocks(&mut transaction, domain, run, Purpose::Ordinary)?;
        let pointers: SmallVec<[Pointer; 64]> = fresh.map(Pointer::Written).collect();
        for (pointer, content) in pointers.iter().zip(contents.by_ref()) {
            if let Pointer::Written(block) = pointer {
                transaction.write_fresh(*block, 0, content);
            }
        }
        editor.set(&mut transaction, run.first, &pointers, DomainId::METADATA)?;
        for (_, old) in run.iter() {
            free_block(&mut transaction, old);
        }
    }
    finish(node.number(), &mut body, editor, transaction)
}

/// Reads blocks of the device, in one batch.
fn fetch<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    device: &PoolDevice,
    runs: &[Run],
) -> Result<Vec<Content>, FsError> {
    let blocks: Vec<(u64, DeviceBlock)> = runs
        .iter()
        .flat_map(Run::iter)
        .filter_map(|(index, pointer)| match pointer {
            Pointer::Device(block) => Some((index, block)),
            _ => None,
        })
        .collect();
    let mut contents: Vec<Content> = vec![[0; BLOCK_BYTES]; blocks.len()];
    let mut requests: Vec<ReadRequest<'_>> = blocks
        .iter()
        .zip(&mut contents)
        .map(|(&(_, block), into)| ReadRequest { block, into })
        .collect();
    device.read(&mut requests).map_err(|fault| {
        let index = blocks.iter().find(|(_, block)| *block == fault.block);
        core.device_failed(number, index.map_or(0, |(index, _)| *index), fault)
    })?;
    Ok(contents)
}

/// Fresh blocks for a run.
fn fresh_blocks<S: Store>(
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

/// Copies a block of memory. Behind the end of the file there are zeros, whatever processes have stored there (R5).
fn copy_block<S: Store>(
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

/// Commits the move. A node that was missing cannot be: all blocks that move have pointers.
fn finish<S: Store>(
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
