//! Damaged bytes: found, named, and never fatal.

use proptest::prelude::*;

use super::{DIRECTORY, Image, name};
use crate::directory::*;
use crate::format::InodeNumber;

/// A block with dentries of many lengths and free ranges of several.
fn block() -> [u8; BLOCK_BYTES] {
    let mut image = Image::new();
    for number in 0..40 {
        image.insert_now(&name(number, 1 + number * 3), 1000 + number as u64);
    }
    for number in [1, 5, 6, 17, 20] {
        image.remove_now(&name(number, 1 + number * 3));
    }
    image.insert_now(b"one more", 7);
    image.blocks[0]
}

type Contents = Vec<(u64, u64, Vec<u8>)>;

fn contents(block: &[u8; BLOCK_BYTES]) -> Result<Contents, DentryFault> {
    entries(block, 0, DIRECTORY)
        .map(|entry| entry.map(|e| (e.offset.bytes(), e.inode.get(), e.name.to_vec())))
        .collect()
}

/// Which bytes mean nothing: those behind the header of a free range.
fn meaningless(block: &[u8; BLOCK_BYTES]) -> Vec<bool> {
    let mut map = vec![false; BLOCK_BYTES];
    for record in records(block, 0, DIRECTORY) {
        if let Record::Free { offset, bytes } = record.unwrap() {
            map[offset.byte_in_block() + 8..offset.byte_in_block() + bytes].fill(true);
        }
    }
    map
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let sound = block();
    let expected = contents(&sound).unwrap();
    let meaningless = meaningless(&sound);
    assert!(meaningless.iter().any(|&byte| byte));
    for bit in 0..BLOCK_BYTES * 8 {
        let mut damaged = sound;
        damaged[bit / 8] ^= 1 << (bit % 8);
        let mut state = Directory::new(DIRECTORY);
        let loaded = state.load_block(0, &damaged);
        if meaningless[bit / 8] {
            assert_eq!(contents(&damaged).unwrap(), expected);
            loaded.unwrap();
        } else {
            let fault = loaded.unwrap_err();
            assert!(
                fault.offset.byte_in_block() <= bit / 8
                    && fault.offset.byte_in_block() + 272 > bit / 8,
                "{fault}"
            );
            assert!(contents(&damaged).is_err());
            assert_eq!(
                (state.len(), state.blocks()),
                (0, 0),
                "a faulty block leaves no trace"
            );
        }
    }
}

#[test]
fn the_walk_goes_on_behind_a_damaged_name() {
    let mut damaged = block();
    damaged[16] ^= 1;
    let all: Vec<_> = entries(&damaged, 0, DIRECTORY).collect();
    assert!(matches!(
        all[0],
        Err(DentryFault {
            kind: FaultKind::Check { .. },
            ..
        })
    ));
    assert!(all[1..].iter().all(Result::is_ok));
    assert_eq!(all.len(), contents(&block()).unwrap().len());
}

#[test]
fn a_record_is_bound_to_its_place() {
    let block = block();
    assert!(
        entries(&block, 1, DIRECTORY).all(|entry| entry.is_err()),
        "another block"
    );
    assert!(
        entries(&block, 0, InodeNumber::new(78)).all(|entry| entry.is_err()),
        "another directory"
    );
    let zeros = entries(&[0; BLOCK_BYTES], 0, DIRECTORY).collect::<Vec<_>>();
    assert!(matches!(
        zeros[..],
        [Err(DentryFault {
            kind: FaultKind::Length(0),
            ..
        })]
    ));
}

#[test]
fn a_dentry_damaged_after_loading_is_a_fault_not_a_missing_name() {
    let mut image = Image::new();
    image.insert_now(b"present", 5);
    let look = |block: &[u8; BLOCK_BYTES]| {
        image.state.find(b"present", |candidate| {
            has_name(
                DIRECTORY,
                candidate,
                b"present",
                &block[candidate.offset.byte_in_block()..],
            )
        })
    };
    assert!(look(&image.blocks[0]).unwrap().is_some());
    for bit in 0..16 * 8 + 7 * 8 {
        let mut damaged = image.blocks[0];
        damaged[bit / 8] ^= 1 << (bit % 8);
        match look(&damaged) {
            Err(fault) => assert_eq!(fault.offset.bytes(), 0),
            // The check and the exact type are not consulted when name and inode number are as expected.
            Ok(found) => assert!(found.is_some() && (3..8).contains(&(bit / 8)), "bit {bit}"),
        }
    }
}

