//! Segments that somebody has mapped: their room is their owner's, and nobody's reserve.

use perdure_alloc::{
    Allocator, DomainId, Extent, Geometry, Options, Purpose, Request, SegmentLedger, SegmentNumber,
    Unit,
};
use pmem::BlockNumber;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const OWNER: DomainId = DomainId(2);
const OTHER: DomainId = DomainId(3);
const RESERVE: u64 = 8;
const NONE: u32 = u32::MAX;

/// Holds at most one segment.
struct Ledger(Arc<AtomicU32>);

impl SegmentLedger for Ledger {
    fn assign(&self, _segment: SegmentNumber, _domain: DomainId) {}

    fn release(&self, _segment: SegmentNumber) {}

    fn is_held(&self, segment: SegmentNumber) -> bool {
        self.0.load(Ordering::Relaxed) == segment.0
    }
}

/// Four segments of 64 blocks.
fn new_allocator() -> (Allocator, Arc<AtomicU32>) {
    new_allocator_of(64, Options::default().seed)
}

/// Four segments of so many blocks.
fn new_allocator_of(blocks_per_segment: u64, seed: u64) -> (Allocator, Arc<AtomicU32>) {
    let geometry = Geometry {
        first_block: BlockNumber::new(0),
        blocks_per_segment,
        segments: 4,
        groups: 2,
    };
    let options = Options {
        reserve_blocks: RESERVE,
        seed,
        ..Options::default()
    };
    let held = Arc::new(AtomicU32::new(NONE));
    let ledger = Box::new(Ledger(Arc::clone(&held)));
    (Allocator::new(geometry, options, ledger), held)
}

fn take_all(allocator: &Allocator, domain: DomainId, purpose: Purpose) -> u64 {
    let take = || allocator.allocate_one(domain, purpose, 0);
    let taken = std::iter::from_fn(|| take().ok()).count() as u64;
    allocator.verify().expect("sound");
    taken
}

#[test]
fn room_in_a_held_segment_is_its_owners_and_not_the_reserve() {
    let (allocator, held) = new_allocator();
    let block = allocator
        .allocate_one(OWNER, Purpose::Ordinary, 0)
        .expect("an empty pool");
    let segment = allocator.geometry().segment_of(block).expect("in one");
    held.store(segment.0, Ordering::Relaxed);
    assert_eq!(allocator.hold(segment), Some(OWNER));
    assert_eq!(
        take_all(&allocator, OTHER, Purpose::Ordinary),
        3 * 64 - RESERVE
    );
    assert_eq!(allocator.held_from(|domain| domain == OWNER), 0);
    assert_eq!(allocator.held_from(|domain| domain == OTHER), 63);
    assert_eq!(take_all(&allocator, OWNER, Purpose::Ordinary), 63);
    assert_eq!(allocator.held_from(|_| false), 0);
    let extent = Extent {
        start: block,
        blocks: 1,
    };
    allocator.free(extent).expect("it was taken");
    assert_eq!(take_all(&allocator, OTHER, Purpose::Overwrite), RESERVE);
    held.store(NONE, Ordering::Relaxed);
    allocator.let_go(segment);
    allocator.verify().expect("sound");
    assert_eq!(take_all(&allocator, OTHER, Purpose::Overwrite), 1);
}

#[test]
fn a_segment_that_is_held_late_leaves_the_reserve_to_the_others() {
    let (allocator, held) = new_allocator();
    let block = allocator
        .allocate_one(OWNER, Purpose::Ordinary, 0)
        .expect("an empty pool");
    let segment = allocator.geometry().segment_of(block).expect("in one");
    let request = Request {
        domain: OTHER,
        blocks: 64,
        unit: Unit::Block4K,
        purpose: Purpose::Ordinary,
        home: 0,
    };
    for _ in 0..2 {
        allocator.allocate(&request).expect("room");
    }
    // What is left are the owner's segment and one more.
    held.store(segment.0, Ordering::Relaxed);
    assert_eq!(allocator.hold(segment), Some(OWNER));
    allocator.verify().expect("sound");
    assert_eq!(take_all(&allocator, OTHER, Purpose::Ordinary), 64 - RESERVE);
}

/// The owner's held segment has a free leaf; what else is free is the reserve, in another segment of his.
#[test]
fn who_has_room_that_is_his_alone_gets_it_whatever_the_reserve() {
    for seed in 0..8 {
        let (allocator, held) = new_allocator_of(2048, seed);
        take_all(&allocator, OWNER, Purpose::Ordinary);
        assert_eq!(allocator.free_blocks(), RESERVE);
        let usage = allocator.usage();
        let full = usage.iter().position(|segment| segment.free_blocks == 0);
        let full = SegmentNumber(full.expect("the reserve is small") as u32);
        held.store(full.0, Ordering::Relaxed);
        assert_eq!(allocator.hold(full), Some(OWNER));
        let leaf = Extent {
            start: BlockNumber::new(u64::from(full.0) * 2048 + 512),
            blocks: 512,
        };
        allocator.free(leaf).expect("it was taken");
        let request = Request {
            domain: OWNER,
            blocks: 100,
            unit: Unit::Block4K,
            purpose: Purpose::Ordinary,
            home: 0,
        };
        let extents = allocator.allocate(&request).expect("there is room");
        assert!(leaf.start <= extents[0].start && extents[0].blocks == 100);
        assert_eq!(take_all(&allocator, OWNER, Purpose::Ordinary), 412);
        assert_eq!(take_all(&allocator, OTHER, Purpose::Overwrite), RESERVE);
    }
}

#[test]
fn what_a_process_maps_comes_from_its_own_segments_only() {
    let (allocator, _held) = new_allocator();
    for user in 2..30 {
        allocator
            .allocate_one(DomainId(user), Purpose::Ordinary, user as usize)
            .expect("room");
    }
    let direct = |domain| allocator.allocate_one(domain, Purpose::Direct, 0);
    let mut own = 0;
    while let Ok(block) = direct(OWNER) {
        assert_eq!(allocator.domain_of(block), Some(OWNER));
        own += 1;
    }
    assert!(own > 0 && allocator.free_blocks() > RESERVE + 60, "{own}");
    allocator
        .allocate_one(OWNER, Purpose::Ordinary, 0)
        .expect("there is room that is shared");
    allocator.verify().expect("sound");
}
