//! The whole cache under load, without files: blocks whose versions are counted, tables that change their size all the time, too few pages.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pmem::{BLOCK_BYTES, BlockNumber};

use crate::table::Table;
use crate::{FileCache, Memory, Options, ReadCache};

const BLOCKS: usize = 256;

/// A medium of blocks, each filled with its version.
struct Medium {
    /// Odd while the block changes, twice its version otherwise.
    sequences: Vec<AtomicU64>,
    blocks: Vec<[AtomicU64; 2]>,
}

impl Medium {
    fn new() -> Arc<Medium> {
        Arc::new(Medium {
            sequences: (0..BLOCKS).map(|_| AtomicU64::new(0)).collect(),
            blocks: (0..BLOCKS).map(|_| Default::default()).collect(),
        })
    }

    /// Both ends of the block as the medium has them, all else as the left end.
    fn fetch(&self, home: u64, into: &mut [u8; BLOCK_BYTES]) {
        let [left, right] = &self.blocks[home as usize];
        let (left, right) = (left.load(Ordering::Relaxed), right.load(Ordering::Relaxed));
        for word in into.chunks_exact_mut(8) {
            word.copy_from_slice(&left.to_le_bytes());
        }
        into[BLOCK_BYTES - 8..].copy_from_slice(&right.to_le_bytes());
    }
}

fn options(pages: u64) -> Options {
    Options {
        threshold: 1,
        memory: Box::new(|| None),
        ..Options::new(pages * BLOCK_BYTES as u64)
    }
}

fn begin(medium: &Arc<Medium>, options: Options) -> ReadCache {
    let medium = Arc::clone(medium);
    let source =
        move |home: BlockNumber, into: &mut [u8; BLOCK_BYTES]| medium.fetch(home.get(), into);
    ReadCache::begin(options, Box::new(source)).expect("a cache")
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("8 bytes"))
}

fn step(random: &mut u64) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) as usize
}

struct Load {
    medium: Arc<Medium>,
    cache: ReadCache,
    file: OnceLock<Arc<FileCache>>,
    stop: AtomicBool,
}

impl Load {
    fn write(&self, seed: u64) {
        let mut random = seed;
        while !self.stop.load(Ordering::Relaxed) {
            let block = step(&mut random) % BLOCKS;
            let sequence = &self.medium.sequences[block];
            let now = sequence.load(Ordering::Relaxed);
            sequence.store(now + 1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let version = now / 2 + 1;
            self.medium.blocks[block][0].store(version, Ordering::Relaxed);
            self.medium.blocks[block][1].store(version, Ordering::Relaxed);
            if let Some(file) = self.file.get() {
                file.invalidate(block as u64, 1);
            }
            sequence.store(now + 2, Ordering::Release);
            for _ in 0..step(&mut random) % 64 {
                std::hint::spin_loop();
            }
        }
    }

    fn read(&self, seed: u64) -> u64 {
        let mut random = seed;
        let mut bytes = [0; BLOCK_BYTES];
        let mut checked = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let block = step(&mut random) % BLOCKS;
            let sequence = &self.medium.sequences[block];
            let before = sequence.load(Ordering::Acquire);
            if before % 2 == 1 {
                continue;
            }
            let is_current = || {
                fence(Ordering::Acquire);
                sequence.load(Ordering::Relaxed) == before
            };
            let held = self
                .file
                .get()
                .filter(|_| step(&mut random).is_multiple_of(4));
            let held = held.and_then(|file| file.hold(block as u64));
            let found = match (&held, self.file.get()) {
                (Some(page), _) => Some((word(page.bytes(), 0), word(page.bytes(), 511))),
                (None, Some(file)) if file.read(block as u64, 0, &mut bytes) => {
                    Some((word(&bytes, 0), word(&bytes, 511)))
                }
                _ => None,
            };
            match found {
                Some(found) if is_current() => {
                    assert_eq!(found, (before / 2, before / 2), "block {block}");
                    checked += 1;
                }
                Some(_) => {}
                None if step(&mut random).is_multiple_of(2) => {
                    let home = BlockNumber::new(block as u64);
                    self.cache
                        .missed(&self.file, 1, block as u64, home, is_current);
                }
                None => {
                    self.medium.fetch(block as u64, &mut bytes);
                    self.cache
                        .fetched(&self.file, 1, block as u64, &bytes, is_current);
                }
            }
        }
        checked
    }
}

