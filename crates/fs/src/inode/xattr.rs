//! Reading the extended attributes of an inode, checked.

use crate::format::xattr::{
    AttributeHeader, Attributes, BLOB_BLOCKS_MAX, HEADER_BYTES, decode, position,
};
use crate::format::{InodeNumber, Pointer, RawInode};
use crate::values::error::{FsError, damaged_inode};
use pmem::{BLOCK_BYTES, BlockNumber};
use txn::checksum::crc32c;
use txn::{Corruption, Store};

fn damaged(number: InodeNumber, detail: &str) -> Corruption {
    Corruption::new(format!("extended attributes of inode {number}"), detail)
}

fn header<S: Store>(
    store: &S,
    number: InodeNumber,
    root: BlockNumber,
) -> Result<AttributeHeader, Corruption> {
    if !store.geometry().contains(root) {
        return Err(damaged(number, "their block is outside the pool"));
    }
    let header: AttributeHeader = store.load(root.offset());
    let capacity = match header.blocks as usize {
        0 => BLOCK_BYTES - HEADER_BYTES,
        blocks if blocks <= BLOB_BLOCKS_MAX => blocks * BLOCK_BYTES,
        _ => return Err(damaged(number, "they have too many blocks")),
    };
    if header.length as usize > capacity {
        return Err(damaged(number, "they are longer than their blocks"));
    }
    Ok(header)
}

fn blob_blocks<S: Store>(
    store: &S,
    number: InodeNumber,
    root: BlockNumber,
    header: &AttributeHeader,
) -> Result<Vec<BlockNumber>, Corruption> {
    (0..u64::from(header.blocks))
        .map(|index| {
            let word = store.load_word(root.offset() + HEADER_BYTES as u64 + index * 8);
            match Pointer::read_metadata(word, position(number, index + 1)) {
                Ok(Some(block)) if store.geometry().contains(block) => Ok(block),
                _ => Err(damaged(number, "a pointer fails its check")),
            }
        })
        .collect()
}

/// Every block that an inode's attributes take, the root first.
pub(crate) fn blocks<S: Store>(
    store: &S,
    number: InodeNumber,
    root: BlockNumber,
) -> Result<Vec<BlockNumber>, Corruption> {
    let header = header(store, number, root)?;
    let mut blocks = vec![root];
    blocks.extend(blob_blocks(store, number, root, &header)?);
    Ok(blocks)
}

/// Reads all attributes of an inode, checked.
pub(crate) fn load<S: Store>(
    store: &S,
    number: InodeNumber,
    raw: &RawInode,
) -> Result<Attributes, FsError> {
    let root = Pointer::read_metadata(raw.attributes, position(number, 0))
        .map_err(|_| damaged_inode(number, "its attribute pointer fails its check"))?;
    let Some(root) = root else {
        return Ok(Vec::new());
    };
    let header = header(store, number, root)?;
    let mut blob = vec![0; header.length as usize];
    if header.blocks == 0 {
        store.read(root.offset() + HEADER_BYTES as u64, &mut blob);
    } else {
        let blocks = blob_blocks(store, number, root, &header)?;
        for (part, block) in blob.chunks_mut(BLOCK_BYTES).zip(blocks) {
            store.read(block.offset(), part);
        }
    }
    if crc32c(&blob) != header.checksum {
        return Err(damaged(number, "their checksum does not match").into());
    }
    decode(&blob).ok_or_else(|| damaged(number, "they cannot be read").into())
}

/// Whether an inode has an attribute.
pub(crate) fn has<S: Store>(
    store: &S,
    number: InodeNumber,
    raw: &RawInode,
    name: &[u8],
) -> Result<bool, FsError> {
    let attributes = load(store, number, raw)?;
    Ok(attributes.iter().any(|(known, _)| known == name))
}
