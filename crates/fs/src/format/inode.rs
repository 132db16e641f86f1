//! An inode: 256 bytes.

use super::{FileType, InodeNumber, Timestamp};
use pmem::BLOCK_BYTES;
use txn::checksum::{crc32c, mix64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of an inode.
pub const INODE_BYTES: usize = 256;
/// Inodes in a block of the inode table.
pub const INODES_PER_BLOCK: u64 = (BLOCK_BYTES / INODE_BYTES) as u64;
/// Bytes of the inline area: a symbolic link's target up to this length needs no block.
pub const INLINE_BYTES: usize = 128;
const WORDS: usize = INODE_BYTES / 8;

/// An inode as it lies on the medium.
///
/// A free inode has mode 0 and keeps its generation; one that was never used is all zeros. The words that a write
/// changes are neighbours (size to checksum), so that an append logs one range and an overwrite three words.
#[derive(Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawInode {
    /// `st_mode`; 0 = free.
    pub mode: u32,
    /// Number of names (for a directory: 2 + subdirectories). 0 = unlinked but open, freed by recovery.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Grows each time the number is reused.
    pub generation: u32,
    /// Zero.
    pub flags: u32,
    /// Bytes of content.
    pub size: u64,
    /// Blocks owned: data, block map and attributes.
    pub blocks: u64,
    /// Last change of content, nanoseconds since the epoch.
    pub modified: i64,
    /// Last change of the inode.
    pub changed: i64,
    /// CRC32C of the inode with this field zero, mixed with the inode's number.
    pub checksum: u32,
    /// Levels of the block map above the data blocks.
    pub height: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Root of the block map ([`Pointer`](super::Pointer)).
    pub root: u64,
    /// Last access.
    pub accessed: i64,
    /// Creation.
    pub created: i64,
    /// A directory's parent.
    pub parent: u64,
    /// Extended attributes ([`Pointer`](super::Pointer)).
    pub attributes: u64,
    /// Device number of a device.
    pub device: u32,
    /// Zero.
    pub reserved_words: [u32; 5],
    /// Target of a short symbolic link; CRC32C of a long one's.
    pub inline: [u8; INLINE_BYTES],
}

const _: () = {
    assert!(size_of::<RawInode>() == INODE_BYTES);
    assert!(std::mem::offset_of!(RawInode, size) == 24);
    assert!(std::mem::offset_of!(RawInode, modified) == 40);
    assert!(std::mem::offset_of!(RawInode, checksum) == 56);
    assert!(std::mem::offset_of!(RawInode, root) == 64);
    assert!(std::mem::offset_of!(RawInode, inline) == 128);
};

impl RawInode {
    /// All zeros: never used.
    pub const ZERO: RawInode = RawInode {
        mode: 0,
        links: 0,
        uid: 0,
        gid: 0,
        generation: 0,
        flags: 0,
        size: 0,
        blocks: 0,
        modified: 0,
        changed: 0,
        checksum: 0,
        height: 0,
        reserved: [0; 3],
        root: 0,
        accessed: 0,
        created: 0,
        parent: 0,
        attributes: 0,
        device: 0,
        reserved_words: [0; 5],
        inline: [0; INLINE_BYTES],
    };

