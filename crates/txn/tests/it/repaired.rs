//! When a pool may be repaired.

use perdure_txn::sharing::Users;
use perdure_txn::{FormatOptions, OpenError, PoolDirectory, pool, salvage};
use std::fs::File;

/// A repair takes blocks from wherever they are free.
#[test]
fn a_pool_whose_segments_somebody_has_is_not_repaired() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let path = folder.path().join("pool");
    let options = FormatOptions {
        volatile: true,
        ..FormatOptions::tiny()
    };
    drop(pool::create(&path, &options).expect("mkfs"));
    let directory = PoolDirectory::open(&path).expect("opened");
    let users = Users::new(&directory).expect("users");
    let number = std::process::id().cast_signed();
    let (user, words) = users.enter(number, 1, 4096).expect("a process");
    let theirs = File::open(path.join(pool::segment_file(3))).expect("a segment");
    user.leave_behind();
    drop((user, words, users));
    let refused = salvage::open(&path, true).expect_err("somebody has a segment");
    assert!(
        matches!(&refused, OpenError::SegmentsHad { count: 1, processes, .. } if processes.starts_with("who has segment-0003")),
        "{refused}"
    );
    drop(salvage::open(&path, false).expect("a check changes nothing"));
    drop(theirs);
    drop(salvage::open(&path, true).expect("nobody has any"));
}
