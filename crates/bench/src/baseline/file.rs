//! Reading, writing and cutting files.
//!
//! Data is written in place with non-temporal stores. A write inside one block that exists needs no transaction: the data is fenced, then size and
//! times are stored in one line, which the next fence (of `sync`, at the latest) makes durable. Every other write is a transaction that
//! adds the blocks; its data is durable before it commits.
//!
//! What a block holds behind the end of the file means nothing: whoever moves the end past it writes zeros first.

use std::ops::Range;

use pmem::{Flushed, Offset};

use super::block_map::{self, Part};
use super::error::{Corruption, PmfsError};
use super::in_use::StartHint;
use super::inode::Inode;
use super::layout::{BLOCK, FILE_BYTES_MAX, RECORD_BYTES, Record, SIZE_IN_INODE, TIMES_IN_INODE};
use super::transaction::{Transaction, entries_for};
use super::volume::{Medium, Volume};

/// Reads what there is at `offset`; returns how many bytes that was.
pub(super) fn read(
    volume: &Volume,
    inode: &Inode,
    offset: u64,
    into: &mut [u8],
) -> Result<usize, PmfsError> {
    let record = inode.record.read();
    let available = record.size_bytes.saturating_sub(offset);
    let length = available.min(into.len() as u64) as usize;
    let into = &mut into[..length];
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        let within = at % BLOCK;
        let part = ((BLOCK - within) as usize).min(length - done);
        let target = &mut into[done..done + part];
        match block_map::find(&volume.medium, &record, at / BLOCK)? {
            Some(block) => volume.region().read(block.offset() + within, target),
            None => target.fill(0),
        }
        done += part;
    }
    Ok(length)
}

/// Writes at `offset`.
pub(super) fn write(
    volume: &Volume,
    inode: &Inode,
    offset: u64,
    data: &[u8],
) -> Result<(), PmfsError> {
    let mut record = inode.record.write();
    write_locked(volume, inode, &mut record, offset, data)
}

/// Writes at the end; returns where that was.
pub(super) fn append(volume: &Volume, inode: &Inode, data: &[u8]) -> Result<u64, PmfsError> {
    let mut record = inode.record.write();
    let offset = record.size_bytes;
    write_locked(volume, inode, &mut record, offset, data)?;
    Ok(offset)
}

fn write_locked(
    volume: &Volume,
    inode: &Inode,
    record: &mut Record,
    offset: u64,
    data: &[u8],
) -> Result<(), PmfsError> {
    match offset.checked_add(data.len() as u64) {
        Some(end) if end <= FILE_BYTES_MAX => {}
        _ => return Err(PmfsError::FileTooLarge),
    }
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let left = data.len() - done;
        if at % BLOCK + left as u64 <= BLOCK
            && let Some(block) = block_map::find(&volume.medium, record, at / BLOCK)?
        {
            let place = block.offset() + at % BLOCK;
            write_in_block(volume, inode, record, (at, place), &data[done..])?;
            return Ok(());
        }
        let part = left.min((blocks_per_transaction(volume) * BLOCK - at % BLOCK) as usize);
        write_with_blocks(volume, inode, record, at, &data[done..done + part])?;
        done += part;
    }
    Ok(())
}

/// PMFS's quick way: the write lies inside one block that the file has.
fn write_in_block(
    volume: &Volume,
    inode: &Inode,
    record: &mut Record,
    (at, place): (u64, Offset),
    data: &[u8],
) -> Result<(), Corruption> {
    let region = volume.region();
    let mut batch = clear_gap(&volume.medium, record, at)?;
    batch.join(region.write_streaming(place, data));
    let mut changed = *record;
    changed.touch();
    let times = region.store_u64(inode.at + TIMES_IN_INODE, changed.times_word());
    let end = at + data.len() as u64;
    if end > record.size_bytes {
        region.fence(batch);
        changed.size_bytes = end;
        let _flushed_below = region.store_u64(inode.at + SIZE_IN_INODE, end);
        let _left_to_the_next_fence = times.flush();
    } else {
        batch.join(times.flush());
        region.fence(batch);
    }
    *record = changed;
    Ok(())
}

/// Clears what lies between the end of the file and `at` in the file's last block.
fn clear_gap(medium: &Medium, record: &Record, at: u64) -> Result<Flushed, Corruption> {
    let region = &medium.region;
    let end = record.size_bytes;
    if at > end
        && !end.is_multiple_of(BLOCK)
        && let Some(block) = block_map::find(medium, record, end / BLOCK)?
    {
        let gap = (at - end).min(BLOCK - end % BLOCK);
        return Ok(region.zero_streaming(block.offset() + end % BLOCK, gap));
    }
    Ok(Flushed::nothing(region))
}

/// The most blocks for which PMFS gives a write log entries (256 of them), fewer where the journal is small.
fn blocks_per_transaction(volume: &Volume) -> u64 {
    const ENTRIES_MAX: u32 = 256;
    let entries = volume.journal.entries_max().min(ENTRIES_MAX);
    let for_pointers = entries.saturating_sub(2 + block_map::entries_to_allocate(0));
    // An entry logs six pointers; a sixth of the entries is for ends that do not fill one, and for upper levels.
    u64::from(for_pointers).max(1) * 5
}

