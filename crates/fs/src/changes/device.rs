//! Moving blocks of a file to the device, because memory is scarce, and back, because they are
//! needed.

use super::relocate::{Content, Run, copy_block, finish, fresh_blocks, runs_of};
use crate::block_map::{BlockMap, MapEditor, free_block};
use crate::format::{BLOCK, InodeNumber, Pointer};
use crate::inode::node::{Body, Node};
use crate::mounted::file_system::Core;
use crate::mounted::operation::Operation;
use crate::values::error::FsError;
use device::{DeviceBlock, ReadRequest, Runs, Twin};
use pmem::BLOCK_BYTES;
use pmem::deliberate::{self, Bug};
use scatter::{DomainId, Purpose};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use txn::{PoolDevice, Store, Transaction};

/// Moves written blocks of a file, among `count` from `first` on, to the device. Returns how many
/// have moved.
///
/// None moves if the file changes meanwhile, if a process has it attached, or if a process may
/// still see one of the blocks. No lock is held while the device works (D3).
///
/// # Errors
///
/// [`FsError::NoSpace`] if the device is full, [`FsError::Device`], [`FsError::Corrupt`]; nothing
/// has moved then.
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
    // While the file changes, neither the pointers read nor an error are valid.
    let runs = match runs {
        Err(_) if !is_current() => return Ok(0),
        runs => runs?,
    };
    if runs.is_empty() || is_any_seen(core, &runs) {
        return Ok(0);
    }
    let contents = copy_runs(core, &runs, snapshot.size)?;
    if !is_current() {
        return Ok(0);
    }
    let mut transaction = core.begin();
    let blocks = (node.number(), runs[0].first);
    let fresh = write_to_device(core, &mut transaction, blocks, &contents)?;
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
    for (_, old) in runs.iter().flat_map(Run::iter) {
        free_block(&mut transaction, old);
    }
    if deliberate::is(Bug::FreeBothPlaces) {
        let places = fresh.iter().flat_map(|run| run.iter());
        places.for_each(|block| transaction.free_device(block));
    }
    finish(node.number(), &mut body, editor, transaction)?;
    Ok(contents.len() as u64)
}

/// Copies the blocks of runs in memory, in order.
fn copy_runs<S: Store>(core: &Core<S>, runs: &[Run], size: u64) -> Result<Vec<Content>, FsError> {
    let total = runs.iter().map(|run| run.pointers.len()).sum();
    let mut contents: Vec<Content> = vec![[0; BLOCK_BYTES]; total];
    for (block, content) in runs.iter().flat_map(Run::iter).zip(&mut contents) {
        copy_block(core, block, size, content)?;
    }
    Ok(contents)
}

/// Writes blocks of a file, from `first` on, to fresh ones of the device, and waits until they are
/// durable (D1). Returns the fresh blocks.
fn write_to_device<S: Store>(
    core: &Core<S>,
    transaction: &mut Operation<'_, S>,
    (number, first): (InodeNumber, u64),
    contents: &[Content],
) -> Result<Runs, FsError> {
    let fresh = transaction.allocate_device(contents.len() as u32);
    let fresh = fresh.ok_or(FsError::NoSpace)?;
    let failed = |fault| core.device_failed(number, first, fault);
    let mut rest = contents;
    for run in &fresh {
        let (part, tail) = rest.split_at(run.blocks as usize);
        let written = transaction.write_device(run.start, part.as_flattened());
        written.map_err(failed)?;
        rest = tail;
    }
    transaction.redeem().map_err(failed)?;
    Ok(fresh)
}

/// Whether a process may still see one of these blocks.
fn is_any_seen<S: Store>(core: &Core<S>, runs: &[Run]) -> bool {
    let seen = core.store.seen_blocks();
    let pointers = runs.iter().flat_map(|run| &run.pointers);
    seen.is_any() && seen.sees(&mut pointers.filter_map(|pointer| pointer.memory()))
}

/// Moves the blocks on the device, among `count` from `first` on, to memory. The caller holds no
/// lock (D3).
///
/// # Errors
///
/// [`FsError::NoSpace`] if memory is full, [`FsError::Device`], [`FsError::Corrupt`]; nothing has
/// moved then.
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
    // From here on the blocks keep their content, even if the file frees them (D4).
    let _pin = device.pin();
    drop(body);
    let contents = fetch(core, node.number(), device, &runs)?;
    let mut body = node.write();
    let map = BlockMap::of(node.number(), &body.raw);
    for (index, pointer) in runs.iter().flat_map(Run::iter) {
        if map.lookup(&core.store, index)? != Some(pointer) {
            // The file has changed: the caller looks again.
            return Ok(());
        }
    }
    // Sweeps have to know the file.
    core.note_change(node);
    let bytes = first * BLOCK..(first + count) * BLOCK;
    body.changes_content(&core.copies, bytes);
    swap_in(core, node.number(), &mut body, &runs, &contents)
}

/// Gives a file, which the caller has locked, fresh blocks of memory in place of those of the
/// device. These stay as twins if there is a tier, and are free else.
fn swap_in<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    runs: &[Run],
    contents: &[Content],
) -> Result<(), FsError> {
    let mut transaction = core.begin();
    let mut editor = MapEditor::new(&core.store, BlockMap::of(number, &body.raw));
    let mut brought: Vec<(Pointer, Pointer)> = Vec::new();
    for run in runs {
        let fresh = fresh_blocks(&mut transaction, body.domain, run, Purpose::Ordinary)?;
        let pointers: SmallVec<[Pointer; 64]> = fresh.map(Pointer::Written).collect();
        for (pointer, content) in pointers.iter().zip(&contents[brought.len()..]) {
            if let Pointer::Written(block) = pointer {
                transaction.write_fresh(*block, 0, content);
            }
        }
        editor.set(&mut transaction, run.first, &pointers, DomainId::METADATA)?;
        let olds = run.iter().map(|(_, old)| old);
        brought.extend(pointers.iter().copied().zip(olds));
    }
    if core.tier.is_none() {
        for (_, old) in &brought {
            free_block(&mut transaction, *old);
        }
    }
    finish(number, body, editor, transaction)?;
    if let Some(tier) = &core.tier {
        let count = &tier.counters.brought_in;
        count.fetch_add(brought.len() as u64, Ordering::Relaxed);
        for ((new, old), content) in brought.iter().zip(contents) {
            keep_twin(core, *new, *old, content);
        }
    }
    Ok(())
}

/// A block of the device was brought in: it is the twin of the block in memory, or free.
fn keep_twin<S: Store>(core: &Core<S>, new: Pointer, old: Pointer, content: &Content) {
    let (Some(new), Pointer::Device(block)) = (new.memory(), old) else {
        return;
    };
    let checksum = pmem::crc32c(content);
    let twin = Twin { block, checksum };
    let known = core.store.device().and_then(PoolDevice::residents);
    match known.is_some_and(|known| known.brought_in(new, twin)) {
        // It was asked for, so the next sweep leaves it.
        true => core.used(new),
        false => core.store.free_twin(block),
    }
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
