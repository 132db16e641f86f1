//! A lease as it lies on the medium: an inode without a name.

use super::inode::INLINE_BYTES;
use super::{FileType, InodeNumber, RawInode};
use lease::{RECORD_NUMBERS, Salt};
use txn::checksum::mix64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// In [`RawInode::flags`]: the inode is a lease.
pub const FLAG_LEASE: u32 = 1;

/// Blocks that wait to become nodes of the file's block map: nine lowest ones for the largest number of spare blocks in a row, and a new one at each level above.
pub(crate) const NODE_BLOCKS: u64 = 16;

/// Largest ring: 64 Ki records.
pub const RING_BLOCKS_MAX: u32 = 1024;
/// Most spare blocks: 16 MiB. The blocks that wait to become nodes suffice for all of them.
pub const SPARE_BLOCKS_MAX: u32 = 4096;

/// What an inode that is a lease has in its inline area.
///
/// Its blocks are, in order: the ring, blocks for nodes of the file's block map, spare blocks, and one that changes places with a block of the file when the lease is forced, unwritten until then. Those for nodes are in a
/// segment of the file system, the others in the owner's.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawLease {
    /// Inode that is leased.
    pub target: u64,
    /// Number of the first record that is not folded.
    pub next: u64,
    /// Generation of the inode that is leased.
    pub target_generation: u32,
    /// Blocks of the ring, a power of two.
    pub ring_blocks: u32,
    /// Spare blocks, those that are gone into the file included.
    pub spare_blocks: u32,
    /// 1 if the lease has ended: records that come later do not count.
    pub ended: u32,
    /// Zero.
    pub reserved: [u64; 12],
}

const _: () = {
    assert!(size_of::<RawLease>() == INLINE_BYTES);
    assert!(std::mem::offset_of!(RawLease, target_generation) == 16);
    assert!(std::mem::offset_of!(RawLease, reserved) == 32);
};

/// Whether a lease can have so many blocks.
pub(crate) fn is_possible_size(ring_blocks: u32, spare_blocks: u32) -> bool {
    ring_blocks.is_power_of_two()
        && ring_blocks <= RING_BLOCKS_MAX
        && spare_blocks <= SPARE_BLOCKS_MAX
}

impl RawLease {
    /// The lease that the inode is; `None` if it is none, or nonsense.
    pub fn of(raw: &RawInode) -> Option<RawLease> {
        let lease: RawLease = zerocopy::transmute!(raw.inline);
        let is_sound = raw.flags == FLAG_LEASE
            && raw.links == 0
            && is_possible_size(lease.ring_blocks, lease.spare_blocks)
            && RECORD_NUMBERS.contains(&lease.next);
        is_sound.then_some(lease)
    }

    /// Puts the lease into its inode.
    pub(crate) fn store(&self, raw: &mut RawInode) {
        raw.inline = zerocopy::transmute!(*self);
    }

    /// What the records are told by from what lay there before: different for every lease there has ever been on the pool.
    pub(crate) fn salt(number: InodeNumber, generation: u32) -> Salt {
        Salt(mix64(number.get() << 32 | u64::from(generation)))
    }

    /// First of the blocks for nodes.
    pub(crate) fn first_node(&self) -> u64 {
        u64::from(self.ring_blocks)
    }

    /// First spare block.
    pub(crate) fn first_spare(&self) -> u64 {
        self.first_node() + NODE_BLOCKS
    }

    /// Where the block is that the file gets when the lease is forced, and then the one that it had.
    pub(crate) fn replaced(&self) -> u64 {
        self.first_spare() + u64::from(self.spare_blocks)
    }
}

/// Whether the file is one that a lease can be about: the very one, and still its holder's.
pub(crate) fn is_leasable(raw: &RawInode, lease: &RawInode, words: &RawLease) -> bool {
    raw.file_type() == Some(FileType::Regular)
        && raw.generation == words.target_generation
        && (raw.uid, raw.gid) == (lease.uid, lease.gid)
}
