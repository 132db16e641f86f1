//! Content of files.

use std::ops::Range;
use std::sync::Arc;

use pmem::BLOCK_BYTES;

use super::Volume;
use super::cache::{Block, BlockRead, Kind};
use super::deliberate::{self, Bug};
use super::error::FsError;
use super::inode::{Inode, State, set_field, set_modified, set_size};
use super::layout::{ACCESSED_AT, BLOCK, FILE_BLOCKS_MAX, now_ns};

/// Blocks that one transaction writes at most, so that a large write does not need a large cache.
const WRITE_BLOCKS_MAX: usize = 256;

/// Reads from an offset on; returns how many bytes there were.
pub(super) fn read(
    volume: &Volume,
    inode: &Inode,
    offset: u64,
    into: &mut [u8],
) -> Result<usize, FsError> {
    let state = inode.state.read();
    let length = state
        .size_bytes
        .saturating_sub(offset)
        .min(into.len() as u64) as usize;
    if length == 0 {
        return Ok(0);
    }
    read_blocks(volume, &state, offset, &mut into[..length])?;
    if volume.options.access_times {
        let mut journal = volume.journal.lock();
        journal.begin(0, 1, 0)?;
        set_field(
            &mut journal,
            inode.number,
            ACCESSED_AT,
            &now_ns().to_le_bytes(),
        );
        journal.end()?;
    }
    Ok(length)
}

/// The part of a block that a range of a file has: block of the file, its bytes.
fn part(offset: u64, left: usize) -> (usize, Range<usize>) {
    let at = (offset % BLOCK) as usize;
    let end = (at + left).min(BLOCK_BYTES);
    ((offset / BLOCK) as usize, at..end)
}

/// Reads bytes inside the file.
fn read_blocks(
    volume: &Volume,
    state: &State,
    mut offset: u64,
    mut into: &mut [u8],
) -> Result<(), FsError> {
    let is_quiet = volume.overlay.is_empty();
    let mut requests = Vec::with_capacity(into.len() / BLOCK_BYTES + 2);
    while !into.is_empty() {
        let (index, range) = part(offset, into.len());
        let (bytes, rest) = into.split_at_mut(range.len());
        into = rest;
        offset += range.len() as u64;
        let Some(block) = state.map.get(index) else {
            bytes.fill(0);
            continue;
        };
        let changed = if is_quiet {
            None
        } else {
            volume.overlay.get(block)
        };
        match changed {
            Some(content) => bytes.copy_from_slice(&content[range]),
            None => requests.push(BlockRead {
                block,
                at: range.start,
                into: bytes,
            }),
        }
    }
    match requests.is_empty() {
        true => Ok(()),
        false => Ok(volume.cache.read(Kind::Data, &mut requests)?),
    }
}

/// Writes at an offset.
pub(super) fn write(
    volume: &Volume,
    inode: &Inode,
    offset: u64,
    data: &[u8],
) -> Result<(), FsError> {
    let mut state = inode.state.write();
    write_locked(volume, inode, &mut state, offset, data)
}

/// Writes at the end; returns where that was.
pub(super) fn append(volume: &Volume, inode: &Inode, data: &[u8]) -> Result<u64, FsError> {
    let mut state = inode.state.write();
    let offset = state.size_bytes;
    write_locked(volume, inode, &mut state, offset, data)?;
    Ok(offset)
}

fn write_locked(
    volume: &Volume,
    inode: &Inode,
    state: &mut State,
    mut offset: u64,
    mut data: &[u8],
) -> Result<(), FsError> {
    let end = offset.checked_add(data.len() as u64);
    if end.is_none_or(|end| end.div_ceil(BLOCK) > FILE_BLOCKS_MAX) {
        return Err(FsError::FileTooLarge);
    }
    let blocks_max = WRITE_BLOCKS_MAX.min(volume.data_blocks_max) as u64;
    while !data.is_empty() {
        let room = blocks_max * BLOCK - offset % BLOCK;
        let length = room.min(data.len() as u64) as usize;
        write_chunk(volume, inode, state, offset, &data[..length])?;
        offset += length as u64;
        data = &data[length..];
    }
    Ok(())
}

/// The new content of each block that a write changes.
fn contents(
    volume: &Volume,
    state: &State,
    mut offset: u64,
    mut data: &[u8],
) -> Result<Vec<Arc<Block>>, FsError> {
    let mut contents = Vec::with_capacity(data.len() / BLOCK_BYTES + 2);
    while !data.is_empty() {
        let (index, range) = part(offset, data.len());
        let (bytes, rest) = data.split_at(range.len());
        data = rest;
        offset += range.len() as u64;
        if let Ok(whole) = <&Block>::try_from(bytes) {
            contents.push(Arc::new(*whole));
            continue;
        }
        let mut content = Arc::new([0; BLOCK_BYTES]);
        let block = Arc::make_mut(&mut content);
        if state.map.get(index).is_some() {
            let start = index as u64 * BLOCK;
            read_blocks(volume, state, start, block)?;
            let size = state.size_bytes.saturating_sub(start).min(BLOCK) as usize;
            debug_assert!(block[size..].iter().all(|&byte| byte == 0));
        }
        if deliberate::is(Bug::LeaveTail) {
            block[range.end..].fill(0xee);
        }
        block[range].copy_from_slice(bytes);
        contents.push(content);
    }
    Ok(contents)
}

/// Writes blocks that fit one transaction: after a power failure all of them are new, or none.
fn write_chunk(
    volume: &Volume,
    inode: &Inode,
    state: &mut State,
    offset: u64,
    data: &[u8],
) -> Result<(), FsError> {
    let contents = contents(volume, state, offset, data)?;
    let first = (offset / BLOCK) as usize;
    let range = first..first + contents.len();
    let new_blocks = state.map.missing(range.clone());
    let metadata_blocks = match new_blocks {
        0 => 1,
        // Bitmaps, leaves and roots.
        more => 6 + volume.bitmap_blocks.min(more as usize),
    };
    let mut journal = volume.journal.lock();
    journal.begin(contents.len(), metadata_blocks, new_blocks)?;
    state.map.grow(range.end);
    for (index, content) in range.zip(contents) {
        let block = state.map.allocate(&mut journal, inode.number, index);
        journal.write_data(block, content);
    }
    let end = offset + data.len() as u64;
    if end > state.size_bytes {
        state.size_bytes = end;
        set_size(&mut journal, inode.number, end);
    }
    set_modified(&mut journal, inode.number);
    journal.end()
}
