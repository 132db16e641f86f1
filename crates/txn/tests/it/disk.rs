//! Pools of class `log` on simulated disks: journals that were cut, hostile batches, disks that
//! fail, a ring that is full.

use parking_lot::Mutex;
use perdure_txn::{
    Content, Disks, Durability, FormatOptions, Metadata, OpenError, PmemStore, PoolState, Store,
    Transaction, format,
};
use pmem::{BLOCK_BYTES, DurabilityClass, Offset, Region};
use scatter::Options;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use wal::testing::SimulatedDisk;
use wal::{Disk, OpenLog, UNIT_BYTES};

pub(crate) const UNITS: usize = 16;
/// No thread writes batches here, so nothing is durable before a sync.
pub(crate) const LATE: Durability = Durability::Fsync(Duration::from_secs(60));

pub(crate) struct Pool {
    pub(crate) log: Arc<SimulatedDisk>,
    pub(crate) image: Arc<SimulatedDisk>,
}

impl Pool {
    pub(crate) fn new() -> Pool {
        let options = FormatOptions {
            log: true,
            volatile: false,
            ..FormatOptions::tiny()
        };
        let superblock = options.superblock().expect("sound options");
        let memory = Region::anonymous_of(options.size_bytes, DurabilityClass::Log);
        let region = format::write_header(memory, &superblock, Content::Anybodys);
        let pool = Pool {
            log: Arc::new(SimulatedDisk::new((2 + UNITS) * UNIT_BYTES)),
            image: Arc::new(SimulatedDisk::new(region.length() as usize)),
        };
        pool.disks().format(&region).expect("room");
        pool
    }

    pub(crate) fn disks(&self) -> Disks {
        Disks {
            log: Arc::clone(&self.log) as Arc<dyn Disk>,
            image: Arc::clone(&self.image) as Arc<dyn Disk>,
        }
    }

    pub(crate) fn open(&self, durability: Durability) -> PmemStore {
        open(&self.disks(), durability).expect("a sound pool")
    }

    /// The disks after a power failure that leaves durable sectors only.
    pub(crate) fn after_power_failure(&self) -> Pool {
        let least = |disk: &SimulatedDisk| {
            let mut first = None;
            disk.for_each_crash(&mut |_, image| {
                first.get_or_insert_with(|| image.to_vec());
            });
            Arc::new(SimulatedDisk::from_image(
                first.expect("one crash at least"),
            ))
        };
        Pool {
            log: least(&self.log),
            image: least(&self.image),
        }
    }
}

pub(crate) fn open(disks: &Disks, durability: Durability) -> Result<PmemStore, OpenError> {
    let store = PmemStore::open_disks(disks, None, durability)?;
    store.install(store.rebuild()?, Options::default());
    Ok(store)
}

fn word(store: &PmemStore) -> Offset {
    store.root_area() + 1024
}

pub(crate) fn set(store: &PmemStore, value: u64) {
    let mut transaction = store.begin();
    transaction.store_word(word(store), value);
    transaction.commit().expect("a small record");
}

pub(crate) fn value(store: &PmemStore) -> u64 {
    store.load_word(word(store))
}

pub(crate) fn logger(store: &PmemStore) -> &perdure_txn::Logger {
    store.logger().expect("a pool with a log")
}

#[test]
fn records_reach_the_log_across_cuts_of_their_journals() {
    let pool = Pool::new();
    let store = pool.open(LATE);
    let mut next = 0;
    let mut change = || {
        next += 1;
        set(&store, next);
    };
    // Cuts beside records that the log has and that it does not have; several cuts between two
    // reads.
    for cuts in [1, 2, 3, 1, 5, 0] {
        change();
        for _ in 0..cuts {
            store.checkpoint();
        }
        change();
        logger(&store).sync().expect("a disk that works");
        for _ in 0..cuts {
            store.checkpoint();
        }
        change();
        change();
        logger(&store).checkpoint().expect("disks that work");
    }
    logger(&store).sync().expect("a disk that works");
    let reopened = pool.after_power_failure().open(LATE);
    assert_eq!(value(&reopened), next);
}

/// A batch whose entries come from an attacker, with sound checks.
fn with_batch(payload: &[u8]) -> Result<PmemStore, OpenError> {
    let pool = Pool::new();
    let uuid = pool.open(LATE).superblock().uuid;
    let disks = pool.after_power_failure().disks();
    let log = OpenLog::open(Arc::clone(&disks.log), uuid).expect("a log");
    let log = log.replay(&mut |_| ()).expect("a log");
    let mut buffer = log.buffer();
    buffer.payload().extend_from_slice(payload);
    let sequence = log.durable_sequence();
    let placed = log
        .place(buffer, sequence + 1, sequence + 1, false)
        .expect("an empty ring");
    log.write(placed).expect("a disk that works");
    drop(log);
    open(&disks, LATE)
}

fn entry(at: u64, length: u64) -> Vec<u8> {
    let mut entry = (at | length << 48).to_le_bytes().to_vec();
    entry.resize(8 + length as usize, 0x5a);
    entry
}

