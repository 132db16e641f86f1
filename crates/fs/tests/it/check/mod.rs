//! Checking and repairing: clean pools are clean, every flipped bit is found, repair converges and keeps what is whole.

mod corruption;
mod crafted;
mod doubtful;
mod flips;
mod pools;
mod random;
mod tree;

use perdure_fs::check::{CheckOptions, check};
use pmem::Region;
use tree::Snapshot;

/// One thread: these pools are small.
pub(crate) const OPTIONS: CheckOptions<'static> = CheckOptions {
    threads: 1,
    progress: None,
};

#[test]
fn a_populated_pool_is_clean_in_every_state() {
    let files = tree::populated();
    let expected = Snapshot::of(&files);
    // As a crash leaves it, journals not replayed: repair replays them and finds nothing else.
    let crashed = files.store().region().image();
    let report = tree::repaired(&crashed).1;
    assert!(report.left.is_clean(), "{:#?}", report.left);
    assert!(report.found.is_clean(), "{:#?}", report.found);
    files.checkpoint();
    let region = Region::from_image(files.store().region().image());
    let mut steps = std::sync::Mutex::new(Vec::new());
    let progress = |done, total| steps.lock().expect("lock").push((done, total));
    let report = check(
        &region,
        &CheckOptions {
            threads: 2,
            progress: Some(&progress),
        },
    );
    assert!(report.is_clean(), "{report:#?}");
    let steps = std::mem::take(steps.get_mut().expect("lock"));
    assert_eq!(steps.last(), Some(&(2000, 2000)), "{steps:?}");
    let counts = report.counts;
    assert_eq!(counts.inodes, expected.inodes());
    assert_eq!(counts.names, expected.len() as u64);
    assert_eq!((counts.symlinks, counts.others, counts.orphans), (2, 2, 0));
    assert_eq!(
        counts.inodes,
        counts.directories + counts.files + counts.symlinks + counts.others
    );
    let statistics = files.statistics();
    assert_eq!(counts.blocks, statistics.blocks);
    assert_eq!(
        counts.blocks_used,
        statistics.blocks - statistics.free_blocks
    );
    let clean = tree::unmounted(files);
    let report = check(&Region::from_image(&clean), &OPTIONS);
    assert!(report.is_clean(), "{report:#?}");
}

#[test]
fn open_files_without_a_name_are_counted_as_orphans() {
    let files = tree::populated();
    let root = files.root();
    let node = files.lookup(&root, b"three-blocks").expect("lookup");
    files.unlink(&root, b"three-blocks").expect("unlink");
    let directory = files
        .make_directory(&root, b"gone", &perdure_fs::NewInode::file(0o755))
        .expect("mkdir");
    files.remove_directory(&root, b"gone").expect("rmdir");
    let unnamed = files
        .create_unnamed(&perdure_fs::NewInode::file(0o600))
        .expect("unnamed");
    files.write(&unnamed, 0, b"content").expect("write");
    files.checkpoint();
    let image = files.store().region().image();
    drop((node, directory, unnamed));
    let report = check(&Region::from_image(&image), &OPTIONS);
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(report.counts.orphans, 3);
}

#[test]
fn bytes_that_are_no_pool_are_reported() {
    for image in [vec![0; 64], vec![0xff; 4096], vec![7; 1 << 20]] {
        let report = check(&Region::from_image(&image), &OPTIONS);
        assert_eq!(report.faults.len(), 1);
        assert!(!report.complete && !report.is_clean());
    }
}

/// More inodes than one thread takes at a time, sound and damaged.
#[test]
fn many_threads_find_what_one_finds() {
    let options = txn::FormatOptions {
        size_bytes: 32 << 20,
        ..tree::options()
    };
    let region = perdure_fs::mkfs_region(Region::anonymous(32 << 20), &options, (0, 0));
    let files = tree::mount(region.expect("mkfs")).expect("mount");
    let root = files.root();
    for index in 0..4000u32 {
        let name = format!("file {index}").into_bytes();
        let node = files
            .create(&root, &name, &perdure_fs::NewInode::file(0o644))
            .expect("create");
        if index % 4 == 0 {
            files.write(&node, 0, &index.to_le_bytes()).expect("write");
        }
    }
    files.checkpoint();
    let mut image = files.store().region().image();
    let compare = |image: &[u8]| {
        let region = Region::from_image(image);
        let one = check(&region, &OPTIONS);
        let many = check(
            &region,
            &CheckOptions {
                threads: 4,
                progress: None,
            },
        );
        assert_eq!(one, many);
        one
    };
    assert_eq!(compare(&image).counts.inodes, 4001);
    // One in some thousand bytes: inodes, pointers and names alike.
    let bytes = image.len();
    (100_000..bytes)
        .step_by(7919)
        .for_each(|at| image[at] ^= 0x21);
    let report = compare(&image);
    assert!(report.faults_total > 10, "{report:#?}");
    let (_, repaired) = tree::repaired(&image);
    assert!(repaired.left.is_clean(), "{:#?}", repaired.left);
}
