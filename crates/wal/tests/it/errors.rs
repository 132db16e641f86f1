//! Damaged roots, failing disks, killed processes.

use crate::given::{IDENTITY, RING, ROOTS, append, change_root, formatted, open, read, replay};
use perdure_wal::testing::SimulatedDisk;
use perdure_wal::{Disk, LogError, OpenLog, UNIT_BYTES};
use std::sync::Arc;

#[test]
fn a_log_that_is_none_is_refused_with_its_name() {
    let empty = Arc::new(SimulatedDisk::new(16 * UNIT_BYTES));
    let error = open(&empty).unwrap_err();
    assert!(matches!(error, LogError::NoRoot { .. }), "{error}");
    assert!(error.to_string().starts_with("simulated disk: "), "{error}");

    let small = Arc::new(SimulatedDisk::new(9 * UNIT_BYTES));
    assert!(matches!(
        open(&small),
        Err(LogError::TooSmall { least: 40_960, .. })
    ));
    assert!(matches!(
        perdure_wal::format(&*small, IDENTITY, 0, &mut |_, _| ()),
        Err(LogError::TooSmall { .. })
    ));
}

#[test]
fn another_pools_log_another_version_or_length_is_refused() {
    let disk = formatted(16);
    let other = OpenLog::open(Arc::clone(&disk) as Arc<dyn Disk>, [1; 16]);
    assert!(matches!(other, Err(LogError::Identity { .. })));

    for at in ROOTS {
        change_root(&disk, at, |root| root.version = 2);
    }
    assert!(matches!(
        open(&disk),
        Err(LogError::Version {
            version: 2,
            known: 1,
            ..
        })
    ));

    let mut longer = formatted(16).image();
    longer.resize(longer.len() + UNIT_BYTES, 0);
    let error = open(&Arc::new(SimulatedDisk::from_image(longer))).unwrap_err();
    assert!(
        matches!(
            error,
            LogError::Length {
                expected: 65_536,
                found: 69_632,
                ..
            }
        ),
        "{error}"
    );
}

/// A log whose newest root is damaged: whether the one before counts.
pub(crate) fn older_root_counts() -> bool {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, b"first").unwrap();
    log.advance(log.durable_root()).unwrap();
    assert_eq!(read(&disk).unwrap().0.generation, 4);
    disk.damage(ROOTS[0] + 700, |bytes| bytes[0] ^= 1);
    read(&disk).is_ok_and(|(root, _, _)| root.generation == 3)
}

#[test]
fn a_damaged_root_leaves_the_other_one() {
    assert!(older_root_counts());
    let disk = formatted(16);
    disk.set_unreadable(ROOTS[0] as u64..1);
    assert_eq!(read(&disk).unwrap().0.generation, 1);
    disk.damage(ROOTS[1] + 40, |bytes| bytes[0] ^= 1);
    assert!(matches!(open(&disk), Err(LogError::NoRoot { .. })));
}

#[test]
fn a_root_with_impossible_numbers_does_not_count() {
    let disk = formatted(16);
    change_root(&disk, ROOTS[0], |root| root.position = 4097);
    assert_eq!(read(&disk).unwrap().0.generation, 1);
    change_root(&disk, ROOTS[1], |root| root.position = u64::MAX - 4095);
    assert!(matches!(open(&disk), Err(LogError::NoRoot { .. })));
}

/// A disk that fails write 3 of 5, once: whether the log ends there.
pub(crate) fn failure_is_final() -> bool {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, b"good").unwrap();
    disk.fail_after(1);
    append(&log, 2, b"good").unwrap();
    let Err(error) = append(&log, 3, b"bad") else {
        return false;
    };
    assert_eq!(
        error.io_error().and_then(|error| error.raw_os_error()),
        Some(5)
    );
    assert_eq!(log.durable_sequence(), 2);
    for sequence in 4..=5 {
        let again = append(&log, sequence, b"after").unwrap_err();
        assert_eq!(
            again.to_string(),
            error.to_string(),
            "the first failure stays"
        );
    }
    assert_eq!(
        log.advance(log.durable_root()).unwrap_err().to_string(),
        error.to_string()
    );
    assert_eq!(log.failure().unwrap().to_string(), error.to_string());
    assert_eq!(log.durable_sequence(), 2);
    assert_eq!(log.statistics().batches, 2);
    read(&disk).unwrap().1.len() == 2
}

