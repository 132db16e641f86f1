//! Extended attributes: all of an inode's in one checked blob, replaced as a whole.
//!
//! The inode points to a root block: header, then the blob itself if it fits, else pointers to the blocks that
//! hold it. A change writes a new blob to fresh blocks and swaps the pointer: attributes are small and
//! change rarely, and nothing of an old and a new version can ever mix.

use crate::changes::handover;
use crate::format::{InodeNumber, Pointer, Position, RawInode};
use crate::inode::node::{Body, Node};
use crate::inode::rights::CAPABILITY;
use crate::mounted::file_system::{Core, FileSystem};
use crate::mounted::quotas::{self as quota, Limits, Subject};
use crate::values::error::{FsError, damaged_inode};
use crate::values::types::XattrMode;
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::{DomainId, Extent, Purpose};
use txn::checksum::crc32c;
use txn::{Corruption, Store, Transaction};
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

type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

fn position(number: InodeNumber, index: u64) -> Position {
    Position {
        inode: number,
        level: Position::ATTRIBUTES,
        index,
    }
}

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
            match Pointer::read(word, position(number, index + 1)) {
                Ok(Some(pointer)) if store.geometry().contains(pointer.block) => Ok(pointer.block),
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
    let pointer = Pointer::read(raw.attributes, position(number, 0))
        .map_err(|_| damaged_inode(number, "its attribute pointer fails its check"))?;
    let Some(pointer) = pointer else {
        return Ok(Vec::new());
    };
    let header = header(store, number, pointer.block)?;
    let mut blob = vec![0; header.length as usize];
    if header.blocks == 0 {
        store.read(pointer.block.offset() + HEADER_BYTES as u64, &mut blob);
    } else {
        let blocks = blob_blocks(store, number, pointer.block, &header)?;
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
    core: &Core<S>,
    number: InodeNumber,
    raw: &RawInode,
    name: &[u8],
) -> Result<bool, FsError> {
    let attributes = load(&core.store, number, raw)?;
    Ok(attributes.iter().any(|(known, _)| known == name))
}

fn encode(attributes: &Attributes) -> Vec<u8> {
    let mut blob = Vec::new();
    for (name, value) in attributes {
        blob.extend_from_slice(&(name.len() as u32).to_le_bytes());
        blob.extend_from_slice(&(value.len() as u32).to_le_bytes());
        blob.extend_from_slice(name);
        blob.extend_from_slice(value);
    }
    blob
}

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

impl<S: Store> FileSystem<S> {
    /// The value of an attribute.
    ///
    /// # Errors
    ///
    /// [`FsError::NoAttribute`], [`FsError::Corrupt`].
    pub fn get_xattr(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>, FsError> {
        self.core.shown(node.number(), || {
            let body = node.read();
            let attributes = load(&self.core.store, node.number(), &body.raw)?;
            attributes
                .into_iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value)
                .ok_or(FsError::NoAttribute)
        })
    }

    /// The names of all attributes.
    ///
    /// # Errors
    ///
    /// [`FsError::Corrupt`].
    pub fn list_xattrs(&self, node: &Node) -> Result<Vec<Vec<u8>>, FsError> {
        self.core.shown(node.number(), || {
            let body = node.read();
            let attributes = load(&self.core.store, node.number(), &body.raw)?;
            Ok(attributes.into_iter().map(|(name, _)| name).collect())
        })
    }

    /// Sets an attribute: one transaction.
    ///
    /// # Errors
    ///
    /// [`FsError::AlreadyExists`] or [`FsError::NoAttribute`] as `mode` asks, [`FsError::InvalidArgument`] for an empty or
    /// too long name, [`FsError::AttributeTooLarge`], [`FsError::NoSpace`], [`FsError::ReadOnly`], [`FsError::Corrupt`].
    pub fn set_xattr(
        &self,
        node: &Node,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(FsError::InvalidArgument(
                "an attribute's name has 1 to 255 bytes",
            ));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(FsError::AttributeTooLarge("a value has at most 64 KiB"));
        }
        let core = &*self.core;
        core.durably(|| {
            let limits = quota_limits(node, name, value)?;
            let mut body = node.write();
            if name == CAPABILITY {
                // A process that writes the file directly would leave the attribute there.
                core.end_lease(node, &mut body)?;
                handover::leave_for_rights(core, node.number(), &mut body)?;
            }
            let mut attributes = load(&core.store, node.number(), &body.raw)?;
            match attributes.iter_mut().find(|(known, _)| known == name) {
                Some(_) if mode == XattrMode::Create => return Err(FsError::AlreadyExists),
                None if mode == XattrMode::Replace => return Err(FsError::NoAttribute),
                Some((_, old)) => *old = value.to_vec(),
                None => attributes.push((name.to_vec(), value.to_vec())),
            }
            store_attributes(core, node.number(), &mut body, &attributes)?;
            body.domain = core.domain(node.number(), &body.raw);
            if let Some(limits) = limits {
                core.quotas.change_limits(&limits);
            }
            Ok(())
        })
    }

    /// Removes an attribute: one transaction.
    ///
    /// # Errors
    ///
    /// [`FsError::NoAttribute`], [`FsError::NoSpace`], [`FsError::ReadOnly`], [`FsError::Corrupt`].
    pub fn remove_xattr(&self, node: &Node, name: &[u8]) -> Result<(), FsError> {
        let core = &*self.core;
        core.durably(|| {
            let mut body = node.write();
            let mut attributes = load(&core.store, node.number(), &body.raw)?;
            let before = attributes.len();
            attributes.retain(|(known, _)| known != name);
            if attributes.len() == before {
                return Err(FsError::NoAttribute);
            }
            store_attributes(core, node.number(), &mut body, &attributes)?;
            body.domain = core.domain(node.number(), &body.raw);
            if node.number() == InodeNumber::ROOT && name == quota::ATTRIBUTE {
                core.quotas.change_limits(&[]);
            }
            Ok(())
        })
    }
}

