//! Tests of transactions: room after a checkpoint, data that a record checks.

use super::*;
use crate::sharing::Content;
use crate::store::{Metadata, PoolState, Segments, Store};
use crate::{Disks, Domain, Durability, FormatOptions, Mode, format};
use pmem::{Counters, DurabilityClass, Region};
use scatter::{Options, Rebuild, SegmentNumber};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use wal::testing::SimulatedDisk;

fn store() -> PmemStore {
    let options = FormatOptions::tiny();
    let superblock = options.superblock().expect("sound options");
    let region = format::write_header(
        Region::anonymous(options.size_bytes),
        &superblock,
        Content::Anybodys,
    );
    let store = PmemStore::open_region(region, Mode::ReadWrite).expect("a new pool");
    let rebuild: Rebuild = store.rebuild().expect("sound journals");
    store.install(rebuild, Options::default());
    store
}

/// Counts the fences of a transaction that writes a block and then changes the word at `change`.
fn fences(change: impl Fn(BlockNumber) -> Offset) -> u64 {
    let store = store();
    let mut transaction = store.begin();
    let block = transaction
        .allocate_one(DomainId::METADATA, Purpose::Ordinary)
        .expect("an empty pool");
    transaction.write_fresh(block, 0, &[7; BLOCK_BYTES]);
    let at = change(block);
    transaction.store_word(at, 9);
    let before = Counters::snapshot();
    transaction.commit().expect("a small record");
    drop(transaction);
    assert_eq!(store.load_word(at), 9);
    // Only the journals survive: recovery has to accept the record.
    let region = store.into_region().expect("nobody else has it");
    let fences = Counters::snapshot().fences - before.fences;
    let store = PmemStore::open_region(region, Mode::ReadWrite).expect("a sound pool");
    assert_eq!(store.recovered_records(), 1);
    assert_eq!(store.load_word(at), 9);
    fences
}

#[test]
fn a_block_of_data_shares_the_fence_of_its_record() {
    assert_eq!(fences(|block| (block + 1).offset()), 1);
}

#[test]
fn data_that_is_changed_besides_has_a_fence_of_its_own() {
    assert_eq!(fences(|block| block.offset() + 64), 2);
}

/// A user's block of a store, and its segment.
fn users_block(store: &PmemStore) -> (BlockNumber, SegmentNumber) {
    let own = store.domain_number(Domain::of_file(0o600, 1000, 1000));
    let mut transaction = store.begin();
    let block = transaction
        .allocate_one(own, Purpose::Ordinary)
        .expect("room");
    transaction.write_fresh(block, 0, &[7; BLOCK_BYTES]);
    // One of the thread's own, because it holds no lock.
    let word = store.root_area() + (thread_slot() % 64) as u64 * 8;
    transaction.store_word(word, 9);
    transaction.commit().expect("a small record");
    let segment = store.allocator().geometry().segment_of(block);
    (block, segment.expect("in a segment"))
}

#[test]
fn data_that_a_process_has_is_fenced_before_its_record() {
    let store = store();
    let fences = || {
        let before = Counters::snapshot();
        let (_, segment) = users_block(&store);
        (Counters::snapshot().fences - before.fences, segment)
    };
    // The first one takes a segment.
    fences();
    let (count, segment) = fences();
    assert_eq!(count, 1);
    let is_there = |block| store.segment_of(block) == Some(segment);
    assert!(store.journals().checks_any(is_there));
    assert!(store.hand_out(segment).is_some());
    store.prepare(segment, u64::MAX);
    assert!(!store.journals().checks_any(is_there));
    assert_eq!(fences(), (2, segment));
    assert!(!store.journals().checks_any(is_there));
    store.take_in(segment);
    assert_eq!(fences(), (1, segment));
}