#[test]
fn the_first_failed_write_ends_the_log() {
    assert!(failure_is_final());
}

#[test]
fn a_failed_root_ends_the_log() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, b"good").unwrap();
    disk.fail_after(0);
    let used = log.used_bytes();
    assert!(matches!(
        log.advance(log.durable_root()),
        Err(LogError::Write { .. })
    ));
    assert_eq!(log.used_bytes(), used, "nothing is free");
    assert!(append(&log, 2, b"after").is_err());
}

#[test]
fn a_batch_that_is_never_written_ends_the_log() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, b"good").unwrap();
    drop(log.place(log.buffer(), 2, 2, false));
    let error = append(&log, 3, b"after").unwrap_err();
    assert!(
        matches!(error, LogError::Abandoned { number: 2, .. }),
        "{error}"
    );
    assert_eq!(log.durable_sequence(), 1);
}

#[test]
fn a_root_moves_neither_back_nor_ahead() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    let start = log.durable_root();
    append(&log, 1, b"first").unwrap();
    let behind = log.durable_root();
    let mut ahead = behind;
    ahead.position += UNIT_BYTES as u64;
    ahead.number += 1;
    assert!(matches!(
        log.advance(ahead),
        Err(LogError::RootOrder { .. })
    ));
    log.advance(behind).unwrap();
    assert!(matches!(
        log.advance(start),
        Err(LogError::RootOrder { .. })
    ));
    append(&log, 2, b"the log goes on").unwrap();
    log.advance(log.durable_root()).unwrap();
    assert_eq!(read(&disk).unwrap().0.sequence, 2);
}

#[test]
fn the_callers_word_is_in_the_root() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    let mut root = log.durable_root();
    root.user = 4711;
    log.advance(root).unwrap();
    drop(log);
    let (_, log) = replay(&disk);
    assert_eq!((log.root().user, log.durable_root().user), (4711, 4711));
}

#[test]
fn a_damaged_sector_matters_only_where_the_log_has_batches() {
    let disk = formatted(4000);
    let (_, log) = replay(&disk);
    for sequence in 1..=60 {
        append(&log, sequence, &[7; 4000]).unwrap();
    }
    let unit = UNIT_BYTES as u64;
    disk.set_unreadable(65 * unit..66 * unit);
    assert_eq!(read(&disk).unwrap().1.len(), 60);
    disk.set_unreadable(50 * unit..51 * unit);
    let error = read(&disk).unwrap_err();
    assert!(
        matches!(error, LogError::Read { at, .. } if at == 50 * unit),
        "{error}"
    );
}

#[test]
fn a_damaged_batch_that_was_durable_is_reported_as_lost() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    for sequence in 1..=5 {
        append(&log, sequence, &[sequence as u8; 5000]).unwrap();
    }
    assert_eq!(read(&disk).unwrap().2.lost, None);
    for (batch, lost) in [(5, None), (4, Some(4)), (2, Some(2))] {
        disk.damage(RING + (batch - 1) * 2 * UNIT_BYTES + 100, |bytes| {
            bytes[0] ^= 1
        });
        let (_, seen, replayed) = read(&disk).unwrap();
        assert_eq!((seen.len(), replayed.lost), (batch - 1, lost));
    }
}

/// A killed process leaves a batch in the disk's cache; the next one reads it, goes on, and the
/// power fails.
pub(crate) fn batches_of_a_killed_process_stay() -> bool {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, b"first").unwrap();
    disk.hold(true);
    let next = std::thread::scope(|scope| {
        let writer = scope.spawn(|| append(&log, 2, b"second"));
        disk.wait_for_held(1);
        let next = Arc::new(disk.kill());
        assert!(writer.join().unwrap().is_err());
        next
    });
    let (seen, log) = replay(&next);
    assert_eq!(seen.len(), 2, "the process that goes on sees both");
    append(&log, 3, b"third").unwrap();
    let mut are_all_there = true;
    next.for_each_crash(&mut |_, image| {
        let after = Arc::new(SimulatedDisk::from_image(image.to_vec()));
        are_all_there &= read(&after).unwrap().1.len() == 3;
    });
    are_all_there
}

#[test]
fn what_a_mount_replays_is_durable_before_it_goes_on() {
    assert!(batches_of_a_killed_process_stay());
}
