//! L6: what was acknowledged is folded, wherever the room that is left lies.

use super::process::{BLOCK, Process, USER, content, fill, lease, make, new_pool, place};
use lease::{Place, Refusal};
use perdure_fs::lease::LeaseSize;
use perdure_fs::{FileSystem, FsError, MountOptions, mkfs_region};
use pmem::{BLOCK_BYTES, Region};
use txn::{FormatOptions, Mode, PmemStore, PoolState, Segments};

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

/// As many blocks of a file in any order as one transaction has to fold, and then the largest write.
fn fold_most(files: &FileSystem, size: LeaseSize) -> Result<(), FsError> {
    let node = make(files, "own", USER, 2048);
    files.lease(&node, size, Process::idle())?;
    files.end_lease(&node)?;
    let mut lessee = lease(files, &node, size, Process::idle());
    for round in 0..3 {
        for number in 0..127 {
            let at = (number * 683 + round * 97) % 2048;
            lessee.write(at * BLOCK, 2, 1);
        }
        if round == 2 {
            lessee.write(100 * BLOCK, 3, 256);
        }
        let told = files.fold_lease(&node)?;
        let (next, refilled) = told.expect("it is leased");
        lessee.writer.folded(next, refilled);
    }
    files.end_lease(&node)?;
    let bytes = content(files, &node);
    let written = &bytes[100 * BLOCK_BYTES..356 * BLOCK_BYTES];
    assert!(written.iter().all(|&byte| byte == 3));
    Ok(())
}

#[test]
fn who_could_write_what_no_journal_takes_gets_no_lease() {
    let (small, large) = ((1, 1), (128, 512));
    for (journal_bytes, (ring_blocks, spare_blocks), is_leased) in [
        (8 << 10, large, false),
        (8 << 10, small, true),
        (32 << 10, large, true),
    ] {
        let options = FormatOptions {
            size_bytes: 64 << 20,
            segment_bytes: 4 << 20,
            journals: 2,
            journal_bytes,
            volatile: true,
            ..FormatOptions::default()
        };
        let region = mkfs_region(Region::anonymous(64 << 20), &options, (0, 0)).expect("mkfs");
        let store = PmemStore::open_region(region, Mode::ReadWrite).expect("open");
        let files = FileSystem::mount(store, MountOptions::default()).expect("mount");
        let size = LeaseSize {
            ring_blocks,
            spare_blocks,
        };
        let outcome = match (ring_blocks, spare_blocks) == large {
            true => fold_most(&files, size),
            false => {
                let node = make(&files, "own", USER, 1);
                let lease = files.lease(&node, size, Process::idle());
                lease.and_then(|_| files.end_lease(&node))
            }
        };
        match is_leased {
            true => outcome.expect("it fits"),
            false => assert!(
                matches!(outcome, Err(FsError::InvalidArgument(_))),
                "{outcome:?}"
            ),
        }
    }
}
