//! Extended attributes as they lie on the medium: all of an inode's in one checked blob.
//!
//! The inode points to a root block: header, then the blob itself if it fits, else pointers to the blocks that
//! hold it.

use super::{InodeNumber, Position};
use pmem::BLOCK_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most bytes of an attribute's value.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of an attribute's name.
pub const NAME_BYTES_MAX: usize = 255;
/// Most blocks of a blob that does not fit the root block.
pub(crate) const BLOB_BLOCKS_MAX: usize = 32;

/// Head of the root block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AttributeHeader {
    /// CRC32C of the blob.
    pub checksum: u32,
    /// Bytes of the blob.
    pub length: u32,
    /// Blocks that hold the blob; 0 = it follows this header.
    pub blocks: u32,
    /// Zero.
    pub reserved: u32,
}

pub(crate) const HEADER_BYTES: usize = size_of::<AttributeHeader>();
const _: () = assert!(HEADER_BYTES == 16);

/// Names and values.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// The position of the pointer to block `index` of a blob; the root block has number 0.
pub(crate) fn position(number: InodeNumber, index: u64) -> Position {
    Position {
        inode: number,
        level: Position::ATTRIBUTES,
        index,
    }
}

/// Makes a blob of attributes.
pub(crate) fn encode(attributes: &Attributes) -> Vec<u8> {
    let mut blob = Vec::new();
    for (name, value) in attributes {
        blob.extend_from_slice(&(name.len() as u32).to_le_bytes());
        blob.extend_from_slice(&(value.len() as u32).to_le_bytes());
        blob.extend_from_slice(name);
        blob.extend_from_slice(value);
    }
    blob
}

/// Reads a blob; `None` if it makes no sense.
pub(crate) fn decode(mut blob: &[u8]) -> Option<Attributes> {
    let mut attributes = Vec::new();
    let mut take = |bytes: usize| {
        let (part, rest) = blob.split_at_checked(bytes)?;
        blob = rest;
        Some((part, rest.is_empty()))
    };
    loop {
        let Some((name_length, _)) = take(4) else {
            return attributes.is_empty().then_some(attributes);
        };
        let name_length = u32::from_le_bytes(name_length.try_into().ok()?) as usize;
        let value_length = u32::from_le_bytes(take(4)?.0.try_into().ok()?) as usize;
        let name = take(name_length)?.0.to_vec();
        let (value, last) = take(value_length)?;
        attributes.push((name, value.to_vec()));
        if last {
            return Some(attributes);
        }
    }
}

/// Blocks of a blob behind its root block: none if it lies in that one.
pub(crate) fn blocks_behind_root(blob: &[u8]) -> usize {
    match blob.len() <= BLOCK_BYTES - HEADER_BYTES {
        true => 0,
        false => blob.len().div_ceil(BLOCK_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_blob_reads_back(attributes in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 1..20), proptest::collection::vec(any::<u8>(), 0..50)), 1..8)) {
            prop_assert_eq!(decode(&encode(&attributes)), Some(attributes));
        }

        #[test]
        fn any_bytes_are_refused_or_read(blob in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&blob);
        }
    }
}
