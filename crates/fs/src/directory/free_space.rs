//! The free ranges of all blocks of a directory, and the way to one that is large enough.
//!
//! The published free list maps a block to its first free range, to find the neighbours of a range that becomes free;
//! [`FreeMap`] per block is that mapping, a vector because blocks are numbered densely. The published allocation, "from the
//! head of the list", walks over every hole that is too small. Here a tree of maxima with 64 children per node (one byte
//! per block: its longest free range) leads to the first block with a range that fits, in as many steps as there are
//! levels: three for a directory of 1,000,000 names.

use super::free_map::{FreeMap, FreeRange};
use super::record::DENTRY_BYTES_MAX;

/// Children per node of the tree of maxima, and so a cache line of bytes.
const FAN_OUT: usize = 64;

/// Longest ranges are recorded up to this many units: more than any dentry needs, and few enough that the highest bit of
/// each byte stays clear for [`first_at_least`].
const LONGEST_MAX: usize = 127;

const _: () = assert!(DENTRY_BYTES_MAX / super::UNIT_BYTES < LONGEST_MAX);

/// Block maps per allocation, so that growing never copies more than this many.
const MAPS_PER_CHUNK: usize = 1024;

/// A block's map in a cache line of its own.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line(FreeMap);

const _: () = assert!(size_of::<Line>() == 64);

#[derive(Clone, Debug, Default)]
pub(super) struct FreeSpace {
    chunks: Vec<Vec<Line>>,
    /// `levels[0]` has the longest free range of every block in units, `levels[n + 1]` the maxima of 64 bytes of
    /// `levels[n]`; the last level has at most 64 bytes.
    levels: Vec<Vec<u8>>,
    free_units: u64,
}

fn recorded(longest: usize) -> u8 {
    longest.min(LONGEST_MAX) as u8
}

/// The free ranges of one block with what [`FreeSpace`] knows about them.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSpace {
    map: FreeMap,
    /// The longest range in units, at most [`LONGEST_MAX`].
    longest: u8,
    /// Free units now, less those when this copy was taken.
    units_gained: i64,
}

impl BlockSpace {
    /// A block without a dentry.
    pub(super) const EMPTY: Self = Self {
        map: FreeMap::EMPTY,
        longest: LONGEST_MAX as u8,
        units_gained: 0,
    };

    /// A block with these ranges.
    pub(super) fn new(map: FreeMap) -> Self {
        Self {
            map,
            longest: recorded(map.longest(LONGEST_MAX)),
            units_gained: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Takes the front of the first range that has `units`, and returns that range.
    pub(super) fn take(&mut self, units: usize) -> Option<FreeRange> {
        if recorded(units) > self.longest {
            return None;
        }
        let range = self.map.first_fit(units)?;
        self.map.mark_used(range.start, units);
        self.units_gained -= units as i64;
        if recorded(range.length) >= self.longest {
            // Nothing can be longer than what was the longest, so the search ends at the first of equals.
            self.longest = recorded(self.map.longest(self.longest.into()));
        }
        Some(range)
    }

    /// Frees a dentry's units and returns the free range that they are now part of.
    pub(super) fn release(&mut self, start: usize, units: usize) -> FreeRange {
        let range = self.map.release(start, units);
        self.units_gained += units as i64;
        self.longest = self.longest.max(recorded(range.length));
        range
    }
}

/// The position of the first byte that is at least `minimum`; all are at most [`LONGEST_MAX`].
fn first_at_least(bytes: &[u8], minimum: u8) -> Option<usize> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // Subtracting below a set high bit cannot borrow from the neighbour; the bit survives where the byte suffices.
        let enough =
            ((u64::from_le_bytes(*word) | EACH << 7) - EACH * u64::from(minimum)) & (EACH << 7);
        if enough != 0 {
            return Some(index * 8 + enough.trailing_zeros() as usize / 8);
        }
    }
    rest.iter()
        .position(|&byte| byte >= minimum)
        .map(|position| words.len() * 8 + position)
}

impl FreeSpace {
    pub(super) fn blocks(&self) -> usize {
        self.levels.first().map_or(0, Vec::len)
    }

    pub(super) fn free_units(&self) -> u64 {
        self.free_units
    }

