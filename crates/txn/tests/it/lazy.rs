//! Memory that is used while the image is read into it: each block is right whenever it is looked
//! at, and changes stay.

use crate::disk::{LATE, Pool, logger, set, value};
use perdure_txn::{Loading, Metadata, PmemStore, PoolState, Store, Transaction};
use pmem::{BLOCK_BYTES, Offset};
use scatter::{DomainId, Purpose};
use std::process::Command;
use std::time::{Duration, Instant};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn pattern(block: u64) -> [u8; BLOCK_BYTES] {
    let mut bytes = [0; BLOCK_BYTES];
    for (index, word) in bytes.chunks_mut(8).enumerate() {
        word.copy_from_slice(&((block << 16) + index as u64 + 1).to_le_bytes());
    }
    bytes
}

/// A pool whose free blocks have patterns in the image, and these blocks.
fn patterned() -> (Pool, Vec<u64>) {
    let pool = Pool::new();
    let image = pool.image.image();
    // Journals lie in the first half.
    let first = (image.len() / BLOCK_BYTES / 2) as u64;
    let mut blocks = Vec::new();
    for (block, bytes) in (0..).zip(image.chunks(BLOCK_BYTES)) {
        // Each eighth stays zero.
        if block >= first && bytes.iter().all(|&byte| byte == 0) && block % 8 != 3 {
            let content = pattern(block);
            let change = |bytes: &mut [u8]| bytes[..BLOCK_BYTES].copy_from_slice(&content);
            pool.image.damage((block * BLOCK) as usize, change);
            blocks.push(block);
        }
    }
    assert!(blocks.len() > 100);
    (pool, blocks)
}

fn open_lazily(pool: &Pool, loading: Loading) -> PmemStore {
    PmemStore::open_disks_lazily(&pool.disks(), loading, LATE).expect("a sound pool")
}

fn at(block: u64) -> Offset {
    Offset::new(block * BLOCK)
}

/// In an order that has nothing to do with their places.
fn shuffled(blocks: &[u64]) -> Vec<u64> {
    let mut keyed: Vec<_> = blocks
        .iter()
        .map(|&block| (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7, block))
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, block)| block).collect()
}

fn load_rest(store: &PmemStore) {
    logger(store).rest()();
    let begin = Instant::now();
    while logger(store).status().unloaded_bytes > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "it never ends");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many blocks are wrong, if they are looked at in any order by several threads.
fn wrong_when_read(store: &PmemStore, blocks: &[u64]) -> usize {
    let order = shuffled(blocks);
    let count = |blocks: &[u64]| {
        let is_wrong = |block: &&u64| !store.region().equals(at(**block), &pattern(**block));
        blocks.iter().filter(is_wrong).count()
    };
    std::thread::scope(|scope| {
        let parts = order.chunks(order.len().div_ceil(3));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || count(part))).collect();
        threads
            .into_iter()
            .map(|it| it.join().expect("counted"))
            .sum()
    })
}

#[test]
fn each_block_is_right_when_it_is_looked_at() {
    let (pool, blocks) = patterned();
    let store = open_lazily(&pool, Loading::Demand);
    let absent = logger(&store).status().unloaded_bytes;
    assert!(absent > 0, "all was loaded first");
    store.mark_mounted();
    assert_eq!(wrong_when_read(&store, &blocks), 0);
    let status = logger(&store).status();
    assert!(status.load_waits > 0);
    assert_eq!(status.unloaded_bytes, absent, "nobody asked for the rest");
    load_rest(&store);
    assert_eq!(wrong_when_read(&store, &blocks), 0);
    let zeros = [0; BLOCK_BYTES];
    let is_zero = |block: &u64| !blocks.contains(block) && block % 8 == 3;
    for block in (blocks[0]..store.region().length() / BLOCK).filter(is_zero) {
        assert!(store.region().equals(at(block), &zeros));
    }
}

