//! Batches come back in order, after a wrap, up to a full ring.

use crate::given::{append, bytes, formatted, read, replay};
use perdure_wal::{End, Full, UNIT_BYTES, measure_depth};
use std::time::Duration;

#[test]
fn a_new_log_is_empty_and_every_mount_has_a_new_epoch() {
    let disk = formatted(16);
    let (root, seen, replayed) = read(&disk).unwrap();
    assert!(seen.is_empty());
    assert_eq!(
        (root.generation, root.epoch, root.number, root.position),
        (2, 0, 1, 0)
    );
    assert_eq!((replayed.why, replayed.bytes), (End::Unwritten, 0));
    for mount in 1..5 {
        let (seen, log) = replay(&disk);
        assert!(seen.is_empty());
        assert_eq!((log.epoch(), log.root().generation), (mount, mount + 2));
    }
}

#[test]
fn format_reports_its_progress_and_erases_an_older_log() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, b"old").unwrap();
    let mut steps = Vec::new();
    perdure_wal::format(&*disk, crate::given::IDENTITY, 77, &mut |done, all| {
        steps.push((done, all))
    })
    .unwrap();
    assert_eq!(steps.last(), Some(&(16 * 4096, 16 * 4096)));
    let (root, seen, replayed) = read(&disk).unwrap();
    assert!(seen.is_empty());
    assert_eq!((root.sequence, replayed.last_sequence), (77, 77));
}

#[test]
fn batches_of_any_size_come_back_in_order() {
    // Larger than the pieces of the read-ahead, 128 KiB to 4 MiB, and across their borders.
    let sizes = [
        0,
        1,
        4032,
        4033,
        100,
        131_000,
        5 << 20,
        300_000,
        7,
        4096,
        9 << 20,
        64,
    ];
    let disk = formatted(5000);
    let (_, log) = replay(&disk);
    for (index, size) in sizes.into_iter().enumerate() {
        let sequence = 10 * (index as u64 + 1);
        assert_eq!(
            append(&log, sequence, &bytes(sequence, size)).unwrap(),
            sequence
        );
    }
    let used: u64 = sizes
        .iter()
        .map(|size| (size + 64).next_multiple_of(UNIT_BYTES) as u64)
        .sum();
    assert_eq!(log.used_bytes(), used);
    drop(log);
    let (seen, log) = replay(&disk);
    assert_eq!(seen.len(), sizes.len());
    for (index, (seen, size)) in seen.iter().zip(sizes).enumerate() {
        let sequence = 10 * (index as u64 + 1);
        assert_eq!((seen.number, seen.last), (index as u64 + 1, sequence));
        assert!(seen.payload == bytes(sequence, size), "batch {index}");
    }
    assert_eq!((log.durable_sequence(), log.used_bytes()), (120, used));
}

#[test]
fn a_log_goes_on_over_many_laps_and_mounts() {
    let disk = formatted(16);
    let mut sequence = 0;
    for mount in 0..40 {
        let (seen, log) = replay(&disk);
        assert_eq!(
            seen.last().map_or(0, |seen| seen.last),
            if mount == 0 { 0 } else { sequence }
        );
        for _ in 0..5 {
            sequence += 1;
            append(
                &log,
                sequence,
                &bytes(sequence, 1000 * (sequence as usize % 11)),
            )
            .unwrap();
            if log.used_bytes() > 8 * UNIT_BYTES as u64 {
                log.advance(log.durable_root()).unwrap();
                assert_eq!(log.used_bytes(), 0);
                sequence += 1;
                append(&log, sequence, &bytes(sequence, 5000)).unwrap();
            }
        }
    }
    let (root, seen, _) = read(&disk).unwrap();
    assert!(root.position > 20 * 16 * 4096, "many laps: {root:?}");
    let first = sequence + 1 - seen.len() as u64;
    assert_eq!(root.sequence + 1, first);
    for (seen, expected) in seen.iter().zip(first..) {
        assert_eq!((seen.number, seen.last), (expected, expected));
    }
}

#[test]
fn large_batches_come_back_over_the_end_of_a_large_ring() {
    let units = 2003;
    let disk = formatted(units);
    let (_, log) = replay(&disk);
    let mut kept = Vec::new();
    for sequence in 1..=60_u64 {
        let size = 1_400_000 * sequence as usize % 1_100_001;
        if log.used_bytes() as usize > (units / 2) * UNIT_BYTES {
            log.advance(log.durable_root()).unwrap();
            kept.clear();
        }
        append(&log, sequence, &bytes(sequence, size)).unwrap();
        kept.push((sequence, size));
        if sequence % 7 == 0 {
            let (_, seen, _) = read(&disk).unwrap();
            assert_eq!(seen.len(), kept.len());
            for (seen, &(sequence, size)) in seen.iter().zip(&kept) {
                assert!(seen.last == sequence && seen.payload == bytes(sequence, size));
            }
        }
    }
    assert!(
        log.root().position > 2 * (units * UNIT_BYTES) as u64,
        "two laps"
    );
}

