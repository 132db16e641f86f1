//! Batches that are begun before the sync that waits for them, and syncs that need none.

use crate::disk::{LATE, Pool, logger, set, value};
use perdure_txn::{Durability, PmemStore};
use std::time::Instant;

const FILE: u64 = 7;
const OTHER: u64 = 8;

fn batches(store: &PmemStore) -> u64 {
    logger(store).status().batches
}

/// A change, and whether all was durable before its sync.
fn write_and_sync(store: &PmemStore, value: u64, now: Instant) -> bool {
    set(store, value);
    logger(store).written(FILE, now);
    let was_durable = logger(store).is_durable(store.sequences().0);
    logger(store).synced(FILE, now);
    logger(store).sync().expect("a disk that works");
    was_durable
}

#[test]
fn a_file_that_was_synced_has_its_next_batch_before_the_sync_and_no_further_one() {
    let pool = Pool::new();
    let (store, now) = (pool.open(LATE), Instant::now());
    let before = batches(&store);
    let early: Vec<bool> = (1..=5)
        .map(|round| write_and_sync(&store, round, now))
        .collect();
    assert_eq!(early, [false, false, true, true, true]);
    assert_eq!(batches(&store) - before, 5, "one for each sync");

    let before = batches(&store);
    for round in 0..20 {
        set(&store, 100 + round);
        logger(&store).written(OTHER, now);
    }
    assert_eq!(batches(&store), before, "nothing ever synced this file");

    set(&store, 6);
    logger(&store).written(FILE, now);
    assert_eq!(batches(&store), before + 1);
    for round in 0..20 {
        set(&store, 200 + round);
        logger(&store).written(FILE, now);
    }
    assert_eq!(batches(&store), before + 1, "no sync came");
    assert_eq!(value(&pool.after_power_failure().open(LATE)), 6);
}

#[test]
fn with_the_policy_call_no_batch_is_begun_early() {
    let pool = Pool::new();
    let (store, now) = (pool.open(Durability::Call), Instant::now());
    for round in 1..=5 {
        assert!(!write_and_sync(&store, round, now), "round {round}");
    }
}

#[test]
fn several_changes_need_one_batch_and_a_sync_without_changes_none() {
    let pool = Pool::new();
    let store = pool.open(LATE);
    logger(&store).sync().expect("a disk that works");
    let before = batches(&store);
    for value in 1..=3 {
        set(&store, value);
    }
    for _ in 0..3 {
        logger(&store).sync().expect("a disk that works");
    }
    assert_eq!(batches(&store) - before, 1);
}
