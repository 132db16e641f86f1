//! Who owns which block.
//!
//! One bit per block, set by whoever claims it first. When a first pass finds blocks with two owners, a second pass in a
//! fixed order also remembers the owners of those, so that "first" means the same in every run.

use crate::format::InodeNumber;
use device::DeviceBlock;
use pmem::BlockNumber;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use txn::{Geometry, Superblock};

/// Who claims a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    Journal(u32),
    /// The checksums of the device's blocks.
    Seals,
    Inode(InodeNumber),
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Journal(index) => write!(formatter, "journal {index}"),
            Owner::Seals => formatter.write_str("the seals of the device"),
            Owner::Inode(InodeNumber::TABLE) => formatter.write_str("the inode table"),
            Owner::Inode(number) => write!(formatter, "inode {number}"),
        }
    }
}

/// What a block is used for, as far as protection domains care.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Use {
    Data = 1,
    Metadata = 2,
    /// Data of another user than the one whose processes may map the segment.
    OthersData = 5,
}

/// What the blocks of one segment are used for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uses(u8);

impl Uses {
    /// Whether a block is used for that.
    pub(super) fn include(self, purpose: Use) -> bool {
        self.0 & purpose as u8 == purpose as u8
    }
}

/// A block that somebody has already. The owner is known in the second pass only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Taken(pub(super) Option<Owner>);

/// Blocks of the device have this bit in the sets of contested blocks.
const ON_DEVICE: u64 = 1 << 63;

/// The blocks of all segments, and of the device.
#[derive(Debug)]
pub(super) struct Claims {
    geometry: Geometry,
    /// Blocks that the region really has.
    end: u64,
    words: Vec<AtomicU64>,
    /// Per segment: the uses of its blocks, as bits.
    uses: Vec<AtomicU8>,
    device_blocks: u64,
    device_words: Vec<AtomicU64>,
    clashes: Mutex<BTreeSet<u64>>,
    contested: HashMap<u64, Mutex<Option<Owner>>>,
}

impl Claims {
    /// Nobody owns anything; `contested` are blocks whose owners shall be remembered.
    pub(super) fn new(
        superblock: &Superblock,
        region_blocks: u64,
        contested: &BTreeSet<u64>,
    ) -> Claims {
        let geometry = superblock.geometry();
        let device_blocks = u64::from(superblock.device_blocks);
        let end = geometry.total_blocks().min(region_blocks);
        let blocks = end.saturating_sub(geometry.header_blocks);
        Claims {
            geometry,
            end,
            words: (0..blocks.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            uses: (0..geometry.segments).map(|_| AtomicU8::new(0)).collect(),
            device_blocks,
            device_words: (0..device_blocks.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            clashes: Mutex::default(),
            contested: contested
                .iter()
                .map(|&block| (block, Mutex::new(None)))
                .collect(),
        }
    }

    /// Whether the block lies in a segment that is there.
    pub(super) fn contains(&self, block: BlockNumber) -> bool {
        (self.geometry.header_blocks..self.end).contains(&block.get())
    }

    /// Blocks of all segments that are there.
    pub(super) fn blocks(&self) -> u64 {
        self.end.saturating_sub(self.geometry.header_blocks)
    }

    /// The segment of a block, which must be [contained](Self::contains).
    pub(super) fn segment_of(&self, block: BlockNumber) -> usize {
        ((block.get() - self.geometry.header_blocks) / self.geometry.segment_blocks) as usize
    }

    fn place(&self, block: BlockNumber) -> (usize, u64) {
        let index = block.get() - self.geometry.header_blocks;
        ((index / 64) as usize, 1 << (index % 64))
    }

    /// Claims a block, which must be [contained](Self::contains).
    pub(super) fn claim(
        &self,
        block: BlockNumber,
        owner: Owner,
        purpose: Use,
    ) -> Result<(), Taken> {
        let (word, mask) = self.place(block);
        // Relaxed: the bits carry no other data, and threads are joined before anybody looks at the whole.
        let taken = self.words[word].fetch_or(mask, Ordering::Relaxed) & mask != 0;
        if !taken {
            self.uses[self.segment_of(block)].fetch_or(purpose as u8, Ordering::Relaxed);
        }
        self.note(block.get(), owner, taken)
    }

    /// Whether the pool has a device with this block.
    pub(super) fn contains_on_device(&self, block: DeviceBlock) -> bool {
        block.get() < self.device_blocks
    }

    /// Claims a block of the device, which must be [contained](Self::contains_on_device).
    pub(super) fn claim_on_device(&self, block: DeviceBlock, owner: Owner) -> Result<(), Taken> {
        let mask = 1 << (block.get() % 64);
        let word = &self.device_words[(block.get() / 64) as usize];
        let taken = word.fetch_or(mask, Ordering::Relaxed) & mask != 0;
        self.note(ON_DEVICE | block.get(), owner, taken)
    }

    /// Whether the block of the device is claimed.
    pub(super) fn is_claimed_on_device(&self, block: DeviceBlock) -> bool {
        let word = self.device_words[(block.get() / 64) as usize].load(Ordering::Relaxed);
        word & 1 << (block.get() % 64) != 0
    }

    /// The claims of the device as the pool saves them.
    pub(super) fn device_words(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.device_words.iter();
        words.map(|word| word.load(Ordering::Relaxed))
    }

    /// Remembers the first owner of a contested block, and blocks that were claimed twice
    /// unexpectedly.
    fn note(&self, key: u64, owner: Owner, taken: bool) -> Result<(), Taken> {
        if let Some(first) = self.contested.get(&key) {
            let mut first = first
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            if taken {
                return Err(Taken(*first));
            }
            *first = Some(owner);
            return Ok(());
        }
        if taken {
            self.clashes
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .insert(key);
            return Err(Taken(None));
        }
        Ok(())
    }

    /// Whether somebody has claimed the block.
    pub(super) fn is_claimed(&self, block: BlockNumber) -> bool {
        let (word, mask) = self.place(block);
        self.words[word].load(Ordering::Relaxed) & mask != 0
    }

    /// Blocks that were claimed twice although nobody expected it.
    pub(super) fn clashes(&self) -> BTreeSet<u64> {
        self.clashes
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    /// What the segment is used for.
    pub(super) fn uses(&self, segment: u32) -> Uses {
        Uses(self.uses[segment as usize].load(Ordering::Relaxed))
    }

    /// Claimed blocks.
    pub(super) fn count(&self) -> u64 {
        self.words
            .iter()
            .map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()))
            .sum()
    }

    /// The blocks that are claimed, or those that are not.
    pub(super) fn iter(&self, claimed: bool) -> impl Iterator<Item = BlockNumber> + '_ {
        (self.geometry.header_blocks..self.end)
            .map(BlockNumber::new)
            .filter(move |&block| self.is_claimed(block) == claimed)
    }

    /// The claims of one segment as the allocator saves them: 64 blocks to a word.
    pub(super) fn segment_words(&self, segment: u32) -> impl Iterator<Item = u64> + '_ {
        let blocks = self.geometry.segment_blocks;
        let first = self.geometry.header_blocks + u64::from(segment) * blocks;
        (0..blocks.div_ceil(64)).map(move |word| {
            let start = first + word * 64;
            let count = 64.min(blocks - word * 64);
            (0..count)
                .filter(|bit| {
                    start + bit < self.end && self.is_claimed(BlockNumber::new(start + bit))
                })
                .fold(0, |bits, bit| bits | 1 << bit)
        })
    }
}