fn write_with_blocks(
    volume: &Volume,
    inode: &Inode,
    record: &mut Record,
    at: u64,
    data: &[u8],
) -> Result<(), PmfsError> {
    let end = at + data.len() as u64;
    let blocks = at / BLOCK..end.div_ceil(BLOCK);
    let entries = entries_for(RECORD_BYTES as u64)
        + block_map::entries_to_allocate(blocks.end - blocks.start);
    let mut transaction = Transaction::begin(volume, entries);
    let logged = transaction.log(inode.at, RECORD_BYTES as u64);
    let mut changed = *record;
    changed.touch();
    transaction.fresh(clear_gap(&volume.medium, record, at)?);
    let first_is_new = block_map::find(&volume.medium, record, blocks.start)?.is_none();
    let last_is_new = block_map::find(&volume.medium, record, blocks.end - 1)?.is_none();
    block_map::allocate(&mut transaction, &mut changed, 1, blocks)?;
    changed.size_bytes = record.size_bytes.max(end);
    if first_is_new {
        clear(&mut transaction, &changed, at / BLOCK * BLOCK..at)?;
    }
    if last_is_new && changed.size_bytes > end {
        clear(&mut transaction, &changed, end..end.next_multiple_of(BLOCK))?;
    }
    stream(&mut transaction, &changed, at, data)?;
    transaction.change(&logged, inode.at, &changed.bytes());
    transaction.commit();
    *record = changed;
    Ok(())
}

/// Clears a range inside one block.
fn clear(
    transaction: &mut Transaction<'_>,
    record: &Record,
    range: Range<u64>,
) -> Result<(), Corruption> {
    let length = range.end - range.start;
    if length == 0 {
        return Ok(());
    }
    let place = place_of(&transaction.volume().medium, record, range.start)?;
    let zeros = transaction.volume().region().zero_streaming(place, length);
    transaction.fresh(zeros);
    Ok(())
}

/// Streams data into blocks that exist.
fn stream(
    transaction: &mut Transaction<'_>,
    record: &Record,
    at: u64,
    data: &[u8],
) -> Result<(), Corruption> {
    let volume = transaction.volume();
    let mut done = 0;
    while done < data.len() {
        let at = at + done as u64;
        let part = ((BLOCK - at % BLOCK) as usize).min(data.len() - done);
        let place = place_of(&volume.medium, record, at)?;
        let streamed = volume
            .region()
            .write_streaming(place, &data[done..done + part]);
        transaction.fresh(streamed);
        done += part;
    }
    Ok(())
}

/// Where a byte of a file lies that has a block.
fn place_of(medium: &Medium, record: &Record, at: u64) -> Result<Offset, Corruption> {
    let block =
        block_map::find(medium, record, at / BLOCK)?.ok_or(Corruption::Block { number: 0 })?;
    Ok(block.offset() + at % BLOCK)
}

/// Makes a file shorter or longer.
pub(super) fn truncate(volume: &Volume, inode: &Inode, size_bytes: u64) -> Result<(), PmfsError> {
    if size_bytes > FILE_BYTES_MAX {
        return Err(PmfsError::FileTooLarge);
    }
    let mut record = inode.record.write();
    if size_bytes < record.size_bytes {
        return Ok(shorten(volume, inode, &mut record, size_bytes)?);
    }
    let region = volume.region();
    region.fence(clear_gap(&volume.medium, &record, size_bytes)?);
    record.touch();
    record.size_bytes = size_bytes;
    region.fence(region.store(inode.at, &record.bytes()).flush());
    Ok(())
}

/// While the pointers go one by one, the truncate list says what recovery has to finish. A file without names is on it already, to be removed.
fn shorten(
    volume: &Volume,
    inode: &Inode,
    record: &mut Record,
    size_bytes: u64,
) -> Result<(), Corruption> {
    let region = volume.region();
    let is_listed = record.links > 0;
    if is_listed {
        let mut truncations = volume.truncations.lock();
        let listed = truncations.add(region, inode.number, inode.at, size_bytes);
        region.fence(listed);
    }
    let mut changed = *record;
    let cut = block_map::cut(&volume.medium, &mut changed, size_bytes.div_ceil(BLOCK))?;
    changed.touch();
    changed.size_bytes = size_bytes;
    let mut batch = cut.pointers;
    batch.join(region.store(inode.at, &changed.bytes()).flush());
    let done = region.fence(batch);
    if is_listed {
        let mut truncations = volume.truncations.lock();
        truncations.remove(region, inode.number, &done);
    }
    *record = changed;
    free_parts(volume, &cut.parts)
}

/// Gives back what was cut off, data with one start hint.
fn free_parts(volume: &Volume, parts: &[Part]) -> Result<(), Corruption> {
    let mut in_use = volume.in_use.lock();
    let mut hint = StartHint::head();
    for part in parts {
        match *part {
            Part::Data(block) => in_use.free_from(block, &mut hint)?,
            // Not with the hint's blocks, but the hint must not point to a range that goes.
            Part::Node(node) => {
                in_use.free(node)?;
                hint = StartHint::head();
            }
        }
    }
    Ok(())
}
