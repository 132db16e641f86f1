//! A pool of class `log` after a power failure: its memory is what the image was, with what others
//! had left in blocks that were cleared in memory alone.

use crate::common::log::Pool;
use crate::residue::{SEGMENT_BYTES, leave_secrets, look, write_own};
use txn::{FormatOptions, PoolState};

fn new_pool() -> Option<Pool> {
    Pool::new(&FormatOptions {
        size_bytes: 16 << 20,
        segment_bytes: SEGMENT_BYTES,
        ..FormatOptions::default()
    })
}

/// User 1 leaves secrets that reach the image, and user 2 gets the segments. Returns what user 2
/// can see after a power failure.
fn seen_after_a_power_failure(pool: &Pool) -> (usize, usize) {
    let files = pool.mount();
    leave_secrets(&files, 1);
    let logger = files.store().logger().expect("a log");
    logger.sync().expect("durable");
    logger.checkpoint().expect("an image");
    write_own(&files, 2).expect("room");
    look(&files, 2);
    pool.fail_power(files);
    let files = pool.mount();
    let seen = look(&files, 2);
    files.unmount();
    seen
}

#[test]
fn what_was_cleared_in_memory_is_not_shown_after_a_power_failure() {
    let Some(pool) = new_pool() else { return };
    let (_, secrets) = seen_after_a_power_failure(&pool);
    assert_eq!(secrets, 0);
}

#[test]
fn segments_that_nobody_else_has_used_are_given_before_and_after_it() {
    let Some(pool) = new_pool() else { return };
    let files = pool.mount();
    write_own(&files, 2).expect("room");
    let (before, _) = look(&files, 2);
    assert!(before > 2, "{before}");
    pool.fail_power(files);
    let files = pool.mount();
    assert_eq!(look(&files, 2), (before, 0));
    files.unmount();
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn what_the_image_has_left_is_noticed() {
    use pmem::deliberate::{Bug, set};
    let Some(pool) = new_pool() else { return };
    set(Some(Bug::ShowImageResidue));
    let (mapped, secrets) = seen_after_a_power_failure(&pool);
    set(None);
    assert!(secrets > 0, "{mapped} segments");
}
