//! Homes in a tiny pool, and threads that change and move them.

use perdure_txn::{
    Content, FormatOptions, HomeOffset, Metadata, Mode, PmemStore, PoolState, Store, Transaction,
    format,
};
use pmem::{BLOCK_BYTES, Offset, Region};
use scatter::{DomainId, Extent, Options, Purpose};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const BLOCKS: u64 = 3;

/// Keeps its homes' pointers in the root area, as the file system does in a block map.
pub(crate) fn pool() -> (Arc<Region>, PmemStore) {
    let options = FormatOptions {
        journals: 2,
        ..FormatOptions::tiny()
    };
    let superblock = options.superblock().expect("sound options");
    let region = Arc::new(format::write_header(
        Region::anonymous(options.size_bytes),
        &superblock,
        Content::Anybodys,
    ));
    let store = open(&region);
    for index in 0..BLOCKS {
        let mut transaction = store.begin();
        let block = transaction
            .allocate_one(DomainId::METADATA, Purpose::Ordinary)
            .expect("an empty pool");
        transaction.write_fresh(block, 0, &[0; BLOCK_BYTES]);
        transaction.store_word(pointer(&store, index), block.get());
        transaction.commit().expect("a small record");
        store.homes().push(block);
    }
    (region, store)
}

pub(crate) fn open(region: &Arc<Region>) -> PmemStore {
    let store = PmemStore::open_region(Arc::clone(region), Mode::ReadWrite).expect("a sound pool");
    store.install(store.rebuild().expect("sound"), Options::default());
    store
}

pub(crate) fn pointer(store: &PmemStore, index: u64) -> Offset {
    store.root_area() + 1024 + index * 8
}

pub(crate) fn move_block(store: &PmemStore, index: u64) {
    let from = store.homes().block(index).expect("a home");
    let mut transaction = store.begin();
    let to = transaction
        .allocate_one(DomainId::METADATA, Purpose::Ordinary)
        .expect("room");
    transaction.store_word(pointer(store, index), to.get());
    transaction.free(Extent {
        start: from,
        blocks: 1,
    });
    transaction.move_home(index, to);
    transaction.commit().expect("a small record");
}

pub(crate) fn change(store: &PmemStore, byte: u64, word: u64) {
    let mut transaction = store.begin();
    transaction.store_at_home(HomeOffset::new(byte), &word.to_le_bytes());
    transaction.commit().expect("a small record");
}

pub(crate) fn load(store: &PmemStore, byte: u64) -> u64 {
    let read = store
        .homes()
        .read(HomeOffset::new(byte), |at| store.load_word(at));
    read.expect("a home")
}

/// Two threads count up words of the same blocks while a third moves these. Returns whether every step was still there when the next was taken.
pub(crate) fn is_nothing_lost(rounds: u64) -> bool {
    let (_region, store) = pool();
    let (store, lost) = (&store, &AtomicBool::new(false));
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counters = [0, 8].map(|word| {
            scope.spawn(move || {
                for round in 1..=rounds {
                    let byte = round % BLOCKS * BLOCK_BYTES as u64 + word;
                    if load(store, byte) != (round - 1) / BLOCKS {
                        lost.store(true, Ordering::Relaxed);
                    }
                    change(store, byte, (round - 1) / BLOCKS + 1);
                }
            })
        });
        scope.spawn(move || {
            for index in (0..BLOCKS).cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                move_block(store, index);
            }
        });
        for counter in counters {
            counter.join().expect("no panic");
        }
        done.store(true, Ordering::Relaxed);
    });
    !lost.load(Ordering::Relaxed)
}
