//! Extended attributes: told, set and removed.
//!
//! All attributes of an inode are one blob, which is replaced as a whole. A change writes a new
//! blob to fresh blocks and swaps the pointer: attributes are small and change rarely, and nothing
//! of an old and a new version can ever mix.

use crate::changes::handover;
use crate::format::xattr::{
    AttributeHeader, Attributes, BLOB_BLOCKS_MAX, HEADER_BYTES, NAME_BYTES_MAX, VALUE_BYTES_MAX,
    blocks_behind_root, encode, position,
};
use crate::format::{InodeNumber, Pointer};
use crate::inode::node::{Body, Node};
use crate::inode::rights::CAPABILITY;
use crate::inode::xattr::{blocks, load};
use crate::mounted::file_system::{Core, FileSystem};
use crate::values::error::{FsError, damaged_inode};
use crate::values::quota::{self, Limits, Subject};
use crate::values::types::XattrMode;
use pmem::{BLOCK_BYTES, BlockNumber};
use scatter::{DomainId, Extent, Purpose};
use txn::checksum::crc32c;
use txn::{Store, Transaction};
use zerocopy::IntoBytes;

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
    let old = Pointer::read_metadata(new.attributes, position(number, 0))
        .map_err(|_| damaged_inode(number, "its attribute pointer fails its check"))?;
    let mut freed = 0;
    if let Some(old) = old {
        for block in blocks(&core.store, number, old)? {
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
        new.attributes = Pointer::Written(root).word(position(number, 0));
        new.blocks += count;
    }
    new.touch_changed(core.now());
    transaction.log_inode(number, &body.raw, &mut new)?;
    transaction.commit()?;
    body.raw = new;
    Ok(())
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
        let word = Pointer::Written(block).word(position(number, index as u64 + 1));
        let at = HEADER_BYTES + index * 8;
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    transaction.write_fresh(root, 0, &bytes);
    Ok((root, 1 + count as u64))
}
