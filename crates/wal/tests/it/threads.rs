//! Many threads append at the same time.

use crate::given::{formatted, read, replay};
use perdure_wal::{Full, Log, LogError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITERS: usize = 8;
const BATCHES: u64 = 2000;

/// Places and writes a batch without entries in a ring that never fills up.
fn try_append(log: &Log, next: &Mutex<u64>) -> Result<u64, LogError> {
    let mut sequence = next.lock().unwrap();
    *sequence += 1;
    let placed = log
        .place(log.buffer(), *sequence, *sequence, false)
        .expect("room");
    drop(sequence);
    log.write(placed)
}

/// Places and writes a batch; the lock orders record numbers as batches.
fn append(log: &Log, next: &Mutex<u64>, size: usize) -> (u64, u64) {
    loop {
        let mut buffer = log.buffer();
        buffer.payload().resize(size);
        let mut sequence = next.lock().unwrap();
        match log.place(buffer, *sequence + 1, *sequence + 1, false) {
            Ok(placed) => {
                *sequence += 1;
                let own = *sequence;
                drop(sequence);
                return (own, log.write(placed).unwrap());
            }
            Err(Full(_)) => {
                drop(sequence);
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn nothing_behind_a_failed_write_is_acknowledged() {
    for round in 0..40 {
        let disk = formatted(4000);
        let (_, log) = replay(&disk);
        disk.fail_after(20 + round * 3);
        let next = Mutex::new(0);
        let newest = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    while let Ok(durable) = try_append(&log, &next) {
                        newest.fetch_max(durable, Ordering::SeqCst);
                    }
                });
            }
        });
        let durable = log.durable_sequence();
        let newest = newest.into_inner();
        assert!(
            newest <= durable && durable < *next.lock().unwrap(),
            "{newest} {durable}"
        );
        // The failed batch left nothing, so the log ends there: later ones do not count.
        let (_, seen, _) = read(&disk).unwrap();
        assert!(seen.len() as u64 >= durable, "{} {durable}", seen.len());
        assert!(log.statistics().batches < *next.lock().unwrap());
        assert!(log.failure().is_some());
    }
}

#[test]
fn batches_of_many_threads_are_acknowledged_in_order() {
    let disk = formatted(64);
    let (_, log) = replay(&disk);
    let next = Mutex::new(0);
    let newest = AtomicU64::new(0);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (log, next, newest) = (&log, &next, &newest);
                scope.spawn(move || {
                    for batch in 0..BATCHES {
                        let size = (writer * 1237 + batch as usize * 71) % 9000;
                        let before = log.durable_sequence();
                        let (own, durable) = append(log, next, size);
                        assert!(durable >= before, "what is durable only grows");
                        newest.fetch_max(own, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        // A checkpoint that only moves the root.
        let mover = scope.spawn(|| {
            let mut moves = 0;
            while !is_done.load(Ordering::SeqCst) {
                let root = log.durable_root();
                assert!(root.sequence <= log.durable_sequence());
                assert_eq!(root.number, root.sequence + 1, "one record in a batch");
                log.advance(root).unwrap();
                moves += 1;
                std::thread::yield_now();
            }
            moves
        });
        for writer in writers {
            writer.join().unwrap();
        }
        is_done.store(true, Ordering::SeqCst);
        assert!(mover.join().unwrap() > 10);
    });
    let all = WRITERS as u64 * BATCHES;
    assert_eq!((log.durable_sequence(), newest.into_inner()), (all, all));
    assert_eq!(log.statistics().batches, all);
    drop(log);
    let (root, seen, replayed) = read(&disk).unwrap();
    assert_eq!(root.sequence + seen.len() as u64, all);
    assert_eq!(replayed.last_sequence, all);
}