    pub(super) fn map(&self, block: usize) -> &FreeMap {
        &self.chunks[block / MAPS_PER_CHUNK][block % MAPS_PER_CHUNK].0
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let maps: usize = self.chunks.iter().map(Vec::capacity).sum();
        let nodes: usize = self.levels.iter().map(Vec::capacity).sum();
        maps * size_of::<Line>()
            + nodes
            + self.chunks.capacity() * size_of::<Vec<Line>>()
            + self.levels.capacity() * size_of::<Vec<u8>>()
    }

    /// Appends a block.
    pub(super) fn push(&mut self, space: &BlockSpace) {
        let block = self.blocks();
        if block.is_multiple_of(MAPS_PER_CHUNK) {
            self.chunks.push(Vec::new());
        }
        self.chunks[block / MAPS_PER_CHUNK].push(Line(space.map));
        self.free_units += space.map.free_units() as u64;
        let mut index = block;
        let longest = space.longest;
        for level in 0.. {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
                if level > 0 {
                    // The level below just outgrew one node: its first node has been complete until now.
                    let first = self.levels[level - 1][..FAN_OUT]
                        .iter()
                        .copied()
                        .max()
                        .unwrap_or(0);
                    self.levels[level].push(first);
                }
            }
            let nodes = &mut self.levels[level];
            match nodes.get_mut(index) {
                Some(node) => *node = (*node).max(longest),
                None => nodes.push(longest),
            }
            if nodes.len() <= FAN_OUT {
                break;
            }
            index /= FAN_OUT;
        }
    }

    /// Drops all blocks from `blocks` on.
    pub(super) fn truncate(&mut self, blocks: usize) {
        while self.blocks() > blocks {
            let last = self.blocks() - 1;
            self.free_units -= self.map(last).free_units() as u64;
            self.set_longest(last, 0);
            self.chunks[last / MAPS_PER_CHUNK].pop();
            if last.is_multiple_of(MAPS_PER_CHUNK) {
                self.chunks.pop();
            }
            let mut length = last;
            for level in &mut self.levels {
                level.truncate(length);
                length = length.div_ceil(FAN_OUT);
            }
            while self.levels.len() > 1 && self.levels[self.levels.len() - 2].len() <= FAN_OUT {
                self.levels.pop();
            }
        }
    }

    /// A block's state, to be changed and handed to [`FreeSpace::replace`].
    pub(super) fn block(&self, block: usize) -> BlockSpace {
        BlockSpace {
            map: *self.map(block),
            longest: self.levels[0][block],
            units_gained: 0,
        }
    }

    /// Replaces a block's state.
    pub(super) fn replace(&mut self, block: usize, space: &BlockSpace) {
        self.chunks[block / MAPS_PER_CHUNK][block % MAPS_PER_CHUNK] = Line(space.map);
        self.free_units = self.free_units.wrapping_add_signed(space.units_gained);
        self.set_longest(block, space.longest);
    }

    fn set_longest(&mut self, block: usize, longest: u8) {
        let mut index = block;
        let mut value = longest;
        for level in 0..self.levels.len() {
            let before = std::mem::replace(&mut self.levels[level][index], value);
            index /= FAN_OUT;
            let Some(&maximum) = self
                .levels
                .get(level + 1)
                .and_then(|nodes| nodes.get(index))
            else {
                return;
            };
            // The children are looked at only if the greatest of them has become smaller.
            if value < maximum && before < maximum {
                return;
            }
            if value < maximum {
                let nodes = &self.levels[level];
                let children = &nodes[index * FAN_OUT..nodes.len().min((index + 1) * FAN_OUT)];
                value = children.iter().fold(value, |most, &child| most.max(child));
            }
            if value == maximum {
                return;
            }
        }
    }

    /// The first block from `from` on that has a free range of at least `units`.
    pub(super) fn first_block_with(&self, units: usize, from: usize) -> Option<usize> {
        debug_assert!(units <= LONGEST_MAX);
        let minimum = recorded(units);
        let (mut level, mut index) = (0, from);
        loop {
            let nodes = self.levels.get(level)?;
            let siblings = nodes.get(index..nodes.len().min((index / FAN_OUT + 1) * FAN_OUT))?;
            if let Some(position) = first_at_least(siblings, minimum) {
                index += position;
                break;
            }
            index = index / FAN_OUT + 1;
            level += 1;
        }
        while level > 0 {
            level -= 1;
            let nodes = &self.levels[level];
            let first = index * FAN_OUT;
            let children = &nodes[first..nodes.len().min(first + FAN_OUT)];
            index = first + first_at_least(children, minimum)?;
        }
        Some(index)
    }
}
