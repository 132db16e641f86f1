//! The volatile state saved by a clean unmount: a blob in blocks that are free.
//!
//! The blocks are not allocated in the image that they hold, so after the next mount has read the blob they are
//! simply free again. A blob is trusted only if the clean mark, the header and the blob all check out.

use crate::checksum::crc32c;
use crate::layout::{Geometry, SAVED_AT, SAVED_EXTENTS_MAX, STATE_BLOCK, SavedHeader};
use pmem::{BLOCK_BYTES, BlockNumber, Flushed, Region};
use scatter::{Allocator, DomainId, Extent, Purpose, Request, Unit};
use zerocopy::{FromZeros, IntoBytes};

/// Writes `blob` durably into free blocks. Returns false if there is no room; nothing is saved then.
///
/// The caller marks the pool clean afterwards; until then the blob is not believed.
pub(crate) fn save(region: &Region, allocator: &Allocator, blob: &[u8]) -> bool {
    let blocks = blob.len().div_ceil(BLOCK_BYTES) as u32;
    let request = Request {
        domain: DomainId::METADATA,
        blocks,
        unit: Unit::Block4K,
        purpose: Purpose::Overwrite,
        home: 0,
    };
    let Ok(extents) = allocator.allocate(&request) else {
        return false;
    };
    if extents.len() > SAVED_EXTENTS_MAX {
        return false;
    }
    let mut header = SavedHeader::new_zeroed();
    header.length = blob.len() as u64;
    header.blob_checksum = crc32c(blob);
    header.extent_count = extents.len() as u32;
    let mut batch = Flushed::nothing(region);
    let mut rest = blob;
    for (slot, extent) in header.extents.iter_mut().zip(&extents) {
        *slot = [extent.start.get(), u64::from(extent.blocks)];
        let (part, tail) = rest.split_at(rest.len().min(extent.blocks as usize * BLOCK_BYTES));
        batch.join(region.write_streaming(extent.start.offset(), part));
        rest = tail;
    }
    header.checksum = header.expected_checksum();
    batch.join(
        region
            .store(STATE_BLOCK.offset() + SAVED_AT, header.as_bytes())
            .flush(),
    );
    region.fence(batch);
    true
}

/// Reads the blob, if header and blob check out. Never trusts a length or a block number that it did not verify.
pub fn load(region: &Region, geometry: &Geometry) -> Option<Vec<u8>> {
    let header: SavedHeader = region.load(STATE_BLOCK.offset() + SAVED_AT);
    if header.checksum != header.expected_checksum()
        || header.extent_count as usize > SAVED_EXTENTS_MAX
    {
        return None;
    }
    let length = usize::try_from(header.length).ok()?;
    let mut blob = Vec::new();
    for &[start, blocks] in &header.extents[..header.extent_count as usize] {
        let extent = Extent {
            start: BlockNumber::new(start),
            blocks: u32::try_from(blocks).ok()?,
        };
        let last = start.checked_add(blocks.checked_sub(1)?)?;
        if !geometry.contains(extent.start) || !geometry.contains(BlockNumber::new(last)) {
            return None;
        }
        let used = blob.len();
        let part = (length - used).min(extent.blocks as usize * BLOCK_BYTES);
        blob.resize(used + part, 0);
        region.read(extent.start.offset(), &mut blob[used..]);
    }
    (blob.len() == length && crc32c(&blob) == header.blob_checksum).then_some(blob)
}
