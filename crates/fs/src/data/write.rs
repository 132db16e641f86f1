//! Writing files. Three ways, chosen per call:
//!
//! * **Logged**: a small range inside one written block travels in the redo record. One fence, no
//!   copy of the block.
//! * **Fill**: a block that is allocated but unwritten is written where it is, then its pointer
//!   changes. A whole block inside the file is not, unless no fresh block is free: it is streamed
//!   to a fresh one before its old pointer is known.
//! * **Copy-on-write**: everything else goes to fresh blocks; the old ones are freed at the next
//!   checkpoint.

use crate::block_map::{BlockMap, MapEditor, Slot, free_block, read_block};
use crate::changes::tail::zero_tail;
use crate::format::{BLOCK, FILE_BYTES_MAX};
use crate::format::{InodeNumber, Pointer, RawInode, Timestamp};
use crate::inode::node::{Body, Node};
use crate::lease::change::Ends;
use crate::mounted::file_system::{Core, FileSystem};
use crate::mounted::operation::Operation;
use crate::mounted::roaming::Change;
use crate::values::error::{FsError, not_brought_in};
use device::DeviceBlock;
use pmem::deliberate::{self, Bug};
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::{DomainId, Extents, Purpose};
use smallvec::SmallVec;
use txn::{Logger, RESERVED_BYTES_MIN, Store, Transaction};

/// Largest write that is one transaction.
pub const ATOMIC_WRITE_BYTES_MAX: usize = 4 << 20;
/// Largest range that is written through the record, and so twice. Of a longer one the block is
/// copied.
pub const LOGGED_WRITE_BYTES_MAX: usize = 1024;

/// A range of a file that one transaction writes.
struct Range<'d> {
    offset: u64,
    data: &'d [u8],
}

impl Range<'_> {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    fn first_block(&self) -> u64 {
        self.offset / BLOCK
    }

    fn block_count(&self) -> u64 {
        (self.end() - 1) / BLOCK - self.first_block() + 1
    }

    /// The part that falls into block `index` (of the file): offset in the block and bytes.
    fn in_block(&self, index: u64) -> (usize, &[u8]) {
        let start = (index * BLOCK).max(self.offset);
        let end = ((index + 1) * BLOCK).min(self.end());
        let data = &self.data[(start - self.offset) as usize..(end - self.offset) as usize];
        ((start - index * BLOCK) as usize, data)
    }
}

impl<S: Store> FileSystem<S> {
    /// Writes all of `data` at `offset`; a gap before it reads as zeros.
    ///
    /// Durable at return. All or nothing after a power cut up to [`ATOMIC_WRITE_BYTES_MAX`], and of
    /// class `log` up to an eighth of the log; a longer call is a sequence of such writes. Returns
    /// the number of bytes written.
    ///
    /// # Errors
    ///
    /// [`FsError::NoSpace`] (nothing was written, or fewer bytes are returned),
    /// [`FsError::FileTooLarge`], [`FsError::IsADirectory`], [`FsError::InvalidArgument`],
    /// [`FsError::ReadOnly`], [`FsError::Corrupt`].
    #[inline]
    pub fn write(&self, node: &Node, offset: u64, data: &[u8]) -> Result<usize, FsError> {
        let core = &*self.core;
        if core.tier.is_some() {
            return self.write_with_room(node, offset, data);
        }
        self.write_at_once(node, offset, data)
    }

    #[inline]
    fn write_at_once(&self, node: &Node, offset: u64, data: &[u8]) -> Result<usize, FsError> {
        let core = &*self.core;
        core.durably(|| {
            let end = offset.saturating_add(data.len() as u64);
            let mut body = node.write();
            core.prepare_change(node, &mut body, |_| Ends::of(offset, end))?;
            body.changes_content(&core.copies, offset..end);
            write_all(core, node.number(), &mut body, offset, data).map(|written| written.bytes)
        })
    }

    /// Writes to a pool whose memory may be full of data that lies on the device soon. It writes in
    /// pieces, between which no lock is held.
    fn write_with_room(&self, node: &Node, offset: u64, data: &[u8]) -> Result<usize, FsError> {
        let core = &*self.core;
        let (mut done, most) = (0, atomic_bytes_max(core));
        loop {
            let at = offset.saturating_add(done as u64);
            // Pieces end where a transaction would, so that they are what one call writes.
            let most = most - (at % BLOCK) as usize;
            let piece = &data[done..data.len().min(done + most)];
            core.wait_for_room(piece.len());
            match self.write_at_once(node, at, piece) {
                Ok(written) => done += written,
                Err(FsError::NoSpace) if core.make_room(piece.len()) => continue,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
            if done == data.len() {
                return Ok(done);
            }
        }
    }
}

/// How much of a call was done.
pub(super) struct Written {
    pub(super) bytes: usize,
    pub(super) broken_off_by: Option<FsError>,
}

impl Written {
    fn all(bytes: usize) -> Written {
        Written {
            bytes,
            broken_off_by: None,
        }
    }
}

#[inline]
pub(super) fn write_all<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    offset: u64,
    data: &[u8],
) -> Result<Written, FsError> {
    body.require_regular()?;
    if data.is_empty() {
        return Ok(Written::all(0));
    }
    offset
        .checked_add(data.len() as u64)
        .filter(|&end| end <= FILE_BYTES_MAX)
        .ok_or(FsError::FileTooLarge)?;
    if offset > body.raw.size {
        zero_tail(core, number, &body.raw)?;
    }
    if data.len() < RESERVED_BYTES_MIN {
        write_once(core, number, body, &Range { offset, data })?;
        return Ok(Written::all(data.len()));
    }
    write_in_pieces(core, number, body, offset, data)
}

