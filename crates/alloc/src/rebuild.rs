//! Free space from what is in use: after a crash from the walk over all inodes, after a clean unmount from the saved image.

use crate::allocator::{Allocator, zeroed_words};
use crate::tree::Shape;
use crate::{
    BlockNumber, DomainId, Extent, Geometry, MarkError, Options, SegmentLedger, SegmentNumber,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// An allocator in the making. Everything is free at first; owners mark what is theirs, from as many threads as they like.
pub struct Rebuild {
    geometry: Geometry,
    shape: Shape,
    domains: Vec<Option<DomainId>>,
    wear: Vec<u64>,
    words: Vec<Vec<AtomicU64>>,
}

impl Rebuild {
    /// Starts from the segment table: `domains` and `wear` are by segment; what they lack is free and unworn. O(segments).
    ///
    /// # Panics
    /// If the geometry is impossible (see [`Geometry`]).
    #[must_use]
    pub fn new(geometry: Geometry, domains: &[Option<DomainId>], wear: &[u64]) -> Self {
        geometry.validate();
        let mut domains = domains.to_vec();
        domains.resize(geometry.segments as usize, None);
        Self {
            geometry,
            shape: Shape::new(geometry.blocks_per_segment as u32),
            domains,
            wear: wear.to_vec(),
            words: (0..geometry.effective_groups())
                .map(|group| zeroed_words(&geometry, group))
                .collect(),
        }
    }

    /// Marks an extent as in use. Lock-free: of two who mark the same block, exactly one is told.
    ///
    /// # Errors
    /// See [`MarkError`]; after [`MarkError::AlreadyMarked`] the extent's other blocks are marked.
    pub fn mark(&self, extent: Extent) -> Result<(), MarkError> {
        let out_of_range = MarkError::OutOfRange {
            block: extent.start,
            blocks: extent.blocks,
        };
        let pieces = || self.geometry.pieces(extent).ok_or(out_of_range);
        for (segment, offset, _) in pieces()? {
            self.owned(segment, offset)?;
        }
        let mut first = None;
        for (segment, offset, blocks) in pieces()? {
            let clash = mark_bits(self.words_of(segment), offset, blocks);
            first = first.or(clash.map(|offset| self.block(segment, offset)));
        }
        first.map_or(Ok(()), |block| Err(MarkError::AlreadyMarked { block }))
    }

    /// Whether the block has been marked.
    #[must_use]
    pub fn is_marked(&self, block: BlockNumber) -> bool {
        self.geometry
            .locate(block)
            .is_some_and(|(segment, offset)| {
                self.words_of(segment)[(offset / 64) as usize].load(Ordering::Relaxed)
                    & (1 << (offset % 64))
                    != 0
            })
    }

    /// Marks everything that is set in an image made by [`Allocator::save`].
    ///
    /// # Errors
    /// If the image has the wrong size, or marks a block of a segment without a domain or beyond a segment's end; then nothing was marked.
    pub fn mark_word_image(&mut self, image: &[u64]) -> Result<(), MarkError> {
        let words = self.shape.words as usize;
        let expected = words * self.geometry.segments as usize;
        if image.len() != expected {
            return Err(MarkError::ImageSize {
                found: image.len(),
                expected,
            });
        }
        for (segment, bits) in image.chunks_exact(words).enumerate() {
            let segment = SegmentNumber(segment as u32);
            if let Some(index) = bits.iter().position(|&word| word != 0) {
                self.owned(segment, index as u32 * 64 + bits[index].trailing_zeros())?;
            }
            if bits[words - 1] & self.shape.padding() != 0 {
                let block = self.block(segment, self.shape.blocks);
                return Err(MarkError::OutOfRange { block, blocks: 1 });
            }
        }
        for (segment, bits) in image.chunks_exact(words).enumerate() {
            for (word, &bits) in self
                .words_of(SegmentNumber(segment as u32))
                .iter()
                .zip(bits)
            {
                if bits != 0 {
                    word.fetch_or(bits, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Counts, and makes the allocator. Segments that nobody marked a block of are released to `ledger`.
    #[must_use]
    pub fn finish(self, options: Options, ledger: Box<dyn SegmentLedger>) -> Allocator {
        Allocator::assemble(
            self.geometry,
            options,
            ledger,
            self.words,
            Some((&self.domains, &self.wear)),
        )
    }

    fn owned(&self, segment: SegmentNumber, offset: u32) -> Result<(), MarkError> {
        match self.domains[segment.0 as usize] {
            Some(_) => Ok(()),
            None => Err(MarkError::Unassigned {
                block: self.block(segment, offset),
                segment,
            }),
        }
    }

    fn block(&self, segment: SegmentNumber, offset: u32) -> BlockNumber {
        self.geometry.first_block_of(segment) + u64::from(offset)
    }

    fn words_of(&self, segment: SegmentNumber) -> &[AtomicU64] {
        let groups = self.geometry.effective_groups();
        let first = (segment.0 / groups * self.shape.words) as usize;
        &self.words[(segment.0 % groups) as usize][first..first + self.shape.words as usize]
    }
}

/// A word of the bitmap while many threads mark; the tests put one in that tries all interleavings.
trait SharedWord {
    /// Sets the bits of `mask`; returns the word as it was.
    fn set(&self, mask: u64) -> u64;
}

impl SharedWord for AtomicU64 {
    fn set(&self, mask: u64) -> u64 {
        // Relaxed is enough: the bits carry no other data, and finish() takes the whole by value, after all threads were joined.
        self.fetch_or(mask, Ordering::Relaxed)
    }
}

/// Sets the bits `start..start + blocks`. Returns the first that was set already.
fn mark_bits(words: &[impl SharedWord], start: u32, blocks: u32) -> Option<u32> {
    let end = start + blocks;
    let mut clash = None;
    for index in start / 64..end.div_ceil(64) {
        let low = start.max(index * 64) - index * 64;
        let high = end.min(index * 64 + 64) - index * 64;
        let mask = (u64::MAX << low) & (u64::MAX >> (64 - high));
        let before = words[index as usize].set(mask) & mask;
        if before != 0 && clash.is_none() {
            clash = Some(index * 64 + before.trailing_zeros());
        }
    }
    clash
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;

    impl SharedWord for loom::sync::atomic::AtomicU64 {
        fn set(&self, mask: u64) -> u64 {
            self.fetch_or(mask, Ordering::Relaxed)
        }
    }

    /// In every interleaving each block has one winner: where two extents overlap, somebody is told, and nobody is told of a block that
    /// only he marked.
    #[test]
    fn of_two_marks_one_is_told() {
        loom::model(|| {
            let words: Arc<Vec<loom::sync::atomic::AtomicU64>> =
                Arc::new((0..3).map(|_| Default::default()).collect());
            let other = words.clone();
            let thread = loom::thread::spawn(move || mark_bits(&other[..], 60, 10));
            let mine = mark_bits(&words[..], 62, 70);
            let theirs = thread.join().expect("no panic");
            let told = [mine, theirs].into_iter().flatten().collect::<Vec<_>>();
            assert!(
                !told.is_empty() && told.iter().all(|block| (62..70).contains(block)),
                "{told:?}"
            );
            // One word, one winner: both can be told only if each won one of the two shared words.
            assert!(told.len() == 1 || told[0] / 64 != told[1] / 64, "{told:?}");
            let bits: u32 = words
                .iter()
                .map(|word| word.load(Ordering::Relaxed).count_ones())
                .sum();
            assert_eq!(bits, 132 - 60);
        });
    }

    #[test]
    fn disjoint_marks_in_one_word_are_not_told() {
        loom::model(|| {
            let words: Arc<Vec<loom::sync::atomic::AtomicU64>> = Arc::new(vec![Default::default()]);
            let other = words.clone();
            let thread = loom::thread::spawn(move || mark_bits(&other[..], 0, 32));
            assert_eq!(mark_bits(&words[..], 32, 32), None);
            assert_eq!(thread.join().expect("no panic"), None);
            assert_eq!(words[0].load(Ordering::Relaxed), u64::MAX);
        });
    }
}
