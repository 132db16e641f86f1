//! Flushes, fences and lines of an operation: the figures that the designs differ in.

use std::sync::Arc;

use pmem::{BLOCK_BYTES, Counters, Region};

use super::{Design, disk};
use crate::baseline::journaling::{Handle, JournalingFs, Options};

/// A file of some blocks in a cache that has room for all of it.
fn bed(design: Design, options: Options) -> (JournalingFs, Handle) {
    let region = Arc::new(Region::anonymous(4 << 20));
    let fs = design.format(&region, &disk(), options);
    let file = fs.create("/file").expect("room");
    fs.append(&file, &[1; 16 * BLOCK_BYTES]).expect("room");
    fs.sync(&file).expect("a disk that works");
    (fs, file)
}

/// (flush instructions, fences, lines to the medium, streamed ones included) of an operation.
fn cost(operation: impl FnOnce()) -> (u64, u64, u64) {
    let before = Counters::snapshot();
    operation();
    let spent = Counters::snapshot() - before;
    (spent.flushes, spent.fences, spent.lines)
}

/// A data block and the inode: two blocks for Tinca, a block and one sub-block for Spindle.
#[test]
fn an_overwrite_of_4_kib_costs_what_the_design_says() {
    let overwrite = |design| {
        let (fs, file) = bed(design, Options::default());
        cost(|| {
            fs.write_at(&file, 8192, &[2; BLOCK_BYTES]).expect("room");
        })
    };
    // For each block: 64 lines and a fence; entry, ring, head, role; and once the tail.
    let tinca = overwrite(Design::Tinca);
    assert_eq!(tinca, (2 * 4 + 1, 2 * 5 + 1, 2 * 68 + 1));
    // Data 64; undo 4 and 1; in place 1; ring, entry, tail, head, and the removal of the undo log.
    let published = overwrite(Design::SpindlePublished);
    assert_eq!(published, (7, 4, 64 + 5 + 1 + 5));
    let mended = overwrite(Design::SpindleMended);
    assert_eq!(mended, (6, 3, 64 + 5 + 1 + 4));
}

#[test]
fn a_read_costs_the_access_time() {
    let read = |design, access_times| {
        let options = Options {
            access_times,
            ..Options::default()
        };
        let (fs, file) = bed(design, options);
        cost(|| {
            let mut into = [0; BLOCK_BYTES];
            assert_eq!(fs.read_at(&file, 8192, &mut into), Ok(BLOCK_BYTES));
            assert_eq!(into, [1; BLOCK_BYTES]);
        })
    };
    for design in Design::ALL {
        assert_eq!(read(design, false), (0, 0, 0));
    }
    assert_eq!(read(Design::Tinca, true), (5, 6, 69));
    assert_eq!(read(Design::SpindlePublished, true), (3, 3, 7));
    assert_eq!(read(Design::SpindleMended, true), (3, 3, 7));
}

/// With groups of eight, the inode is written once for eight overwrites.
#[test]
fn a_group_of_operations_shares_its_metadata() {
    let group = |design| {
        let options = Options {
            operations_per_commit: 8,
            access_times: true,
        };
        let (fs, file) = bed(design, options);
        let write = |block: u64| {
            let data = [3; BLOCK_BYTES];
            fs.write_at(&file, block * BLOCK_BYTES as u64, &data)
                .expect("room");
        };
        assert_eq!(cost(|| (0..7).for_each(write)), (0, 0, 0));
        // Readers see what is not committed.
        let mut into = [0; 10];
        let options = fs.read_at(&file, 4090, &mut into[..0]);
        assert_eq!(options, Ok(0));
        cost(|| write(7))
    };
    assert_eq!(group(Design::Tinca), (9 * 4 + 1, 9 * 5 + 1, 9 * 68 + 1));
    assert_eq!(
        group(Design::SpindlePublished),
        (8 * 3 + 4, 8 + 3, 8 * 67 + 8)
    );
}