#[test]
fn the_newest_durable_record_never_goes_back() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 7, b"record 7").unwrap();
    let placed = log.place(log.buffer(), 0, 0, false).expect("room");
    assert_eq!(log.write(placed).unwrap(), 7);
    assert_eq!(read(&disk).unwrap().2.last_sequence, 7);
}

#[test]
fn a_full_ring_gives_the_buffer_back_and_keeps_its_reserve() {
    let disk = formatted(32);
    let (_, log) = replay(&disk);
    assert_eq!(log.reserve_bytes(), 2 * 4096);
    for sequence in 1..=30 {
        append(&log, sequence, b"one unit").unwrap();
    }
    let mut buffer = log.buffer();
    buffer.payload().extend_from_slice(b"later");
    let Err(Full(buffer)) = log.place(buffer, 31, 31, false) else {
        panic!("the reserve was used");
    };
    assert_eq!(buffer.payload_bytes(), 5);
    let placed = log
        .place(buffer, 31, 31, true)
        .expect("the reserve has room");
    assert_eq!(log.write(placed).unwrap(), 31);
    let mut buffer = log.buffer();
    buffer.payload().resize(5000);
    let Err(Full(_)) = log.place(buffer, 32, 32, true) else {
        panic!("two units in one");
    };
    let placed = log
        .place(log.buffer(), 32, 32, true)
        .expect("the last unit");
    log.write(placed).unwrap();
    assert_eq!(log.used_bytes(), log.ring_bytes());
    let (_, seen, replayed) = read(&disk).unwrap();
    assert_eq!((seen.len(), replayed.why), (32, End::RingEnd));
    assert_eq!(seen[30].payload, b"later");

    log.advance(log.durable_root()).unwrap();
    append(&log, 33, &bytes(33, 20_000)).unwrap();
    let (_, seen, _) = read(&disk).unwrap();
    assert_eq!(seen.len(), 1);
}

#[test]
fn a_batch_that_is_larger_than_the_ring_is_full() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    let mut buffer = log.buffer();
    buffer.payload().resize(log.payload_bytes_max() as usize);
    let placed = log.place(buffer, 1, 1, false).expect("the largest one");
    log.write(placed).unwrap();
    log.advance(log.durable_root()).unwrap();
    let mut buffer = log.buffer();
    buffer
        .payload()
        .resize(log.payload_bytes_max() as usize + 1);
    assert!(log.place(buffer, 1, 1, false).is_err());
}

#[test]
fn padding_is_zeros_whatever_the_buffer_held_before() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, &[0xff; 4000]).unwrap();
    append(&log, 2, b"short").unwrap();
    let image = disk.image();
    let second = crate::given::RING + UNIT_BYTES;
    assert!(
        image[second + 64 + 5..second + UNIT_BYTES]
            .iter()
            .all(|&byte| byte == 0)
    );
}

#[test]
fn statistics_count_batches_and_bytes() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, &[1; 100]).unwrap();
    append(&log, 2, &[1; 5000]).unwrap();
    let statistics = log.statistics();
    assert_eq!(
        (
            statistics.batches,
            statistics.payload_bytes,
            statistics.disk_bytes
        ),
        (2, 5100, 3 * 4096)
    );
    assert!(statistics.sync_max_us >= statistics.sync_p50_us && statistics.sync_p50_us > 0.0);
    assert_eq!(statistics.most_in_flight, 1);
}

/// A measurement of a log with batches: those are there afterwards, and the log goes on.
pub(crate) fn measurement_harms_nothing() -> bool {
    let disk = formatted(64);
    let (_, log) = replay(&disk);
    for sequence in 1..=40 {
        append(&log, sequence, b"one unit").unwrap();
        if sequence == 30 {
            log.advance(log.durable_root()).unwrap();
        }
    }
    drop(log);
    let (_, log) = replay(&disk);
    let speed = measure_depth(&log, Duration::from_millis(20)).unwrap();
    assert!(
        (1..=8).contains(&speed.depth) && speed.sync_us > 0.0 && speed.bytes_per_second > 0.0,
        "{speed:?}"
    );
    let are_all_there = read(&disk).unwrap().1.len() == 10;
    append(&log, 41, b"after").unwrap();
    are_all_there && read(&disk).unwrap().1.len() == 11
}

#[test]
fn a_measurement_leaves_the_log_as_it_was() {
    assert!(measurement_harms_nothing());
}

#[test]
fn a_nearly_full_ring_is_not_measured() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, b"one unit").unwrap();
    let error = measure_depth(&log, Duration::from_millis(5)).unwrap_err();
    assert!(error.to_string().contains("61440 free bytes"), "{error}");
    assert!(log.failure().is_none());
}