#[test]
fn nothing_stale_or_torn_while_tables_change_and_pages_are_few() {
    let medium = Medium::new();
    let load = Load {
        cache: begin(&medium, options(100)),
        medium,
        file: OnceLock::new(),
        stop: AtomicBool::new(false),
    };
    let (checked, resized) = std::thread::scope(|scope| {
        let load = &load;
        // One writer for each block is what an inode's lock makes sure of; here there is one for all.
        scope.spawn(|| load.write(3));
        let readers: Vec<_> = (0..2)
            .map(|reader| scope.spawn(move || load.read(100 + reader)))
            .collect();
        let end = Instant::now() + Duration::from_secs(3);
        let mut resized = 0_u64;
        while Instant::now() < end && !readers.iter().any(|reader| reader.is_finished()) {
            if let Some(file) = load.file.get() {
                let level = 3 + resized as usize % 8;
                resized += u64::from(file.ask_to_resize(level));
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        load.stop.store(true, Ordering::Relaxed);
        let checked: u64 = readers
            .into_iter()
            .map(|reader| reader.join().expect("sound"))
            .sum();
        (checked, resized)
    });
    let statistics = load.cache.statistics();
    println!("{checked} copies checked, {resized} changes of tables, {statistics:?}");
    assert!(
        checked > 10_000 && resized > 100,
        "{checked}, {resized}, {statistics:?}"
    );
    assert!(
        statistics.evictions > 0 && statistics.invalidations > 0,
        "{statistics:?}"
    );
    // No page is lost: all come back with the file, which the background thread may hold for a moment.
    let Load { cache, file, .. } = load;
    drop(file);
    wait_for("all pages come back", &|| cache.statistics().bytes == 0);
}

fn wait_for(what: &str, is_so: &dyn Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a slow store has fetched becomes the copy at once, without the background thread.
#[test]
fn fetched_bytes_become_copies() {
    let medium = Medium::new();
    let cache = begin(
        &medium,
        Options {
            threshold: 2,
            ..options(8)
        },
    );
    let file = OnceLock::new();
    let fetched = [7; BLOCK_BYTES];
    cache.fetched(&file, 1, 3, &fetched, || true);
    assert!(file.get().is_none(), "once is not hot");
    cache.fetched(&file, 1, 3, &fetched, || true);
    let copies = file.get().expect("copies");
    let mut bytes = [0; 100];
    assert!(copies.read(3, 50, &mut bytes));
    assert_eq!(bytes, [7; 100]);
    cache.fetched(&file, 1, 4, &fetched, || true);
    cache.fetched(&file, 1, 4, &fetched, || false);
    assert!(
        !copies.read(4, 0, &mut bytes),
        "it was not current any more"
    );
    copies.invalidate(3, 1);
    assert!(!copies.read(3, 0, &mut bytes));
    let statistics = cache.statistics();
    assert_eq!((statistics.fills, statistics.invalidations), (1, 1));
    assert_eq!((statistics.hits, statistics.misses), (1, 4));
}

/// Somebody takes hold of a page between the look at its entry and the move to another table. The page cannot move then, and must not be a copy any more: no write looks into
/// the old table again, which becomes the current one some day.
#[test]
fn a_page_that_is_held_when_it_should_move_is_no_copy_any_more() {
    let medium = Medium::new();
    let cache = begin(&medium, options(8));
    let file = OnceLock::new();
    let fetched = [7; BLOCK_BYTES];
    cache.fetched(&file, 1, 3, &fetched, || true);
    let copies: &Arc<FileCache> = file.get().expect("copies");
    let table = copies.current_table();
    let (entry, seen) = table.find(3).expect("a copy");
    let held = copies.hold(3).expect("it can be held");
    copies.move_seen(entry, seen, &Table::new(3));
    assert!(table.find(3).is_none(), "while it is held");
    assert_eq!(held.bytes(), fetched);
    drop(held);
    assert!(table.find(3).is_none(), "afterwards");
    assert_eq!(entry.word().frame(), None, "the page went back");
}

/// A machine that is short of memory gets pages back; when that is over the cache may grow again.
#[test]
fn memory_is_given_back_under_pressure() {
    let medium = Medium::new();
    let is_short = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_short);
    let memory = move || {
        let available_bytes = if seen.load(Ordering::Relaxed) {
            1 << 20
        } else {
            900 << 20
        };
        Some(Memory {
            available_bytes,
            total_bytes: 1 << 30,
        })
    };
    let cache = begin(
        &medium,
        Options {
            memory: Box::new(memory),
            ..options(BLOCKS as u64)
        },
    );
    let file = OnceLock::new();
    let fill = || {
        for block in 0..BLOCKS as u64 {
            cache.missed(&file, 1, block, BlockNumber::new(block), || true);
        }
    };
    let all = (BLOCKS * BLOCK_BYTES) as u64;
    wait_for("all blocks are copied", &|| {
        fill();
        cache.statistics().bytes == all
    });
    is_short.store(true, Ordering::Relaxed);
    wait_for("the pages are given back", &|| {
        cache.statistics().bytes == 0
    });
    assert_eq!(cache.statistics().limit_bytes, 0);
    fill();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(cache.statistics().bytes, 0, "nothing is copied meanwhile");
    is_short.store(false, Ordering::Relaxed);
    wait_for("it grows again", &|| {
        fill();
        cache.statistics().limit_bytes == all && cache.statistics().bytes == all
    });
}

/// What is read more often than the rest of a scan stays.
#[test]
fn the_oldest_go_first() {
    let medium = Medium::new();
    let cache = begin(&medium, options(64));
    let file = OnceLock::new();
    let mut bytes = [0; 8];
    let mut lost = 0;
    for round in 0..400_u64 {
        let hot = round % 16;
        for block in [hot, 16 + round % 240] {
            let home = BlockNumber::new(block);
            let is_there = file
                .get()
                .is_some_and(|file: &Arc<FileCache>| file.read(block, 0, &mut bytes));
            lost += u64::from(!is_there && block == hot && round >= 64);
            if !is_there {
                cache.missed(&file, 1, block, home, || true);
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    let statistics = cache.statistics();
    assert!(statistics.evictions >= 100, "{statistics:?}");
    assert!(
        lost <= 8,
        "{lost} of 336 reads of hot blocks found no copy; {statistics:?}"
    );
}