#[test]
fn hostile_batches_are_refused() {
    let pool = Pool::new();
    let store = pool.open(LATE);
    let inside = word(&store).get();
    let end = store.superblock().geometry().total_bytes();
    let second = store.superblock().geometry().second_superblock().get();
    assert_eq!(
        value(&with_batch(&entry(inside, 8)).expect("a sound batch")),
        0x5a5a_5a5a_5a5a_5a5a
    );
    let both = [entry(inside, 8), entry(end, 8)].concat();
    let cases: [(&str, Vec<u8>); 8] = [
        ("the superblock", entry(8, 8)),
        (
            "across the superblock's end",
            entry(BLOCK_BYTES as u64 - 8, 16),
        ),
        ("the second superblock", entry(second + 16, 8)),
        ("behind the end", entry(end, 8)),
        ("across the end", entry(end - 8, 16)),
        ("far behind", entry((1 << 48) - 8, 8)),
        ("a good entry first", both),
        ("half an entry", entry(inside, 16)[..16].to_vec()),
    ];
    for (what, payload) in cases {
        let error = with_batch(&payload).expect_err(what);
        assert!(matches!(error, OpenError::Corrupt(_)), "{what}: {error:?}");
    }
}

#[test]
fn a_write_of_the_log_that_fails_ends_all_promises() {
    let pool = Pool::new();
    let store = pool.open(LATE);
    set(&store, 1);
    logger(&store).sync().expect("a disk that works");
    set(&store, 2);
    pool.log.fail_after(0);
    let first = logger(&store)
        .sync()
        .expect_err("a write that fails")
        .to_string();
    assert!(first.contains("simulated disk"), "{first}");
    // The disk works again, and its content since the last flush is unknown.
    let again = logger(&store)
        .sync()
        .expect_err("a sync after a failed one")
        .to_string();
    assert_eq!(again, first);
    assert!(logger(&store).before_change().is_err());
    assert!(logger(&store).checkpoint().is_err());
    let reopened = pool.after_power_failure().open(LATE);
    assert_eq!(value(&reopened), 1);
}

/// A disk whose next cached writes fail.
#[derive(Debug)]
struct Flaky {
    disk: Arc<SimulatedDisk>,
    failures: AtomicU32,
    written: Mutex<u32>,
}

impl Disk for Flaky {
    fn length_bytes(&self) -> u64 {
        self.disk.length_bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read(at, into)
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_durable(at, bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        *self.written.lock() += 1;
        let left = self.failures.load(Ordering::Relaxed);
        if left > 0 {
            self.failures.store(left - 1, Ordering::Relaxed);
            return Err(io::Error::other("the disk is loose"));
        }
        self.disk.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }

    fn name(&self) -> String {
        "flaky disk".into()
    }
}

fn with_flaky_image(pool: &Pool) -> (Arc<Flaky>, PmemStore) {
    let flaky = Arc::new(Flaky {
        disk: Arc::clone(&pool.image),
        failures: AtomicU32::new(0),
        written: Mutex::default(),
    });
    let disks = Disks {
        image: Arc::clone(&flaky) as Arc<dyn Disk>,
        ..pool.disks()
    };
    (flaky, open(&disks, LATE).expect("a sound pool"))
}

#[test]
fn a_write_of_the_image_that_fails_is_tried_again() {
    let pool = Pool::new();
    let (flaky, store) = with_flaky_image(&pool);
    set(&store, 7);
    logger(&store).sync().expect("a disk that works");
    flaky.failures.store(2, Ordering::Relaxed);
    logger(&store)
        .checkpoint()
        .expect("the third attempt works");
    assert!(*flaky.written.lock() > 2);
    assert!(logger(&store).failure().is_none());
    assert_eq!(logger(&store).status().used_bytes, 0, "the log is trimmed");
    assert_eq!(value(&pool.after_power_failure().open(LATE)), 7);
}

#[test]
fn an_image_that_cannot_be_written_makes_the_pool_read_only() {
    let pool = Pool::new();
    let (flaky, store) = with_flaky_image(&pool);
    set(&store, 7);
    logger(&store).sync().expect("a disk that works");
    flaky.failures.store(u32::MAX, Ordering::Relaxed);
    logger(&store).try_again_at_once();
    let error = logger(&store)
        .checkpoint()
        .expect_err("a disk that is gone")
        .to_string();
    assert!(error.contains("the disk is loose"), "{error}");
    assert!(logger(&store).before_change().is_err());
    assert!(logger(&store).status().used_bytes > 0, "the log keeps it");
    assert_eq!(value(&pool.after_power_failure().open(LATE)), 7);
}

/// Makes records until the ring has no room, and goes on while another thread saves the image.
#[test]
fn calls_wait_for_the_checkpoint_if_the_ring_is_full() {
    const CHANGES: u64 = 20 * UNITS as u64;
    let pool = Pool::new();
    let store = pool.open(LATE);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for next in 1..=CHANGES {
                set(&store, next);
                logger(&store).sync().expect("room in the end");
            }
        });
        // Only if there is no room at all: each checkpoint begins while a batch waits for room.
        while !writer.is_finished() {
            let used = logger(&store).status().used_bytes;
            if used >= logger(&store).status().ring_bytes - 2 * UNIT_BYTES as u64 {
                std::thread::sleep(Duration::from_millis(5));
                logger(&store).checkpoint().expect("disks that work");
            }
            std::thread::yield_now();
        }
    });
    assert!(logger(&store).status().checkpoints > 5);
    assert_eq!(value(&pool.after_power_failure().open(LATE)), CHANGES);
}
