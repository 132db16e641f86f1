//! The inode table without its own inode: its block map is found by its content.
//!
//! The table's inode says nothing that its blocks do not say too. Pointers of its map fit no other
//! place of the pool, and inodes know their numbers. The old copy of a block that moves is spoilt,
//! and nodes of this map do not move, so every block that is found counts.

use super::context::Scan;
use crate::format::inode::INODES_PER_BLOCK;
use crate::format::map::HEIGHT_MAX;
use crate::format::{FileType, InodeNumber, Pointer, Position, RawInode};
use crate::inode::table::SPOILT;
use pmem::{BLOCK_BYTES, BlockNumber, Offset};
use txn::Domain;
use txn::layout::{ROOT_AREA_AT, STATE_BLOCK};
use zerocopy::IntoBytes;

/// Most blocks that are read to judge a map: the largest ones need not be counted to their end.
const READS_MAX: u64 = 1 << 16;
/// Pointers of a node that are looked at to tell whether it may be one of the table.
const FIRST_POINTERS: u64 = 8;
/// Flipped bits of the mark of a moved block. No inode in use begins with so many bits set.
const SPOILT_FLIPS_MAX: u32 = 16;

/// Where the table's own inode lies.
pub(super) fn own_inode() -> Offset {
    STATE_BLOCK.offset() + ROOT_AREA_AT
}

/// Whether the block of the table that begins so has moved; a few flipped bits do not hide it.
pub(super) fn is_spoilt(first: &RawInode) -> bool {
    let words = first
        .as_bytes()
        .first_chunk()
        .copied()
        .map(u64::from_le_bytes);
    words.is_some_and(|word| (word ^ SPOILT).count_ones() <= SPOILT_FLIPS_MAX)
}

/// A block to which the table's root pointer may have led.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Candidate {
    /// Blocks of inodes that it leads to.
    score: u64,
    height: u8,
    block: BlockNumber,
}

/// Makes the table's inode from its map. The size is left to the walk of the map.
pub(super) fn find(scan: &Scan<'_>, stored: &RawInode) -> Option<RawInode> {
    let heights = 0..=HEIGHT_MAX;
    let from_inode = heights.filter_map(|height| {
        let block = Pointer::read_metadata(stored.root, position(height, 0)).ok()??;
        candidate(scan, height, block)
    });
    let best = from_inode.max().or_else(|| search(scan));
    let Candidate { height, block, .. } = best?;
    Some(RawInode {
        mode: FileType::Regular.mode_bits() | 0o600,
        links: 1,
        generation: 1,
        height,
        root: Pointer::Written(block).word(position(height, 0)),
        ..RawInode::ZERO
    })
}

const fn position(level: u8, index: u64) -> Position {
    Position {
        inode: InodeNumber::TABLE,
        level,
        index,
    }
}

fn candidate(scan: &Scan<'_>, height: u8, block: BlockNumber) -> Option<Candidate> {
    let mut reads = 0;
    let score = score(scan, height, 0, block, &mut reads);
    (score > 0).then_some(Candidate {
        score,
        height,
        block,
    })
}

/// Looks at all blocks in which metadata may lie.
fn search(scan: &Scan<'_>) -> Option<Candidate> {
    let geometry = &scan.geometry;
    let is_possible = |&block: &BlockNumber| {
        let segment = scan.claims.segment_of(block) as u32;
        let entry: txn::layout::SegmentEntry = scan.region.load(geometry.segment_entry(segment));
        !matches!(entry.domain(segment), Ok(Some(Domain::Owner { .. })))
    };
    let blocks = scan.claims.iter(false).filter(is_possible);
    let candidates = blocks.flat_map(|block| {
        let heights = 0..=HEIGHT_MAX;
        let may_be_root = heights.filter(move |&height| is_root(scan, height, block));
        may_be_root.filter_map(move |height| candidate(scan, height, block))
    });
    candidates.max()
}

/// Whether the block may be the root of a map of that height, at a first glance.
fn is_root(scan: &Scan<'_>, height: u8, block: BlockNumber) -> bool {
    let Some(level) = height.checked_sub(1) else {
        let raws: [RawInode; INODES_PER_BLOCK as usize] = scan.region.load(block.offset());
        let is_intact = |(number, raw): &(u64, &RawInode)| raw.is_intact(InodeNumber::new(*number));
        let intact = (0..).zip(&raws).filter(is_intact).count();
        return !is_spoilt(&raws[0]) && 2 * intact > raws.len();
    };
    (0..FIRST_POINTERS).any(|index| {
        let word = scan.region.load_u64(block.offset() + index * 8);
        matches!(
            Pointer::read_metadata(word, position(level, index)),
            Ok(Some(_))
        )
    })
}

/// Blocks of inodes below a block of the map: at `height` above them, the `index`th of its level.
fn score(scan: &Scan<'_>, height: u8, index: u64, block: BlockNumber, reads: &mut u64) -> u64 {
    *reads += 1;
    if *reads > READS_MAX || !scan.claims.contains(block) {
        return 0;
    }
    let Some(level) = height.checked_sub(1) else {
        return u64::from(holds_inodes(scan, index, block));
    };
    let mut bytes = [0; BLOCK_BYTES];
    scan.region.read(block.offset(), &mut bytes);
    let words = bytes.as_chunks::<8>().0;
    let first = index * words.len() as u64;
    let below = (first..).zip(words).filter_map(|(index, word)| {
        let word = u64::from_le_bytes(*word);
        let block = Pointer::read_metadata(word, position(level, index)).ok()??;
        Some(score(scan, level, index, block, reads))
    });
    below.sum()
}

/// Whether an inode is in the block that belongs there.
fn holds_inodes(scan: &Scan<'_>, index: u64, block: BlockNumber) -> bool {
    let raws: [RawInode; INODES_PER_BLOCK as usize] = scan.region.load(block.offset());
    let first = index * INODES_PER_BLOCK;
    let mut numbered = (first..).zip(&raws);
    numbered.any(|(number, raw)| *raw != RawInode::ZERO && raw.is_intact(InodeNumber::new(number)))
}
