//! Transactions on a device that fails.

use device::faulty::{Fault, Faulty};
use device::{Device, DeviceBlock, DeviceError, ReadRequest};
use perdure_txn::{
    CommitError, Content, Data, FormatOptions, Metadata, Mode, OpenError, PmemStore, PoolState,
    Store, Transaction, format,
};
use pmem::{BLOCK_BYTES, Offset, Region};
use scatter::Options;
use std::sync::Arc;
use std::time::Duration;

const BLOCKS: u32 = 16;

fn new_region() -> Arc<Region> {
    let options = FormatOptions {
        device_blocks: BLOCKS,
        ..FormatOptions::tiny()
    };
    let superblock = options.superblock().expect("sound options");
    let region = Region::anonymous(options.size_bytes);
    let region = format::write_header(region, &superblock, Content::Anybodys);
    Arc::new(region)
}

fn open(region: &Arc<Region>, device: Option<&Arc<Faulty>>) -> PmemStore {
    let store = PmemStore::open_region(Arc::clone(region), Mode::ReadWrite).expect("a sound pool");
    let store = match device {
        Some(device) => store.with_device(Arc::clone(device) as Arc<dyn Device>, "faulty"),
        None => Ok(store),
    };
    let store = store.expect("its device");
    store.install(store.rebuild().expect("sound"), Options::default());
    let device = store.device().expect("the pool has one");
    device.install(device.rebuild());
    store
}

fn pool() -> (Arc<Region>, Arc<Faulty>, PmemStore) {
    let (region, device) = (new_region(), Arc::new(Faulty::new(BLOCKS.into())));
    let store = open(&region, Some(&device));
    (region, device, store)
}

/// Where a test keeps the number of a block, plus one.
fn pointer(store: &PmemStore) -> Offset {
    store.root_area() + 1024
}

/// Puts a block with these bytes on the device and points to it, in one transaction.
fn put(store: &PmemStore, byte: u8) -> Result<DeviceBlock, CommitError> {
    let mut transaction = store.begin();
    let block = transaction.allocate_device(1).expect("room")[0].start;
    transaction.write_device(block, &[byte; BLOCK_BYTES])?;
    transaction.store_word(pointer(store), block.get() + 1);
    transaction.commit()?;
    Ok(block)
}

fn free(store: &PmemStore, block: DeviceBlock) {
    let mut transaction = store.begin();
    transaction.free_device(block);
    transaction.store_word(pointer(store), 0);
    transaction.commit().expect("a small record");
}

fn read(store: &PmemStore, block: DeviceBlock) -> Result<u8, DeviceError> {
    let mut into = [0; BLOCK_BYTES];
    let device = store.device().expect("the pool has one");
    let into = &mut into;
    let outcome = device.read(&mut [ReadRequest { block, into }]);
    outcome.map_err(|fault| {
        assert_eq!(fault.block, block, "{fault}");
        fault.error
    })?;
    Ok(into[0])
}

fn free_blocks(store: &PmemStore) -> u64 {
    store.device().expect("the pool has one").free_blocks()
}

#[test]
fn what_is_committed_is_on_the_device() {
    let (region, device, store) = pool();
    let block = put(&store, 7).expect("good");
    assert_eq!(read(&store, block), Ok(7));
    assert_eq!(free_blocks(&store), u64::from(BLOCKS) - 1);
    drop(store);
    // A power cut that takes all that was not flushed.
    let device = Arc::new(device.cut(1));
    let store = open(&region, Some(&device));
    assert_eq!(store.load_word(pointer(&store)), block.get() + 1);
    assert_eq!(read(&store, block), Ok(7));
}

#[test]
fn whatever_fails_before_the_record_nothing_happened() {
    for fault in [Fault::Write, Fault::Wait, Fault::Flush] {
        let (_region, device, store) = pool();
        device.arm(fault, 0);
        let outcome = put(&store, 7);
        assert!(matches!(outcome, Err(CommitError::Device(_))), "{fault:?}");
        assert_eq!(store.load_word(pointer(&store)), 0, "{fault:?}");
        assert_eq!(free_blocks(&store), u64::from(BLOCKS), "{fault:?}");
        put(&store, 8).expect("good again");
    }
}

#[test]
fn other_bytes_are_never_served() {
    for fault in [Fault::Torn, Fault::Lost, Fault::Misdirected] {
        let (_region, device, store) = pool();
        device.arm(fault, 0);
        let block = put(&store, 7).expect("nobody says so");
        assert_eq!(
            read(&store, block),
            Err(DeviceError::OtherBytes),
            "{fault:?}"
        );
    }
    let (_region, device, store) = pool();
    let block = put(&store, 7).expect("good");
    device.arm(Fault::Stale, 0);
    assert_eq!(read(&store, block), Err(DeviceError::OtherBytes));
    assert_eq!(read(&store, block), Ok(7), "the next read is a good one");
    device.arm(Fault::Read, 0);
    assert_eq!(read(&store, block), Ok(7), "a block is asked for twice");
    device.flip(block, 4_711);
    assert_eq!(read(&store, block), Err(DeviceError::OtherBytes));
}

#[test]
fn a_freed_block_waits_for_its_record_and_its_readers() {
    let (_region, _device, store) = pool();
    let block = put(&store, 1).expect("good");
    let pool_device = store.device().expect("the pool has one");
    let reader = pool_device.pin();
    free(&store, block);
    // All others, so that this one is missing.
    let mut others = store.begin();
    others.allocate_device(BLOCKS - 1).expect("room");
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let runs = store.begin().allocate_device(1);
            runs.expect("the reader has left")[0].start
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!taker.is_finished(), "a reader has a pin");
        assert_eq!(read(&store, block), Ok(1));
        drop(reader);
        assert_eq!(taker.join().expect("no panic"), block);
    });
}

#[test]
fn a_pool_works_without_its_device() {
    let (region, device, store) = pool();
    let block = put(&store, 3).expect("good");
    drop(store);
    let store = open(&region, None);
    assert_eq!(read(&store, block), Err(DeviceError::Missing));
    let mut transaction = store.begin();
    transaction.store_word(pointer(&store) + 8, 5);
    transaction.commit().expect("metadata works");
    drop(transaction);
    assert!(matches!(put(&store, 4), Err(CommitError::Device(_))));
    assert_eq!(free_blocks(&store), u64::from(BLOCKS));
    drop(store);
    let store = open(&region, Some(&device));
    assert_eq!(read(&store, block), Ok(3));
    // A device that goes and comes back.
    device.set_gone(true);
    assert_eq!(read(&store, block), Err(DeviceError::Missing));
    device.set_gone(false);
    assert_eq!(read(&store, block), Ok(3));
}

#[test]
fn another_device_is_refused() {
    let region = new_region();
    let small = Arc::new(Faulty::new(u64::from(BLOCKS) - 1));
    let store = PmemStore::open_region(region, Mode::ReadWrite).expect("a sound pool");
    let error = store.with_device(small, "small").expect_err("too small");
    assert!(
        matches!(
            error,
            OpenError::Device {
                expected_blocks: 16,
                ..
            }
        ),
        "{error}"
    );
}
