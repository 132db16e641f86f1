//! L6: what was acknowledged is folded, wherever the room that is left lies.

use crate::process::{BLOCK, Process, USER, content, fill, lease, make, new_pool, place};
use lease::{Place, Refusal};
use perdure_fs::lease::LeaseSize;
use pmem::BLOCK_BYTES;
use txn::Store;

/// What the holder's process has mapped has room, and nothing else: nodes of the block map cannot be had.
#[test]
fn appends_are_folded_when_only_the_holders_segments_have_room() {
    let files = new_pool(256 << 20, 64 << 20);
    let node = make(&files, "log", USER, 1);
    let Place::At(block) = place(&files, &node, 0) else {
        panic!("it was written");
    };
    let segment = files.store().allocator().geometry().segment_of(block);
    let segment = segment.expect("in a segment");
    assert!(files.store().hand_out(segment).is_some());
    while !files.store().prepare(segment, u64::MAX).0 {}
    let size = LeaseSize {
        ring_blocks: 64,
        spare_blocks: 512,
    };
    let mut lessee = lease(&files, &node, size, Process::idle());
    let _filler = fill(&files, 2000);
    loop {
        let end = lessee.writer.size_bytes();
        let data = [2; BLOCK_BYTES];
        match lessee.writer.write(&mut lessee.map, end, &data, 5) {
            Ok(()) => continue,
            Err(Refusal::NoSpareBlocks { .. } | Refusal::RingFull) => {}
            Err(error) => panic!("{error}"),
        }
        let told = files.fold_lease(&node).expect("folded");
        let (next, refilled) = told.expect("it is leased");
        if refilled.is_empty() {
            break;
        }
        lessee.writer.folded(next, refilled);
    }
    files.end_lease(&node).expect("ended");
    let attributes = files.attributes(&node).expect("attributes");
    assert_eq!(attributes.size_bytes, lessee.writer.size_bytes());
    let bytes = content(&files, &node);
    assert!(bytes[BLOCK as usize..].iter().all(|&byte| byte == 2));
}
