//! What a lease's holder was told is durable, behind a power cut and with damage beside it.

use super::process::{BLOCK, Lessee, Process, SIZE, USER, content, lease, make, new_pool};
use lease::{FileMap, Place};
use perdure_fs::{FileSystem, FsError, MountOptions, XattrMode};
use pmem::{BLOCK_BYTES, Offset, Region};
use std::sync::Arc;
use txn::{Metadata, Mode, PmemStore, PoolState};

const VALUE: &[u8] = b"a value that is found easily";

/// A file with an attribute, of whose four blocks a process has written the first and the last.
fn written() -> (FileSystem, Lessee) {
    let files = new_pool(8 << 20, 256 << 10);
    let node = make(&files, "own", USER, 3);
    files
        .set_xattr(&node, b"user.x", VALUE, XattrMode::Any)
        .expect("an attribute");
    let mut lessee = lease(&files, &node, SIZE, Process::idle());
    lessee.write(0, 7, 1);
    lessee.write(3 * BLOCK, 8, 1);
    (files, lessee)
}

fn mount(image: &Arc<Region>) -> FileSystem {
    let store = PmemStore::open_region(Arc::clone(image), Mode::ReadWrite).expect("open");
    FileSystem::mount(store, MountOptions::default()).expect("mount")
}

fn flip(image: &Region, at: Offset, bit: u64) {
    let word = image.load_u64(at) ^ 1 << bit;
    image.fence(image.store_u64(at, word).flush());
}

fn is_complete(files: &FileSystem) -> bool {
    let node = files.lookup(&files.root(), b"own").expect("it is there");
    let content = content(files, &node);
    let firsts: Vec<u8> = content.chunks(BLOCK_BYTES).map(|block| block[0]).collect();
    firsts == [7, 1, 1, 8]
}

#[test]
fn what_was_acknowledged_is_folded_whatever_becomes_of_attributes() {
    let (files, _lessee) = written();
    let image = Arc::new(Region::from_image(files.store().region().image()));
    let mut bytes = vec![0; image.length() as usize];
    image.read(Offset::new(0), &mut bytes);
    let at = bytes.windows(VALUE.len()).position(|found| found == VALUE);
    let at = at.expect("it was written") as u64;
    flip(&image, Offset::new(at.next_multiple_of(8)), 3);
    assert!(is_complete(&mount(&image)));
}

#[test]
fn what_was_acknowledged_waits_until_it_is_known_whose_a_segment_is() {
    let (files, lessee) = written();
    let image = Arc::new(Region::from_image(files.store().region().image()));
    let Some(Place::At(block)) = lessee.map.get(0) else {
        panic!("it was written");
    };
    let geometry = files.store().geometry();
    let segment = files.store().allocator().geometry().segment_of(block);
    let entry = geometry.segment_entry(segment.expect("in a segment").0);
    flip(&image, entry, 40);
    let next = mount(&image);
    let node = next.lookup(&next.root(), b"own").expect("it is there");
    // What is written now would be lost when the rest is folded.
    let read = next.read(&node, 0, &mut [0; 1]);
    assert!(matches!(read, Err(FsError::Corrupt(_))), "{read:?}");
    let written = next.write(&node, 0, b"x");
    assert!(matches!(written, Err(FsError::Corrupt(_))), "{written:?}");
    drop(node);
    next.unmount();
    flip(&image, entry, 40);
    assert!(is_complete(&mount(&image)));
}
