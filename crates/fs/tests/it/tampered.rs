//! Whoever has his own files' blocks mapped can change them at any time, also between a write through the server and a power cut. That is his own affair: recovery finds a file system in order, and the
//! files of others as they were.

use crate::common::{await_tick, new_region, open};
use lease::Place;
use perdure_fs::check::{CheckOptions, check};
use perdure_fs::{FileSystem, NewInode, Node, SetAttributes};
use pmem::{BLOCK_BYTES, Region};
use scatter::SegmentNumber;
use std::sync::{Arc, Mutex};
use txn::transaction::use_slot;
use txn::{Domain, Metadata, Mode, OpenError, PoolState, Segments};

const BLOCK: u64 = BLOCK_BYTES as u64;
const USER: u32 = 1000;

/// A deliberate bug is one of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn new_pool() -> FileSystem {
    open(new_region(8 << 20, 256 << 10, 4), Mode::ReadWrite).expect("a new pool")
}

/// Changes a word in each block of a file that lies in a segment which the process has, past the server.
fn tamper(files: &FileSystem, node: &Node, has: impl Fn(SegmentNumber) -> bool) {
    let mut blocks = Vec::new();
    let visit = |_, place| {
        if let Some(Place::At(block)) = place
            && has(files
                .store()
                .allocator()
                .geometry()
                .segment_of(block)
                .expect("data"))
        {
            blocks.push(block);
        }
    };
    files.places(node, 0, 64, visit).expect("places");
    let region = files.store().region();
    for block in blocks {
        // Inside the file, however short it is: what lies behind its end `fsck` looks at.
        let at = block.offset() + 40;
        let word = region.load_u64(at);
        region.fence(region.store_u64(at, !word).flush());
    }
}

type Change = fn(&FileSystem, &Node);

/// What somebody may do with a file that was just written, by another thread of the server.
const CHANGES: [(&str, Change); 5] = [
    ("mode", |files, node| {
        let change = SetAttributes {
            mode: Some(0o640),
            ..SetAttributes::default()
        };
        files.set_attributes(node, &change).expect("chmod");
    }),
    ("append", |files, node| {
        files
            .write(node, 8 * BLOCK, &[7; 3 * BLOCK_BYTES])
            .expect("write");
    }),
    ("overwrite", |files, node| {
        files
            .write(node, 5 * BLOCK, &[7; BLOCK_BYTES])
            .expect("write");
    }),
    ("link", |files, node| {
        files
            .link(node, &files.root(), b"other name")
            .expect("link");
    }),
    ("truncate", |files, node| {
        let change = SetAttributes {
            size_bytes: Some(100),
            ..SetAttributes::default()
        };
        files.set_attributes(node, &change).expect("truncate");
    }),
];

/// When a process gets the segments of its user.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Given {
    Before,
    After,
    Never,
}

/// As the server does it. Which ones these are.
fn give(files: &FileSystem) -> Vec<SegmentNumber> {
    let store = files.store();
    let mut given = Vec::new();
    for number in 0..store.geometry().segments {
        let segment = SegmentNumber(number);
        match store.hand_out(segment) {
            Some(Domain::Owner { uid: USER, .. }) => {
                assert!(store.prepare(segment, u64::MAX).0);
                given.push(segment);
            }
            Some(_) => drop(store.take_in(segment)),
            None => {}
        }
    }
    given
}

/// A file is written through the server, somebody changes it by another thread, its owner changes its blocks, and the power goes.
fn mount_again(
    given: Given,
    block: u64,
    change: Change,
) -> (Arc<Region>, Result<FileSystem, OpenError>) {
    let files = new_pool();
    let new = NewInode {
        uid: USER,
        ..NewInode::file(0o600)
    };
    let node = files.create(&files.root(), b"own", &new).expect("create");
    let content = [1; 8 * BLOCK_BYTES];
    files.write(&node, 0, &content).expect("write");
    let mut has = match given {
        Given::Before => give(&files),
        _ => Vec::new(),
    };
    // The clock goes on, so that the write changes the inode.
    await_tick();
    use_slot(1);
    let content = [2; BLOCK_BYTES];
    files.write(&node, block * BLOCK, &content).expect("write");
    use_slot(2);
    change(&files, &node);
    if given == Given::After {
        has = give(&files);
    }
    tamper(&files, &node, |segment| {
        given == Given::Never || has.contains(&segment)
    });
    let region = Arc::new(Region::from_image(files.store().region().image()));
    let mounted = open(Arc::clone(&region), Mode::ReadWrite);
    (region, mounted)
}

#[test]
fn a_file_that_is_changed_past_the_server_harms_nobody_else() {
    let _turn = ONE_AT_A_TIME.lock();
    for (name, change) in CHANGES {
        // Overwrites, and an append.
        for block in 0..9 {
            for given in [Given::Before, Given::After] {
                let (region, mounted) = mount_again(given, block, change);
                let files =
                    mounted.unwrap_or_else(|error| panic!("{name}, {block}, {given:?}: {error}"));
                let own = files.lookup(&files.root(), b"own").expect("it is there");
                let mut content = vec![0; 16 * BLOCK_BYTES];
                files.read(&own, 0, &mut content).expect("it can be read");
                drop(own);
                files.unmount();
                let report = check(&region, &CheckOptions::default());
                assert!(report.is_clean(), "{name}, {block}, {given:?}: {report:?}");
            }
        }
    }
}

/// What nobody could have done is what a torn write looks like: that is taken back, and what was built on it does not fit any more.
#[test]
fn without_that_the_pool_could_not_be_mounted() {
    let _turn = ONE_AT_A_TIME.lock();
    assert!(mount_again(Given::Never, 8, CHANGES[0].1).1.is_err());
}

#[cfg(feature = "deliberate-bugs")]
#[test]
fn data_that_is_trusted_although_a_process_has_it_is_noticed() {
    use pmem::deliberate::{Bug, set};
    let _turn = ONE_AT_A_TIME.lock();
    set(Some(Bug::TrustHeldData));
    let (_, mounted) = mount_again(Given::After, 8, CHANGES[0].1);
    set(None);
    assert!(mounted.is_err());
}
