//! A batch that is whole, with one field that does not fit the batch before, does not count.

use crate::given::{RING, append, change_root, formatted, open, read, replay};
use perdure_wal::testing::SimulatedDisk;
use perdure_wal::{BatchHeader, End, HEADER_BYTES, LogError, UNIT_BYTES};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A log with a batch of mount 1 and two of mount 2, each one unit.
fn three_batches() -> Arc<SimulatedDisk> {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, b"mount 1").unwrap();
    drop(log);
    let (_, log) = replay(&disk);
    append(&log, 2, b"mount 2, first").unwrap();
    append(&log, 3, b"mount 2, second").unwrap();
    disk
}

/// Changes the header of batch 2 or 3, and its check with it.
fn change(disk: &SimulatedDisk, batch: usize, change: impl FnOnce(&mut BatchHeader)) {
    let at = RING + (batch - 1) * UNIT_BYTES;
    let image = disk.image();
    let (mut header, _) = BatchHeader::read_from_prefix(&image[at..]).expect("a header");
    change(&mut header);
    let header = header.sealed();
    disk.damage(at, |bytes| {
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes())
    });
}

fn end_after(name: &str, batch: usize, edit: fn(&mut BatchHeader)) -> End {
    let disk = three_batches();
    change(&disk, batch, edit);
    let (_, seen, replayed) = read(&disk).unwrap();
    assert_eq!(seen.len(), batch - 1, "{name}: {:?}", replayed.why);
    replayed.why
}

#[test]
fn every_field_has_to_fit() {
    let unchanged = three_batches();
    change(&unchanged, 3, |_| ());
    assert_eq!(read(&unchanged).unwrap().1.len(), 3);

    assert_eq!(
        end_after("magic", 3, |header| header.magic ^= 1),
        End::Unwritten
    );
    assert_eq!(
        end_after("previous", 3, |header| header.previous ^= 1),
        End::Stale
    );
    assert_eq!(
        end_after("previous of the root's", 2, |header| header.previous ^= 1),
        End::Stale
    );
    assert_eq!(end_after("body", 3, |header| header.body ^= 1), End::Torn);
    assert_eq!(
        end_after("payload bytes", 3, |header| header.payload_bytes += 1),
        End::Torn
    );
    assert_eq!(
        end_after("huge", 3, |header| header.payload_bytes = u32::MAX),
        End::Torn
    );
    assert_eq!(
        end_after("longer than the lap", 3, |header| header.payload_bytes =
            14 * 4096),
        End::Torn
    );
    assert_eq!(
        end_after("version", 3, |header| header.version = 2),
        End::Stale
    );
    assert_eq!(
        end_after("earlier number", 3, |header| header.number -= 1),
        End::Stale
    );
    assert_eq!(
        end_after("later number", 3, |header| header.number += 1),
        End::Stale
    );
    assert_eq!(
        end_after("position of the lap after", 3, |header| header.position +=
            16 * 4096),
        End::Stale
    );
    assert_eq!(
        end_after("earlier epoch", 3, |header| header.epoch = 1),
        End::Stale
    );
}

#[test]
fn a_header_without_its_check_does_not_count() {
    for bit in 0..HEADER_BYTES * 8 {
        let disk = three_batches();
        disk.damage(RING + 2 * UNIT_BYTES + bit / 8, |bytes| {
            bytes[0] ^= 1 << (bit % 8)
        });
        assert_eq!(read(&disk).unwrap().1.len(), 2, "bit {bit}");
    }
}

#[test]
fn a_batch_of_a_later_mount_than_the_root_is_damage() {
    let disk = three_batches();
    change(&disk, 3, |header| header.epoch = 3);
    let (_, seen, replayed) = read(&disk).unwrap();
    assert_eq!(
        (seen.len(), replayed.why),
        (2, End::LaterEpoch { epoch: 3 })
    );
    let before = disk.image();
    let error = open(&disk).unwrap().replay(&mut |_| ()).unwrap_err();
    assert!(
        matches!(
            error,
            LogError::RootIsOlder {
                number: 3,
                epoch: 3,
                root_epoch: 2,
                ..
            }
        ),
        "{error}"
    );
    assert!(disk.image() == before, "nothing is written");
}

#[test]
fn a_later_batch_proves_a_loss_only_with_a_known_number_in_flight() {
    for (in_flight, lost) in [(0, Some(2)), (1, None), (u16::MAX, None)] {
        let disk = three_batches();
        disk.damage(RING + UNIT_BYTES, |bytes| bytes[0] ^= 1);
        change(&disk, 3, |header| {
            header.in_flight = in_flight;
            header.number += if in_flight == u16::MAX { 100_000 } else { 0 };
        });
        assert_eq!(read(&disk).unwrap().2.lost, lost, "{in_flight}");
    }
}

#[test]
fn the_first_batch_has_to_fit_the_root() {
    let disk = three_batches();
    for at in crate::given::ROOTS {
        change_root(&disk, at, |root| root.number += 1);
    }
    assert_eq!(read(&disk).unwrap().1.len(), 0);
    for at in crate::given::ROOTS {
        change_root(&disk, at, |root| {
            root.number -= 1;
            root.previous ^= 1;
        });
    }
    assert_eq!(read(&disk).unwrap().1.len(), 0);
}