/// Of class `log` no process writes a segment, and the log knows data by the check of its record.
#[test]
fn with_a_log_a_segment_that_a_process_has_is_as_any_other() {
    let options = FormatOptions {
        volatile: false,
        log: true,
        ..FormatOptions::tiny()
    };
    let superblock = options.superblock().expect("sound options");
    let memory = Region::anonymous_of(options.size_bytes, DurabilityClass::Log);
    let region = format::write_header(memory, &superblock, Content::Nobodys);
    let disks = Disks {
        log: Arc::new(SimulatedDisk::new(18 * wal::UNIT_BYTES)),
        image: Arc::new(SimulatedDisk::new(region.length() as usize)),
    };
    disks.format(&region).expect("room");
    let late = Durability::Fsync(Duration::from_secs(60));
    let store = PmemStore::open_disks(&disks, None, late).expect("a new pool");
    store.install(store.rebuild().expect("sound"), Options::default());
    let (block, segment) = users_block(&store);
    let is_there = |block| store.segment_of(block) == Some(segment);
    assert!(store.hand_out(segment).is_some() && is_there(block));
    let before = Counters::snapshot().fences;
    users_block(&store);
    assert_eq!(Counters::snapshot().fences - before, 1);
    let mut transaction = store.begin();
    transaction.write_fresh(block, 0, &[8; BLOCK_BYTES]);
    assert!(transaction.record.checked_block().is_some() && !transaction.checks_held_data());
}

/// While a process has a segment mapped, no record is validated by data in that segment.
#[test]
fn a_process_never_has_what_a_record_is_judged_by() {
    let store = store();
    let (_, segment) = users_block(&store);
    let is_over = AtomicBool::new(false);
    let (mut seen, mut judged) = (0, 0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let (block, _) = users_block(&store);
                    let mut transaction = store.begin();
                    transaction.free(Extent {
                        start: block,
                        blocks: 1,
                    });
                    transaction.commit().expect("a small record");
                }
            });
        }
        let is_there = |block| store.segment_of(block) == Some(segment);
        let begin = Instant::now();
        let mut round = 0;
        // On a busy machine the writers may not run in the first seconds.
        let is_early = |seen| seen == 0 && begin.elapsed() < Duration::from_secs(60);
        while begin.elapsed() < Duration::from_secs(2) || is_early(seen) {
            round += 1;
            // One whose records were judged by it meanwhile.
            seen += u64::from(store.journals().checks_any(is_there));
            if store.hand_out(segment).is_none() {
                continue;
            }
            store.prepare(segment, u64::MAX);
            for _ in 0..round % 64 {
                judged += u64::from(store.journals().checks_any(is_there));
            }
            store.take_in(segment);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(seen > 0, "nothing was written meanwhile");
    assert_eq!(judged, 0);
}

/// Returns an argument for `take_freed` that fails `times` times. Before each failure it runs
/// `meanwhile`, which stands for another thread.
fn refused<'a>(
    times: u32,
    meanwhile: impl Fn() + 'a,
) -> impl Fn(&Allocator) -> Result<(), OutOfSpace> + 'a {
    let left = Cell::new(times);
    move |_| {
        if left.get() == 0 {
            return Ok(());
        }
        left.set(left.get() - 1);
        meanwhile();
        Err(OutOfSpace {
            requested: 1,
            free: 0,
            reserved: 0,
        })
    }
}

/// Does what an overwriting thread does: takes a block, frees another, and commits.
fn overwrite(store: &PmemStore, block: &Cell<BlockNumber>) {
    let mut transaction = store.begin();
    let fresh = transaction
        .allocate_one(DomainId::METADATA, Purpose::Overwrite)
        .expect("an empty pool");
    transaction.store_word(fresh.offset(), 1);
    transaction.free(Extent {
        start: block.replace(fresh),
        blocks: 1,
    });
    transaction.commit().expect("a small record");
}

#[test]
fn an_overwrite_looks_for_room_as_long_as_others_commit() {
    let store = store();
    let mut transaction = store.begin();
    let block = transaction
        .allocate_one(DomainId::METADATA, Purpose::Ordinary)
        .expect("an empty pool");
    transaction.store_word(block.offset(), 1);
    transaction.commit().expect("a small record");
    let block = Cell::new(block);
    let mut request = store.begin();
    let outcome = request.take_freed(
        Purpose::Overwrite,
        refused(100, || overwrite(&store, &block)),
    );
    assert!(outcome.is_ok());
    // The checkpoint finds nothing, and another thread takes and frees before this one looks.
    store.checkpoint();
    let outcome = request.take_freed(Purpose::Ordinary, refused(1, || overwrite(&store, &block)));
    assert!(outcome.is_ok());
    // Nothing was freed and nothing committed: there is no room.
    store.checkpoint();
    let outcome = request.take_freed(Purpose::Overwrite, refused(1, || ()));
    assert!(outcome.is_err());
}
