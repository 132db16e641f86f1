//! Readers without the lock: what they return was the content at one moment.

use perdure_fs::{
    Clock, FileSystem, MountOptions, NewInode, Node, SetAttributes, Timestamp, mkfs_region,
};
use pmem::Region;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use txn::{FormatOptions, Mode, PmemStore};

/// Small, so that freed blocks soon have another owner.
const POOL_BYTES: u64 = 4 << 20;
const BLOCK: usize = 4096;

/// Says that the writer is done, also when it panics, so that the reader ends.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn new_pool() -> FileSystem {
    let options = FormatOptions {
        size_bytes: POOL_BYTES,
        segment_bytes: 256 << 10,
        journals: 2,
        journal_bytes: 32 << 10,
        volatile: true,
        ..FormatOptions::default()
    };
    let region = mkfs_region(Region::anonymous(POOL_BYTES), &options, (0, 0)).expect("mkfs");
    let store = PmemStore::open_region(region, Mode::ReadWrite).expect("open");
    FileSystem::mount(store, MountOptions::default()).expect("mount")
}

fn file(files: &FileSystem, name: &str) -> Node {
    let new = NewInode::file(0o644);
    files
        .create(&files.root(), name.as_bytes(), &new)
        .expect("create")
}

/// Each version is one byte over and over, and as long as that byte says. A second file takes the blocks that the first gives back.
#[test]
fn a_read_never_returns_a_mixture_of_two_versions() {
    let files = new_pool();
    let (watched, other) = (file(&files, "watched"), file(&files, "other"));
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    files.write(&watched, 0, &[1; 2 * BLOCK]).expect("write");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&done);
            for round in 0..20_000_u32 {
                let version = (round % 200) as u8 + 1;
                // A whole block, small pieces in place, and two blocks at once: every way to write.
                match round % 3 {
                    0 => files.write(&watched, 0, &[version; 2 * BLOCK]),
                    1 => files.write(&watched, 0, &[version; BLOCK]),
                    _ => files.write(&watched, 0, &[version; 512]),
                }
                .expect("write");
                files
                    .write(&other, u64::from(round % 8) * BLOCK as u64, &[0xff; BLOCK])
                    .expect("write other");
            }
        });
        scope.spawn(|| {
            let mut bytes = [0; BLOCK];
            while !done.load(Ordering::Relaxed) {
                // Each write begins at 0 and is atomic, so the first 512 bytes always are of one version.
                let read = files.read(&watched, 0, &mut bytes[..512]).expect("read");
                assert_eq!(read, 512);
                assert!(
                    bytes[..512].iter().all(|&byte| byte == bytes[0]),
                    "a mixture: {:?}",
                    &bytes[..512]
                );
                assert_ne!(bytes[0], 0xff, "content of the other file");
                let read = files.read(&watched, 0, &mut bytes).expect("read");
                assert_eq!(read, BLOCK);
                let changes = bytes.windows(2).filter(|pair| pair[0] != pair[1]).count();
                assert!(changes <= 1, "{changes} borders in a block");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    assert!(reads.load(Ordering::Relaxed) > 100, "hardly any read");
}

#[test]
fn a_read_sees_the_size_of_its_content() {
    let files = new_pool();
    let node = file(&files, "grows");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&done);
            for round in 0..20_000_u64 {
                if round % 64 == 0 {
                    let empty = SetAttributes {
                        size_bytes: Some(0),
                        ..SetAttributes::default()
                    };
                    files.set_attributes(&node, &empty).expect("truncate");
                }
                files.append(&node, &[7; 100]).expect("append");
            }
        });
        scope.spawn(|| {
            let mut bytes = [0; 2 * BLOCK];
            while !done.load(Ordering::Relaxed) {
                bytes.fill(0);
                let read = files.read(&node, 0, &mut bytes).expect("read");
                assert_eq!(read % 100, 0, "not a whole number of appends");
                assert!(bytes[..read].iter().all(|&byte| byte == 7), "{read} bytes");
            }
        });
    });
}

/// A clock that a test moves.
static TICK: AtomicI64 = AtomicI64::new(1000);

#[test]
fn an_access_is_stamped_once_in_a_tick() {
    let region = mkfs_region(Region::anonymous(1 << 20), &FormatOptions::tiny(), (0, 0));
    let store = PmemStore::open_region(region.expect("mkfs"), Mode::ReadWrite).expect("open");
    let options = MountOptions {
        clock: Clock::Custom(|| Timestamp::from_parts(TICK.load(Ordering::Relaxed), 0)),
        ..MountOptions::default()
    };
    let files = FileSystem::mount(store, options).expect("mount");
    let new = NewInode::file(0o644);
    let node = files.create(&files.root(), b"file", &new).expect("create");
    let read = || {
        let before = files.store().sequences().0;
        assert_eq!(files.read(&node, 0, &mut [0; 4]), Ok(4));
        let accessed = files.attributes(&node).expect("known").accessed;
        (files.store().sequences().0 - before, accessed)
    };
    let second = |second| Timestamp::from_parts(second, 0);
    TICK.store(1001, Ordering::Relaxed);
    files.write(&node, 0, b"text").expect("write");
    assert_eq!(read(), (1, second(1001)), "the first read since the write");
    assert_eq!(read(), (0, second(1001)), "the stamp would be the same");
    files.write(&node, 0, b"more").expect("write");
    assert_eq!(
        read(),
        (0, second(1001)),
        "and so after a write in that tick"
    );
    TICK.store(1002, Ordering::Relaxed);
    assert_eq!(
        read(),
        (1, second(1002)),
        "not later than the write until now"
    );
    TICK.store(1003, Ordering::Relaxed);
    assert_eq!(read(), (0, second(1002)), "later than the write");
    files.write(&node, 0, b"last").expect("write");
    assert_eq!(read(), (1, second(1003)));
}
