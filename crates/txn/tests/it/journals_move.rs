//! Journals move at every checkpoint, and nothing that lay in a place before passes for a record.

use perdure_txn::places::{HalfName, HalfPlace, read_places};
use perdure_txn::record::{RecordBuilder, RecordForm};
use perdure_txn::{
    Content, FormatOptions, Homes, Metadata, Mode, PmemStore, PoolState, Store, Superblock,
    Transaction, format,
};
use pmem::{BLOCK_BYTES, Offset, Region};
use scatter::{DomainId, Options, Purpose};
use std::collections::HashSet;
use std::sync::Arc;

fn open(region: &Arc<Region>) -> PmemStore {
    let store = PmemStore::open_region(Arc::clone(region), Mode::ReadWrite).expect("a sound pool");
    let rebuild = store.rebuild().expect("sound journals");
    store.install(rebuild, Options::default());
    store
}

fn pool() -> Arc<Region> {
    let options = FormatOptions {
        journals: 2,
        ..FormatOptions::tiny()
    };
    let superblock = options.superblock().expect("sound options");
    Arc::new(format::write_header(
        Region::anonymous(options.size_bytes),
        &superblock,
        Content::Anybodys,
    ))
}

fn store_word(store: &PmemStore, at: Offset, word: u64) {
    let mut transaction = store.begin();
    transaction.store_word(at, word);
    transaction.commit().expect("a small record");
}

fn places(store: &PmemStore) -> Vec<[HalfPlace; 2]> {
    read_places(store.region(), store.superblock()).expect("sound places")
}

#[test]
fn each_checkpoint_moves_the_retired_halves_and_no_block_is_lost() {
    let region = pool();
    let store = open(&region);
    let at = store.root_area() + 1024;
    let free = store.allocator().free_blocks();
    let mut seen = HashSet::new();
    for round in 0..400 {
        let before = places(&store);
        store_word(&store, at, round);
        store.checkpoint();
        let after = places(&store);
        let moved = |journal: usize| {
            let halves = before[journal].iter().zip(after[journal]);
            halves.filter(|(old, new)| **old != *new).count()
        };
        let mut moved = [moved(0), moved(1)];
        moved.sort_unstable();
        assert_eq!(
            moved,
            [0, 1],
            "the half that was written to was retired; the other journal was not used"
        );
        seen.extend(after.as_flattened().iter().map(|place| place.start));
        assert_eq!(store.allocator().free_blocks(), free);
        // Half of the time through a crash.
        if round % 2 == 0 {
            store_word(&store, at, round + 1000);
            let copy = Arc::new(Region::from_image(region.image()));
            let recovered = open(&copy);
            assert_eq!(recovered.recovered_records(), 1);
            assert_eq!(recovered.load_word(at), round + 1000);
            assert_eq!(recovered.allocator().free_blocks(), free);
        }
    }
    // Two segments of metadata at least, out of fifteen.
    assert!(seen.len() > 30, "only {} places", seen.len());
}

#[test]
fn a_full_pool_keeps_its_journals_where_they_are() {
    let region = pool();
    let store = open(&region);
    let mut hog = store.begin();
    while hog
        .allocate_one(DomainId::METADATA, Purpose::Overwrite)
        .is_ok()
    {}
    let before = places(&store);
    store_word(&store, store.root_area() + 1024, 5);
    store.checkpoint();
    let after = places(&store);
    for (before, after) in before.as_flattened().iter().zip(after.as_flattened()) {
        assert_eq!(before.start, after.start);
    }
    assert_ne!(before, after, "but it is another use of the place");
}

/// A record that would change the root area, as a user who does not know the key would forge it.
fn forged(superblock: &Superblock, place: HalfPlace, at: Offset, key: u64) -> Vec<u8> {
    let mut record = RecordBuilder::new();
    record.store_word(at, 0xbad);
    record.close(&Homes::default());
    let known = Superblock {
        journal_key: key,
        ..*superblock
    };
    let form = RecordForm::of(&known, place);
    record.finish(1 << 20, form.salt).to_vec()
}

/// What a user wrote into blocks that became a journal is not replayed.
fn recovers_with_forged_records(knows_key: bool) -> u64 {
    let region = pool();
    let store = open(&region);
    let (superblock, at) = (*store.superblock(), store.root_area() + 1024);
    store_word(&store, at, 1);
    store.checkpoint();
    for name in HalfName::all(superblock.journals) {
        let place = places(&store)[name.journal as usize][name.half as usize];
        let key = if knows_key { superblock.journal_key } else { 0 };
        let record = forged(&superblock, place, at, key);
        let start = place.start.offset();
        for position in (0..superblock.half_bytes()).step_by(BLOCK_BYTES / 8) {
            region
                .store(start + position as u64, &record)
                .leave_to_checkpoint();
        }
    }
    let copy = Arc::new(Region::from_image(region.image()));
    open(&copy).load_word(at)
}

#[test]
fn what_lay_in_a_place_before_is_not_believed() {
    assert_eq!(recovers_with_forged_records(false), 1);
    // The same bytes with the right salt are: the test would notice.
    assert_eq!(recovers_with_forged_records(true), 0xbad);
}

#[test]
fn who_relieves_the_store_first_takes_no_checkpoint_in_a_commit() {
    let store = open(&pool());
    let at = store.root_area() + 1024;
    let mut checkpoints = 0;
    for round in 0..5_000 {
        let before = store.sequences().1;
        store.relieve();
        let relieved = store.sequences().1;
        checkpoints += u32::from(relieved != before);
        store_word(&store, at, round);
        assert_eq!(store.sequences().1, relieved, "in commit {round}");
    }
    assert!(checkpoints > 10, "only {checkpoints} checkpoints");
}
