//! Damage in the ring of a lease, and a power cut: acknowledged direct writes do not go silently.

use super::process::{BLOCK, Lessee, Process, USER, content, lease, make, new_pool};
use perdure_fs::check::{CheckOptions, FaultKind, Report, check, repair};
use perdure_fs::lease::LeaseSize;
use perdure_fs::{FileSystem, FsError, MountOptions};
use pmem::Region;
use std::sync::Arc;
use txn::{Mode, PmemStore};

const BLOCKS: u64 = 3;
const WRITES: u64 = 250;
const ROOMY: LeaseSize = LeaseSize {
    ring_blocks: 8,
    // No block is used twice, so the file without the last records is as it was before them.
    spare_blocks: 300,
};
/// How many records behind the damaged one.
const BEHIND: [u64; 4] = [1, 5, 40, 200];

/// A file that was overwritten directly, block by block; the number of its newest record.
fn overwritten() -> (FileSystem, Lessee, u64) {
    let files = new_pool(16 << 20, 256 << 10);
    let node = make(&files, "own", USER, BLOCKS as usize);
    make(&files, "other", USER, 1);
    let mut lessee = lease(&files, &node, ROOMY, Process::idle());
    for number in 0..WRITES {
        lessee.write(number % BLOCKS * BLOCK, number as u8, 1);
    }
    let newest = lessee.writer.next() - 1;
    files.checkpoint();
    (files, lessee, newest)
}

/// The first byte of each block after so many of the writes.
fn after(writes: u64) -> Vec<u8> {
    let last = |block| (0..writes).rev().find(|number| number % BLOCKS == block);
    let bytes = (0..BLOCKS).map(|block| last(block).map_or(1, |number| number as u8));
    bytes.collect()
}

/// Cuts the power, and flips some bits of a record.
fn damaged(files: &FileSystem, lessee: &Lessee, record: u64, mask: u64) -> Vec<u8> {
    let image = Region::from_image(files.store().region().image());
    let at = lessee.place(record) + 24;
    let word = image.load_u64(at);
    image.fence(image.store_u64(at, word ^ mask).flush());
    image.image()
}

fn mount(image: &[u8], mode: Mode, force_recovery: bool) -> (FileSystem, Arc<Region>) {
    let region = Arc::new(Region::from_image(image));
    let store = PmemStore::open_region(Arc::clone(&region), mode).expect("open");
    let options = MountOptions {
        force_recovery,
        ..MountOptions::default()
    };
    (FileSystem::mount(store, options).expect("mount"), region)
}

fn firsts(files: &FileSystem, name: &str) -> Vec<u8> {
    let node = files
        .lookup(&files.root(), name.as_bytes())
        .expect("it is there");
    let content = content(files, &node);
    content
        .chunks(BLOCK as usize)
        .map(|block| block[0])
        .collect()
}

fn check_image(image: &[u8]) -> Report {
    check(&Region::from_image(image), &CheckOptions::default())
}

fn repaired(image: &[u8]) -> Vec<u8> {
    let region = Arc::new(Region::from_image(image));
    let repaired = repair(&region, &CheckOptions::default());
    assert!(repaired.left.is_clean(), "{:#?}", repaired.left);
    assert!(repaired.passes > 0);
    region.image()
}

#[test]
fn a_ring_without_damage_gives_all() {
    let (files, lessee, newest) = overwritten();
    let image = damaged(&files, &lessee, newest, 0);
    assert!(check_image(&image).is_clean());
    let (next, _) = mount(&image, Mode::ReadWrite, false);
    assert_eq!(next.losses(), Vec::<String>::new());
    assert_eq!(firsts(&next, "own"), after(WRITES));
}