    /// Whether the inode is free.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.mode == 0
    }

    /// What the inode is; `None` if free or nonsense.
    #[inline]
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.mode)
    }

    /// The checksum that these bytes should carry as inode `number`.
    #[inline]
    pub fn expected_checksum(&self, number: InodeNumber) -> u32 {
        let mut copy = *self;
        copy.seal(number);
        copy.checksum
    }

    /// Gives the bytes the checksum that makes them inode `number`.
    #[inline]
    fn seal(&mut self, number: InodeNumber) {
        self.checksum = 0;
        self.checksum = crc32c(self.as_bytes()) ^ mix64(number.get()) as u32;
    }

    /// Whether the bytes are those of inode `number`, in use or free.
    pub fn is_intact(&self, number: InodeNumber) -> bool {
        *self == RawInode::ZERO || self.checksum == self.expected_checksum(number)
    }

    /// The checksum of a symbolic link's target that is in a block: nothing else tells a flipped bit in it.
    #[inline]
    pub fn target_checksum(&self) -> u32 {
        let [a, b, c, d, ..] = self.inline;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Stores the checksum of a target that is in a block.
    #[inline]
    pub fn set_target_checksum(&mut self, checksum: u32) {
        self.inline[..size_of::<u32>()].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The last access, or `i64::MIN` if the inode or its content changed since: relatime's question. Negated if both were at the same tick of the clock: then
    /// the access may have come before the change, and a further one in that tick would leave the same time.
    #[inline]
    pub fn access_since_change(&self) -> i64 {
        match self.accessed.cmp(&self.modified.max(self.changed)) {
            std::cmp::Ordering::Greater => self.accessed,
            std::cmp::Ordering::Equal => self.accessed.wrapping_neg(),
            std::cmp::Ordering::Less => i64::MIN,
        }
    }

    /// Stamps a change of the inode.
    #[inline]
    pub fn touch_changed(&mut self, now: Timestamp) {
        self.changed = now.nanoseconds();
    }

    /// Stamps a change of the content.
    #[inline]
    pub fn touch_modified(&mut self, now: Timestamp) {
        self.modified = now.nanoseconds();
        self.changed = now.nanoseconds();
    }

    /// Whether a change of the content at `now` would stamp the inode with what is there already.
    #[inline]
    pub fn is_modified_at(&self, now: Timestamp) -> bool {
        self.modified == now.nanoseconds() && self.changed == now.nanoseconds()
    }

    /// Completes `self` as the new version of `old` and hands the words that differ to `store`, with their place in the inode.
    #[inline]
    pub fn log_changes(
        &mut self,
        old: &RawInode,
        number: InodeNumber,
        mut store: impl FnMut(u64, &[u8]),
    ) {
        use pmem::deliberate::{self, Bug};
        if !deliberate::is(Bug::SkipInodeChecksum) {
            self.seal(number);
        }
        let new_words: &[u64; WORDS] = zerocopy::transmute_ref!(self);
        let old_words: &[u64; WORDS] = zerocopy::transmute_ref!(old);
        let mut changed: u32 = 0;
        for word in 0..WORDS {
            changed |= u32::from(new_words[word] != old_words[word]) << word;
        }
        // One equal word between two changed ones costs less to log than a second entry.
        changed |= (changed << 1) & (changed >> 1);
        while changed != 0 {
            let start = changed.trailing_zeros() as usize;
            let length = (changed >> start).trailing_ones() as usize;
            let bytes = self.as_bytes();
            store((start * 8) as u64, &bytes[start * 8..(start + length) * 8]);
            changed &= u32::MAX.checked_shl((start + length) as u32).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_is_noticed() {
        let number = InodeNumber::new(7);
        let mut inode = RawInode {
            mode: 0o100_644,
            size: 4096,
            ..RawInode::ZERO
        };
        inode.checksum = inode.expected_checksum(number);
        assert!(inode.is_intact(number));
        assert!(!inode.is_intact(InodeNumber::new(8)));
        for bit in 0..INODE_BYTES * 8 {
            let mut copy = inode;
            copy.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
            assert!(!copy.is_intact(number), "bit {bit}");
        }
    }

    /// Then two flipped bits are noticed too, and a single one can be corrected.
    #[test]
    fn no_flipped_bit_looks_like_another() {
        let number = InodeNumber::new(7);
        let inode = RawInode {
            mode: 0o100_644,
            size: 4096,
            ..RawInode::ZERO
        };
        let mut differences = std::collections::HashSet::new();
        for bit in 0..INODE_BYTES * 8 {
            let mut copy = inode;
            copy.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
            let difference =
                copy.expected_checksum(number) ^ inode.expected_checksum(number) ^ copy.checksum;
            assert!(differences.insert(difference), "bit {bit}");
        }
    }
}
