//! Where the blocks of a file lie: a radix tree of nodes with 512 pointers, in place, as PMFS's B-tree.
//!
//! At height 0 the root is the only block of data; each level of nodes above it multiplies what the map holds by 512.

use std::ops::Range;

use pmem::{BlockNumber, Flushed, Offset};

use super::error::{Corruption, PmfsError};
use super::in_use::StartHint;
use super::layout::{BLOCK, FANOUT, FANOUT_BITS, HEIGHT_MAX, Record};
use super::transaction::{Logged, Transaction, entries_for};
use super::volume::{Medium, Volume};

/// A node or a block of data, in a walk over a map.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Part {
    Node(BlockNumber),
    Data(BlockNumber),
}

/// Bits of the index below a node of that height.
fn bits_below(height: u8) -> u32 {
    FANOUT_BITS * (u32::from(height) - 1)
}

fn slot(node: BlockNumber, index: u64) -> Offset {
    node.offset() + index * 8
}

/// Blocks that a map of that height holds.
fn reach(height: u8) -> u64 {
    1 << (FANOUT_BITS * u32::from(height))
}

/// The block at an index, if there is one.
#[inline]
pub(super) fn find(
    medium: &Medium,
    record: &Record,
    index: u64,
) -> Result<Option<BlockNumber>, Corruption> {
    if index >= reach(record.height) {
        return Ok(None);
    }
    let mut found = record.root;
    for height in (1..=record.height).rev() {
        let Some(node) = found else { break };
        found = medium.pointer(slot(node, index >> bits_below(height) & (FANOUT - 1)))?;
    }
    Ok(found)
}

/// Log entries that [`allocate`] needs at most for so many blocks.
pub(super) fn entries_to_allocate(blocks: u64) -> u32 {
    let nodes = blocks / FANOUT + 2;
    entries_for(blocks * 8)
        + entries_for(nodes * 8) * 2
        + (nodes as u32) * 2
        + u32::from(HEIGHT_MAX)
}

/// Gives the map every block of the range that it lacks, one allocation each, as PMFS does. What new blocks contain is the caller's
/// business.
///
/// The record is the caller's to store.
pub(super) fn allocate(
    transaction: &mut Transaction<'_>,
    record: &mut Record,
    unit_blocks: u64,
    range: Range<u64>,
) -> Result<(), PmfsError> {
    let last = range.end - 1;
    let mut height = record.height;
    while last >= reach(height) {
        height += 1;
        if height > HEIGHT_MAX {
            return Err(PmfsError::FileTooLarge);
        }
    }
    if height == 0 {
        if record.root.is_none() {
            record.root = Some(transaction.allocate(unit_blocks)?);
            record.data_blocks += unit_blocks;
        }
        return Ok(());
    }
    let is_new = record.root.is_none();
    let root = raise(transaction, record, height)?;
    let mut filling = Filling {
        transaction,
        unit_blocks,
        data_blocks: 0,
    };
    let place = Place {
        node: root,
        height,
        is_new,
    };
    filling.fill(place, range.start, last)?;
    record.data_blocks += filling.data_blocks;
    Ok(())
}

/// Puts nodes above the root until the map has that height; returns the new root.
fn raise(
    transaction: &mut Transaction<'_>,
    record: &mut Record,
    height: u8,
) -> Result<BlockNumber, PmfsError> {
    let region = transaction.volume().region();
    loop {
        if let Some(root) = record.root.filter(|_| record.height == height) {
            return Ok(root);
        }
        let node = new_node(transaction)?;
        if let Some(below) = record.root {
            let first = region.store_u64(slot(node, 0), below.get());
            transaction.fresh(first.flush());
            record.height += 1;
        } else {
            record.height = height;
        }
        record.root = Some(node);
    }
}

/// A node without children.
fn new_node(transaction: &mut Transaction<'_>) -> Result<BlockNumber, PmfsError> {
    let node = transaction.allocate(1)?;
    let zeroed = transaction
        .volume()
        .region()
        .zero_streaming(node.offset(), BLOCK);
    transaction.fresh(zeroed);
    Ok(node)
}

/// A node to be filled.
#[derive(Copy, Clone)]
struct Place {
    node: BlockNumber,
    height: u8,
    /// Nothing on the medium leads to it yet, so that it needs no log.
    is_new: bool,
}

struct Filling<'t, 'v> {
    transaction: &'t mut Transaction<'v>,
    unit_blocks: u64,
    data_blocks: u64,
}

impl Filling<'_, '_> {
    /// Fills what is missing between two indexes below a node, both included.
    fn fill(&mut self, place: Place, first: u64, last: u64) -> Result<(), PmfsError> {
        let bits = bits_below(place.height);
        let (from, to) = (first >> bits, last >> bits);
        let mut logged = None;
        for index in from..=to {
            let at = slot(place.node, index);
            let old = self.transaction.volume().medium.pointer(at)?;
            let child = match old {
                Some(child) => child,
                None => self.add_child(place, at, to - index + 1, &mut logged)?,
            };
            if place.height > 1 {
                let below = Place {
                    node: child,
                    height: place.height - 1,
                    is_new: place.is_new || old.is_none(),
                };
                let mask = (1 << bits) - 1;
                let first = if index == from { first & mask } else { 0 };
                let last = if index == to { last & mask } else { mask };
                self.fill(below, first, last)?;
            }
        }
        if place.is_new {
            let region = self.transaction.volume().region();
            let pointers = region.dirty(slot(place.node, from), (to - from + 1) * 8);
            self.transaction.fresh(pointers.flush());
        }
        Ok(())
    }

