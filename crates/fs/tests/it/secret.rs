//! That who has a file attached hears of its attributes is noticed to fail. Alone in its process, because a deliberate bug is switched on for all of it.

use perdure_fs::lease::Watcher;
use perdure_fs::{FileSystem, MountOptions, NewInode, mkfs_region};
use pmem::Region;
use pmem::deliberate::{self, Bug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use txn::{FormatOptions, Mode, PmemStore};

#[derive(Default)]
struct Reader(AtomicU64);

impl Watcher for Reader {
    fn ended(&self) {}

    fn attributes_changed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether who watches a file hears of a link.
fn hears_of_a_link() -> bool {
    let options = FormatOptions {
        size_bytes: 4 << 20,
        segment_bytes: 256 << 10,
        journals: 2,
        journal_bytes: 64 << 10,
        volatile: true,
        ..FormatOptions::default()
    };
    let region = mkfs_region(Region::anonymous(4 << 20), &options, (0, 0)).expect("mkfs");
    let store = PmemStore::open_region(region, Mode::ReadWrite).expect("open");
    let files = FileSystem::mount(store, MountOptions::default()).expect("mount");
    let (root, new) = (files.root(), NewInode::file(0o644));
    let node = files.create(&root, b"f", &new).expect("create");
    let reader = Arc::new(Reader::default());
    files.watch(&node, Arc::clone(&reader) as _).expect("watch");
    files.link(&node, &root, b"g").expect("link");
    reader.0.load(Ordering::Relaxed) > 0
}

#[test]
fn attributes_that_are_kept_secret_are_noticed() {
    assert!(hears_of_a_link());
    deliberate::set(Some(Bug::KeepAttributesSecret));
    let hears = hears_of_a_link();
    deliberate::set(None);
    assert!(!hears);
}
