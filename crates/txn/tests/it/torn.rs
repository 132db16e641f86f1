//! What a power cut left of a record stays dead, whatever a later one adds to it.

use perdure_txn::{
    Content, FormatOptions, Metadata, Mode, PmemStore, PoolState, Store, Transaction, format,
};
use pmem::Region;
#[cfg(feature = "deliberate-bugs")]
use pmem::deliberate::{self, Bug};
use pmem::emulator::{Choice, Moment};
use scatter::Options;
use std::sync::{Arc, Mutex, mpsc};

/// Words of each of the records here; the rest of its line are zeros.
const WORDS: u32 = 4;
/// Where the first record stores, and where the second does, behind the start of the root area; and what.
const PLACES: [u64; 2] = [1024, 2048];
/// A deliberate bug is one of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn new_pool() -> Vec<u8> {
    let options = FormatOptions::tiny();
    let superblock = options.superblock().expect("sound options");
    format::write_header(
        Region::anonymous(options.size_bytes),
        &superblock,
        Content::Anybodys,
    )
    .image()
}

fn open(region: &Arc<Region>) -> PmemStore {
    let store = PmemStore::open_region(Arc::clone(region), Mode::ReadWrite).expect("a sound pool");
    store.install(store.rebuild().expect("sound"), Options::default());
    store.mark_mounted();
    store
}

/// Mounts the pool, stores a word, and cuts the power before the record's fence, when only the words of its line that are in `survivors` have arrived.
fn torn(image: &[u8], place: u64, survivors: u32) -> Vec<u8> {
    let region = Arc::new(Region::emulated_from(image));
    let store = open(&region);
    let (send, images) = mpsc::channel();
    let emulator = region.emulator().expect("emulated");
    emulator.on_fence(move |fence| {
        if fence.moment() == Moment::Before {
            let point = fence.crash_point();
            let [line] = &point.pending[..] else {
                panic!("something else than the record is on its way: {point:?}");
            };
            assert_eq!(line.slots(), line.writes().len(), "each word for itself");
            let arrives = |word: u8| survivors >> word & 1;
            let choice = line.writes().iter().map(|write| arrives(write.word));
            let choice = Choice(choice.collect());
            let _ = send.send(point.image(&choice));
        }
    });
    let mut transaction = store.begin();
    transaction.store_word(store.root_area() + place, place);
    transaction.commit().expect("a small record");
    emulator.ignore_fences();
    images.recv().expect("a commit has a fence")
}

/// Whether two torn records, the second of which adds what the first lacks, ever become the first.
fn is_ever_revived() -> bool {
    let (pool, all) = (new_pool(), (1 << WORDS) - 1);
    (1..all).any(|missing| {
        let first = torn(&pool, PLACES[0], all & !missing);
        let second = torn(&first, PLACES[1], missing);
        let store = open(&Arc::new(Region::from_image(second)));
        // The second may have become whole: both have the same number.
        store.load_word(store.root_area() + PLACES[0]) != 0
    })
}

#[test]
fn what_is_left_of_a_record_is_not_made_whole_by_the_next() {
    let _alone = ONE_AT_A_TIME.lock();
    assert!(!is_ever_revived());
}

#[test]
#[cfg(feature = "deliberate-bugs")]
fn that_would_be_noticed() {
    let _alone = ONE_AT_A_TIME.lock();
    deliberate::set(Some(Bug::KeepTornRecords));
    let is_noticed = is_ever_revived();
    deliberate::set(None);
    assert!(is_noticed);
}