/// Most data of one transaction: no record of a pool with a small log is too large for it.
pub(super) fn atomic_bytes_max<S: Store>(core: &Core<S>) -> usize {
    let of_log = core.store.logger().map(Logger::record_data_max);
    // A piece has a block less if it has to end at the border of one.
    let whole_blocks = |bytes: usize| bytes / BLOCK_BYTES * BLOCK_BYTES;
    let most = of_log.map_or(ATOMIC_WRITE_BYTES_MAX, |bytes| {
        whole_blocks(bytes).clamp(BLOCK_BYTES, ATOMIC_WRITE_BYTES_MAX)
    });
    match &core.tier {
        Some(tier) => most.min(tier.write_bytes_max()),
        None => most,
    }
}

/// [`write_once`], with room for the data in the log.
fn write_reserved<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    range: &Range<'_>,
) -> Result<(), FsError> {
    let room = core
        .store
        .logger()
        .map(|logger| logger.reserve(range.data.len()));
    let _room = room.transpose().map_err(|_| FsError::ReadOnly)?;
    write_once(core, number, body, range)
}

#[cold]
#[inline(never)]
fn write_in_pieces<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    offset: u64,
    data: &[u8],
) -> Result<Written, FsError> {
    let (mut done, most) = (0, atomic_bytes_max(core));
    while done < data.len() {
        let at = offset + done as u64;
        // Pieces end at block boundaries, so that only the first and the last block are partial.
        let whole = most - (at % BLOCK) as usize;
        let length = if data.len() - done <= most {
            data.len() - done
        } else {
            whole
        };
        let piece = Range {
            offset: at,
            data: &data[done..done + length],
        };
        match write_reserved(core, number, body, &piece) {
            Ok(()) => done += length,
            Err(error) if done > 0 => {
                return Ok(Written {
                    bytes: done,
                    broken_off_by: Some(error),
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Written::all(done))
}

/// One transaction.
#[inline]
fn write_once<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    range: &Range<'_>,
) -> Result<(), FsError> {
    let is_in_place = if range.block_count() > 1 {
        false
    } else if range.data.len() <= LOGGED_WRITE_BYTES_MAX {
        if let Some(block) = write_logged(core, number, body, range)? {
            let start = (range.offset % BLOCK) as usize;
            let in_block = start..start + range.data.len();
            core.store.changed_in_place(block);
            core.changed_data(number, body, (range.first_block(), block), in_block);
            return Ok(());
        }
        false
    } else if range.data.len() == BLOCK_BYTES && range.offset < body.raw.size {
        overwrite_block(core, number, body, range)?
    } else {
        false
    };
    if is_in_place {
        roam_pointer(core, number, body, range);
        return Ok(());
    }
    let map = BlockMap::of(number, &body.raw);
    let mut transaction = core.begin();
    let mut new = body.raw;
    if range.block_count() == 1 {
        write_one_block(core, body, &map, &mut new, range, &mut transaction)?;
    } else {
        write_blocks(core, body.domain, &map, &mut new, range, &mut transaction)?;
    }
    let now = core.now();
    log_and_commit(number, body, &mut new, range, now, &mut transaction)?;
    drop(transaction);
    roam_pointer(core, number, body, range);
    Ok(())
}

/// Draws a lot for the node whose pointer changed.
#[inline]
fn roam_pointer<S: Store>(core: &Core<S>, number: InodeNumber, body: &mut Body, range: &Range<'_>) {
    if body.raw.height > 0 && core.roaming.draw(Change::Pointer) {
        core.move_node(number, body, range.first_block());
    }
}

/// Overwrites one whole block on the guess that it has a place already, as nearly every block
/// inside a file. `false` if not: nothing happened then.
///
/// The data is on its way before the old pointer is looked at: neither the load of the pointer nor
/// what is computed from it costs time then. Between the streaming and the commit no locked
/// instruction may run: it would wait for the stream.
#[inline]
fn overwrite_block<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    range: &Range<'_>,
) -> Result<bool, FsError> {
    let map = BlockMap::of(number, &body.raw);
    let index = range.first_block();
    let slot = map.slot(&core.store, index)?;
    // Whether the old block is one that somebody sees is not known yet.
    if slot == Slot::Absent || core.store.seen_blocks().is_any() {
        return Ok(false);
    }
    slot.prefetch(&core.store);
    let mut transaction = core.begin();
    let Ok(block) = transaction.allocate_one(body.domain, Purpose::Overwrite) else {
        return Ok(false);
    };
    transaction.take_turn();
    transaction.write_fresh(block, 0, range.data);
    let Some(old) = map.pointer(&core.store, slot, index)? else {
        // A hole must not use the reserve that overwriting has, and counts as a new block.
        return Ok(false);
    };
    if matches!(old, Pointer::Device(_)) {
        // The freed block gives memory nothing back.
        return Ok(false);
    }
    free_block(&mut transaction, old);
    let word = map.word(index, block);
    match slot {
        Slot::Word(at) => {
            transaction.store_word(at, word);
            commit_in_place(core, number, body, range, &mut transaction)?;
        }
        _ => {
            let mut new = body.raw;
            new.root = word;
            let now = core.now();
            log_and_commit(number, body, &mut new, range, now, &mut transaction)?;
        }
    }
    Ok(true)
}

/// Writes a range inside one written block through the record, and returns that block. `None` if
/// the block is not written: nothing happened then.
#[inline]
fn write_logged<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    range: &Range<'_>,
) -> Result<Option<BlockNumber>, FsError> {
    let map = BlockMap::of(number, &body.raw);
    let block = match map.lookup(&core.store, range.first_block())? {
        Some(Pointer::Written(block)) => block,
        Some(Pointer::Device(block)) if deliberate::is(Bug::LogDeviceData) => {
            BlockNumber::new(block.get())
        }
        _ => return Ok(None),
    };
    let mut transaction = core.begin();
    transaction.store(block.offset() + range.offset % BLOCK, range.data);
    commit_in_place(core, number, body, range, &mut transaction)?;
    Ok(Some(block))
}

/// Commits the writing of `range` if neither the map's root nor the number of blocks changes.
/// Within one tick of the clock the inode then stays as it is, and need not be copied, sealed,
/// compared and logged.
#[inline(always)]
fn commit_in_place<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    range: &Range<'_>,
    transaction: &mut Operation<'_, S>,
) -> Result<(), FsError> {
    let now = core.now();
    if range.end() <= body.raw.size && body.raw.is_modified_at(now) {
        return Ok(transaction.commit()?);
    }
    let mut new = body.raw;
    log_and_commit(number, body, &mut new, range, now, transaction)
}

