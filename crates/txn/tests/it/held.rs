//! That a segment goes to others while somebody has it is noticed. Alone in its process, because a deliberate bug is switched on for all of it.

use perdure_txn::{FormatOptions, Mode, PmemStore, pool};
use pmem::deliberate::{self, Bug};
use scatter::SegmentNumber;
use std::fs::File;

#[test]
fn a_segment_that_is_taken_from_heirs_is_noticed() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let path = folder.path().join("pool");
    let options = FormatOptions {
        volatile: true,
        ..FormatOptions::tiny()
    };
    drop(pool::create(&path, &options).expect("mkfs"));
    let store = PmemStore::open(&path, Mode::ReadWrite, true).expect("open");
    let held = store.domains().held();
    let _heir = File::open(path.join(pool::segment_file(0))).expect("a segment");
    let is_free = |bug| {
        assert!(held.hold(SegmentNumber(0)));
        deliberate::set(bug);
        let is_free = held.let_go(SegmentNumber(0));
        deliberate::set(None);
        is_free
    };
    assert!(is_free(Some(Bug::ForgetHeirs)));
    assert!(!is_free(None));
}
