//! Records that only a killed server's memory has are in the log before recovery goes on, also if
//! the ring was full.

use crate::disk::{LATE, Pool, logger, open, set, value};
use perdure_txn::{Disks, Metadata, PmemStore, PoolState, Store, Transaction};
use pmem::{BLOCK_BYTES, BlockNumber, DurabilityClass, Region};
use scatter::{DomainId, Extent, Options, Purpose};
use std::sync::Arc;
use wal::UNIT_BYTES;

const KILLS: usize = 3;

fn left_by(store: PmemStore) -> Arc<Region> {
    let image = store.region().image();
    drop(store);
    let mut left = Region::anonymous_of(image.len() as u64, DurabilityClass::Log);
    left.refill(&image);
    Arc::new(left)
}

/// The server is killed, opens the pool, and is killed again before anything else happens.
fn kill_often(mut pool: Pool, store: PmemStore) -> (Pool, PmemStore) {
    let mut left = left_by(store);
    for kill in 1.. {
        pool = Pool {
            log: Arc::new(pool.log.kill()),
            image: Arc::new(pool.image.kill()),
        };
        let store = PmemStore::open_disks(&pool.disks(), Some(left), LATE).expect("a sound pool");
        if kill == KILLS {
            return (pool, store);
        }
        left = left_by(store);
    }
    unreachable!("the last kill returns")
}

#[test]
fn what_only_memory_has_outlives_a_second_kill() {
    let pool = Pool::new();
    let store = pool.open(LATE);
    set(&store, 1);
    let (pool, store) = kill_often(pool, store);
    assert_eq!(value(&store), 1);
    logger(&store).sync().expect("a disk that works");
    assert_eq!(value(&pool.after_power_failure().open(LATE)), 1);
}

/// Batches until only the reserve is left.
fn fill_ring(store: &PmemStore) -> u64 {
    let mut next = 0;
    let status = || logger(store).status();
    while status().used_bytes + 2 * UNIT_BYTES as u64 <= status().ring_bytes {
        next += 1;
        set(store, next);
        logger(store).sync().expect("a disk that works");
    }
    next
}

/// A record that publishes two blocks full of `byte`.
fn publish(store: &PmemStore, byte: u8) -> [BlockNumber; 2] {
    let mut transaction = store.begin();
    let blocks = [(); 2].map(|()| {
        let block = transaction.allocate_one(DomainId::METADATA, Purpose::Ordinary);
        let block = block.expect("room");
        transaction.write_fresh(block, 0, &[byte; BLOCK_BYTES]);
        block
    });
    transaction.store_word(store.root_area() + 1024, u64::from(byte));
    transaction.commit().expect("a small record");
    blocks
}

fn read(store: &PmemStore, block: BlockNumber) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    store.region().read(block.offset(), &mut bytes);
    bytes
}

/// Leaves `records` records that only memory has beside a full ring. Returns whether all are there
/// after kills and a power failure.
fn is_all_there(records: u8) -> bool {
    let pool = Pool::new();
    let store = pool.open(LATE);
    fill_ring(&store);
    let published: Vec<_> = (1..=records)
        .map(|byte| (byte, publish(&store, byte)))
        .collect();
    let (pool, store) = kill_often(pool, store);
    let is_whole = |store: &PmemStore| {
        let mut blocks = published
            .iter()
            .flat_map(|(byte, blocks)| blocks.iter().map(move |block| (*byte, *block)));
        value(store) == u64::from(records)
            && blocks.all(|(byte, block)| read(store, block) == [byte; BLOCK_BYTES])
    };
    assert!(is_whole(&store), "memory has it");
    drop(store);
    let after: Disks = pool.after_power_failure().disks();
    is_whole(&open(&after, LATE).expect("a sound pool"))
}

#[test]
fn a_tail_beside_a_full_ring_is_durable_before_it_is_retired() {
    // One batch; more than an empty ring has room for.
    for records in [1, 12] {
        assert!(is_all_there(records), "{records} records");
    }
}

#[test]
fn the_pool_goes_on_behind_such_a_tail() {
    let pool = Pool::new();
    let store = pool.open(LATE);
    fill_ring(&store);
    let blocks = publish(&store, 7);
    let (pool, store) = kill_often(pool, store);
    let rebuild = store.rebuild().expect("a sound pool");
    for start in blocks {
        rebuild.mark(Extent { start, blocks: 1 }).expect("its own");
    }
    store.install(rebuild, Options::default());
    for next in 1..=40 {
        set(&store, next);
        logger(&store).sync().expect("a disk that works");
        logger(&store).checkpoint().expect("disks that work");
    }
    let after = pool.after_power_failure().open(LATE);
    assert_eq!(value(&after), 40);
    assert_eq!(read(&after, blocks[1]), [7; BLOCK_BYTES]);
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn a_tail_that_is_not_logged_is_noticed() {
    use pmem::deliberate::{self, Bug};
    deliberate::set(Some(Bug::ForgetTail));
    let is_all_there = is_all_there(1);
    deliberate::set(None);
    assert!(!is_all_there);
}