    /// Puts a new child into an empty slot; the first time in an old node, the slots from there on are logged.
    fn add_child(
        &mut self,
        place: Place,
        at: Offset,
        slots: u64,
        logged: &mut Option<Logged>,
    ) -> Result<BlockNumber, PmfsError> {
        let child = if place.height > 1 {
            new_node(self.transaction)?
        } else {
            self.data_blocks += self.unit_blocks;
            self.transaction.allocate(self.unit_blocks)?
        };
        if place.is_new {
            let region = self.transaction.volume().region();
            let _flushed_when_filled = region.store_u64(at, child.get());
        } else {
            let logged = logged.get_or_insert_with(|| self.transaction.log(at, slots * 8));
            self.transaction
                .change(logged, at, &child.get().to_le_bytes());
        }
        Ok(child)
    }
}

/// Visits the nodes and blocks of a map; a node after what is below it.
pub(super) fn visit(
    medium: &Medium,
    record: &Record,
    step: &mut dyn FnMut(Part) -> Result<(), Corruption>,
) -> Result<(), Corruption> {
    match record.root {
        Some(root) => visit_below(medium, root, record.height, step),
        None => Ok(()),
    }
}

fn visit_below(
    medium: &Medium,
    part: BlockNumber,
    height: u8,
    step: &mut dyn FnMut(Part) -> Result<(), Corruption>,
) -> Result<(), Corruption> {
    if height == 0 {
        return step(Part::Data(part));
    }
    for index in 0..FANOUT {
        if let Some(child) = medium.pointer(slot(part, index))? {
            visit_below(medium, child, height - 1, step)?;
        }
    }
    step(Part::Node(part))
}

/// Frees all blocks of a map that nothing on the medium leads to any more.
///
/// As in PMFS the blocks below one node are freed under one lock, with a start hint; nodes one by one.
pub(super) fn release(volume: &Volume, record: &Record) -> Result<(), Corruption> {
    let Some(root) = record.root else {
        return Ok(());
    };
    if record.height > 0 {
        let last = record.size_blocks().clamp(1, reach(record.height)) - 1;
        release_below(volume, root, record.height, last)?;
    }
    Ok(volume.in_use.lock().free(root)?)
}

fn release_below(
    volume: &Volume,
    node: BlockNumber,
    height: u8,
    last: u64,
) -> Result<(), Corruption> {
    let bits = bits_below(height);
    let to = last >> bits;
    if height == 1 {
        let mut in_use = volume.in_use.lock();
        let mut hint = StartHint::head();
        for index in 0..=to {
            if let Some(block) = volume.medium.pointer(slot(node, index))? {
                in_use.free_from(block, &mut hint)?;
            }
        }
        return Ok(());
    }
    for index in 0..=to {
        if let Some(child) = volume.medium.pointer(slot(node, index))? {
            let mask = (1 << bits) - 1;
            let last = if index == to { last & mask } else { mask };
            release_below(volume, child, height - 1, last)?;
            volume.in_use.lock().free(child)?;
        }
    }
    Ok(())
}

/// What [`cut`] has taken off a map.
pub(super) struct Cut {
    /// Not reachable any more once `pointers` is durable; data and nodes, in the order of the file.
    pub(super) parts: Vec<Part>,
    /// The pointers that were cleared.
    pub(super) pointers: Flushed,
}

/// Takes everything from a block on off a map. Each pointer is cleared in one store; doing it again does no harm.
///
/// The record is the caller's to store. A power cut may leave it half stored: what then leads nowhere, recovery finds free.
pub(super) fn cut(
    medium: &Medium,
    record: &mut Record,
    keep_blocks: u64,
) -> Result<Cut, Corruption> {
    let mut cut = Cut {
        parts: Vec::new(),
        pointers: Flushed::nothing(&medium.region),
    };
    let Some(root) = record.root else {
        return Ok(cut);
    };
    if keep_blocks == 0 {
        visit(medium, record, &mut |part| {
            cut.parts.push(part);
            Ok(())
        })?;
        (record.root, record.height) = (None, 0);
    } else if keep_blocks < reach(record.height) {
        cut.below(medium, root, record.height, keep_blocks)?;
    }
    let is_data = |part: &&Part| matches!(part, Part::Data(_));
    let data = cut.parts.iter().filter(is_data).count() as u64;
    record.data_blocks = record.data_blocks.saturating_sub(data);
    Ok(cut)
}

impl Cut {
    fn below(
        &mut self,
        medium: &Medium,
        node: BlockNumber,
        height: u8,
        keep: u64,
    ) -> Result<(), Corruption> {
        let bits = bits_below(height);
        let rest = keep & ((1 << bits) - 1);
        let mut from = keep >> bits;
        if rest > 0 {
            if let Some(child) = medium.pointer(slot(node, from))? {
                self.below(medium, child, height - 1, rest)?;
            }
            from += 1;
        }
        for index in from..FANOUT {
            let at = slot(node, index);
            if let Some(child) = medium.pointer(at)? {
                visit_below(medium, child, height - 1, &mut |part| {
                    self.parts.push(part);
                    Ok(())
                })?;
                self.pointers.join(medium.region.store_u64(at, 0).flush());
            }
        }
        Ok(())
    }
}
