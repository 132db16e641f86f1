//! The header of an image (superblocks, state block, segment table, stamp) and the roots of its
//! log. A pool with them opens, and can be used and opened again, or the refusal changes nothing
//! but roots and stamp.
//!
//! The first byte decides which parts get checks that fit. Each further piece changes one byte.

#![no_main]

use crashlab::disk::pool::sample;
use crashlab::disk::judge::recover;
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use txn::layout::{FORMAT_VERSION, MAGIC};
use txn::{Disks, ImageStamp, STAMP_AT, Superblock};
use wal::testing::SimulatedDisk;
use wal::{BatchHeader, Disk, HEADER_BYTES, RootBlock, UNIT_BYTES};
use zerocopy::{FromBytes, IntoBytes};

const SUPERBLOCK_BYTES: usize = size_of::<Superblock>();
const STAMP_BYTES: usize = size_of::<ImageStamp>();
const ROOT_BYTES: usize = size_of::<RootBlock>();
/// A part, a place in it (two bytes), and a value.
const CHANGE_BYTES: usize = 4;

/// Log and image of a pool whose power has failed.
static SAMPLE: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| sample().expect("a pool with a log"));

/// Where the second superblock lies.
static SECOND: LazyLock<usize> = LazyLock::new(|| {
    let superblock = Superblock::read_from_bytes(&SAMPLE[1][..SUPERBLOCK_BYTES]);
    let geometry = superblock.expect("a superblock").geometry();
    geometry.second_superblock().get() as usize
});

fn change(log: &mut [u8], image: &mut [u8], change: &[u8]) {
    let place = usize::from(u16::from_le_bytes([change[1], change[2]]));
    let header_bytes = *SECOND + UNIT_BYTES;
    let byte = match change[0] % 10 {
        0 => &mut image[place % SUPERBLOCK_BYTES],
        1 => &mut image[*SECOND + place % SUPERBLOCK_BYTES],
        2 | 3 => &mut image[*SECOND + STAMP_AT + place % STAMP_BYTES],
        // State block and segment table.
        4 => &mut image[UNIT_BYTES + place % UNIT_BYTES],
        5 => &mut image[2 * UNIT_BYTES + place % UNIT_BYTES],
        6 => &mut image[place % header_bytes],
        7 => &mut log[place % ROOT_BYTES],
        8 => &mut log[UNIT_BYTES + place % ROOT_BYTES],
        _ => {
            let length = log.len();
            &mut log[place * 16 % length]
        }
    };
    *byte = change[3];
}

fn seal_superblock(bytes: &mut [u8]) {
    let mut superblock = Superblock::read_from_bytes(bytes).expect("its length");
    (superblock.magic, superblock.version) = (MAGIC, FORMAT_VERSION);
    superblock.checksum = superblock.expected_checksum();
    bytes.copy_from_slice(superblock.as_bytes());
}

fn seal(flags: u8, log: &mut [u8], image: &mut [u8]) {
    if flags & 1 != 0 {
        seal_superblock(&mut image[..SUPERBLOCK_BYTES]);
        seal_superblock(&mut image[*SECOND..][..SUPERBLOCK_BYTES]);
    }
    if flags & 2 != 0 {
        let bytes = &mut image[*SECOND + STAMP_AT..][..STAMP_BYTES];
        let stamp = ImageStamp::read_from_bytes(bytes).expect("its length");
        bytes.copy_from_slice(stamp.sealed().as_bytes());
    }
    if flags & 4 != 0 {
        for unit in log[..2 * UNIT_BYTES].chunks_mut(UNIT_BYTES) {
            let root = RootBlock::read_from_bytes(&unit[..ROOT_BYTES]).expect("its length");
            unit.copy_from_slice(&root.unit());
        }
    }
    if flags & 8 != 0 {
        for unit in log[2 * UNIT_BYTES..].chunks_mut(UNIT_BYTES) {
            let header = &mut unit[..HEADER_BYTES];
            let sealed = BatchHeader::read_from_bytes(header).expect("its length");
            header.copy_from_slice(sealed.sealed().as_bytes());
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&flags, rest)) = input.split_first() else {
        return;
    };
    let [mut log, mut image] = SAMPLE.clone();
    for piece in rest.chunks_exact(CHANGE_BYTES) {
        change(&mut log, &mut image, piece);
    }
    seal(flags, &mut log, &mut image);
    let disks = [&log, &image].map(|bytes| Arc::new(SimulatedDisk::from_image(bytes.clone())));
    let of_pool = || Disks {
        log: Arc::clone(&disks[0]) as Arc<dyn Disk>,
        image: Arc::clone(&disks[1]) as Arc<dyn Disk>,
    };
    match recover(&of_pool(), None, false) {
        Ok(_) => {
            // The second recovery uses and checks the pool.
            let _ = recover(&of_pool(), None, true);
        }
        Err(reason) if reason.starts_with("open: ") => {
            // A use of the pool begins before its journals are read, so the stamp may differ.
            let mut found = disks[1].image();
            found[*SECOND + STAMP_AT..][..STAMP_BYTES]
                .copy_from_slice(&image[*SECOND + STAMP_AT..][..STAMP_BYTES]);
            let batches = 2 * UNIT_BYTES..;
            let is_same = found == image && disks[0].image()[batches.clone()] == log[batches];
            assert!(is_same, "a refusal changed a byte: {reason}");
        }
        Err(_) => (),
    }
});
