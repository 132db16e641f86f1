//! Segments whose pages somebody may have: their room is their owner's until all pages are new.

use perdure_alloc::{
    Allocator, DomainId, Extent, Geometry, Options, Purpose, SegmentLedger, SegmentNumber,
};
use pmem::BlockNumber;
use std::sync::{Arc, Mutex};

const OWNER: DomainId = DomainId(2);
const OTHER: DomainId = DomainId(3);
const RESERVE: u64 = 8;
const SEGMENTS: u32 = 2;
const SEGMENT_BLOCKS: u64 = 2048;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pages {
    Ours,
    /// Of a former owner; those of leaves that are cleared are others.
    Left,
}

#[derive(Clone)]
struct Ledger(Arc<Mutex<[Pages; SEGMENTS as usize]>>);

impl SegmentLedger for Ledger {
    fn assign(&self, _segment: SegmentNumber, _domain: DomainId) {}

    fn release(&self, _segment: SegmentNumber) {}

    fn may_be_shared(&self, segment: SegmentNumber) -> bool {
        self.0.lock().expect("sound")[segment.0 as usize] == Pages::Ours
    }

    fn has_residue(&self, segment: SegmentNumber) -> bool {
        !self.may_be_shared(segment)
    }

    fn clear(&self, extent: Extent) -> u32 {
        extent.blocks
    }

    fn cleared(&self, segment: SegmentNumber) {
        self.0.lock().expect("sound")[segment.0 as usize] = Pages::Ours;
    }
}

fn new_allocator(pages: Pages) -> (Allocator, Ledger) {
    let geometry = Geometry {
        first_block: BlockNumber::new(0),
        blocks_per_segment: SEGMENT_BLOCKS,
        segments: SEGMENTS,
        groups: 1,
    };
    let options = Options {
        reserve_blocks: RESERVE,
        ..Options::default()
    };
    let ledger = Ledger(Arc::new(Mutex::new([pages; SEGMENTS as usize])));
    let allocator = Allocator::new(geometry, options, Box::new(ledger.clone()));
    (allocator, ledger)
}

fn take_all(allocator: &Allocator, domain: DomainId, purpose: Purpose) -> Vec<BlockNumber> {
    let take = || allocator.allocate_one(domain, purpose, 0);
    let taken = std::iter::from_fn(|| take().ok()).collect();
    allocator.verify().expect("sound");
    taken
}

#[test]
fn room_between_new_pages_is_everybodys() {
    for pages in [Pages::Ours, Pages::Left] {
        let (allocator, ledger) = new_allocator(pages);
        let mut blocks = take_all(&allocator, OWNER, Purpose::Overwrite);
        // Of each segment one block stays.
        blocks.sort();
        for segment in
            blocks.chunk_by(|one, next| one.get() / SEGMENT_BLOCKS == next.get() / SEGMENT_BLOCKS)
        {
            for &start in &segment[1..] {
                allocator.free(Extent { start, blocks: 1 }).expect("taken");
            }
        }
        assert_eq!(*ledger.0.lock().expect("sound"), [Pages::Ours; 2]);
        assert_eq!(allocator.held_from(|_| false), 0, "{pages:?}");
        let free = allocator.free_blocks();
        let taken = take_all(&allocator, OTHER, Purpose::Ordinary).len() as u64;
        assert_eq!(taken, free - RESERVE, "{pages:?}");
    }
}

#[test]
fn room_that_serves_everybody_does_so_whoever_has_old_pages() {
    for first in [DomainId::METADATA, DomainId::MIXED] {
        for pages in [Pages::Ours, Pages::Left] {
            let (allocator, _) = new_allocator(pages);
            allocator
                .allocate_one(first, Purpose::Ordinary, 0)
                .expect("an empty pool");
            assert_eq!(allocator.held_from(|_| false), 0, "{first:?} {pages:?}");
            let free = allocator.free_blocks();
            let taken = take_all(&allocator, OWNER, Purpose::Ordinary).len() as u64;
            assert_eq!(taken, free - RESERVE, "{first:?} {pages:?}");
        }
    }
}
