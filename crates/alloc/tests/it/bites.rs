//! Deliberate bugs: each must be noticed by the checks that the other tests rely on.

use perdure_alloc::{
    Allocator, BlockNumber, DomainId, Extent, Geometry, NoLedger, Options, Purpose,
};
use pmem::deliberate::{Bug, set};

#[test]
fn a_leaked_block_is_missed() {
    let geometry = Geometry {
        first_block: BlockNumber::new(0),
        blocks_per_segment: 64,
        segments: 4,
        groups: 1,
    };
    let allocator = Allocator::new(geometry, Options::default(), Box::new(NoLedger));
    let block = allocator
        .allocate_one(DomainId(2), Purpose::Ordinary, 0)
        .expect("room");
    set(Some(Bug::LeakBlock));
    allocator
        .free(Extent {
            start: block,
            blocks: 1,
        })
        .expect("allocated");
    set(None);
    assert!(allocator.is_allocated(block), "the bug did not bite");
    assert_eq!(allocator.free_blocks(), 255);
    allocator
        .verify()
        .expect("the allocator believes that the block is in use");
    allocator
        .free(Extent {
            start: block,
            blocks: 1,
        })
        .expect("allocated");
    assert_eq!(allocator.free_blocks(), 256);
}
