//! Where the records of a lease lie.

use crate::record::{RECORD_BYTES, Record};
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};
use zerocopy::{FromZeros, IntoBytes};

/// Records in a block of a ring.
pub const RECORDS_PER_BLOCK: u64 = (BLOCK_BYTES / RECORD_BYTES) as u64;

/// What a ring and the blocks lie in, for who reads them.
pub trait Medium {
    /// Copies bytes out.
    fn read(&self, at: Offset, into: &mut [u8]);
    /// Hints that this line will be read soon.
    fn prefetch(&self, at: Offset);
    /// What was read there is not needed again before the holder writes it anew.
    fn release(&self, at: Offset, length: usize);
}

impl Medium for Region {
    fn read(&self, at: Offset, into: &mut [u8]) {
        Region::read(self, at, into);
    }

    fn prefetch(&self, at: Offset) {
        Region::prefetch(self, at);
    }

    fn release(&self, at: Offset, length: usize) {
        Region::release(self, at, length);
    }
}

/// Blocks that hold records, one after the other and round again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ring {
    blocks: Box<[BlockNumber]>,
}

impl Ring {
    /// A ring of these blocks.
    ///
    /// # Panics
    ///
    /// If their number is no power of two: where a record lies takes no division.
    pub fn new(blocks: Vec<BlockNumber>) -> Ring {
        assert!(
            blocks.len().is_power_of_two(),
            "a ring of {} blocks",
            blocks.len()
        );
        Ring {
            blocks: blocks.into(),
        }
    }

    /// Records that the ring holds.
    #[inline]
    pub fn records(&self) -> u64 {
        self.blocks.len() as u64 * RECORDS_PER_BLOCK
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> &[BlockNumber] {
        &self.blocks
    }

    /// Where record `sequence` lies.
    #[inline]
    pub fn place(&self, sequence: u64) -> Offset {
        let at = sequence & (self.records() - 1);
        let block = self.blocks[(at / RECORDS_PER_BLOCK) as usize];
        block.offset() + at % RECORDS_PER_BLOCK * RECORD_BYTES as u64
    }

    /// Where record `sequence` lies, and how many lie in a row from there on.
    pub(crate) fn run(&self, sequence: u64) -> (Offset, usize) {
        let count = RECORDS_PER_BLOCK - sequence % RECORDS_PER_BLOCK;
        (self.place(sequence), count as usize)
    }

    /// What lies where record `sequence` belongs. The holder may change it at any moment, so who judges it judges this copy.
    #[inline]
    pub fn load(&self, medium: &impl Medium, sequence: u64) -> Record {
        let mut record = Record::new_zeroed();
        medium.read(self.place(sequence), record.as_mut_bytes());
        record
    }
}
