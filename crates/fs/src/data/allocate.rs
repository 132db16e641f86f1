//! Allocating, zeroing and punching ranges of files (`fallocate`).

use super::write::purpose_of_overwrite;
use crate::block_map::{BlockMap, MapEditor, free_block};
use crate::changes::tail::{zero_range_in_block, zero_tail};
use crate::format::map::FANOUT;
use crate::format::{BLOCK, FILE_BYTES_MAX, InodeNumber, Pointer};
use crate::inode::node::{Body, Node};
use crate::lease::change::Ends;
use crate::mounted::file_system::{Core, FileSystem};
use crate::values::error::FsError;
use crate::values::types::AllocateOptions;
use scatter::{DomainId, Purpose};
use smallvec::SmallVec;
use std::ops::Range;
use txn::{Store, Transaction};

/// Blocks that one transaction of `allocate` reserves.
const ALLOCATE_BLOCKS_MAX: u64 = 2 * FANOUT;

impl<S: Store> FileSystem<S> {
    /// Reserves, frees or zeroes space (`fallocate`).
    ///
    /// Punching is one transaction. Reserving or zeroing more than 4 MiB is several, each of them atomic; a failure
    /// leaves what was done before.
    ///
    /// # Errors
    ///
    /// [`FsError::InvalidArgument`] for an empty range, [`FsError::FileTooLarge`], [`FsError::NoSpace`],
    /// [`FsError::NotSupported`] for a combination that makes no sense, [`FsError::ReadOnly`], [`FsError::Corrupt`].
    pub fn allocate(
        &self,
        node: &Node,
        offset: u64,
        length: u64,
        options: AllocateOptions,
    ) -> Result<(), FsError> {
        let core = &*self.core;
        core.durably(|| {
            if length == 0 {
                return Err(FsError::InvalidArgument("an empty range"));
            }
            let end = offset
                .checked_add(length)
                .filter(|&end| end <= FILE_BYTES_MAX)
                .ok_or(FsError::FileTooLarge)?;
            let changes_bytes = options.punch_hole || options.zero_range;
            let mut body = node.write();
            body.require_regular()?;
            core.prepare_change(node, &mut body, |_| match changes_bytes {
                true => Ends::of(offset, end),
                false => Ends::NONE,
            })?;
            if changes_bytes {
                body.changes_content(&core.copies, offset..end);
            }
            match (options.punch_hole, options.zero_range) {
                (true, true) => Err(FsError::NotSupported(
                    "punching and zeroing at the same time",
                )),
                (true, false) => punch(core, node.number(), &mut body, offset, end),
                (false, zero) => {
                    let size = if options.keep_size {
                        body.raw.size
                    } else {
                        body.raw.size.max(end)
                    };
                    reserve(core, node.number(), &mut body, offset..end, size, zero)
                }
            }
        })
    }
}

/// Makes `offset..end` a hole (whole blocks) or zeros (partial ones): one transaction.
fn punch<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    offset: u64,
    end: u64,
) -> Result<(), FsError> {
    let now = core.now();
    let mut new = body.raw;
    let map = BlockMap::of(number, &body.raw);
    let mut transaction = core.begin();
    let (first_whole, end_whole) = (offset.div_ceil(BLOCK), end / BLOCK);
    let head_end = end.min(offset.next_multiple_of(BLOCK));
    zero_range_in_block(core, &map, offset, head_end, &mut transaction)?;
    if end_whole >= first_whole {
        zero_range_in_block(
            core,
            &map,
            (end_whole * BLOCK).max(offset),
            end,
            &mut transaction,
        )?;
        let mut editor = MapEditor::new(&core.store, map);
        editor.remove(&mut transaction, first_whole, end_whole)?;
        new.blocks = new.blocks.saturating_sub(editor.removed);
        (new.root, new.height) = editor.finish(&mut transaction);
    }
    new.touch_modified(now);
    transaction.log_inode(number, &body.raw, &mut new)?;
    transaction.commit()?;
    body.raw = new;
    Ok(())
}

/// Gives every hole in `range` an unwritten block; with `zero` the rest of it becomes zeros too. The size becomes `size`
/// with the last step.
fn reserve<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    range: Range<u64>,
    size: u64,
    zero: bool,
) -> Result<(), FsError> {
    if size > body.raw.size {
        zero_tail(core, number, &body.raw)?;
    }
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min((at / BLOCK + ALLOCATE_BLOCKS_MAX) * BLOCK);
        let size = if end == range.end {
            size
        } else {
            body.raw.size
        };
        reserve_step(core, number, body, at..end, size, zero)?;
        at = end;
    }
    Ok(())
}

/// Blocks of a file next to each other that get fresh blocks.
struct Run {
    first: u64,
    length: u64,
    /// Whether they are holes now, and not written blocks to be replaced.
    is_hole: bool,
    purpose: Purpose,
}

/// One transaction. A written block that becomes zeros is replaced: it never turns into an unwritten one in place (R2).
fn reserve_step<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    range: Range<u64>,
    size: u64,
    zero: bool,
) -> Result<(), FsError> {
    let map = BlockMap::of(number, &body.raw);
    let mut new = body.raw;
    let mut transaction = core.begin();
    let whole = if zero {
        range.start.div_ceil(BLOCK)..range.end / BLOCK
    } else {
        0..0
    };
    let (first, count) = (
        range.start / BLOCK,
        range.end.div_ceil(BLOCK) - range.start / BLOCK,
    );
    let mut runs: SmallVec<[Run; 8]> = SmallVec::new();
    map.lookup_range(&core.store, first, count, |block, pointer| {
        let is_hole = pointer.is_none();
        match pointer {
            Some(Pointer::Unwritten(_)) => return,
            Some(old) if whole.contains(&block) => free_block(&mut transaction, old),
            Some(_) => return,
            None => {}
        }
        let purpose = match is_hole {
            true => Purpose::Ordinary,
            false => purpose_of_overwrite(core, &[pointer]),
        };
        let goes_on = |run: &Run| {
            run.first + run.length == block && (run.is_hole, run.purpose) == (is_hole, purpose)
        };
        match runs.last_mut() {
            Some(run) if goes_on(run) => run.length += 1,
            _ => runs.push(Run {
                first: block,
                length: 1,
                is_hole,
                purpose,
            }),
        }
    })?;
    if zero {
        let head_end = range.end.min(range.start.next_multiple_of(BLOCK));
        zero_range_in_block(core, &map, range.start, head_end, &mut transaction)?;
        zero_range_in_block(
            core,
            &map,
            (range.end / BLOCK * BLOCK).max(head_end),
            range.end,
            &mut transaction,
        )?;
    }
    let mut editor = MapEditor::new(&core.store, map);
    for Run {
        first,
        length,
        is_hole,
        purpose,
    } in runs
    {
        let extents = transaction.allocate(body.domain, length as u32, purpose)?;
        let pointers: SmallVec<[Pointer; 64]> = extents
            .iter()
            .flat_map(|extent| (0..u64::from(extent.blocks)).map(|index| extent.start + index))
            .map(Pointer::Unwritten)
            .collect();
        editor.set(&mut transaction, first, &pointers, DomainId::METADATA)?;
        new.blocks += if is_hole { length } else { 0 };
    }
    new.blocks += editor.added;
    (new.root, new.height) = editor.finish(&mut transaction);
    let now = core.now();
    if size == new.size && !zero {
        new.touch_changed(now);
    } else {
        new.touch_modified(now);
    }
    new.size = size;
    transaction.log_inode(number, &body.raw, &mut new)?;
    transaction.commit()?;
    body.raw = new;
    Ok(())
}
