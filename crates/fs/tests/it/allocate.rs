//! `fallocate`: what is one transaction, and what reads and counts afterwards.

use perdure_fs::{AllocateOptions, FileSystem, MountOptions, NewInode, mkfs_region};
use pmem::Region;
use txn::{FormatOptions, Mode, PmemStore, PoolState};

const BLOCK: usize = 4096;

fn mounted() -> FileSystem {
    let options = FormatOptions::tiny();
    let region =
        mkfs_region(Region::anonymous(options.size_bytes), &options, (0, 0)).expect("mkfs");
    let store = PmemStore::open_region(region, Mode::ReadWrite).expect("open");
    FileSystem::mount(store, MountOptions::default()).expect("mount")
}

/// Zeroing used to punch in one transaction and to reserve in the next: a power cut between them left neither the old
/// nor the new state.
#[test]
fn zeroing_a_range_is_one_transaction() {
    let files = mounted();
    let node = files
        .create(&files.root(), b"a", &NewInode::file(0o644))
        .expect("create");
    files.write(&node, 0, &[1; 5 * BLOCK]).expect("write");
    files
        .write(&node, 7 * BLOCK as u64, &[1; BLOCK])
        .expect("write");
    let before = files.store().sequences().0;
    let free = files.statistics().free_blocks;
    let zero = AllocateOptions {
        zero_range: true,
        ..AllocateOptions::default()
    };
    files
        .allocate(&node, 100, 9 * BLOCK as u64, zero)
        .expect("zero");
    assert_eq!(files.store().sequences().0, before + 1);

    let attributes = files.attributes(&node).expect("attributes");
    assert_eq!(attributes.size_bytes, 9 * BLOCK as u64 + 100);
    // Ten blocks of data, one of pointers.
    assert_eq!(attributes.sectors, 11 * 8);
    let mut content = vec![9; 10 * BLOCK];
    assert_eq!(files.read(&node, 0, &mut content), Ok(9 * BLOCK + 100));
    assert_eq!(content[..100], [1; 100]);
    assert!(content[100..9 * BLOCK + 100].iter().all(|&byte| byte == 0));
    // Blocks 1 to 4 and 7 were replaced, 5, 6, 8 and 9 are new: the replaced ones are free for whoever asks, and at the next
    // checkpoint for the allocator.
    assert_eq!(files.statistics().free_blocks, free - 4);
    let allocator = files.store().allocator();
    let at_once = allocator.free_blocks();
    files.checkpoint();
    assert_eq!(allocator.free_blocks(), at_once + 5);
    assert_eq!(files.statistics().free_blocks, free - 4);
}
