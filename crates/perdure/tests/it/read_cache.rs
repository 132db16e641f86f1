//! Copies of hot blocks in DRAM: what is read is always the file.

use crate::common::{Place, small};
use perdure::{AccessTime, File, Pool, PoolOptions, ReadCacheMode, ReadCacheOptions};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 3;

/// Every block that is read is hot.
fn eager() -> ReadCacheOptions {
    ReadCacheOptions {
        mode: ReadCacheMode::On,
        budget_bytes: 1 << 20,
        threshold: 1,
        window_ms: 60_000,
    }
}

/// Reads do not renew the access time: one that does counts no miss.
fn open(place: &Place, cache: ReadCacheOptions) -> Pool {
    let options = PoolOptions::new().access_time(AccessTime::Never);
    let opened = options.read_cache(cache).open(place.pool_path());
    opened.expect("opened")
}

/// Reads the whole file block by block, which holds `byte` everywhere.
fn read_all(file: &File, byte: u8) {
    for block in 0..BLOCKS {
        let mut bytes = [0; BLOCK];
        file.read_exact_at(&mut bytes, block * BLOCK as u64)
            .expect("read");
        assert_eq!(bytes, [byte; BLOCK], "block {block}");
    }
}

/// Reads the file until all its blocks come from DRAM; how many times.
fn read_until_copied(pool: &Pool, file: &File, byte: u8) -> u64 {
    let begin = Instant::now();
    for rounds in 1.. {
        let hits = pool.read_cache_statistics().expect("a cache").hits;
        read_all(file, byte);
        let after = pool.read_cache_statistics().expect("a cache").hits;
        if after - hits == BLOCKS {
            return rounds;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "nothing copied");
        std::thread::sleep(Duration::from_millis(1));
    }
    unreachable!("rounds never end")
}

#[test]
fn hot_blocks_come_from_dram_until_they_are_written() {
    let place = Place::new();
    small().format(place.pool_path()).expect("a new pool");
    let pool = open(&place, eager());
    assert_eq!(pool.read_cache().budget_bytes, Some(1 << 20));
    pool.write("file", [1; BLOCK * BLOCKS as usize])
        .expect("written");
    let file = File::options()
        .read(true)
        .write(true)
        .open(&pool, "file")
        .expect("opened");
    let before = pool.read_cache_statistics().expect("a cache");
    let mut reads = read_until_copied(&pool, &file, 1);

    for byte in 2..10 {
        file.write_at(&[byte; BLOCK * BLOCKS as usize], 0)
            .expect("written");
        read_all(&file, byte);
        reads += 1 + read_until_copied(&pool, &file, byte);
    }
    file.set_len(BLOCK as u64).expect("cut");
    file.set_len(BLOCKS * BLOCK as u64).expect("grown");
    let mut bytes = [1; BLOCK];
    file.read_exact_at(&mut bytes, BLOCK as u64).expect("read");
    assert_eq!(bytes, [0; BLOCK], "what was cut off is not read again");

    let after = pool.read_cache_statistics().expect("a cache");
    let counted = after.hits + after.misses - before.hits - before.misses;
    assert_eq!(counted, reads * BLOCKS, "{after:?}");
    assert!(after.invalidations >= 8 * BLOCKS, "{after:?}");
    assert!(after.fills >= 9 * BLOCKS, "{after:?}");
    let files = pool.read_cache_files();
    let [only] = files.as_slice() else {
        panic!("one file was read: {files:?}")
    };
    assert_eq!(only.file, file.metadata().expect("metadata").ino());
    assert_eq!(only.hits, after.hits);
    assert_eq!(only.bytes, after.bytes);

    drop(file);
    pool.close().expect("closed with copies");
    let again = open(&place, ReadCacheOptions::default());
    assert!(again.was_clean());
    assert_eq!(again.read_cache().budget_bytes, None);
    assert_eq!(again.read_cache_statistics(), None);
    assert!(again.read_cache_files().is_empty());
}

#[test]
fn by_default_the_medium_decides() {
    let place = Place::new();
    for pool in [place.create(), {
        small()
            .format(place.directory.path().join("other"))
            .expect("a new pool");
        Pool::open(place.directory.path().join("other")).expect("opened")
    }] {
        let state = pool.read_cache();
        let speed = state.speed.expect("the medium was measured");
        assert!(speed.medium_ns > 0.0 && speed.dram_ns > 0.0, "{state}");
        assert_eq!(
            pool.read_cache_statistics().is_some(),
            state.budget_bytes.is_some()
        );
        pool.write("file", [7; BLOCK]).expect("written");
        for _ in 0..10 {
            assert_eq!(pool.read("file").expect("read"), [7; BLOCK]);
        }
        pool.close().expect("closed");
    }
}