#[test]
fn a_damaged_record_keeps_its_file_until_somebody_decides() {
    let (files, lessee, newest) = overwritten();
    for behind in BEHIND {
        let image = damaged(&files, &lessee, newest - behind, 0xff);
        let report = check_image(&image);
        let [fault] = &report.faults[..] else {
            panic!("{behind} behind: {report:#?}");
        };
        assert_eq!(fault.kind, FaultKind::LeaseRecordsLost);
        assert!(
            fault
                .detail
                .contains(&format!("{behind} whole ones follow")),
            "{fault:?}"
        );

        let (next, region) = mount(&image, Mode::ReadWrite, false);
        let losses = next.losses();
        assert!(
            losses.len() == 1 && losses[0].contains("direct writes"),
            "{losses:?}"
        );
        let node = next.lookup(&next.root(), b"own").expect("it is there");
        for _ in 0..2 {
            let read = next.read(&node, 0, &mut [0; 1]);
            assert!(matches!(read, Err(FsError::Corrupt(_))), "{read:?}");
            let written = next.write(&node, 0, b"x");
            assert!(matches!(written, Err(FsError::Corrupt(_))), "{written:?}");
        }
        assert_eq!(firsts(&next, "other"), [1]);
        drop(node);
        next.unmount();
        // All of it waits for a decision, also after a mount for writing.
        for image in [&image, &region.image()] {
            let whole = after(WRITES - behind - 1);
            let (forced, _) = mount(image, Mode::ReadWrite, true);
            assert!(
                forced.losses()[0].contains("dropped"),
                "{:?}",
                forced.losses()
            );
            assert_eq!(firsts(&forced, "own"), whole);
            let mended = repaired(image);
            let (next, _) = mount(&mended, Mode::ReadWrite, false);
            assert_eq!(next.losses(), Vec::<String>::new());
            assert_eq!(firsts(&next, "own"), whole);
        }
    }
}

#[test]
fn a_mount_for_reading_shows_what_is_whole_and_says_so() {
    let (files, lessee, newest) = overwritten();
    let image = damaged(&files, &lessee, newest - 40, 0xff);
    let (next, _) = mount(&image, Mode::ReadOnly, false);
    assert!(
        next.losses()[0].contains("is shown without them"),
        "{:?}",
        next.losses()
    );
    assert_eq!(firsts(&next, "own"), after(WRITES - 41));
}

#[test]
fn a_flipped_bit_is_set_right() {
    let (files, lessee, newest) = overwritten();
    for (behind, bit) in [(0, 3), (1, 0), (40, 12), (200, 63)] {
        let image = damaged(&files, &lessee, newest - behind, 1 << bit);
        let (next, _) = mount(&image, Mode::ReadWrite, false);
        assert_eq!(next.losses(), Vec::<String>::new());
        assert_eq!(firsts(&next, "own"), after(WRITES), "{behind} behind");
        let report = check_image(&image);
        assert_eq!(report.faults_total, 1, "{report:#?}");
        assert!(
            report.faults[0].detail.contains("one bit is flipped"),
            "{report:#?}"
        );
        let (next, _) = mount(&repaired(&image), Mode::ReadWrite, false);
        assert_eq!(firsts(&next, "own"), after(WRITES), "{behind} behind");
    }
}

/// The power may tear the newest write: all of it is missing then, and no loss is said.
#[test]
fn the_newest_write_may_be_torn() {
    let (files, lessee, newest) = overwritten();
    let image = damaged(&files, &lessee, newest, 0xff);
    assert!(check_image(&image).is_clean());
    let (next, _) = mount(&image, Mode::ReadWrite, false);
    assert_eq!(next.losses(), Vec::<String>::new());
    assert_eq!(firsts(&next, "own"), after(WRITES - 1));
}

#[test]
fn a_ring_that_lost_a_block_ends_when_it_is_repaired() {
    let (files, lessee, _) = overwritten();
    let mut image = files.store().region().image();
    // All words that name the ring's first block: the pointer in the lease's map is one.
    let block = lessee.place(0).block();
    let is_pointer = |word: u64| word & ((1 << 40) - 1) == block.get() && word >> 44 != 0;
    let words = image.as_chunks_mut::<8>().0.iter_mut();
    let found: Vec<_> = words
        .filter(|word| is_pointer(u64::from_le_bytes(**word)))
        .collect();
    assert!(!found.is_empty());
    for word in found {
        *word = (u64::from_le_bytes(*word) ^ 0xff00_0000_0000_0000).to_le_bytes();
    }
    let report = check_image(&image);
    let kinds: Vec<_> = report.faults.iter().map(|fault| fault.kind).collect();
    assert!(kinds.contains(&FaultKind::PointerDamaged), "{report:#?}");
    assert!(kinds.contains(&FaultKind::LeaseRecordsLost), "{report:#?}");
    let (next, _) = mount(&repaired(&image), Mode::ReadWrite, false);
    assert_eq!(firsts(&next, "own"), after(0));
}
