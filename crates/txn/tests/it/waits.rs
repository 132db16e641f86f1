//! Waits for the disk, and the server that is told of them.

use crate::disk::{LATE, Pool, logger, set};
use perdure_txn::Waits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Waits that began, and those that ended.
#[derive(Debug, Default)]
struct Counted {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Waits for Counted {
    fn begins(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    fn ends(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn each_wait_for_the_disk_is_told_and_none_without_one() {
    let pool = Pool::new();
    let store = pool.open(LATE);
    let counted = Arc::new(Counted::default());
    logger(&store).watch_waits(counted.clone());
    logger(&store).sync().expect("a disk that works");
    let waits = || {
        let begun = counted.begun.load(Ordering::Relaxed);
        assert_eq!(begun, counted.ended.load(Ordering::Relaxed));
        begun
    };
    let before = waits();
    set(&store, 1);
    assert_eq!(waits(), before);
    logger(&store).sync().expect("a disk that works");
    logger(&store).sync().expect("a disk that works");
    assert_eq!(waits(), before + 1);
    pool.log.fail_after(0);
    set(&store, 2);
    logger(&store).sync().expect_err("the write fails");
    assert_eq!(waits(), before + 2, "a failed wait ends, too");
}
