//! Replacement: which block goes, and how often the disk is flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::DeviceBlock;
use device::faulty::Faulty;
use pmem::{BLOCK_BYTES, Region};

use super::random::notices;
use super::{Bug, DISK_BLOCKS};
use crate::baseline::journaling::cache::{
    BlockRead, CommitPoints, Kind, Lines, MetadataBlock, Replacement, Spindle, Tinca, Transaction,
    TransactionalCache,
};

fn commit(cache: &dyn TransactionalCache, kind: Kind, blocks: &[u64]) {
    commit_value(cache, kind, blocks, 5);
}

fn commit_value(cache: &dyn TransactionalCache, kind: Kind, blocks: &[u64], value: u8) {
    let content = [value; BLOCK_BYTES];
    let mut transaction = Transaction::default();
    for block in blocks.iter().copied().map(DeviceBlock::new) {
        match kind {
            Kind::Data => transaction.data.push((block, &content)),
            Kind::Metadata => transaction.metadata.push(MetadataBlock {
                block,
                content: &content,
                changed: Lines::ALL,
                is_new: false,
            }),
        }
    }
    cache.commit(&transaction).expect("a disk that works");
}

/// Reads a block; was it cached?
fn is_hit(cache: &dyn TransactionalCache, kind: Kind, block: u64) -> bool {
    let before = cache.counts().hits;
    let mut into = [0; 100];
    let request = BlockRead {
        block: DeviceBlock::new(block),
        at: 1000,
        into: &mut into,
    };
    cache.read(kind, &mut [request]).expect("a disk that works");
    assert!(into == [5; 100] || into == [0; 100]);
    cache.counts().hits > before
}

fn caches(replacement: Replacement) -> [Arc<dyn TransactionalCache>; 2] {
    let disks = [(); 2].map(|()| Arc::new(Faulty::new(DISK_BLOCKS)));
    caches_over(disks, replacement)
}

fn caches_over(
    disks: [Arc<Faulty>; 2],
    replacement: Replacement,
) -> [Arc<dyn TransactionalCache>; 2] {
    let region = || Arc::new(Region::anonymous(80 * BLOCK_BYTES as u64));
    let points = CommitPoints::Published;
    let [first, second] = disks;
    [
        Arc::new(Tinca::format(region(), first, replacement).expect("room")),
        Arc::new(Spindle::format(region(), second, points, replacement).expect("room")),
    ]
}

#[test]
fn the_least_recently_used_data_block_is_replaced() {
    for cache in caches(Replacement::default()) {
        let cache = &*cache;
        // Fill the cache; then the first block is the newest.
        let mut last = 99;
        while cache.counts().evictions == 0 {
            last += 1;
            commit(cache, Kind::Data, &[last]);
        }
        // Block 100 is gone; 101 is used, so 102 goes for the next one.
        assert!(is_hit(cache, Kind::Data, 101));
        commit(cache, Kind::Data, &[400]);
        assert_eq!(cache.counts().evictions, 2);
        assert!(is_hit(cache, Kind::Data, 101) && !is_hit(cache, Kind::Data, 102));
        // A commit of a cached block replaces none for the old version: that is free afterwards.
        let evictions = cache.counts().evictions;
        commit(cache, Kind::Data, &[101]);
        commit(cache, Kind::Data, &[101]);
        assert_eq!(cache.counts().evictions, evictions + 1);
        cache.verify().expect("sound");
    }
}

#[test]
fn the_metadata_block_with_the_least_counter_is_replaced() {
    let [tinca, spindle] = caches(Replacement::default());
    for (cache, has_counters) in [(tinca, false), (spindle, true)] {
        let cache = &*cache;
        // The first of ten metadata blocks is used often, the others once and later.
        for _ in 0..5 {
            commit(cache, Kind::Metadata, &[100]);
        }
        (101..110).for_each(|block| commit(cache, Kind::Metadata, &[block]));
        assert_eq!(cache.counts().evictions, 0);
        for block in 110..180 {
            commit(cache, Kind::Metadata, &[block]);
        }
        assert!(cache.counts().evictions > 0);
        assert_eq!(is_hit(cache, Kind::Metadata, 100), has_counters);
        cache.verify().expect("sound");
    }
}

#[test]
fn data_does_not_press_out_spindles_metadata() {
    let [tinca, spindle] = caches(Replacement::default());
    for (cache, is_pinned) in [(tinca, false), (spindle, true)] {
        commit(&*cache, Kind::Metadata, &[20]);
        (100..250).for_each(|block| commit(&*cache, Kind::Data, &[block]));
        assert_eq!(is_hit(&*cache, Kind::Metadata, 20), is_pinned);
    }
}

/// A block keeps one copy when it changes between data and metadata, and none when it is freed.
#[test]
fn a_block_has_one_copy() {
    for cache in caches(Replacement::default()) {
        commit(&*cache, Kind::Data, &[30, 31]);
        commit(&*cache, Kind::Metadata, &[30]);
        assert!(is_hit(&*cache, Kind::Metadata, 30));
        commit(&*cache, Kind::Data, &[30]);
        assert!(is_hit(&*cache, Kind::Data, 30));
        let freed = [DeviceBlock::new(30), DeviceBlock::new(31)];
        let transaction = Transaction {
            freed: &freed,
            ..Transaction::default()
        };
        cache.commit(&transaction).expect("a disk that works");
        assert!(!is_hit(&*cache, Kind::Data, 30) && !is_hit(&*cache, Kind::Data, 31));
        cache.verify().expect("sound");
    }
}

#[test]
fn victims_share_a_flush_of_the_disk_if_they_may() {
    for (victims_per_flush, flushes_max) in [(1, 1.0), (8, 0.2)] {
        for cache in caches(Replacement { victims_per_flush }) {
            (100..300).for_each(|block| commit(&*cache, Kind::Data, &[block]));
            let counts = cache.counts();
            assert!(counts.disk_blocks_written > 100);
            let flushes = counts.disk_flushes as f64 / counts.disk_blocks_written as f64;
            assert!(flushes <= flushes_max, "{counts:?}");
            cache.verify().expect("sound");
        }
    }
}

/// A reader replaces the oldest block; while it is written to the disk, a transaction changes it.
fn change_a_victim() {
    let disks = [(); 2].map(|()| Arc::new(Faulty::new(DISK_BLOCKS)));
    let caches = caches_over(disks.clone(), Replacement::default());
    for (cache, disk) in caches.into_iter().zip(disks) {
        commit(&*cache, Kind::Data, &[100]);
        // All others are as the disk has them: the transaction in the midst needs no other write.
        let mut block = 101;
        let is_changed = Arc::new(AtomicBool::new(false));
        let (changing, changed) = (Arc::clone(&cache), Arc::clone(&is_changed));
        disk.on_request(move || {
            if !changed.swap(true, Ordering::SeqCst) {
                commit_value(&*changing, Kind::Data, &[100], 9);
            }
        });
        while !is_changed.load(Ordering::SeqCst) {
            assert!(!is_hit(&*cache, Kind::Data, block));
            block += 1;
        }
        disk.ignore_requests();
        cache.verify().expect("sound");
        let mut into = [0; 10];
        let request = BlockRead {
            block: DeviceBlock::new(100),
            at: 0,
            into: &mut into,
        };
        cache.read(Kind::Data, &mut [request]).expect("readable");
        assert_eq!(into, [9; 10]);
    }
}

#[test]
fn a_block_that_changes_on_its_way_to_the_disk_stays() {
    change_a_victim();
    assert!(notices(Bug::DropChangedVictim, change_a_victim));
}
