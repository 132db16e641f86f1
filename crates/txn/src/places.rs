//! Where the halves of journals lie.
//!
//! Journals take more writes than anything else, so they must not stay where they are: whenever a checkpoint has retired a half, the half
//! gets a fresh place from the allocator. One sealed word in the state block says where it lies and which use of that place it is (the
//! *generation*). Place and generation change in one 8-byte store, while nothing in the half is alive.
//!
//! The blocks of the new place hold whatever was there before, a user's bytes perhaps, which may look like a record. So records are salted: their
//! check contains a number made of the pool's secret key, the place and its generation. Nobody who cannot read the superblock knows it, and what
//! an earlier use of the place left behind does not pass.

use crate::checksum::{Seal, mix64, seal, unseal};
use crate::error::Corruption;
use crate::layout::{Geometry, JOURNALS_AT, STATE_BLOCK, Superblock};
use pmem::{BLOCK_BYTES, BlockNumber, Offset, Region};
use scatter::Extent;

/// Bits of a half's word that hold its first block: enough for the largest pool.
const BLOCK_BITS: u32 = 32;
const _: () = assert!(
    crate::layout::HEADER_BLOCKS_MAX
        + crate::layout::SEGMENTS_MAX as u64 * crate::layout::SEGMENT_BLOCKS_MAX
        <= 1 << BLOCK_BITS
);

/// Which half of which journal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HalfName {
    /// Index of the journal.
    pub journal: u32,
    /// 0 or 1.
    pub half: u32,
}

impl HalfName {
    /// All halves of a pool with `journals` journals, in order.
    pub fn all(journals: u32) -> impl Iterator<Item = HalfName> {
        (0..journals).flat_map(|journal| [0, 1].map(|half| HalfName { journal, half }))
    }

    fn position(self) -> u64 {
        u64::from(self.journal) * 2 + u64::from(self.half)
    }

    /// Where the word is that says where the half is.
    pub fn word_at(self) -> Offset {
        STATE_BLOCK.offset() + JOURNALS_AT + self.position() * 8
    }
}

/// Where a half lies, and which use of that place it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HalfPlace {
    /// Its first block.
    pub start: BlockNumber,
    /// Counts the uses of places that the half has had, modulo 2^16: one more with each move, and when the pool is opened after a crash.
    pub generation: u16,
}

impl HalfPlace {
    /// The sealed word that says so for `name`.
    pub fn word(self, name: HalfName) -> u64 {
        let value = self.start.get() | (u64::from(self.generation) << BLOCK_BITS);
        seal(value, Seal::Journal, name.position())
    }

    /// What the word of `name` says; `None` if its check fails or the half would not lie in segments.
    pub fn read(word: u64, name: HalfName, superblock: &Superblock) -> Option<HalfPlace> {
        let value = unseal(word, Seal::Journal, name.position())?;
        let place = HalfPlace {
            start: BlockNumber::new(value & ((1 << BLOCK_BITS) - 1)),
            generation: (value >> BLOCK_BITS) as u16,
        };
        place.is_inside(superblock).then_some(place)
    }

    /// Never across a segment's end: neighbours on the medium need not belong to the same domain.
    fn is_inside(self, superblock: &Superblock) -> bool {
        let Geometry {
            header_blocks,
            segment_blocks,
            ..
        } = superblock.geometry();
        let last = BlockNumber::new(self.start.get() + superblock.half_blocks() - 1);
        let segment = |block: BlockNumber| (block.get() - header_blocks) / segment_blocks;
        superblock.geometry().contains(self.start)
            && superblock.geometry().contains(last)
            && segment(self.start) == segment(last)
    }

    /// The blocks of the half.
    pub fn extent(self, superblock: &Superblock) -> Extent {
        Extent {
            start: self.start,
            blocks: superblock.half_blocks() as u32,
        }
    }

    /// What the checks of the half's records contain.
    pub fn salt(self, journal_key: u64) -> u32 {
        let place = self.start.get() | (u64::from(self.generation) << BLOCK_BITS);
        (mix64(journal_key ^ mix64(place)) >> 32) as u32
    }

    /// The next use of a place that begins at `start`.
    #[must_use]
    pub fn followed_by(self, start: BlockNumber) -> HalfPlace {
        HalfPlace {
            start,
            generation: self.generation.wrapping_add(1),
        }
    }
}

impl Superblock {
    /// Blocks of half a journal.
    pub fn half_blocks(&self) -> u64 {
        self.journal_blocks / 2
    }

    /// Bytes of half a journal.
    pub fn half_bytes(&self) -> usize {
        self.half_blocks() as usize * BLOCK_BYTES
    }
}

/// The places of all halves, journal by journal.
///
/// # Errors
///
/// A word that is damaged or points outside the segments.
pub fn read_places(
    region: &Region,
    superblock: &Superblock,
) -> Result<Vec<[HalfPlace; 2]>, Corruption> {
    let read = |journal, half| {
        let name = HalfName { journal, half };
        let word = region.load_u64(name.word_at());
        HalfPlace::read(word, name, superblock).ok_or_else(|| {
            let what = format!("place of journal {journal}, half {half}");
            Corruption::new(what, "its check fails, or it points outside the segments")
        })
    };
    (0..superblock.journals)
        .map(|journal| Ok([read(journal, 0)?, read(journal, 1)?]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FormatOptions;

    fn superblock() -> Superblock {
        FormatOptions::tiny().superblock().expect("sound options")
    }

    const NAME: HalfName = HalfName {
        journal: 3,
        half: 1,
    };

    #[test]
    fn a_word_returns_place_and_generation_to_its_own_half_only() {
        let superblock = superblock();
        let place = HalfPlace {
            start: superblock.geometry().first_block() + 5,
            generation: 0xfffe,
        };
        let word = place.word(NAME);
        assert_eq!(HalfPlace::read(word, NAME, &superblock), Some(place));
        let other = HalfName { half: 0, ..NAME };
        assert_eq!(HalfPlace::read(word, other, &superblock), None);
        for bit in 0..64 {
            assert_ne!(
                HalfPlace::read(word ^ (1 << bit), NAME, &superblock),
                Some(place)
            );
        }
    }

    #[test]
    fn a_half_lies_in_one_segment() {
        let superblock = superblock();
        let Geometry { segment_blocks, .. } = superblock.geometry();
        let first = superblock.geometry().first_block();
        let reads = |start| {
            let place = HalfPlace {
                start,
                generation: 0,
            };
            HalfPlace::read(place.word(NAME), NAME, &superblock).is_some()
        };
        assert!(reads(first) && reads(first + (segment_blocks - superblock.half_blocks())));
        assert!(!reads(first + (segment_blocks - 1)));
        assert!(!reads(BlockNumber::new(1)));
        assert!(!reads(BlockNumber::new(u64::from(u32::MAX))));
    }

    #[test]
    fn every_use_of_a_place_has_another_salt() {
        let place = HalfPlace {
            start: BlockNumber::new(77),
            generation: u16::MAX,
        };
        let next = place.followed_by(place.start);
        assert_eq!(next.generation, 0);
        assert_ne!(place.salt(9), next.salt(9));
        assert_ne!(place.salt(9), place.salt(10));
        let moved = HalfPlace {
            start: BlockNumber::new(78),
            ..place
        };
        assert_ne!(place.salt(9), moved.salt(9));
    }
}
