//! The volatile state that a clean unmount saves, for the next mount.

use crate::format::inode::INODES_PER_BLOCK;
use crate::inode::table::InodeTable;
use crate::mounted::file_system::Core;
use pmem::BlockNumber;
use txn::{PoolDevice, Store};

/// The volatile state as a clean unmount saves it: `inodes, free count, free numbers…, device
/// words…, bitmap words…`. A pool without a device has no device words.
pub(crate) struct Saved {
    pub(crate) free_numbers: Vec<u32>,
    pub(crate) device_bitmap: Vec<u64>,
    pub(crate) bitmap: Vec<u64>,
}

/// Words of a device's bitmap.
pub(crate) fn words_of(device: &PoolDevice) -> usize {
    device.blocks().div_ceil(u64::from(u64::BITS)) as usize
}

/// Makes the state to be saved of a file system without users.
pub(crate) fn saved_state<S: Store>(core: &Core<S>) -> Vec<u8> {
    let free = core.table.free_numbers();
    // The bitmap must not hold blocks that wait for a checkpoint, nor those that a process may
    // still see: the next open of the pool waits for that process.
    core.store.seen_blocks().forget();
    core.store.checkpoint();
    let bitmap = core.store.allocator().save();
    // No pointer names a twin. Without this the next mount would find blocks without owners.
    core.store
        .device()
        .iter()
        .for_each(|device| device.free_twins());
    let device = core.store.device().map(PoolDevice::save);
    let device = device.unwrap_or_default();
    let words = device.len() + bitmap.len();
    let mut bytes = Vec::with_capacity(16 + free.len() * 4 + words * 8);
    bytes.extend_from_slice(&InodeTable::capacity(&core.store).to_le_bytes());
    bytes.extend_from_slice(&(free.len() as u64).to_le_bytes());
    bytes.extend(free.iter().flat_map(|number| number.to_le_bytes()));
    let words = device.iter().chain(&bitmap);
    bytes.extend(words.flat_map(|word| word.to_le_bytes()));
    bytes
}

impl Saved {
    /// Reads what [`saved_state`] wrote; `None` if it does not fit the table, or the words of the
    /// device.
    pub(crate) fn parse(
        bytes: &[u8],
        blocks: &[BlockNumber],
        device_words: usize,
    ) -> Option<Saved> {
        let (head, rest) = bytes.split_at_checked(16)?;
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let inodes = blocks.len() as u64 * INODES_PER_BLOCK;
        let count = usize::try_from(word(8)?).ok()?;
        if word(0)? != inodes || count as u64 > inodes {
            return None;
        }
        let (free, words) = rest.split_at_checked(count.checked_mul(4)?)?;
        let free_numbers: Vec<u32> = free
            .chunks_exact(4)
            .filter_map(|chunk| Some(u32::from_le_bytes(chunk.try_into().ok()?)))
            .collect();
        if free_numbers
            .iter()
            .any(|&number| number < 2 || u64::from(number) >= inodes)
        {
            return None;
        }
        let (device, bitmap) = words.split_at_checked(device_words.checked_mul(8)?)?;
        let words = |bytes: &[u8]| {
            let words = bytes.as_chunks::<8>().0.iter();
            words.map(|word| u64::from_le_bytes(*word)).collect()
        };
        Some(Saved {
            free_numbers,
            device_bitmap: words(device),
            bitmap: words(bitmap),
        })
    }
}