/// Commits the writing of `range`, now, with the inode `new`, which gets its size and its stamps
/// here.
#[inline(never)]
fn log_and_commit<S: Store>(
    number: InodeNumber,
    body: &mut Body,
    new: &mut RawInode,
    range: &Range<'_>,
    now: Timestamp,
    transaction: &mut Operation<'_, S>,
) -> Result<(), FsError> {
    new.size = new.size.max(range.end());
    new.touch_modified(now);
    transaction.log_inode(number, &body.raw, new)?;
    transaction.commit()?;
    body.raw = *new;
    Ok(())
}

/// A write inside one block, without lists.
#[inline]
fn write_one_block<S: Store>(
    core: &Core<S>,
    body: &Body,
    map: &BlockMap,
    new: &mut RawInode,
    range: &Range<'_>,
    transaction: &mut impl Transaction,
) -> Result<(), FsError> {
    let index = range.first_block();
    let slot = map.slot(&core.store, index)?;
    let old = map.pointer(&core.store, slot, index)?;
    let block = match old {
        Some(Pointer::Unwritten(block)) => block,
        Some(pointer) => {
            free_block(transaction, pointer);
            let purpose = purpose_of_overwrite(core, &[old]);
            transaction.allocate_one(body.domain, purpose)?
        }
        None => {
            new.blocks += 1;
            transaction.allocate_one(body.domain, Purpose::Ordinary)?
        }
    };
    transaction.take_turn();
    fill_block(core, range, index, old, block, transaction).map_err(not_brought_in)?;
    publish(core, map, new, (index, slot), block, transaction)
}

