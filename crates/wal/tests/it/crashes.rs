//! Power failures while a log is made and mounted.

use crate::given::{IDENTITY, append, formatted, open, read, replay};
use parking_lot::Mutex;
use perdure_wal::testing::SimulatedDisk;
use perdure_wal::{End, LogError, UNIT_BYTES, format};
use std::sync::Arc;

/// All images that a power failure could leave at any event of `work`.
fn images_during(disk: &SimulatedDisk, work: impl FnOnce()) -> Vec<Vec<u8>> {
    let images = Arc::new(Mutex::new(Vec::new()));
    let collected = Arc::clone(&images);
    disk.set_hook(Some(Arc::new(move |disk: &SimulatedDisk, _| {
        disk.for_each_crash(&mut |_, image| collected.lock().push(image.to_vec()));
    })));
    work();
    disk.set_hook(None);
    std::mem::take(&mut images.lock())
}

#[test]
fn a_power_failure_during_a_mount_leaves_all_batches() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    for sequence in 1..=4 {
        append(&log, sequence, &[1; 3000]).unwrap();
    }
    drop(log);
    for mount in 1..4 {
        let images = images_during(&disk, || drop(replay(&disk)));
        assert!(images.len() > 10, "{}", images.len());
        for image in images {
            let (root, seen, _) = read(&Arc::new(SimulatedDisk::from_image(image))).unwrap();
            assert!((mount..=mount + 1).contains(&root.epoch), "{root:?}");
            assert_eq!(seen.len(), 4);
        }
    }
}

#[test]
fn a_power_failure_during_format_never_leaves_the_older_logs_batches() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    for sequence in 1..=4 {
        append(&log, sequence, &[1; 3000]).unwrap();
    }
    let images = images_during(&disk, || {
        format(&*disk, IDENTITY, 50, &mut |_, _| ()).unwrap()
    });
    let (mut old, mut none, mut new) = (0, 0, 0);
    for image in images {
        match read(&Arc::new(SimulatedDisk::from_image(image))) {
            Err(LogError::NoRoot { .. }) => none += 1,
            Ok((root, seen, _)) if root.sequence == 50 => {
                assert!(seen.is_empty());
                new += 1;
            }
            // The root before the newest one: a mount refuses it, because the ring has batches of a
            // later mount.
            Ok((_, seen, replayed)) => {
                assert!(seen.len() == 4 || matches!(replayed.why, End::LaterEpoch { .. }));
                old += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(old > 0 && none > 0 && new > 0, "{old} {none} {new}");
}

#[test]
fn a_batch_behind_a_torn_one_is_not_replayed_by_any_later_mount() {
    let disk = formatted(16);
    let (_, log) = replay(&disk);
    append(&log, 1, b"whole").unwrap();
    // Batch 2 is torn, batch 3 whole.
    disk.hold(true);
    let second = log.place(log.buffer(), 2, 2, false).unwrap();
    let third = log.place(log.buffer(), 3, 3, false).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| log.write(second));
        disk.wait_for_held(1);
        let third = scope.spawn(|| log.write(third));
        disk.wait_for_held(2);
        disk.release(1);
        assert_eq!(third.join().unwrap().unwrap(), 1, "batch 2 is not durable");
        disk.cut();
        assert!(second.join().unwrap().is_err());
    });
    let disk = Arc::new(SimulatedDisk::from_image(disk.image()));
    for mount in 0..3 {
        let (seen, log) = replay(&disk);
        assert_eq!(seen.len(), 1 + mount);
        // As long as the torn one: the next batch is where batch 3 was.
        append(&log, 2 + mount as u64, b"").unwrap();
        assert_eq!(read(&disk).unwrap().1.len(), 2 + mount);
    }
    let image = disk.image();
    assert!(image[2 * UNIT_BYTES..].iter().any(|&byte| byte != 0));
    assert!(open(&disk).is_ok());
}