/// The limits in `value`, if this attribute is the one that holds them.
fn quota_limits(
    node: &Node,
    name: &[u8],
    value: &[u8],
) -> Result<Option<Vec<(Subject, Limits)>>, FsError> {
    if node.number() != InodeNumber::ROOT || name != quota::ATTRIBUTE {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(value);
    quota::parse(&text)
        .map(Some)
        .map_err(|_| FsError::InvalidArgument("quotas that cannot be read"))
}

/// Replaces all attributes of an inode: one transaction.
fn store_attributes<S: Store>(
    core: &Core<S>,
    number: InodeNumber,
    body: &mut Body,
    attributes: &Attributes,
) -> Result<(), FsError> {
    let mut new = body.raw;
    let mut transaction = core.begin();
    let old = Pointer::read(new.attributes, position(number, 0))
        .map_err(|_| damaged_inode(number, "its attribute pointer fails its check"))?;
    let mut freed = 0;
    if let Some(old) = old {
        for block in blocks(&core.store, number, old.block)? {
            transaction.free(Extent {
                start: block,
                blocks: 1,
            });
            freed += 1;
        }
        new.blocks = new.blocks.saturating_sub(freed);
    }
    if attributes.is_empty() {
        new.attributes = 0;
    } else {
        let blob = encode(attributes);
        // What takes no more than it frees may use the reserve: a full pool can remove attributes.
        let purpose = match freed > blocks_behind_root(&blob) as u64 {
            true => Purpose::Overwrite,
            false => Purpose::Ordinary,
        };
        let (root, count) = write_blob(number, &blob, purpose, &mut transaction)?;
        new.attributes = Pointer::written(root).word(position(number, 0));
        new.blocks += count;
    }
    new.touch_changed(core.now());
    transaction.log_inode(number, &body.raw, &mut new)?;
    transaction.commit()?;
    body.raw = new;
    Ok(())
}

/// Blocks of a blob behind its root block: none if it lies in that one.
fn blocks_behind_root(blob: &[u8]) -> usize {
    match blob.len() <= BLOCK_BYTES - HEADER_BYTES {
        true => 0,
        false => blob.len().div_ceil(BLOCK_BYTES),
    }
}

/// Writes a blob to fresh blocks; returns the root block and the number of blocks.
fn write_blob(
    number: InodeNumber,
    blob: &[u8],
    purpose: Purpose,
    transaction: &mut impl Transaction,
) -> Result<(BlockNumber, u64), FsError> {
    let count = blocks_behind_root(blob);
    if count > BLOB_BLOCKS_MAX {
        return Err(FsError::AttributeTooLarge(
            "all attributes of an inode have at most 128 KiB together",
        ));
    }
    let root = transaction.allocate_one(DomainId::METADATA, purpose)?;
    let header = AttributeHeader {
        checksum: crc32c(blob),
        length: blob.len() as u32,
        blocks: count as u32,
        reserved: 0,
    };
    let mut bytes = [0; BLOCK_BYTES];
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    if count == 0 {
        bytes[HEADER_BYTES..HEADER_BYTES + blob.len()].copy_from_slice(blob);
    }
    for (index, part) in blob.chunks(BLOCK_BYTES).enumerate().take(count) {
        let block = transaction.allocate_one(DomainId::METADATA, purpose)?;
        transaction.write_fresh(block, 0, part);
        let word = Pointer::written(block).word(position(number, index as u64 + 1));
        let at = HEADER_BYTES + index * 8;
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    transaction.write_fresh(root, 0, &bytes);
    Ok((root, 1 + count as u64))
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