#[test]
fn a_fault_names_directory_place_and_reason() {
    let mut damaged = block();
    damaged[0] = 1;
    let fault = entries(&damaged, 0, DIRECTORY).next().unwrap().unwrap_err();
    assert_eq!(
        fault.to_string(),
        "directory 77, record at byte 0: record length 1 is impossible here; the rest of the block is unreadable"
    );
}

/// A record with a good check, whatever it says.
fn forged(
    length: u16,
    name_length: u8,
    file_type: u8,
    inode: u64,
    name: &[u8],
) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..2].copy_from_slice(&length.to_le_bytes());
    (block[2], block[3]) = (name_length, file_type);
    block[8..16].copy_from_slice(&inode.to_le_bytes());
    block[16..16 + name.len()].copy_from_slice(name);
    let first = entries(&block, 0, DIRECTORY).next();
    if let Some(Err(DentryFault {
        kind: FaultKind::Check { expected, .. },
        ..
    })) = first
    {
        block[4..8].copy_from_slice(&expected.to_le_bytes());
    }
    block
}

#[test]
fn nonsense_with_a_good_check_is_refused() {
    let kind = |block: [u8; BLOCK_BYTES]| {
        entries(&block, 0, DIRECTORY)
            .next()
            .unwrap()
            .map(|_| ())
            .unwrap_err()
            .kind
    };
    assert_eq!(kind(forged(24, 2, 8, 5, b"a/")), FaultKind::Name);
    assert_eq!(kind(forged(24, 2, 8, 5, b"..")), FaultKind::Name);
    assert_eq!(kind(forged(24, 2, 8, 5, b"ab\x01")), FaultKind::Name);
    assert_eq!(kind(forged(24, 2, 3, 5, b"ab")), FaultKind::FileType(3));
    assert_eq!(kind(forged(24, 2, 8, 0, b"ab")), FaultKind::Inode(0));
    assert_eq!(
        kind(forged(24, 2, 8, 1 << 32, b"ab")),
        FaultKind::Inode(1 << 32)
    );
    assert_eq!(kind(forged(24, 9, 8, 5, b"ab")), FaultKind::NameLength(9));
    assert_eq!(kind(forged(4104, 0, 0, 0, b"")), FaultKind::Length(4104));
    assert_eq!(kind(forged(4096, 0, 8, 0, b"")), FaultKind::FileType(8));
}

#[test]
fn free_ranges_side_by_side_are_refused() {
    let mut block = [0; BLOCK_BYTES];
    let first = crate::directory::record::free_header(DIRECTORY, DentryOffset::from_units(0), 2048);
    let second =
        crate::directory::record::free_header(DIRECTORY, DentryOffset::from_units(256), 2048);
    block[..8].copy_from_slice(&first);
    block[2048..2056].copy_from_slice(&second);
    let fault = Directory::new(DIRECTORY).load_block(0, &block).unwrap_err();
    assert_eq!(
        (fault.kind, fault.offset.bytes()),
        (FaultKind::Unmerged, 2048)
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), BLOCK_BYTES)) {
        let block: &[u8; BLOCK_BYTES] = bytes.as_slice().try_into().unwrap();
        prop_assert!(records(block, 5, DIRECTORY).count() <= UNITS_PER_BLOCK);
        let mut state = Directory::new(DIRECTORY);
        prop_assert!(state.load_block(0, block).is_err());
    }

    #[test]
    fn scrambled_blocks_never_panic(
        scribbles in prop::collection::vec((0..BLOCK_BYTES / 8, any::<[u8; 8]>()), 1..20),
        moves in prop::collection::vec((0..BLOCK_BYTES / 8, 0..BLOCK_BYTES / 8, 1..40usize), 0..5),
    ) {
        let mut bytes = block();
        for (from, to, words) in moves {
            let words = words.min(512 - from).min(512 - to);
            bytes.copy_within(from * 8..(from + words) * 8, to * 8);
        }
        for (at, word) in scribbles {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word);
        }
        let walked = records(&bytes, 0, DIRECTORY).count();
        prop_assert!(walked <= UNITS_PER_BLOCK);
        // Whatever is accepted is a complete tiling with names that can be found.
        let mut state = Directory::new(DIRECTORY);
        if state.load_block(0, &bytes).is_ok() {
            for entry in entries(&bytes, 0, DIRECTORY) {
                let entry = entry.unwrap();
                let found = state.find(entry.name, |candidate| {
                    has_name(DIRECTORY, candidate, entry.name, &bytes[candidate.offset.byte_in_block()..])
                });
                prop_assert!(found.unwrap().is_some());
            }
        }
    }
}