/// Changes blocks in all ways before they are loaded, and returns how many are wrong afterwards.
fn wrong_after_changes(begins: impl Fn(&PmemStore)) -> usize {
    let (pool, blocks) = patterned();
    let store = open_lazily(&pool, Loading::Background);
    let order = shuffled(&blocks);
    let region = store.region();
    let (words, rest) = order.split_at(30);
    let whole = &rest[..30];
    for &block in words {
        region.store_u64(at(block) + 512, 7).leave_to_checkpoint();
    }
    for &block in whole {
        region
            .store(at(block), &[9; BLOCK_BYTES])
            .leave_to_checkpoint();
    }
    begins(&store);
    load_rest(&store);
    let expected = |block: u64| {
        let mut bytes = pattern(block);
        if words.contains(&block) {
            bytes[512..520].copy_from_slice(&7_u64.to_le_bytes());
        }
        if whole.contains(&block) {
            bytes = [9; BLOCK_BYTES];
        }
        bytes
    };
    let is_wrong = |block: &&u64| !region.equals(at(**block), &expected(**block));
    blocks.iter().filter(is_wrong).count()
}

#[test]
fn changes_stay_when_the_rest_is_loaded() {
    assert_eq!(wrong_after_changes(|store| store.mark_mounted()), 0);
}

#[test]
fn memory_is_that_of_a_pool_that_is_loaded_first() {
    let pool = Pool::new();
    let store = pool.open(LATE);
    for number in 0..6 {
        set(&store, number);
        let mut transaction = store.begin();
        let block = transaction.allocate_one(DomainId::METADATA, Purpose::Ordinary);
        let block = block.expect("room");
        transaction.write_fresh(block, 0, &pattern(number));
        transaction.store_word(store.root_area() + 512 + number * 8, block.get());
        transaction.commit().expect("a small record");
        if number == 2 {
            logger(&store).sync().expect("a disk that works");
            logger(&store).checkpoint().expect("disks that work");
        }
    }
    logger(&store).sync().expect("a disk that works");
    let (first, second) = (pool.after_power_failure(), pool.after_power_failure());
    drop(store);
    let first = first.open(LATE);
    let second = open_lazily(&second, Loading::Demand);
    assert_eq!((value(&first), value(&second)), (5, 5));
    assert!(first.region().image() == second.region().image());
    load_rest(&second);
    assert!(first.region().image() == second.region().image());
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn a_block_that_is_loaded_over_changes_is_noticed() {
    use pmem::deliberate::{self, Bug};
    deliberate::set(Some(Bug::LoadOverChanges));
    let wrong = wrong_after_changes(|store| store.mark_mounted());
    deliberate::set(None);
    assert!(wrong > 0);
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn blocks_that_count_as_loaded_and_are_not_are_noticed() {
    use pmem::deliberate::{self, Bug};
    let (pool, blocks) = patterned();
    deliberate::set(Some(Bug::CountUnread));
    let store = open_lazily(&pool, Loading::Demand);
    let wrong = wrong_when_read(&store, &blocks);
    deliberate::set(None);
    assert!(wrong > 0);
}

/// Looks at a block that the disk cannot read. Never returns.
fn look_at_unreadable() -> ! {
    let (pool, blocks) = patterned();
    let bad = blocks[blocks.len() / 2];
    pool.image.set_unreadable(bad * BLOCK..(bad + 1) * BLOCK);
    let store = open_lazily(&pool, Loading::Background);
    let others: Vec<u64> = blocks.into_iter().filter(|&block| block != bad).collect();
    // Those beside it are read without it.
    assert_eq!(wrong_when_read(&store, &others), 0);
    store.mark_mounted();
    println!("others are right");
    let word = store.region().load_u64(at(bad));
    panic!("a block that cannot be read is {word}");
}

#[test]
fn an_access_to_a_block_that_cannot_be_read_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    const CHILD: &str = "PERDURE_TEST_LOOKS_AT_UNREADABLE";
    if std::env::var_os(CHILD).is_some() {
        look_at_unreadable();
    }
    let program = std::env::current_exe().expect("a path");
    let name = "lazy::an_access_to_a_block_that_cannot_be_read_ends_the_process";
    let mut child = Command::new(program);
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    let output = child.output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("others are right"), "{said}");
    let signals = [libc::SIGBUS, libc::SIGABRT].map(Some);
    assert!(signals.contains(&output.status.signal()), "{output:?}");
}
