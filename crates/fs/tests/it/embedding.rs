//! What programs that embed the file system rely on: their own clock, their own region.

use perdure_fs::{Clock, FileSystem, MountOptions, NewInode, Timestamp, mkfs_region};
use pmem::Region;
use std::sync::Arc;
use txn::{FormatOptions, Mode, PmemStore};

fn new_region() -> Region {
    let options = FormatOptions::tiny();
    mkfs_region(Region::anonymous(options.size_bytes), &options, (0, 0)).expect("mkfs")
}

/// Runs that must repeat byte for byte, as crash states do, bring their own clock.
#[test]
fn times_come_from_the_clock_of_the_mount() {
    let noon = || Timestamp::from_parts(43_200, 7);
    let store = PmemStore::open_region(new_region(), Mode::ReadWrite).expect("open");
    let files = FileSystem::mount(
        store,
        MountOptions {
            clock: Clock::Custom(noon),
            ..MountOptions::default()
        },
    )
    .expect("mount");
    let node = files
        .create(&files.root(), b"a", &NewInode::file(0o644))
        .expect("create");
    files.write(&node, 0, b"x").expect("write");
    let (file, root) = (
        files.attributes(&node).expect("file"),
        files.attributes(&files.root()).expect("root"),
    );
    let times = [
        file.created,
        file.accessed,
        file.modified,
        file.changed,
        root.modified,
        root.changed,
    ];
    assert_eq!(times, [noon(); 6]);
}

/// The region stays with the caller when it opens an `Arc` of it.
#[test]
fn a_region_is_opened_again_without_a_copy() {
    let region = Arc::new(new_region());
    for round in [false, true] {
        let store = PmemStore::open_region(Arc::clone(&region), Mode::ReadWrite).expect("open");
        let files = FileSystem::mount(store, MountOptions::default()).expect("mount");
        assert_eq!(files.lookup(&files.root(), b"a").is_ok(), round);
        if !round {
            files
                .create(&files.root(), b"a", &NewInode::file(0o644))
                .expect("create");
        }
    }
}
