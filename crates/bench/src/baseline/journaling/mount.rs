//! Making a file system on a disk, and opening it above a cache.

use std::sync::Arc;

use device::{Device, DeviceBlock, DeviceError, WriteRequest};
use pmem::BLOCK_BYTES;
use zerocopy::{FromBytes, IntoBytes};

use super::cache::{Block, BlockRead, Kind, TransactionalCache};
use super::error::{Corruption, MountError};
use super::journal::Journal;
use super::layout::{
    DiskInode, FileKind, INODE_BYTES, InodeNumber, MAGIC, ORPHANS, SUPERBLOCK, SuperBlock, now_ns,
};
use super::{Options, Volume, namespace};

/// Data blocks of the smallest write: two blocks that a short write may touch.
const DATA_BLOCKS_MIN: usize = 2;

/// Writes an empty file system. The superblock is written last.
pub(super) fn format_disk(device: &dyn Device) -> Result<(), MountError> {
    let blocks = device.blocks();
    let superblock = SuperBlock::of_new(blocks).ok_or(MountError::DiskSize { blocks })?;
    let write = |at: DeviceBlock, content: &Block| -> Result<(), DeviceError> {
        let token = device.write(&[WriteRequest {
            start: at,
            bytes: content,
        }])?;
        device.wait(token)
    };
    write(SUPERBLOCK, &[0; BLOCK_BYTES])?;
    device.flush()?;
    write(ORPHANS, &[0; BLOCK_BYTES])?;
    write_bitmap(
        superblock.block_bitmap_at..superblock.inode_bitmap_at,
        superblock.data_at,
        write,
    )?;
    // Inode 0 is none, inode 1 is the root.
    let inodes = u64::from(InodeNumber::ROOT.get()) + 1;
    let inode_bitmap = superblock.inode_bitmap_at..superblock.inode_table_at;
    write_bitmap(inode_bitmap, inodes, write)?;
    let mut table = [0; BLOCK_BYTES];
    let (block, at) = superblock.inode_at(InodeNumber::ROOT);
    let root = DiskInode::new(FileKind::Directory, now_ns());
    table[at..at + INODE_BYTES].copy_from_slice(root.as_bytes());
    write(block, &table)?;
    device.flush()?;
    let mut content = [0; BLOCK_BYTES];
    content[..size_of::<SuperBlock>()].copy_from_slice(superblock.as_bytes());
    write(SUPERBLOCK, &content)?;
    device.flush()?;
    Ok(())
}

/// Writes a bitmap whose first bits are set.
fn write_bitmap(
    blocks: std::ops::Range<u64>,
    mut set_bits: u64,
    write: impl Fn(DeviceBlock, &Block) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    for block in blocks {
        let mut content = [0; BLOCK_BYTES];
        for byte in &mut content {
            let bits = set_bits.min(8);
            *byte = ((1_u16 << bits) - 1) as u8;
            set_bits -= bits;
        }
        write(DeviceBlock::new(block), &content)?;
    }
    Ok(())
}

/// Opens the file system of the disk below a cache.
pub(super) fn mount(
    cache: Arc<dyn TransactionalCache>,
    options: Options,
) -> Result<Arc<Volume>, MountError> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    let request = BlockRead {
        block: SUPERBLOCK,
        at: 0,
        into: &mut bytes,
    };
    cache.read(Kind::Metadata, &mut [request])?;
    let superblock = SuperBlock::read_from_bytes(&bytes).map_err(|_| Corruption::SuperBlock)?;
    let is_ours = superblock.magic == MAGIC
        && superblock.disk_blocks == cache.disk_blocks()
        && SuperBlock::of_new(superblock.disk_blocks) == Some(superblock);
    if !is_ours {
        return Err(Corruption::SuperBlock.into());
    }
    let limits = cache.limits();
    let needed = Journal::metadata_max(&superblock);
    if limits.metadata_blocks < needed || limits.data_blocks < DATA_BLOCKS_MIN {
        return Err(MountError::CacheTooSmall {
            limit: limits.metadata_blocks,
            needed,
        });
    }
    let mut journal = Journal::open(Arc::clone(&cache), superblock, options)?;
    journal.load(&[ORPHANS])?;
    let volume = Arc::new(Volume::new(cache, options, journal));
    namespace::finish_orphans(&volume)?;
    Ok(volume)
}