/// Points the file's block `index`, kept in `slot`, to `block`.
#[inline]
fn publish<S: Store>(
    core: &Core<S>,
    map: &BlockMap,
    new: &mut RawInode,
    (index, slot): (u64, Slot),
    block: BlockNumber,
    transaction: &mut impl Transaction,
) -> Result<(), FsError> {
    match slot {
        Slot::Word(at) => transaction.store_word(at, map.word(index, block)),
        Slot::Root => new.root = map.word(index, block),
        Slot::Absent => return publish_in_new_node(core, map, new, index, block, transaction),
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn publish_in_new_node<S: Store>(
    core: &Core<S>,
    map: &BlockMap,
    new: &mut RawInode,
    index: u64,
    block: BlockNumber,
    transaction: &mut impl Transaction,
) -> Result<(), FsError> {
    let mut editor = MapEditor::new(&core.store, *map);
    let pointers = [Pointer::Written(block)];
    editor.set(transaction, index, &pointers, DomainId::METADATA)?;
    new.blocks += editor.added;
    (new.root, new.height) = editor.finish(transaction);
    Ok(())
}

/// Returns the purpose of an overwrite, which may use the reserve because it frees as much as it
/// takes.
///
/// It may not if a process still sees the old blocks, which stay unused until the process has gone,
/// or if they lie on the device.
#[inline]
pub(crate) fn purpose_of_overwrite<S: Store>(core: &Core<S>, old: &[Option<Pointer>]) -> Purpose {
    let seen = core.store.seen_blocks();
    let on_device = |pointer: &Pointer| matches!(pointer, Pointer::Device(_));
    let mut blocks = old.iter().flatten().filter_map(|pointer| pointer.memory());
    match old.iter().flatten().any(on_device) || seen.is_any() && seen.sees(&mut blocks) {
        true => Purpose::Ordinary,
        false => Purpose::Overwrite,
    }
}

#[inline(never)]
fn write_blocks<S: Store>(
    core: &Core<S>,
    domain: DomainId,
    map: &BlockMap,
    new: &mut RawInode,
    range: &Range<'_>,
    transaction: &mut impl Transaction,
) -> Result<(), FsError> {
    let (first, count) = (range.first_block(), range.block_count());
    let mut old: SmallVec<[Option<Pointer>; 64]> = SmallVec::with_capacity(count as usize);
    map.lookup_range(&core.store, first, count, |_, pointer| old.push(pointer))?;
    let is_fill = |pointer: &Option<Pointer>| matches!(pointer, Some(Pointer::Unwritten(_)));
    let needed = old.iter().filter(|pointer| !is_fill(pointer)).count() as u32;
    let holes = old.iter().filter(|pointer| pointer.is_none()).count() as u64;
    let purpose = match holes {
        0 => purpose_of_overwrite(core, &old),
        _ => Purpose::Ordinary,
    };
    let extents = if needed == 0 {
        Extents::new()
    } else {
        transaction.allocate(domain, needed, purpose)?
    };
    let mut fresh = extents
        .iter()
        .flat_map(|extent| (0..u64::from(extent.blocks)).map(|index| extent.start + index));
    let mut pointers: SmallVec<[Pointer; 64]> = SmallVec::with_capacity(count as usize);
    for (index, old) in (first..).zip(&old) {
        let block = match old {
            Some(Pointer::Unwritten(block)) => *block,
            // As many fresh blocks were taken as there are blocks without a place.
            _ => fresh.next().ok_or(FsError::NoSpace)?,
        };
        fill_block(core, range, index, *old, block, transaction).map_err(not_brought_in)?;
        pointers.push(Pointer::Written(block));
        match old {
            Some(Pointer::Unwritten(_)) | None => {}
            Some(pointer) => free_block(transaction, *pointer),
        }
    }
    let mut editor = MapEditor::new(&core.store, *map);
    editor.set(transaction, first, &pointers, DomainId::METADATA)?;
    new.blocks += holes + editor.added;
    (new.root, new.height) = editor.finish(transaction);
    Ok(())
}

/// Writes the content of the file's block `index` to `block`: the new bytes, around them the old
/// ones.
#[inline]
fn fill_block<S: Store>(
    core: &Core<S>,
    range: &Range<'_>,
    index: u64,
    old: Option<Pointer>,
    block: BlockNumber,
    transaction: &mut impl Transaction,
) -> Result<(), DeviceBlock> {
    let (in_block, data) = range.in_block(index);
    if data.len() == BLOCK_BYTES {
        transaction.write_fresh(block, 0, data);
        return Ok(());
    }
    fill_around(core, (in_block, data), old, block, transaction)
}

/// The old content with `data` laid over it. Apart, so that whole blocks need no room for it on the
/// stack.
#[inline(never)]
fn fill_around<S: Store>(
    core: &Core<S>,
    (in_block, data): (usize, &[u8]),
    old: Option<Pointer>,
    block: BlockNumber,
    transaction: &mut impl Transaction,
) -> Result<(), DeviceBlock> {
    let mut content = [0; BLOCK_BYTES];
    read_block(&core.store, old, 0, &mut content)?;
    content[in_block..in_block + data.len()].copy_from_slice(data);
    transaction.write_fresh(block, 0, &content);
    Ok(())
}
